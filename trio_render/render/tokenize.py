"""``/tokenize``: a text or a chat -> ids. Not limited by the context length."""

from __future__ import annotations

from collections.abc import Callable

from ..model.loading import Model
from ..policy import Policy
from ..protocol.tokenize import (
    TokenizeChatRequest,
    TokenizeRequest,
    TokenizeResponse,
)
from .chat import chat_text

__all__ = ["tokenize"]


def tokenize(
    model: Model,
    policy: Policy,
    request: TokenizeRequest | TokenizeChatRequest,
    checkpoint: Callable[[], None],
) -> TokenizeResponse:
    """Return the ids of a text, or of a chat as its render endpoint would encode it.

    Raises:
        ModelNotFound: ``model`` is not served here.
        InvalidRequest: as `chat_text` does.
    """
    policy.check_model(request.model)
    if isinstance(request, TokenizeRequest):
        text, special = request.prompt, request.add_special_tokens is not False
    else:
        text = chat_text(model, policy, request, checkpoint).text
        special = bool(request.add_special_tokens)
    before, after = model.tokenizer.special_affixes(special)
    ids = model.tokenizer.encode(text)
    ids[:0] = before
    ids += after
    return TokenizeResponse(
        count=len(ids),
        max_model_len=model.max_model_len,
        tokens=ids,
        token_strs=list(map(model.tokenizer.piece, ids)) if request.return_token_strs else None,
    )
