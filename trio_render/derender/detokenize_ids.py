"""``/detokenize``: ids -> text, special tokens shown."""

from __future__ import annotations

from ..errors import MalformedRequest
from ..model.loading import Model
from ..model.vocabulary import check_token_ids
from ..policy import Policy
from ..protocol.decoding import INT64_MAX
from ..protocol.tokenize import DetokenizeRequest, DetokenizeResponse
from .detokenize import detokenize

__all__ = ["detokenize_ids"]


def detokenize_ids(model: Model, policy: Policy, request: DetokenizeRequest) -> DetokenizeResponse:
    """Return the text of the ids; an unfinished character at the end shows as U+FFFD. No length limit.

    Raises:
        ModelNotFound: ``model`` is not served here.
        MalformedRequest: ids outside the vocabulary (``body.tokens``), or no 64-bit number.
    """
    policy.check_model(request.model)
    if request.tokens and max(request.tokens) > INT64_MAX:
        place = next(n for n, token_id in enumerate(request.tokens) if token_id > INT64_MAX)
        raise MalformedRequest("A token id must fit into 64 bits.", f"body.tokens.{place}")
    check_token_ids(model, request.tokens, "body.tokens")
    text = detokenize(model.tokenizer.table, request.tokens, skip_special_tokens=False, flush=True)
    return DetokenizeResponse(prompt=text)
