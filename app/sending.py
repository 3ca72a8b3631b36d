"""Send an answer without Quart, and leave its connection fit for the next request, or closed."""

from __future__ import annotations

import trio
from hypercorn.typing import ASGISendCallable

from .body import Received, ReceivedBody
from .errors import Answer

__all__ = ["give"]

_LINGER_S = 1.0
"""How long the rest of a body that is not read is waited for before its connection is closed."""


async def give(answer: Answer, received: Received, send: ASGISendCallable) -> None:
    """Send ``answer`` to a request; nothing where the client has hung up."""
    if await received.is_done():
        if not received.body.gone:
            await send(answer.head)
            await send({"type": "http.response.body", "body": answer.body, "more_body": False})
        return
    async with trio.open_nursery() as nursery:
        # hypercorn finishes no response while more of its request's body waits for us than it may keep.
        drained = trio.Event()
        nursery.start_soon(_drain, received.body, drained)
        await send(answer.closing().head)
        await send({"type": "http.response.body", "body": answer.body, "more_body": True})
        # Closed while the client still sends, the connection would be reset, and the answer lost.
        with trio.move_on_after(_LINGER_S):
            await drained.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        nursery.cancel_scope.cancel()


async def _drain(body: ReceivedBody, drained: trio.Event) -> None:
    async for _ in body:
        pass
    drained.set()
