"""Random field schemas, of everything that a mask holds."""

from typing import Any

from hypothesis import strategies as st

WORDS = st.text(alphabet='abcn"\\é😀 ', min_size=0, max_size=6)
GRAMMARS = [
    'start: start "+" atom | atom\natom: /[0-9]/+ | "(" start ")"',
    'start: "[" start "]" | /[a-zé😀]{1,40}/ " " ("none" | "fire" | "vehicle_proximity")',
    'start: (/[^"\\n]/~0..30 "\\n")~1..3 "fire"i',
    'start: "" | "a" start "b"',
]
NAME = {"enum": ["a", "bc"]}
RECURSIVE: dict[str, Any] = {
    "tree": {
        "type": "object",
        "properties": {"name": NAME, "left": {"$ref": "#/$defs/tree"}, "ok": {"type": "boolean"}},
        "required": ["name"],
    },
    "nest": {"type": "array", "items": {"$ref": "#/$defs/nest"}, "maxItems": 4},
    "sum": {
        "anyOf": [
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/sum"}, "b": {"$ref": "#/$defs/sum"}}}
            | {"required": ["a", "b"]},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/sum"}, "c": {"const": 1}}, "required": ["a"]},
            {"type": "object", "properties": {"a": {"enum": ["x", "yz"]}}, "required": ["a"]},
            {"type": "integer", "minimum": 0, "maximum": 120},
        ]
    },
    "both": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#/$defs/other"}, "minItems": 1}]}
    | {"maxItems": 3},
    "other": {"type": "object", "properties": {"name": NAME, "in": {"$ref": "#/$defs/both"}}, "required": ["in"]},
}
SCALARS = st.one_of(st.booleans(), st.none(), st.integers(-120, 120), WORDS)


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(0, 4))
    return {"type": "string", "minLength": low, "maxLength": low + draw(st.integers(0, 30))}


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(-1000, 1000))
    bounds = {"minimum": low, "maximum": low + draw(st.integers(0, 2000))}
    return {**draw(st.sampled_from([{"type": "integer"}, {"type": "number", "multipleOf": 0.25}])), **bounds}


def choices() -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(SCALARS, min_size=1, max_size=6, unique_by=repr).map(lambda values: {"enum": values})


def formal() -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(
        [
            {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"},
            {"type": "string", "pattern": "^(é|\\\\|a)*$", "maxLength": 5},
            {"type": "string", "format": "ipv4"},
            {"type": "string", "format": "uuid"},
        ]
    )


def scalars() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(strings(), numbers(), choices(), st.just({"type": "boolean"}), formal())


@st.composite
def objects(draw: st.DrawFn, parts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(["a", "ab", "b", "hazard", 'q"', "é"]), unique=True, max_size=4))
    required = [name for name in names if draw(st.booleans())]
    properties = {name: draw(parts) for name in names}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@st.composite
def arrays(draw: st.DrawFn, parts: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    low = draw(st.integers(0, 2))
    return {"type": "array", "items": draw(parts), "minItems": low, "maxItems": low + draw(st.integers(0, 3))}


def unions(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.lists(parts, min_size=2, max_size=3).map(lambda options: {"anyOf": options})


def fragments() -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(scalars(), lambda parts: objects(parts) | arrays(parts) | unions(parts), max_leaves=6)


def recursive() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas that hold themselves."""

    def build(names: list[str]) -> dict[str, Any]:
        properties = {name: {"$ref": f"#/$defs/{name}"} for name in names}
        return {"type": "object", "properties": properties, "required": names, "$defs": RECURSIVE}

    return st.lists(st.sampled_from(sorted(RECURSIVE)), min_size=1, max_size=2, unique=True).map(build)


def bare() -> st.SearchStrategy[dict[str, Any]]:
    labels = st.text(alphabet='ab"\\é😀', min_size=1, max_size=4)
    patterns = st.sampled_from(["[a-f]{2}(-[0-9]{1,3})?", "(é|ab){0,4}", "x|xy|xyz"])
    choices = st.lists(labels, min_size=1, max_size=6, unique=True).map(lambda found: {"choices": found})
    grammars = st.sampled_from(GRAMMARS).map(lambda text: {"lark": text})
    return choices | patterns.map(lambda pattern: {"regex": pattern}) | grammars


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas whose root is an object, now and then a union of objects, a list of labels or a regular expression."""
    roots = objects(fragments())
    both = st.lists(roots, min_size=2, max_size=2).map(lambda options: {"type": "object", "anyOf": options})
    return roots | both | bare() | recursive()
