"""Payloads that lie, are broken, or want something run: 400 for each, at once, and nothing allocated."""

import resource
import time
from contextlib import suppress
from pathlib import Path

import pytest
from embeds_payloads import FORMS, HIDDEN, base64_of, numbers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from malformed_embeds import FILES, MARKER, TEXTS
from opened_models import never, opened

from trio_render import InvalidRequest, Model
from trio_render.render.prompt_embeds import read_prompt_embeds

MIB = 1024 * 1024

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def model(model_folders: Path) -> Model:
    """Hidden size 64, bfloat16, context 8192."""
    return opened(model_folders / "smollm2")


def check_refused(model: Model, text: str) -> None:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidRequest) as caught:
        read_prompt_embeds(model, text, never)
    assert type(caught.value) is InvalidRequest
    assert caught.value.param == "prompt_embeds"
    assert len(caught.value.message) < 100
    assert time.perf_counter() - began < 2
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 2 * len(text) + 32 * MIB


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused(
    model: Model, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(model, base64_of(FILES[name]()))
    assert not (tmp_path / MARKER).exists(), "code of the payload ran"


@pytest.mark.parametrize("name", TEXTS)
def test_a_bad_text_is_refused(model: Model, name: str) -> None:
    check_refused(model, TEXTS[name])
    pieces = [piece.encode() for piece in (TEXTS[name][:5], TEXTS[name][5:])]
    with pytest.raises(InvalidRequest):
        read_prompt_embeds(model, pieces, never)


def test_there_are_many() -> None:
    assert len(FILES) + len(TEXTS) >= 180


# ------------------------------------------------------------ any bytes

VALID = [form(numbers(2, HIDDEN)) for form in FORMS.values()]
VALID += [form(numbers(2, HIDDEN).to_sparse()) for name, form in FORMS.items() if name != "safetensors"]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A valid file with bytes changed, cut out, doubled, or moved; mostly in front of the numbers."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        end = start + draw(st.integers(1, 8))
        match draw(st.sampled_from(["change", "cut", "double", "insert"])):
            case "change":
                data[start:end] = draw(st.binary(min_size=end - start, max_size=end - start))
            case "cut":
                del data[start:end]
            case "double":
                data[start:start] = data[start:end]
            case _:
                data[start:start] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=mutations())
def test_any_change_gives_a_tensor_or_a_refusal(model: Model, data: bytes) -> None:
    with suppress(InvalidRequest):
        tensor = read_prompt_embeds(model, base64_of(data), never)
        assert tensor.shape[1] == HIDDEN
        assert bool(tensor.isfinite().all())


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(max_size=50) | st.binary(max_size=200).map(base64_of))
def test_any_text_is_refused(model: Model, text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_prompt_embeds(model, text, never)
