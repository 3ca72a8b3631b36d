"""Streams: cut anywhere, their client has what the one-shot derender gives."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, never, opened
from streaming import POLICY, chunk_of, every_cut, finish, joined_text, pieces_of, random_cuts, run_stream

from trio_render import Model, workspace_of
from trio_render.derender.chat import derender_chat
from trio_render.derender.completion import derender_completion
from trio_render.derender.detokenize import Seed, detokenize
from trio_render.derender.stream_text import next_text, text_start
from trio_render.model.token_table import DecoderRules, TokenTable
from trio_render.protocol.chat import ChatRequest
from trio_render.protocol.completion import CompletionRequest
from trio_render.protocol.derender import DerenderChatRequest, DerenderCompletionRequest
from trio_render.protocol.generate import GenerateChoice, GenerateResponse
from trio_render.protocol.logprobs import Candidate, GenerateLogprobs, TokenLogprob

KINDS = ("chat", "completion")
MODERATE = settings(deadline=None, max_examples=200)

# ------------------------------------------------------------ text, over a vocabulary made to break it

VALUES = [
    *(b"a", b" b", b" ", b"", "\u00e9".encode(), " \u20ac".encode(), b"<s>"),
    *(b"\xc3", b"\xa9", b"\xe2", b"\x82", b"\xac", b"\xe2\x82", b"\x82\xac", b" \xf0\x9f", b"\x91", b"\xa8"),
    *(b"\xf0", b"\xac\xe2", b"\xa8 \xe2\x82", b"a\xc3", b"\xa9b", b"\xff", b"\x80\x80", b"\xed\xa0", b"\xc0"),
    *(b"\xa8\xf0", b"\x91\xf0\x9f", b" \xac\xf0\x9f\x91", b"\xe2 \xe2"),
]
SPECIAL = 6


def table_of(fallback: bool, strips: bool) -> TokenTable:
    table = TokenTable([], DecoderRules(True, fallback, (), strips), frozenset({SPECIAL}), len(VALUES))
    table.byte_values[:] = VALUES
    table.longest = max(map(len, VALUES))
    return table


ids = st.lists(st.integers(0, len(VALUES) - 1), max_size=14)
tables = st.builds(table_of, st.booleans(), st.booleans())
seeds = st.builds(
    Seed, st.booleans(), st.sampled_from([b"", b"\xc3", b"\xe2", b"\xe2\x82", b"\xf0\x9f", b"\xf0\x9f\x91"])
)


@settings(deadline=None, max_examples=600)
@given(tables, ids, seeds, st.booleans(), st.data())
def test_text_of_pieces_is_text_of_all(
    table: TokenTable, token_ids: list[int], seed: Seed, skip: bool, data: st.DataObject
) -> None:
    """After every piece, as much is shown as of the same tokens at once, and the state is one that fits."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(token_ids)), max_size=8)))
    state, shown, n = text_start(table, seed), "", 0
    for piece in pieces_of(token_ids, cuts):
        text, state = next_text(table, state, piece, skip_special_tokens=skip)
        n += len(piece)
        shown += text
        assert shown == detokenize(table, token_ids[:n], skip_special_tokens=skip, seed=seed)
        assert state.fits(table)


def hard_ids(model: Model, rng: random.Random, n: int) -> list[int]:
    """Random tokens: mostly bytes and parts of characters, but special, added and padding ids as well."""
    table = model.tokenizer.table
    key = id(model)
    if key not in _PARTS:
        broken = [i for i, value in enumerate(table.byte_values) if not _is_text(value)]
        empty = [i for i, value in enumerate(table.byte_values) if not value][:50]
        _PARTS[key] = [broken, sorted(table.special_ids) + empty or broken]
    broken, odd = _PARTS[key]
    ids = []
    while len(ids) < n:
        match rng.randrange(6):
            case 0:
                ids.append(rng.randrange(model.vocab_size))
            case 1:
                ids.append(rng.choice(odd))
            case 2:
                ids += model.tokenizer.encode(rng.choice(HARD_TEXTS))
            case _:
                ids += rng.choices(broken, k=rng.randint(1, 4))
    return ids[:n]


_PARTS: dict[int, list[list[int]]] = {}
HARD_TEXTS = [
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    " \U0001f336\ufe0f hot",
    "\u010f\u00e1belsk\u00e9",
    "\u4eca\u5929 \u65e5\u672c\u8a9e",
    "\U0001f1e9\U0001f1ea",
    "e\u0301 \u0928\u092e\u0938\u094d\u0924\u0947",
    "  plain words,\n\tand  spaces ",
    "\ufffd real \ufffd",
]


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def one_shot(
    model: Model,
    kind: str,
    token_ids: list[int],
    request: dict[str, Any] | None = None,
    prompt_ids: list[int] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """The choice of a whole answer, as plain data; its text under ``text``."""
    response = GenerateResponse(
        request_id="r", choices=[GenerateChoice(index=0, token_ids=token_ids, **fields)]
    )
    if kind == "chat":
        chat = None if request is None else msgspec.convert({"messages": [], **request}, ChatRequest)
        body = DerenderChatRequest(generate_response=response, chat_request=chat, prompt_token_ids=prompt_ids)
        cache = workspace_of(model, POLICY).fragments
        answer: Any = derender_chat(model, POLICY, cache, body, never)
    else:
        asked = {"prompt": "x", **(request or {})}
        completion = None if request is None else msgspec.convert(asked, CompletionRequest)
        given = None if prompt_ids is None else [prompt_ids]
        both = DerenderCompletionRequest(
            generate_responses=[response], completion_request=completion, prompt_token_ids=given
        )
        answer = derender_completion(model, POLICY, both, never)
    (choice,) = msgspec.json.decode(msgspec.json.encode(answer))["choices"]
    result: dict[str, Any] = choice
    if kind == "chat":
        result["text"] = choice["message"]["content"]
    return result


def check_text(model: Model, rng: random.Random, n_tokens: int) -> None:
    """One random output, after a random prompt, cut at random places and at every one."""
    token_ids = hard_ids(model, rng, n_tokens)
    prompt = hard_ids(model, rng, rng.randint(1, 6)) if rng.random() < 0.5 else None
    kind, request = rng.choice(KINDS), {"skip_special_tokens": rng.random() < 0.5, "ignore_eos": True}
    wanted = one_shot(model, kind, token_ids, request, prompt, finish_reason="length")
    for cuts in (random_cuts(n_tokens, rng), range(1, n_tokens)):
        chunks = [chunk_of(piece) for piece in pieces_of(token_ids, list(cuts))]
        chunks.append(chunk_of([], finish_reason="length"))
        shown = run_stream(model, kind, chunks, request, prompt)
        assert joined_text(shown) == wanted["text"], (token_ids, prompt, list(cuts))
        assert finish(shown) == ("length", None)


@pytest.mark.parametrize("name", NAMES)
def test_random_tokens_in_any_pieces(model_folders: Path, name: str) -> None:
    model, rng = opened(model_folders / name), random.Random(name)
    for _ in range(150):
        check_text(model, rng, rng.randint(1, 24))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_random_tokens_in_any_pieces(model_folders: Path, name: str) -> None:
    model, rng = opened(model_folders / name), random.Random(f"{name} again")
    for n in range(2000):
        check_text(model, rng, rng.randint(1, 24))
        if n % 20 == 0:
            check_text(model, rng, 400)


# ------------------------------------------------------------ stop strings and stop tokens

STOPS = [
    "a",
    "ab",
    "b a",
    "ba",
    " ",
    "\U0001f468",
    "a\n",
    "aab",
    "\ufffd",
    "<|im_end|>",
    "ab aba b \U0001f468",
]


def check_stops(model: Model, words: list[int], rng: random.Random) -> None:
    n = rng.randint(1, 10)
    token_ids = rng.choices(words, k=n)
    if rng.random() < 0.3:
        token_ids.append(rng.choice(sorted(model.eos_ids)))
    request = {
        "stop": rng.sample(STOPS, rng.randint(0, 3)),
        "include_stop_str_in_output": rng.random() < 0.3,
        "min_tokens": rng.choice([0, 0, 1, 3, 6, 12]),
        "skip_special_tokens": rng.random() < 0.5,
        "stop_token_ids": rng.sample(words, rng.randint(0, 2)),
    }
    kind = rng.choice(KINDS)
    # Engines stop at a stop token, so none stands in the middle.
    ends = {*request["stop_token_ids"], *model.eos_ids}
    token_ids = [i for i in token_ids[:-1] if i not in ends] + token_ids[-1:]
    wanted = one_shot(model, kind, token_ids, request, finish_reason="stop")
    for _ in range(3):
        pieces = pieces_of(token_ids, random_cuts(len(token_ids), rng))
        chunks = [chunk_of(piece) for piece in pieces[:-1]]
        chunks.append(chunk_of(pieces[-1], finish_reason="stop"))
        if rng.random() < 0.3:
            chunks[-1:] = [chunk_of(pieces[-1]), chunk_of([], finish_reason="stop")]
        shown = run_stream(model, kind, chunks, request)
        case = (token_ids, pieces, request, kind)
        assert joined_text(shown) == wanted["text"], case
        assert finish(shown) == ("stop", wanted.get("stop_reason")), case


@pytest.mark.parametrize("name", NAMES)
def test_stops_in_any_pieces(model_folders: Path, name: str) -> None:
    model, rng = opened(model_folders / name), random.Random(name)
    words = model.tokenizer.encode("a ab aba b \U0001f468 aa bab \u4eca a\n<|im_end|> x\U0001f336\ufe0f")
    words = [i for i in words if i not in model.eos_ids]
    for _ in range(400):
        check_stops(model, words, rng)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("included", [False, True])
def test_nothing_is_shown_behind_a_stop_string(model_folders: Path, kind: str, included: bool) -> None:
    """The engine may learn late that it should have stopped."""
    model = opened(model_folders / "smollm2")
    token_ids = [504, 3575, 314, 7042, 30]  # "The capital is Paris."
    request = {"stop": ["is Par"], "include_stop_str_in_output": included, "return_token_ids": True}
    chunks = [*[chunk_of([i]) for i in token_ids], chunk_of([], finish_reason="length")]
    shown = run_stream(model, kind, chunks, request)
    assert joined_text(shown) == "The capital " + "is Par" * included
    assert finish(shown[:4]) == ("stop", "is Par")
    for choice in shown[4:]:
        assert choice in (
            {"index": 0, "delta": {}, "finish_reason": None},
            {"index": 0, "text": "", "finish_reason": None},
        )


def test_text_is_held_back_no_longer_than_it_may_become_a_stop(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    token_ids = [504, 3575, 314, 7042, 30]
    shown = run_stream(model, "completion", [chunk_of([i]) for i in token_ids], {"stop": [" is Lon", "s."]})
    assert [choice["text"] for choice in shown] == ["The", " capital", "", " is Pari", ""]
    shown = run_stream(model, "completion", [chunk_of([i]) for i in token_ids[:4]], {"stop": [" is Lon"]})
    assert [choice["text"] for choice in shown] == ["The", " capital", "", " is Paris"]


def test_the_engines_own_stop_string_counts_before_the_others(model_folders: Path) -> None:
    model = opened(model_folders / "smollm2")
    ends = chunk_of([7042, 30], finish_reason="stop", stop_reason="ris")
    shown = run_stream(model, "completion", [chunk_of([504, 3575, 314]), ends], {"stop": ["Pa", "ris"]})
    assert joined_text(shown) == "The capital is Pa"
    assert finish(shown) == ("stop", "ris")
    wanted = one_shot(
        model,
        "completion",
        [504, 3575, 314, 7042, 30],
        {"stop": ["Pa", "ris"]},
        finish_reason="stop",
        stop_reason="ris",
    )
    assert wanted["text"] == joined_text(shown)


# ------------------------------------------------------------ logprobs


def entries_of(model: Model, token_ids: list[int], rng: random.Random) -> list[TokenLogprob]:
    def candidate() -> Candidate:
        return Candidate(token_id=hard_ids(model, rng, 1)[0], logprob=-rng.random())

    return [
        TokenLogprob(token_id=i, logprob=-0.5, top_logprobs=[candidate() for _ in range(rng.randint(0, 3))])
        for i in token_ids
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_in_any_pieces(model_folders: Path, name: str, kind: str) -> None:
    """The same entries as at once, each in the chunk of its token, and offsets that go on."""
    model, rng = opened(model_folders / name), random.Random(name)
    for _ in range(60):
        token_ids = hard_ids(model, rng, rng.randint(1, 14))
        entries = entries_of(model, token_ids, rng)
        wanted = one_shot(model, kind, token_ids, logprobs=GenerateLogprobs(content=entries))["logprobs"]
        pieces = pieces_of(token_ids, random_cuts(len(token_ids), rng))
        rest = iter(entries)
        chunks = [chunk_of(p, GenerateLogprobs(content=[next(rest) for _ in p])) for p in pieces]
        shown = run_stream(model, kind, chunks)
        for key, values in wanted.items():
            parts = [choice["logprobs"][key] for choice in shown]
            assert [len(part) for part in parts] == [len(piece) for piece in pieces]
            assert [value for part in parts for value in part] == values


@pytest.mark.parametrize("name", NAMES)
def test_chunks_without_logprobs_keep_their_place(model_folders: Path, name: str) -> None:
    model, rng = opened(model_folders / name), random.Random(name)
    for _ in range(60):
        token_ids = hard_ids(model, rng, rng.randint(2, 14))
        entries = entries_of(model, token_ids, rng)
        whole = run_stream(model, "completion", [chunk_of(token_ids, GenerateLogprobs(content=entries))])
        cut = rng.randint(1, len(token_ids) - 1)
        last = chunk_of(token_ids[cut:], GenerateLogprobs(content=entries[cut:]))
        for first in ([chunk_of(token_ids[:cut])], [chunk_of([i]) for i in token_ids[:cut]]):
            shown = run_stream(model, "completion", [*first, last])[-1]["logprobs"]
            assert shown == {key: values[cut:] for key, values in whole[0]["logprobs"].items()}


# ------------------------------------------------------------ every way to cut


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"


@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_cut_a_family(model_folders: Path, name: str) -> None:
    model = opened(model_folders / name)
    token_ids = model.tokenizer.encode(FAMILY)[:11]
    wanted = one_shot(model, "chat", token_ids, finish_reason="length")["text"]
    for cuts in every_cut(len(token_ids)):
        shown = run_stream(model, "chat", [chunk_of(piece) for piece in pieces_of(token_ids, cuts)])
        assert joined_text(shown) == wanted
        assert "\ufffd" not in joined_text(shown)
