"""The POST endpoints without sockets, threads or an event loop: the workers' jobs, called directly.

`InProcessServer.send` takes a request's bytes and returns status and body, as the served app would. Only
what the app itself adds (body limits, timeouts, content types) is missing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app import errors as app_errors
from trio_render import Model, Policy, RenderError, workspace_of
from trio_render.derender import wire as derender_wire
from trio_render.render import wire as render_wire
from trio_render.render.prompt_embeds import check_prompt_embeds, token_ids_only

Checkpoint = Callable[[], None]

CHAT_RENDER = "/v1/chat/completions/render"
COMPLETION_RENDER = "/v1/completions/render"
CHAT_DERENDER = "/v1/chat/completions/derender"
COMPLETION_DERENDER = "/v1/completions/derender"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"


def never_cancelled() -> None:
    """The checkpoint of a job whose caller stays."""


@dataclass(frozen=True)
class Reply:
    """A status and a JSON body; ``raw`` is the body's bytes."""

    status: int
    raw: bytes

    @property
    def body(self) -> Any:
        """The body, parsed strictly: NaN, Infinity and invalid UTF-8 are errors."""
        return json.loads(self.raw.decode("utf-8"), parse_constant=_refuse_constant)

    @property
    def error(self) -> dict[str, Any]:
        """The error object of a reply that is one."""
        assert self.status >= 400, f"status {self.status}: {self.raw[:300]!r}"
        error: dict[str, Any] = self.body["error"]
        return error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} in a JSON body")


class InProcessServer:
    """Answers requests for one open model. Safe to use from many threads, as its jobs are."""

    def __init__(self, model: Model, policy: Policy | None = None) -> None:
        self.model = model
        self.policy = policy or Policy(served_names=("m",))
        self._workspace = workspace_of(model, self.policy)

    def post(self, path: str, body: Any, checkpoint: Checkpoint = never_cancelled) -> Reply:
        """Send ``body`` as JSON; ``bytes`` are sent as they are."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send("POST", path, {"Content-Type": "application/json"}, payload, checkpoint)

    def ok(self, path: str, body: Any) -> Any:
        """Send ``body``, require status 200, and return the parsed answer."""
        reply = self.post(path, body)
        assert reply.status == 200, f"status {reply.status}: {reply.raw[:600]!r}"
        return reply.body

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        checkpoint: Checkpoint = never_cancelled,
    ) -> Reply:
        """Answer one request. What is no `RenderError` would be a 500, and passes through."""
        assert method == "POST", "only POST endpoints run jobs"
        try:
            return Reply(200, self._job(path, headers, body, checkpoint))
        except RenderError as error:
            for class_, status, type_ in app_errors._TABLE:
                if isinstance(error, class_):
                    return Reply(status, app_errors.error_body(status, type_, error.message, error.param))
            raise

    def _job(self, path: str, headers: Mapping[str, str], body: bytes, checkpoint: Checkpoint) -> bytes:
        workspace = self._workspace
        request_id = headers.get("X-Request-Id")
        match path:
            case "/v1/chat/completions/render":
                return render_wire.chat_json(workspace, checkpoint, [body], request_id)
            case "/v1/completions/render":
                start = render_wire.completion_start(workspace, checkpoint, [body], request_id)
                for text in start.embeds:
                    check_prompt_embeds(workspace, checkpoint, (), text)
                if start.embeds:
                    raise token_ids_only()
                rest = [render_wire.completion_json(workspace, checkpoint, (), plan) for plan in start.left]
                return b"[" + b",".join([start.done, *rest]) + b"]"
            case "/v1/chat/completions/derender":
                return derender_wire.chat_json(workspace, checkpoint, [body])
            case "/v1/completions/derender":
                return derender_wire.completion_json(workspace, checkpoint, [body])
            case "/tokenize":
                return render_wire.tokenize_json(workspace, checkpoint, [body])
            case "/detokenize":
                return derender_wire.detokenize_json(workspace, checkpoint, [body])
        raise LookupError(f"no job answers {path}")
