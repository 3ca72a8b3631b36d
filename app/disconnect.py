"""Where hypercorn's and Quart-Trio's ideas of the end of a response don't fit together.

hypercorn sends ``http.disconnect`` from inside the app's own last ``send``; Quart-Trio answers it by
cancelling the request, and with it the rest of that ``send``, which would have re-armed the keep-alive
timer or closed the connection. So a finished response would leave its connection open for ever.
"""

from __future__ import annotations

import trio
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    ASGISendEvent,
    Scope,
)

__all__ = ["FinishBeforeDisconnect"]


class FinishBeforeDisconnect:
    """ASGI middleware: a disconnect that only says that the response is complete is not passed on."""

    def __init__(self, app: ASGIFramework) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        finishing = False

        async def receive_unless_finishing() -> ASGIReceiveEvent:
            event = await receive()
            if finishing and event["type"] == "http.disconnect":
                await trio.sleep_forever()
            return event

        async def send_and_note(event: ASGISendEvent) -> None:
            nonlocal finishing
            if event["type"] == "http.response.body" and not event.get("more_body"):
                finishing = True
            await send(event)

        await self._app(scope, receive_unless_finishing, send_and_note)
