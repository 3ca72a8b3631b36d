"""Every form of embeddings that is accepted gives the numbers that were saved, in the model's dtype."""

import gc
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import embeds_payloads as payloads
import pytest
import torch
from embeds_payloads import FLOATS, FORMS, HIDDEN, base64_of, coo, numbers
from opened_models import never, opened
from torch import Tensor

from trio_render import InvalidRequest, Model
from trio_render.render.prompt_embeds import read_prompt_embeds


@pytest.fixture(scope="module")
def model(model_folders: Path) -> Model:
    """Hidden size 64, bfloat16, context 8192."""
    return opened(model_folders / "smollm2")


def read(model: Model, data: bytes) -> Tensor:
    tensor = read_prompt_embeds(model, base64_of(data), never)
    assert tensor.is_contiguous()
    assert tensor.layout == torch.strided
    assert tensor.device.type == "cpu"
    assert str(tensor.dtype) == f"torch.{model.dtype}"
    return tensor


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32"])
def test_every_form_and_dtype_is_cast_to_the_models(
    model: Model, form: str, dtype: torch.dtype, target: str
) -> None:
    saved = numbers(7, HIDDEN, dtype=dtype)
    tensor = read(replace(model, dtype=target), FORMS[form](saved))
    assert torch.equal(tensor, saved.to(getattr(torch, target)))


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "a batch of one": lambda tensor: tensor[None],
    "transposed": lambda tensor: tensor.t().contiguous().t(),
    "a slice from the middle": lambda tensor: torch.cat([tensor, tensor, tensor])[7:14],
    "every other row": lambda tensor: tensor.repeat_interleave(2, 0)[::2],
    "some columns": lambda tensor: torch.cat([tensor, tensor], 1)[:, :HIDDEN],
    "a parameter": torch.nn.Parameter,
    "sparse": lambda tensor: tensor.to_sparse(),
    "sparse in rows": lambda tensor: tensor.to_sparse(1),
    "a sparse batch of one": lambda tensor: tensor[None].to_sparse(),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("form", ["zip", "legacy"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_view_is_read_as_torch_would(model: Model, form: str, view: str, dtype: torch.dtype) -> None:
    saved = numbers(7, HIDDEN, dtype=dtype)
    assert torch.equal(read(model, FORMS[form](VIEWS[view](saved))), saved.to(torch.bfloat16))


def test_values_at_one_place_of_a_sparse_tensor_are_added(model: Model) -> None:
    saved = coo([[0, 2, 0], [1, 5, 1]], [1.0, 2.0, 3.0], (3, HIDDEN))
    tensor = read(model, payloads.zip_file(saved))
    assert (tensor[0, 1], tensor[2, 5], tensor.sum()) == (4, 2, 6)


def test_a_sparse_tensor_without_values_is_zero(model: Model) -> None:
    saved = coo(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0), (3, HIDDEN))
    assert torch.equal(read(model, payloads.zip_file(saved)), torch.zeros(3, HIDDEN, dtype=torch.bfloat16))


@pytest.mark.parametrize("rows", [1, 8191])
@pytest.mark.parametrize("form", FORMS)
def test_rows_up_to_the_context_less_one(model: Model, rows: int, form: str) -> None:
    saved = numbers(rows, HIDDEN, dtype=torch.bfloat16)
    assert torch.equal(read(model, FORMS[form](saved)), saved)


def test_storages_that_are_not_aligned(model: Model) -> None:
    """A header of an odd length puts the numbers at odd addresses."""
    saved = numbers(3, HIDDEN)
    for padding in range(8):
        header = {"__metadata__": {"a": "x" * padding}, "t": payloads.entry()}
        data = payloads.safetensors_of(header, saved.numpy().tobytes())
        assert torch.equal(read(model, data), saved.to(torch.bfloat16))


def test_a_text_may_come_in_pieces_of_any_length(model: Model) -> None:
    saved = numbers(5000, HIDDEN)
    text = base64_of(payloads.safetensors_file(saved)).encode()
    for size in (1, 7, 65_536, 300_001, len(text)):
        if size == 1 and len(text) > 100_000:
            pieces = [text[n : n + 1] for n in range(1000)] + [text[1000:]]
        else:
            pieces = [text[n : n + size] for n in range(0, len(text), size)]
        assert torch.equal(read_prompt_embeds(model, pieces, never), saved.to(torch.bfloat16))


def test_a_slice_does_not_keep_what_it_was_cut_from(model: Model) -> None:
    whole = torch.ones(8000, HIDDEN, dtype=torch.bfloat16)
    tensor = read(model, payloads.zip_file(whole[:3]))
    assert tensor.shape == (3, HIDDEN)
    assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_a_tensor_lives_longer_than_its_payload(model: Model) -> None:
    saved = numbers(4000, HIDDEN, dtype=torch.bfloat16)
    tensor = read(model, payloads.safetensors_file(saved))
    gc.collect()
    assert torch.equal(tensor, saved)
    tensor += 1


def test_a_tensor_saved_on_another_device(model: Model) -> None:
    data = payloads.zip_of().replace(b"\x03\x00\x00\x00cpu", b"\x03\x00\x00\x00xpu")
    assert torch.equal(read(model, data), torch.ones(3, HIDDEN, dtype=torch.bfloat16))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 4000 * HIDDEN // 2 + 3, 4000 * HIDDEN - 1])
def test_one_number_that_is_not_finite_is_found(
    model: Model, dtype: torch.dtype, value: float, place: int
) -> None:
    saved = torch.ones(4000, HIDDEN, dtype=dtype)
    saved.view(-1)[place] = value
    for form in FORMS.values():
        with pytest.raises(InvalidRequest, match="finite"):
            read(model, form(saved))


def test_a_number_too_large_for_the_models_dtype_is_not_finite(model: Model) -> None:
    saved = torch.full((2, HIDDEN), 1e6)
    assert torch.equal(read(model, payloads.zip_file(saved)), saved.to(torch.bfloat16))
    with pytest.raises(InvalidRequest, match="finite"):
        read(replace(model, dtype="float16"), payloads.zip_file(saved))


def test_the_largest_numbers_are_finite(model: Model) -> None:
    saved = torch.full((4000, HIDDEN), torch.finfo(torch.bfloat16).max, dtype=torch.bfloat16)
    assert torch.equal(read(model, payloads.zip_file(saved)), saved)


def test_reading_meets_checkpoints(model: Model) -> None:
    class Gone(BaseException):
        pass

    left = 3

    def checkpoint() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Gone

    text = base64_of(payloads.zip_file(numbers(8000, HIDDEN)))
    with pytest.raises(Gone):
        read_prompt_embeds(model, text, checkpoint)


def test_nothing_global_is_switched(model: Model) -> None:
    saved = payloads.zip_file(coo([[0], [1]], [1.0], (3, HIDDEN)))
    before = torch.sparse.check_sparse_tensor_invariants.is_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(model, saved)
    assert torch.sparse.check_sparse_tensor_invariants.is_enabled() == before


@pytest.mark.parametrize(
    ("config", "hidden_size", "dtype"),
    [
        ({"hidden_size": 8, "dtype": "float16"}, 8, "float16"),
        ({"n_embd": 9, "torch_dtype": "bfloat16"}, 9, "bfloat16"),
        ({"text_config": {"hidden_size": 7}, "dtype": "bfloat16", "hidden_size": 5}, 7, "bfloat16"),
        ({"text_config": {"hidden_size": 7, "dtype": "float16"}, "dtype": "bfloat16"}, 7, "float16"),
        ({"d_model": 6, "torch_dtype": "auto"}, 6, "float32"),
        ({"hidden_size": 8, "dtype": torch.float16}, 8, "float16"),
        ({"hidden_size": "x", "dtype": None}, None, "float32"),
        ({}, None, "float32"),
    ],
)
def test_width_and_dtype_come_from_the_config(
    config: dict[str, Any], hidden_size: int | None, dtype: str
) -> None:
    from trio_render.model import loading

    text_config = config.get("text_config") or config
    assert loading._hidden_size(text_config) == hidden_size
    assert loading._dtype(text_config, config) == dtype
