"""What can go wrong, named for its cause. Nothing here knows HTTP; the app maps these to statuses."""

from __future__ import annotations

__all__ = [
    "DeadlineExceeded",
    "EngineError",
    "InvalidRequest",
    "MalformedRequest",
    "ModelLoadError",
    "ModelNotFound",
    "Overloaded",
    "RenderError",
    "WorkerDied",
]


class RenderError(Exception):
    """Base of every error that this library raises on purpose.

    ``message`` is meant for the client: it names the parameter, sizes and limits, never a payload.
    ``param`` is the parameter at fault as a dotted path, or ``None``.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param)
        self.message = message
        self.param = param

    def __str__(self) -> str:
        return self.message


class InvalidRequest(RenderError):
    """The request is well formed, and asks for something that can't be: a value out of range, say."""


class MalformedRequest(InvalidRequest):
    """The body is not of the wire form: not JSON, a wrong type, a missing field.

    ``param`` starts with ``body``, as in ``body.messages`` or ``body.stop_token_ids.0``.
    """


class ModelNotFound(RenderError):
    """The request names a model that this renderer doesn't serve."""


class ModelLoadError(RenderError):
    """The model can't be opened: no such directory, or a tokenizer of an unsupported kind."""


class Overloaded(RenderError):
    """The queue before a limiter is full. ``retry_after`` is a hint in seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.args = (message, retry_after)
        self.retry_after = retry_after


class DeadlineExceeded(RenderError):
    """The request's deadline passed before its work was done."""


class WorkerDied(RenderError):
    """A worker process ended in the middle of a job, and so did the one that tried it again."""


class EngineError(RenderError):
    """The engine behind the front end failed or answered nonsense."""
