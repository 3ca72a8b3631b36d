"""What a model says comes back, whatever its family, its tokenizer, and the cuts between its tokens."""

import codecs
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opened_models import NAMES, opened
from parsing.literals import value_of
from parsing.messages import Maker, Message
from parsing.reading import SETTINGS, Reading, read_streamed, read_whole
from parsing.test_junk import markers_of
from parsing.writers import FORMATS, Format, everything_marked

from trio_render import Model

MARKERS = everything_marked(SETTINGS.values(), markers_of)
MESSAGES_PER_FORMAT = 25
MESSAGES_PER_TOKENIZER = 4
METASPACE = "\u2581"
"""A space to SentencePiece, which gives it back as one."""


def message_of(form: Format, rng: random.Random, lost: str = "") -> Message:
    """A random message that the format can say, without a character that its tokenizer loses."""
    maker = Maker(rng, [marker for marker in MARKERS if not lost or lost not in marker])
    calls = maker.calls(form.avoid_in_values, of_one=not form.typed)
    content = maker.prose(form.avoid, form.first)
    reasons = form.reasoning is not None and rng.random() < 0.6
    reasoning = maker.prose(form.avoid) if reasons else ""
    if form.alone and calls:
        content = ""
    return Message(content, reasoning, calls)


def says(reading: Reading, message: Message) -> bool:
    """Whether a reading is the message. Arguments are compared as values."""
    calls = [(name, value_of(arguments)) for name, arguments in reading.calls]
    return (reading.content, reading.reasoning, calls) == (message.content, message.reasoning, message.calls)


def pieces_of(model: Model, text: str, rng: random.Random) -> Iterator[str]:
    """A text's tokens, decoded in runs of random lengths; characters over a cut come with the later run."""
    table = model.tokenizer.table
    ids = model.tokenizer.encode(text)
    decoder = codecs.getincrementaldecoder("utf-8")()
    longest = rng.choice([1, 3, 20])
    at = 0
    skip = 0 if b"".join(table.byte_values[i] for i in ids[:8]).startswith(text[:1].encode()) else 1
    while at < len(ids):
        count = rng.randint(1, longest)
        piece = decoder.decode(b"".join(table.byte_values[i] for i in ids[at : at + count]))
        yield piece[skip:]
        skip -= len(piece[:skip])
        at += count


def given_back(model: Model, text: str) -> str:
    """A text encoded and decoded."""
    byte_values = model.tokenizer.table.byte_values
    return b"".join(byte_values[i] for i in model.tokenizer.encode(text)).decode()


def check(form: Format, rng: random.Random, model: Model | None = None) -> None:
    """Write a message, read it, and compare."""
    lost = METASPACE if model is not None and METASPACE not in given_back(model, METASPACE) else ""
    message = message_of(form, rng, lost)
    setting = form.setting(message)
    output = form.output(message, rng)
    if lost and lost in output:
        return
    pieces = [output] if model is None else list(pieces_of(model, output, rng))
    assert "".join(pieces) == output, "the tokenizer gives the text back"
    assert says(read_whole(setting, output), message), (output, read_whole(setting, output), message)
    streamed = read_streamed(setting, pieces)
    assert says(streamed, message), (output, streamed, message)


@pytest.mark.parametrize("name", FORMATS)
def test_a_message_comes_back(name: str) -> None:
    """Seeded messages of every format, whole."""
    rng = random.Random(name)
    for _ in range(MESSAGES_PER_FORMAT):
        check(FORMATS[name], rng)


@pytest.mark.parametrize("folder", NAMES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_message_comes_back_through_tokens(name: str, folder: str, model_folders: Path) -> None:
    """Cut between tokens, of which a character may need several."""
    rng = random.Random(name + folder)
    for _ in range(MESSAGES_PER_TOKENIZER):
        check(FORMATS[name], rng, opened(model_folders / folder))


@pytest.mark.slow
@pytest.mark.parametrize("folder", NAMES)
@pytest.mark.parametrize("name", FORMATS)
def test_many_messages_come_back_through_tokens(name: str, folder: str, model_folders: Path) -> None:
    """As above, with messages that hypothesis chooses the seeds of."""
    model = opened(model_folders / folder)

    @settings(max_examples=30, deadline=None)
    @given(seed=st.integers(0, 2**64))
    def holds(seed: int) -> None:
        check(FORMATS[name], random.Random(seed), model)

    holds()
