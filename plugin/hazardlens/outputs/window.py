"""A window on the screen that shows the board."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import cv2

from hazardlens.errors import InputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.board import Board

_TITLE = "hazardlens"
_EVERY_S = 0.05
_QUIT = (ord("q"), 27)
_HELP = "Use --serve PORT, and look at http://127.0.0.1:PORT."


class Window(Output):
    """Shows the board, twenty times a second at most; `q`, Escape or closing it ends the run.

    Used by the program's main thread.

    Args:
        board: What is shown; it gets its records by itself.
        on_quit: Called once when the user has had enough.

    Raises:
        InputError: If there is no screen.
    """

    def __init__(self, board: Board, on_quit: Callable[[], None]) -> None:
        if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            raise InputError("--show: there is no screen", help=_HELP)  # Qt would end the program
        try:
            cv2.namedWindow(_TITLE, cv2.WINDOW_NORMAL)
        except cv2.error as error:
            raise InputError("--show: this OpenCV has no windows", help=_HELP) from error
        self._board = board
        self._on_quit = on_quit
        self._shown_s = 0.0
        self._closed = False

    def write(self, outcome: Outcome) -> None:
        """Show the board, unless it was shown just before."""
        if self._closed or time.monotonic() - self._shown_s < _EVERY_S:
            return
        self._shown_s = time.monotonic()
        cv2.imshow(_TITLE, self._board.paint())
        key = cv2.waitKey(1) & 0xFF
        if key in _QUIT or cv2.getWindowProperty(_TITLE, cv2.WND_PROP_VISIBLE) < 1:
            self._closed = True
            self._on_quit()

    def close(self, *, complete: bool) -> None:
        """Close the window."""
        self._closed = True
        cv2.destroyAllWindows()
