"""What hangs in a model's callbacks: it keeps its place, hears of each call, and never breaks the model's loop."""

from __future__ import annotations

import weakref
from collections.abc import Callable, MutableMapping
from typing import Any

from hazardlens.callback.core import Core
from hazardlens.callback.run import Memory, Run
from hazardlens.callback.stamps import Clock

START, BATCH, RESULTS = "on_predict_start", "on_predict_batch_start", "on_predict_postprocess_end"

Callbacks = MutableMapping[str, list[Callable[[Any], None]]]
"""A model's callbacks by event, which it shares with its predictors."""


class Session:
    """Follows the calls of one model; lives as long as any of its callbacks does.

    Args:
        core: Asks and makes records; it retires when the session is gone.
        wait: Whether asked frames wait for their answers, or None for the default of the source.
        clock: Gives times where a source has none.
    """

    def __init__(self, core: Core, *, wait: bool | None, clock: Clock) -> None:
        self.core = core
        self._wait = wait
        self._clock = clock
        self._memory = Memory(core, clock)
        # By predictor, for a model makes a new one where a setting asks for it, while an older one may be half-way.
        self._runs: weakref.WeakKeyDictionary[Any, Run] = weakref.WeakKeyDictionary()
        weakref.finalize(self, core.retire)

    def hear(self, event: str, predictor: Any) -> None:
        """Take part in an event; whatever goes wrong is counted, and the model goes on without."""
        if self.core.retired:
            return
        try:
            self._hear(event, predictor)
        except Exception as error:  # noqa: BLE001 - becomes a log line and a count
            self.core.failed(error, event)

    def _hear(self, event: str, predictor: Any) -> None:
        if event == START:
            self._runs.pop(predictor, None)
            self._runs[predictor] = Run(self.core, predictor, wait=self._wait, memory=self._memory, clock=self._clock)
        elif event == BATCH:
            self._come_last(predictor.callbacks[RESULTS])
        elif predictor in self._runs:
            self._runs[predictor].take(predictor)

    def _come_last(self, callbacks: list[Callable[[Any], None]]) -> None:
        """Move the plugin behind the tracker, which `track` registers when it is called, and behind the user's own."""
        own = next((one for one in callbacks if isinstance(one, Hook) and one.session is self), None)
        if own is not None and callbacks[-1] is not own:
            callbacks.remove(own)
            callbacks.append(own)


class Hook:
    """One callback of a model. A copy of the model is not attached: the copy of a hook does nothing.

    Args:
        event: The event that it hears of.
        session: Whom it tells, or None.
    """

    def __init__(self, event: str, session: Session | None) -> None:
        self.event = event
        self.session = session

    def __call__(self, predictor: Any) -> None:
        """Take part in the event."""
        if self.session is not None:
            self.session.hear(self.event, predictor)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        return Hook(self.event, None)

    def __reduce__(self) -> tuple[type[Hook], tuple[str, None]]:
        return Hook, (self.event, None)


def hang(callbacks: Callbacks, session: Session) -> None:
    """Hang a session into a model's callbacks."""
    for event in (START, BATCH, RESULTS):
        callbacks[event].append(Hook(event, session))


def take_down(callbacks: Callbacks, core: Core | None = None) -> list[Core]:
    """Take out of a model's callbacks what tells `core`, or whatever hangs there; gives the cores that were told."""
    cores: list[Core] = []
    for event in (START, BATCH, RESULTS):
        told = [one.session.core for one in callbacks[event] if isinstance(one, Hook) and one.session is not None]
        cores += [one for one in told if one not in cores and core in (None, one)]
        # A new list, for the one before may be gone through at this moment.
        callbacks[event] = [one for one in callbacks[event] if not _tells(one, cores)]
    return cores


def _tells(callback: Callable[[Any], None], cores: list[Core]) -> bool:
    return isinstance(callback, Hook) and callback.session is not None and callback.session.core in cores
