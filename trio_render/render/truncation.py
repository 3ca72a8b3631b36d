"""Which tokens of a prompt are kept. Slices ids; never a tokenizer's setter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeVar

from ..errors import InvalidRequest
from ..model.loading import Model
from ..protocol.sampling import SamplingFields

__all__ = ["Truncation"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keep at most ``max_tokens``, from the right end unless ``keep_start``. ``None``: keep all."""

    max_tokens: int | None
    keep_start: bool

    @classmethod
    def of(cls, request: SamplingFields, model: Model) -> Self:
        """Read ``truncate_prompt_tokens`` and ``truncation_side``.

        -1 stands for the longest prompt that leaves room for one token. The side defaults to left, for
        every tokenizer (the reference).

        Raises:
            InvalidRequest: 0, below -1, or more than the context.
        """
        wanted = request.truncate_prompt_tokens
        if wanted is None:
            return cls(None, False)
        if wanted == -1:
            wanted = model.max_model_len - 1
        elif not 1 <= wanted <= model.max_model_len:
            raise InvalidRequest(
                f"truncate_prompt_tokens must be -1, or 1 to {model.max_model_len}, not {wanted}.",
                "truncate_prompt_tokens",
            )
        return cls(wanted, request.truncation_side == "right")

    def keep(self, items: list[T], reserved: int = 0) -> list[T]:
        """Return the kept part of ``items``, with ``reserved`` places left for special tokens."""
        if self.max_tokens is None:
            return items
        room = max(self.max_tokens - reserved, 0)
        if len(items) <= room:
            return items
        return items[:room] if self.keep_start else items[len(items) - room :]
