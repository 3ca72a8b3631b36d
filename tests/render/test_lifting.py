"""A body without its long embeddings decodes to what the whole body decodes to."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import never

from trio_render.render.embeds import lifting
from trio_render.render.embeds.lifting import Lifted, lift_embeds

WORKSPACE: Any = None
LONG = "QUJD" * 10
SHORT = "QQ=="


@pytest.fixture(autouse=True, scope="module")
def small_texts_are_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lifting, "LIFT_FROM_BYTES", len(LONG))
        patch.setattr(lifting, "_SMALL_PIECE", len(lifting._KEY))
        patch.setattr(lifting, "_WINDOW", 11)
        yield


def chunks(body: bytes, size: int) -> list[bytes]:
    return [body[n : n + size] for n in range(0, len(body), size)]


def lifted(body: bytes, size: int) -> Lifted | None:
    pieces = chunks(body, size)
    found = lift_embeds(WORKSPACE, never, pieces)
    viewed = lift_embeds(WORKSPACE, never, [memoryview(piece) for piece in pieces])
    assert (found is None) == (viewed is None)
    if found is not None and viewed is not None:
        assert (b"".join(found.body), list(map(joined, found.texts))) == (
            b"".join(viewed.body).replace(viewed.mark.encode(), found.mark.encode()),
            list(map(joined, viewed.texts)),
        )
    return found


def embeds_of(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else value


def joined(text: str | list[memoryview]) -> str:
    return text if isinstance(text, str) else b"".join(text).decode()


SPACES = st.text(" \t\r\n", max_size=3)
OTHERS = st.dictionaries(
    st.text(max_size=5) | st.sampled_from(["prompt_embeds ", "prompt", '"prompt_embeds"']),
    st.text(max_size=20) | st.integers() | st.lists(st.text(max_size=3), max_size=3) | st.just(LONG),
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(
    before=OTHERS,
    after=OTHERS,
    embeds=st.sampled_from([LONG, SHORT])
    | st.lists(st.sampled_from([LONG, SHORT, "", LONG * 2]), max_size=4),
    space=SPACES,
    size=st.integers(1, 300),
)
def test_lifted_texts_can_be_put_back(
    before: dict[str, Any], after: dict[str, Any], embeds: Any, space: str, size: int
) -> None:
    text = json.dumps({**before, "prompt_embeds": embeds, **after})
    text = text.replace('"prompt_embeds":', f'"prompt_embeds"{space}:{space}').replace(
        '", "', f'"{space},{space}"'
    )
    whole = json.loads(text)
    result = lifted(text.encode(), size)
    if result is None:
        assert not any(len(one) >= len(LONG) for one in embeds_of(embeds))
        return
    rest = json.loads(b"".join(result.body))
    texts = result.put_back(embeds_of(rest.pop("prompt_embeds")))
    assert texts is not None
    assert [joined(one) for one in texts] == embeds_of(whole.pop("prompt_embeds"))
    assert rest == whole


@pytest.mark.parametrize("size", [1, 3, 15, 16, 40, 1000])
def test_only_what_is_long_is_lifted(size: int) -> None:
    assert lifted(json.dumps({"prompt_embeds": SHORT, "prompt": LONG}).encode(), size) is None
    result = lifted(json.dumps({"prompt": LONG, "prompt_embeds": [SHORT, LONG]}).encode(), size)
    assert result is not None
    assert [b"".join(text).decode() for text in result.texts] == [LONG]
    assert LONG.encode() in b"".join(result.body)


BODIES = {
    "an escape in the text": f'{{"prompt_embeds": "{LONG}\\/"}}',
    "an escaped quotation mark": f'{{"prompt_embeds": "{LONG}\\"{LONG}"}}',
    "no end": f'{{"prompt_embeds": "{LONG}',
    "no value": '{"prompt_embeds"',
    "a number": '{"prompt_embeds": 5, "prompt": "x"}',
    "an object": f'{{"prompt_embeds": {{"a": "{LONG}"}}}}',
    "a list of lists": f'{{"prompt_embeds": [["{LONG}"]]}}',
    "much white space": f'{{"prompt_embeds": {" " * 5000}"{LONG}"}}',
    "too many": json.dumps({"prompt_embeds": [LONG] * 1025}),
    "the name escaped": f'{{"prompt\\u005fembeds": "{LONG}"}}',
    "nothing": "",
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("size", [1, 20, 100_000])
def test_other_bodies_are_left_whole(name: str, size: int) -> None:
    assert lifted(BODIES[name].encode(), size) is None


@pytest.mark.parametrize(
    "body",
    [
        {"vllm_xargs": {"prompt_embeds": LONG}, "prompt": "x"},
        {"vllm_xargs": {"prompt_embeds": LONG}, "prompt_embeds": SHORT},
        {"vllm_xargs": {"prompt_embeds": LONG}, "prompt_embeds": LONG},
        {'"prompt_embeds': LONG, "prompt_embeds": SHORT},
    ],
)
def test_a_text_of_another_place_is_noticed(body: dict[str, Any]) -> None:
    result = lifted(json.dumps(body).encode(), 50)
    assert result is not None
    rest = json.loads(b"".join(result.body))
    assert result.put_back(embeds_of(rest.get("prompt_embeds") or [])) is None


def test_a_name_that_comes_twice_is_noticed() -> None:
    result = lifted(f'{{"prompt_embeds": "{LONG}", "prompt_embeds": "{LONG}"}}'.encode(), 50)
    assert result is not None
    assert result.put_back([json.loads(b"".join(result.body))["prompt_embeds"]]) is None


def test_marks_can_not_be_guessed() -> None:
    body = json.dumps({"prompt_embeds": LONG}).encode()
    first, second = lifted(body, 50), lifted(body, 50)
    assert first is not None
    assert second is not None
    assert first.mark != second.mark
    assert len(first.mark) > 32
