"""What tokens show in logprobs: their own text, or the character that they complete."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_models import never, opened

from trio_render import InvalidRequest, MalformedRequest, Model
from trio_render.derender.logprobs import Place, chat_logprobs, completion_logprobs
from trio_render.derender.prompt_logprobs import resolved_prompt_logprobs
from trio_render.derender.token_text import HELD_BYTES, token_text
from trio_render.model.fragments import FragmentCache
from trio_render.protocol.logprobs import Candidate, TokenLogprob

EMOJI = "\U0001fae8"  # two or more tokens in every test vocabulary


@pytest.fixture
def model(model_folders: Path) -> Model:
    return opened(model_folders / "smollm2")


TOKENS = st.one_of(
    st.integers(0, 600),
    st.integers(0, 49_151),
    st.sampled_from(["word", "\u00e9", "", "token_id:7", "token_id:x"]),
)
VALUES = st.one_of(st.none(), st.floats(-100, 0), st.integers(-3, 0))
PLACES = st.lists(st.tuples(TOKENS, VALUES, st.lists(st.tuples(TOKENS, VALUES), max_size=5)), max_size=80)


def fields(token: int | str, logprob: float | None) -> dict[str, Any]:
    return {"token_id" if isinstance(token, int) else "token": token, "logprob": logprob}


def places(ids: list[int], *candidates: tuple[int, float | None]) -> list[TokenLogprob]:
    top = [Candidate(token_id=i, logprob=logprob) for i, logprob in candidates]
    return [TokenLogprob(token_id=i, logprob=-0.5, top_logprobs=top) for i in ids]


def chat(model: Model, content: list[TokenLogprob], n: int | None = None) -> list[dict[str, Any]]:
    raw = chat_logprobs(model, FragmentCache(model.tokenizer.table), content, n, never)
    entries: list[dict[str, Any]] = json.loads(bytes(raw))["content"]
    return entries


def completion(
    model: Model, content: list[TokenLogprob], n: int | None = None, first: int = 0
) -> dict[str, Any]:
    lists: dict[str, Any] = json.loads(
        bytes(completion_logprobs(model, content, n, never, Place(model, offset=first)))
    )
    return lists


def test_the_token_that_completes_a_character_shows_it(model: Model) -> None:
    ids = model.tokenizer.encode("a" + EMOJI + "b")
    assert len(ids) > 3
    texts = [entry["token"] for entry in chat(model, places(ids))]
    assert texts == ["a", *[""] * (len(ids) - 3), EMOJI, "b"]
    assert completion(model, places(ids))["tokens"] == texts


def test_candidates_are_read_after_the_tokens_sampled_before(model: Model) -> None:
    ids = model.tokenizer.encode(EMOJI)
    whole = chat(model, places(ids, (ids[-1], -1.0)))
    assert [entry["top_logprobs"][0]["token"] for entry in whole][-1] == EMOJI
    other = model.tokenizer.encode("x")[0]
    assert {entry["top_logprobs"][0]["token"] for entry in chat(model, places(ids, (other, -1.0)))} == {"x"}


def test_a_broken_character_is_not_held_for_ever(model: Model) -> None:
    first = model.tokenizer.encode(EMOJI)[0]
    table = model.tokenizer.table
    held = b""
    for _ in range(500):
        _, held = token_text(table, first, held)
        assert len(held) <= HELD_BYTES
    assert token_text(table, model.tokenizer.encode("a")[0], held) == ("a", b"")


@given(PLACES, st.sampled_from([None, 0, 2]))
def test_many_places_at_once_are_what_each_is_by_itself(
    model_folders: Path, shown: list[tuple[int | str, float | None, Any]], n: int | None
) -> None:
    """Entries are written in passes over many places: parts of characters and texts among them, or not."""
    model = opened(model_folders / "smollm2")
    content = [
        TokenLogprob(**fields(token, value), top_logprobs=[Candidate(**fields(*other)) for other in others])
        for token, value, others in shown
    ]
    place = Place(model)

    def alone(entry: TokenLogprob | Candidate) -> dict[str, Any]:
        text = place.text(entry)
        return {"token": text, "bytes": list(text.encode()), "logprob": entry.logprob}

    wanted = []
    for entry in content:
        wanted.append({**alone(entry), "top_logprobs": [alone(other) for other in entry.top_logprobs[:n]]})
        place.advance(entry)
    assert chat(model, content, n) == wanted


@pytest.mark.parametrize(("n", "shown"), [(None, 3), (0, 0), (2, 2), (9, 3)])
def test_candidates_are_cut_to_the_number_asked_for(model: Model, n: int | None, shown: int) -> None:
    content = places([5], (6, -1.0), (7, -2.0), (8, None))
    assert len(chat(model, content, n)[0]["top_logprobs"]) == shown
    # A completion shows the sampled token beside them.
    top = completion(model, content, n)["top_logprobs"][0] or {}
    assert len(top) == min(3, 3 if n is None else n + 1)


def test_of_candidates_with_one_text_the_likeliest_stays(model: Model) -> None:
    a = model.tokenizer.encode("a")[0]
    content = [
        TokenLogprob(
            token_id=a,
            logprob=-1.0,
            top_logprobs=[
                Candidate(token="a", logprob=-3.0),
                Candidate(token_id=a, logprob=-1.0),
                Candidate(token="a", logprob=None),
            ],
        )
    ]
    assert completion(model, content)["top_logprobs"] == [{"a": -1.0}]


def test_offsets_count_characters_from_where_they_start(model: Model) -> None:
    ids = model.tokenizer.encode("a " + EMOJI)
    assert completion(model, places(ids), first=10)["text_offset"][:2] == [10, 11]


def test_placeholders_of_older_hosts_are_ids(model: Model) -> None:
    a = model.tokenizer.encode("a")[0]
    content = [TokenLogprob(token=f"token_id:{a}", logprob=-1.0)]
    assert chat(model, content)[0]["token"] == "a"


@pytest.mark.parametrize(
    "token", ["token_id:", "token_id:x", "token_id:-1", "token_id:²", "token_id:1.0", "token_id"]
)
def test_what_only_looks_like_a_placeholder_is_a_text(model: Model, token: str) -> None:
    assert chat(model, [TokenLogprob(token=token, logprob=-1.0)])[0]["token"] == token


@pytest.mark.parametrize("token_id", [-1, 49152, 10**30])
def test_ids_outside_the_vocabulary_are_refused(model: Model, token_id: int) -> None:
    for content in (places([token_id]), places([5], (token_id, -1.0))):
        with pytest.raises(InvalidRequest):
            chat(model, content)
        with pytest.raises(InvalidRequest):
            completion(model, content)


def test_an_entry_needs_an_id_or_a_text(model: Model) -> None:
    with pytest.raises(MalformedRequest):
        chat(model, [TokenLogprob(logprob=-1.0)])


def test_nothing_is_an_empty_answer(model: Model) -> None:
    assert chat(model, []) == []
    assert completion(model, []) == {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }


# ------------------------------------------------------------ of the prompt


def test_missing_texts_of_prompt_logprobs_are_filled_in(model: Model) -> None:
    a = str(model.tokenizer.encode("a")[0])
    given = [None, {a: {"logprob": -1.0, "decoded_token": None}, "6": {"decoded_token": "kept", "rank": 2}}]
    assert resolved_prompt_logprobs(model, given, never) == [
        None,
        {a: {"logprob": -1.0, "decoded_token": "a"}, "6": {"decoded_token": "kept", "rank": 2}},
    ]
    assert resolved_prompt_logprobs(model, None, never) is None
    assert given[1] is not None
    assert given[1][a]["decoded_token"] is None


@pytest.mark.parametrize("key", ["x", "-1", "49152", "²", "", "9" * 30])
def test_keys_of_prompt_logprobs_are_ids(model: Model, key: str) -> None:
    with pytest.raises(InvalidRequest):
        resolved_prompt_logprobs(model, [{key: {}}], never)
