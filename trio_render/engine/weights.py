"""A causal language model's weights, loaded with transformers."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ..errors import EngineError, ModelLoadError
from ..model.loading import weights_of

if TYPE_CHECKING:
    import torch

__all__ = ["Weights", "cpu_threads", "load_weights", "weights_from"]


@final
@dataclass(frozen=True, slots=True)
class Weights:
    """Loaded weights. Never changed, so that many threads may generate with them.

    Attributes:
        model: a transformers model with ``generate``; its own defaults for sampling are taken off.
        vocab_size: rows of its embedding; prompt ids are below it.
        hidden_size: width of its embedding.
        cache_name: what this version of transformers calls the key-value cache in ``forward``.
    """

    model: Any
    vocab_size: int
    hidden_size: int
    cache_name: str

    @property
    def device(self) -> torch.device:
        """Where prompts go."""
        device: torch.device = self.model.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """What prompt embeddings are cast to."""
        dtype: torch.dtype = self.model.dtype
        return dtype


def load_weights(source: str, device: str | None, dtype: torch.dtype | None) -> Weights:
    """Load a model for inference. Blocks for seconds, or longer where a hub has it.

    Args:
        source: as for `open_model`.
        device: torch's name of it; by default a GPU if there is one.
        dtype: by default bfloat16 on a GPU and float32 elsewhere.

    Raises:
        EngineError: there are no weights at ``source``, or transformers can't use them.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        found = weights_of(source)
    except ModelLoadError as error:
        raise EngineError(error.message) from error
    if found is None:
        raise EngineError(f"{source} has a tokenizer, but no weights.")
    path, gguf_file = found
    extra = {} if gguf_file is None else {"gguf_file": gguf_file}
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if dtype is None:
        dtype = torch.float32 if device == "cpu" else torch.bfloat16
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **extra)
        model = model.to(device)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        raise EngineError(f"The weights of {source!r} can't be loaded: {error}") from error
    return weights_from(model)


def weights_from(model: Any) -> Weights:
    """Make a loaded transformers model ready to generate.

    Raises:
        EngineError: it keeps more than a key-value cache, so that a prompt can't be read in parts.
    """
    from transformers import GenerationConfig

    if getattr(model, "_is_stateful", False) or model.config.is_encoder_decoder:
        raise EngineError(f"Models of type {model.config.model_type!r} are not supported.")
    # What a request asks for is all there is: nothing is to come in from the model's own defaults.
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    model.eval().requires_grad_(False)
    parameters = inspect.signature(model.forward).parameters
    vocab_size, hidden_size = model.get_input_embeddings().weight.shape
    return Weights(model, vocab_size, hidden_size, "cache" if "cache" in parameters else "past_key_values")


def cpu_threads() -> int:
    """Return how many threads a step is worth: half the cores that this process may use.

    The event loop and rendering have the others. Threads that wait for each other at every operation suffer
    from any other work: on two cores, two of them generate no faster than one, and often half as fast.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores // 2, 1)
