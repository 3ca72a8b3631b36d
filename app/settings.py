"""One frozen object with everything that can be set, checked once."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from trio_render import Limits, Policy
from trio_render.model.loading import weights_of
from trio_render.model.tokenizer import SEGMENT_CACHE_BYTES
from trio_render.parsing.selection import REASONING_PARSERS, TOOL_CALL_PARSERS

__all__ = ["Settings", "SettingsError"]

_MAX_MESSAGE = 4 * 1024 * 1024
_MIN_KEY_CHARS = 16
_KEY_BYTES = 32


class SettingsError(ValueError):
    """A setting is out of range. The message names its command-line option."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one server process. Each has a command-line option and an environment variable.

    Attributes:
        model: a directory, a ``.gguf`` file, a hub id, or ``demo``.
        port: 0 takes a free one; the ready line says which.
        served_model_names: names that requests may use; empty: ``model``.
        max_model_len: context length in tokens; ``None``: the model's.
        chat_template: a template's file or text instead of the model's own.
        segment_cache: bytes that encoded segments of prompts may take, for the next turn; 0: none.
        workers: server processes on the one socket; limits are per process.
        offload: where CPU work goes: ``auto``, ``thread``, ``process`` or ``inline``.
        processes: worker processes (with the model in each) of ``offload="process"``, and a warm spare.
        limit_render, limit_derender, limit_prompt_embeds, limit_engine: jobs at a time, by kind of work.
        limit_shared: one limit for all kinds instead of theirs.
        limit_gil: jobs at a time that keep the GIL, of any kind.
        queue_limit: jobs of a kind that may wait; more are refused at once.
        request_timeout_s: longest a request may take, waiting included; clients may ask for less.
        write_timeout_s: longest a client may take to read the next 64 KiB of an answer.
        debug_loop_stalls_ms: report turns of the event loop that are busy for longer; 0: don't look.
        reasoning_parser, tool_call_parser: families that outputs are parsed for, or ``auto``; ``None``: not.
        enable_auto_tool_choice: accept ``tool_choice="auto"``, the default of requests with tools.
        enable_prompt_embeds: accept ``prompt_embeds``; needs PyTorch.
        max_body: largest request body in bytes; ``None``: see ``largest_body``.
        body_timeout_s: longest a request body may take to arrive.
        stream_state_key: a secret text that authenticates what clients of streams carry; server processes
            and replicas share it. ``None``: such states are checked, but could be forged.
        graceful_timeout_s: longest that running requests are waited for at shutdown.
        engine: what generates behind ``/v1/completions`` and its like: ``transformers``, in this process;
            ``http``, at ``upstream``; ``none``; ``auto``, ``transformers`` where the model has weights.
        upstream: URL of a server with ``/inference/v1/generate``.
        log_level: of the server's own log on stderr.
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    max_model_len: int | None = None
    chat_template: str | None = None
    trust_request_chat_template: bool = False
    max_logprobs: int = 20
    reasoning_parser: str | None = None
    tool_call_parser: str | None = None
    enable_auto_tool_choice: bool = False
    enable_prompt_embeds: bool = False
    segment_cache: int = SEGMENT_CACHE_BYTES
    workers: int = 1
    offload: Literal["auto", "thread", "process", "inline"] = "auto"
    processes: int = 2
    limit_render: int = 2
    limit_derender: int = 2
    limit_prompt_embeds: int = 2
    limit_engine: int = 1
    limit_shared: int | None = None
    limit_gil: int = 1
    queue_limit: int = 1000
    request_timeout_s: float = 60.0
    write_timeout_s: float = 30.0
    debug_loop_stalls_ms: float = 0.0
    max_body: int | None = None
    body_timeout_s: float = 30.0
    graceful_timeout_s: float = 20.0
    stream_state_key: str | None = field(default=None, repr=False)
    engine: Literal["auto", "none", "http", "transformers"] = "auto"
    upstream: str | None = None
    log_level: str = "info"

    def __post_init__(self) -> None:
        _require(bool(self.model), "--model", "must not be empty")
        _require(all(self.served_model_names), "--served-model-name", "must not be empty")
        _require(0 <= self.port < 65536, "--port", "must be 0 to 65535")
        _require(
            self.max_model_len is None or self.max_model_len >= 1, "--max-model-len", "must be at least 1"
        )
        _require(self.max_logprobs >= -1, "--max-logprobs", "must be at least -1")
        for name in ("render", "derender", "prompt_embeds", "engine", "gil"):
            option = f"--limit-{name.replace('_', '-')}"
            _require(getattr(self, f"limit_{name}") >= 1, option, "must be at least 1")
        _require(self.limit_shared is None or self.limit_shared >= 1, "--limit-shared", "must be at least 1")
        for name, known in (
            ("reasoning_parser", REASONING_PARSERS),
            ("tool_call_parser", TOOL_CALL_PARSERS),
        ):
            option = f"--{name.replace('_', '-')}"
            value = getattr(self, name)
            _require(value in (None, "auto", *known), option, f"must be auto or one of {', '.join(known)}")
        _require(
            self.tool_call_parser is not None or not self.enable_auto_tool_choice,
            "--enable-auto-tool-choice",
            "needs --tool-call-parser",
        )
        _require(self.segment_cache >= 0, "--segment-cache", "must be at least 0")
        _require(self.workers >= 1, "--workers", "must be at least 1")
        _require(self.processes >= 1, "--processes", "must be at least 1")
        _require(self.queue_limit >= 0, "--queue-limit", "must be at least 0")
        _require(self.request_timeout_s > 0, "--request-timeout", "must be above 0")
        _require(self.write_timeout_s > 0, "--write-timeout", "must be above 0")
        _require(self.debug_loop_stalls_ms >= 0, "--debug-loop-stalls", "must be at least 0")
        _require(self.max_body is None or self.max_body >= 1, "--max-body", "must be at least 1")
        _require(self.body_timeout_s > 0, "--body-timeout", "must be above 0")
        _require(self.graceful_timeout_s >= 0, "--graceful-timeout", "must be at least 0")
        key = self.stream_state_key
        _require(
            key is None or (len(key) >= _MIN_KEY_CHARS and key.isprintable()),
            "--stream-state-key",
            f"must have at least {_MIN_KEY_CHARS} characters, all printable",
        )
        _require(self.engine in ("auto", "none", "http", "transformers"), "--engine", "is none that exists")
        is_http = self.engine == "http"
        _require(is_http == (self.upstream is not None), "--upstream", "goes with --engine http")
        url = self.upstream
        _require(
            url is None or url.startswith(("http://", "https://")), "--upstream", "must be an http(s) URL"
        )

    @property
    def chosen_engine(self) -> Literal["none", "http", "transformers"]:
        """``engine``, where ``auto`` has been looked into.

        Raises:
            ModelLoadError: the demo model is not installed.
        """
        if self.engine != "auto":
            return self.engine
        return "none" if weights_of(self.model) is None else "transformers"

    @property
    def max_message(self) -> int:
        """Largest message of a WebSocket in bytes."""
        return min(self.largest_body, _MAX_MESSAGE)

    @property
    def largest_body(self) -> int:
        """``max_body``, or where that isn't set enough: embeddings of 8192 x 4096 take 90 MB in bfloat16."""
        if self.max_body is not None:
            return self.max_body
        return (256 if self.enable_prompt_embeds else 64) * 1024 * 1024

    @property
    def limits(self) -> Limits:
        """New limiters as these settings say."""
        return Limits(
            render=self.limit_render,
            derender=self.limit_derender,
            prompt_embeds=self.limit_prompt_embeds,
            engine=self.limit_engine,
            shared=self.limit_shared,
            gil=self.limit_gil,
        )

    @property
    def policy(self) -> Policy:
        """What of these settings the library's own bounds and switches are."""
        return Policy(
            served_names=self.served_model_names or (self.model,),
            trust_request_chat_template=self.trust_request_chat_template,
            max_logprobs=self.max_logprobs,
            reasoning_parser=self.reasoning_parser,
            tool_call_parser=self.tool_call_parser,
            enable_auto_tool_choice=self.enable_auto_tool_choice,
            stream_state_key=b"" if self.stream_state_key is None else _key_bytes(self.stream_state_key),
            enable_prompt_embeds=self.enable_prompt_embeds,
        )


def _key_bytes(secret: str) -> bytes:
    return blake2b(secret.encode(), digest_size=_KEY_BYTES).digest()


def _require(holds: bool, option: str, what: str) -> None:
    if not holds:
        raise SettingsError(f"{option} {what}.")
