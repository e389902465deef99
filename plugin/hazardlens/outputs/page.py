"""One page on loopback: the moving picture, the last alerts, the state. Needs the extra `serve`."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from hazardlens.alerts.ring import jpeg
from hazardlens.errors import InputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.board import Board

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise InputError("--serve needs packages that are not installed", help='pip install "hazardlens[serve]"') from error

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_EVERY_S = 0.1
_BOUNDARY = "frame"
_STARTS_S = 10.0

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>hazardlens</title>
<style>
body { margin: 0; font: 14px system-ui, sans-serif; background: #1e1e1e; color: #ddd }
img { display: block; max-width: 100% }
main { padding: 0 12px }
li.ended { opacity: .6 }
li.still, li.offline, li.reconnecting { color: #f66; font-weight: bold }
#lost { position: sticky; top: 0; padding: 12px; background: #c00; color: #fff; font-weight: bold }
.old img, .old main { opacity: .25 }
</style></head><body>
<div id="lost" role="alert" hidden></div>
<img id="picture" src="/picture" alt="All sources, with boxes and verdicts">
<main><h2>Last alerts</h2><ul id="alerts"></ul><h2>State</h2><ul id="state"></ul></main>
<script>
const fill = (id, lines) => document.getElementById(id).replaceChildren(...lines.map(([text, kind]) => {
  const item = document.createElement("li"); item.textContent = text; item.className = kind; return item }));
const lost = document.getElementById("lost");
let contact = new Date();
function lose() {
  const since = contact.toTimeString().slice(0, 8);
  lost.textContent = `No contact with hazardlens since ${since}. What is shown is old.`;
  lost.hidden = false; document.body.className = "old";
}
function regain() {
  contact = new Date();
  if (lost.hidden) return;
  lost.hidden = true; document.body.className = "";
  document.getElementById("picture").src = "/picture?" + contact.getTime();
}
async function look() {
  try {
    const answer = await fetch("/state", {signal: AbortSignal.timeout(4000), cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    const told = await answer.json();
    regain();
    fill("alerts", told.alerts.map(one =>
      [`${one.at ?? one.time_s + " s"}  ${one.source}: ${one.rule} ${one.state} - ${one.why}`, one.state]));
    const still = told.status.standing_still;
    fill("state", (still ? [[`STANDS STILL: ${still.stage}, for ${still.seconds} s`, "still"]] : [])
      .concat(Object.entries(told.status.sources).map(([name, one]) =>
      [`${name}: ${one.state}${one.reason ? ` (${one.reason})` : ""}, ` +
        `${one.frames_detected} frames, ${one.frames_dropped} dropped`, one.state]))
      .concat(told.status.vlm ? [[`VLM ${told.status.vlm.model}: ${told.status.vlm.state}`, ""]] : []));
  } catch { lose() }
  setTimeout(look, 2000);
}
look();
</script></body></html>
"""


class Page(Output):
    """Serves the board to browsers of this machine.

    Args:
        board: What is shown; it gets its records by itself.
        port: Port on 127.0.0.1; 0 for a free one.
        state: Gives the status of the run.

    Attributes:
        address: Where it is.

    Raises:
        InputError: If the port cannot be used.
    """

    def __init__(self, board: Board, port: int, state: Callable[[], dict[str, Any]]) -> None:
        self._board = board
        self._state = state
        self._over = threading.Event()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen()  # whoever comes before the server runs waits for it
        except OSError as error:
            self._socket.close()
            raise InputError(f"--serve {port}: {error.strerror}", help="Give another port.") from error
        self.address = f"http://{HOST}:{self._socket.getsockname()[1]}"
        app = Starlette(
            routes=[Route("/", self._page), Route("/picture", self._picture), Route("/state", self._told)],
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])],
        )
        config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="hazardlens-page", daemon=True)
        self._thread.start()

    def write(self, outcome: Outcome) -> None:
        """Nothing: the board has it, and it is painted for whoever looks."""

    def close(self, *, complete: bool) -> None:
        """End the server; whoever looks is let go."""
        self._over.set()
        self._server.should_exit = True
        self._thread.join(_STARTS_S if complete else 1.0)
        self._socket.close()

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the run goes on without its page
            _log.warning("%s: %s: %s", self.address, type(error).__name__, error)

    async def _page(self, request: Request) -> Response:
        return HTMLResponse(_PAGE)

    async def _told(self, request: Request) -> Response:
        text = json.dumps({"alerts": self._board.alerts, "status": self._state()}, ensure_ascii=False)
        return Response(text, media_type="application/json")

    async def _picture(self, request: Request) -> Response:
        kind = f"multipart/x-mixed-replace; boundary={_BOUNDARY}"
        return StreamingResponse(self._pictures(), media_type=kind, headers={"Cache-Control": "no-store"})

    async def _pictures(self) -> AsyncIterator[bytes]:
        while not self._over.is_set():
            data = await asyncio.to_thread(self._jpeg)
            yield f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n".encode()
            yield data + b"\r\n"
            await asyncio.sleep(_EVERY_S)

    def _jpeg(self) -> bytes:
        return jpeg(self._board.paint())
