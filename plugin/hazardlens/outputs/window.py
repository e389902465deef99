"""A window on the screen that shows the board."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

import cv2

from hazardlens.errors import InputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.board import Board

_log = logging.getLogger(__name__)

_TITLE = "hazardlens"
_EVERY_S = 0.1
_OPENS_S = 10.0
_CLOSES_S = 1.0
_QUIT = (ord("q"), 27)
_HELP = "Use --serve PORT, and look at http://127.0.0.1:PORT."


class Window(Output):
    """Shows the board, ten times a second at most; `q`, Escape or closing it ends the run.

    It is painted in a thread of its own, so that the age of a picture goes on growing while the run stands still.

    Args:
        board: What is shown; it gets its records by itself.
        on_quit: Called once, in that thread, when the user has had enough.

    Raises:
        InputError: If there is no screen.
    """

    def __init__(self, board: Board, on_quit: Callable[[], object]) -> None:
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise InputError("--show: there is no screen", help=_HELP)  # Qt would end the program
        self._board = board
        self._on_quit = on_quit
        self._over = threading.Event()
        opened: queue.SimpleQueue[cv2.error | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, args=(opened,), name="hazardlens-window", daemon=True)
        self._thread.start()
        try:
            error = opened.get(timeout=_OPENS_S)
        except queue.Empty:
            raise InputError("--show: the screen does not answer", help=_HELP) from None
        if error is not None:
            raise InputError("--show: this OpenCV has no windows", help=_HELP) from error

    def write(self, outcome: Outcome) -> None:
        """Nothing: the board has it, and is shown at the window's own pace."""

    def close(self, *, complete: bool) -> None:
        """Close the window."""
        self._over.set()
        self._thread.join(_CLOSES_S)

    def _work(self, opened: queue.SimpleQueue[cv2.error | None]) -> None:
        """All calls to OpenCV's windows, which must come from one thread."""
        try:
            cv2.namedWindow(_TITLE, cv2.WINDOW_NORMAL)
        except cv2.error as error:
            opened.put(error)
            return
        opened.put(None)
        try:
            while self._show():
                if self._over.wait(_EVERY_S):
                    return
            self._on_quit()
        except Exception as error:  # noqa: BLE001 - the run goes on without its window
            _log.warning("--show: the window is gone: %s: %s", type(error).__name__, error)
        finally:
            cv2.destroyAllWindows()

    def _show(self) -> bool:
        """Paint once; whether the user wants more."""
        cv2.imshow(_TITLE, self._board.paint())
        key = cv2.waitKey(1) & 0xFF
        return bool(key not in _QUIT and cv2.getWindowProperty(_TITLE, cv2.WND_PROP_VISIBLE) >= 1)
