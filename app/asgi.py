"""Quart-Trio's connections, with fewer turns of the event loop, and an end that hypercorn can finish.

hypercorn sends ``http.disconnect`` from inside the app's own last ``send``; Quart-Trio answers it by
cancelling the request, and with it the rest of that ``send``, which would have re-armed the keep-alive
timer or closed the connection. So a finished response would leave its connection open for ever.
"""

from __future__ import annotations

from typing import Any

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from quart import Request, Response
from quart.signals import websocket_received, websocket_sent
from quart.typing import ResponseTypes
from quart.utils import encode_headers
from quart.wrappers.response import DataBody
from quart_trio.asgi import TrioASGIHTTPConnection, TrioASGIWebsocketConnection
from quart_trio.wrappers import TrioWebsocket

from .sse import EventStream

__all__ = ["HTTPConnection", "LeanWebsocket", "WebsocketConnection"]


class HTTPConnection(TrioASGIHTTPConnection):
    """One request: what comes in, beside the handler and the sending of its response."""

    _finishing = False

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        request = self._create_request_from_scope(send)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._receive_until_gone, nursery.cancel_scope, request, receive)
            response = await self.app.handle_request(request)
            await self._send_response(send, response)
            nursery.cancel_scope.cancel()

    async def _receive_until_gone(
        self, scope: trio.CancelScope, request: Request, receive: ASGIReceiveCallable
    ) -> None:
        while True:
            event = await receive()
            if event["type"] == "http.request":
                request.body.append(event["body"])
                if not event["more_body"]:
                    request.body.set_complete()
            elif event["type"] == "http.disconnect":
                # It may only say that the response is complete.
                if not self._finishing:
                    scope.cancel()
                return

    async def _send_response(self, send: ASGISendCallable, response: ResponseTypes) -> None:
        if isinstance(response, EventStream):
            await response.send_to(send, self._note_the_end)
            return
        body = response.response
        if isinstance(response, Response) and type(body) is DataBody:
            await self._send_start(send, response)
            self._note_the_end()
            data = body.data[body.begin : body.end]
            await send({"type": "http.response.body", "body": data, "more_body": False})
            return
        await super()._send_response(self._noting_the_end(send), response)

    def _note_the_end(self) -> None:
        self._finishing = True

    async def _send_start(self, send: ASGISendCallable, response: Response) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": encode_headers(response.headers),
            }
        )

    def _noting_the_end(self, send: ASGISendCallable) -> ASGISendCallable:
        async def send_and_note(event: ASGISendEvent) -> None:
            if event["type"] == "http.response.body" and not event.get("more_body"):
                self._note_the_end()
            await send(event)

        return send_and_note


class LeanWebsocket(TrioWebsocket):
    """A WebSocket that is accepted once, and not anew with each message. A message of nothing is ``None``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.receive = self._receive  # type: ignore[method-assign]
        self.send = self._send  # type: ignore[method-assign]


class WebsocketConnection(TrioASGIWebsocketConnection):
    """One WebSocket. Signals are sent where somebody listens, which costs each message otherwise."""

    async def handle_messages(  # type: ignore[override]
        self, nursery: trio.Nursery, receive: ASGIReceiveCallable
    ) -> None:
        """Hand messages on until the client is gone."""
        if websocket_received.receivers:
            await super().handle_messages(nursery, receive)
            return
        hand_on = self.send_channel.send
        while True:
            event = await receive()
            if event["type"] == "websocket.receive":
                # None for a message of nothing.
                await hand_on(event.get("bytes") or event["text"])  # type: ignore[arg-type]
            elif event["type"] == "websocket.disconnect":
                nursery.cancel_scope.cancel()
                return

    async def send_data(self, send: ASGISendCallable, data: str | bytes) -> None:
        """Send a message."""
        if websocket_sent.receivers:
            await super().send_data(send, data)
        elif isinstance(data, str):
            await send({"type": "websocket.send", "bytes": None, "text": data})
        else:
            await send({"type": "websocket.send", "bytes": data, "text": None})
