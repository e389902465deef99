"""Documents that go in circles, written with references again, so that every reader can take them."""

from __future__ import annotations

from typing import Any

from hazardlens.schema.resolve import mapped, subschemas


def referenced(document: dict[str, Any]) -> dict[str, Any]:
    """`document` as it is where it has no circles, else a copy that refers back by `$ref` into `$defs`."""
    again = _met_again(document)
    if not again:
        return document
    names = {number: f"again{place}" for place, number in enumerate(again)}
    defs: dict[str, Any] = {}
    root = _Copier(names, defs).copy(document)
    return {**root, "$defs": defs}


class _Copier:
    def __init__(self, names: dict[int, str], defs: dict[str, Any]) -> None:
        self._names = names
        self._defs = defs
        self._done: dict[int, Any] = {}

    def copy(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        name = self._names.get(id(node))
        if name is None:
            if id(node) not in self._done:
                self._done[id(node)] = mapped(node, self.copy)
            return self._done[id(node)]
        if name not in self._defs:
            self._defs[name] = {}
            self._defs[name].update(mapped(node, self.copy))
        return {"$ref": f"#/$defs/{name}"}


def _met_again(document: dict[str, Any]) -> dict[int, None]:
    """The `id()` of each subschema that is met again inside itself."""
    found: dict[int, None] = {}
    known: dict[int, bool] = {id(document): False}
    work = [(document, iter(subschemas(document)))]
    while work:
        node, following = work[-1]
        part = next(following, None)
        if part is None:
            known[id(node)] = True
            work.pop()
        elif id(part) not in known:
            known[id(part)] = False
            work.append((part, iter(subschemas(part))))
        elif not known[id(part)]:
            found[id(part)] = None
    return found
