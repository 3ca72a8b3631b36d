"""Server-sent events, read as their bytes come in. Does no I/O.

Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import re
from typing import final

from ..errors import EngineError

__all__ = ["EVENT_LIMIT_BYTES", "EventReader"]

EVENT_LIMIT_BYTES = 16 * 1024 * 1024
"""The default bound of one event, data and everything else."""

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@final
class EventReader:
    """Makes events of a stream that may be cut anywhere. Its work is linear in the stream's length.

    Only the data of events counts: their types and ids are not looked at, comments neither. What follows
    the last empty line of a stream is no event.
    """

    def __init__(self, limit_bytes: int = EVENT_LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._n_bytes = 0
        self._ended_in_cr = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end in ``chunk``, without those that have none.

        Raises:
            EngineError: an event is larger than the bound.
        """
        if not chunk:
            return []
        if self._ended_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]  # The other half of a line end.
            self._ended_in_cr = False
            if not chunk:
                return []
        self._ended_in_cr = chunk.endswith(b"\r")
        *ends, rest = _LINE_END.split(chunk)
        events: list[bytes] = []
        for end in ends:
            self._grow(end)
            self._end_line(events)
        self._grow(rest)
        return events

    def _grow(self, part: bytes) -> None:
        self._n_bytes += len(part)
        if self._n_bytes > self._limit:
            raise EngineError(f"An event of the engine's answer is larger than {self._limit} bytes.")
        self._line += part

    def _end_line(self, events: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            data = b"\n".join(self._data)
            if data:
                events.append(data)
            self._data.clear()
            self._n_bytes = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
