"""Payloads that no server may accept, believe or fail over; each is a file's bytes, or a text."""

import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import embeds_payloads as payloads
import torch
from embeds_payloads import (
    HIDDEN,
    Call,
    Stored,
    coo,
    entry,
    legacy_file,
    legacy_of,
    legacy_reference,
    legacy_storage,
    numbers,
    pickled,
    safetensors_file,
    safetensors_of,
    sparse_call,
    tensor_call,
    zip_file,
    zip_of,
    zipped,
)

MARKER = "embeds-were-run"
ROWS = 3
GOOD = numbers(ROWS, HIDDEN)
DATA = GOOD.numpy().tobytes()
HUGE = 2**62


def patched(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


def cut(form: Callable[[Any], bytes], part: float) -> bytes:
    data = form(GOOD)
    return data[: int(len(data) * part)]


def plain(*more: Any) -> Call:
    return tensor_call(Stored(ROWS * HIDDEN), 0, (ROWS, HIDDEN), (HIDDEN, 1), *more)


def zip_with(data_pkl: bytes, **others: bytes) -> bytes:
    return zipped(data_pkl, {"0": DATA}, **others)


def running(marker: str) -> Call:
    """Creates a file in the working directory when it is unpickled."""
    return Call(os.system, f"touch {marker}")


def sparse(indices: Any, shape: Any, n_values: int = 1, **options: Any) -> bytes:
    return zip_file(coo(indices, torch.ones(n_values), shape), **options)


def sparse_by_hand(
    indices: tuple[Any, Any], values: tuple[Any, Any], shape: Any, layout: str = "torch.sparse_coo"
) -> bytes:
    """Shapes and strides of indices and values over storages of 8 numbers."""
    value = sparse_call(
        tensor_call(Stored(8, torch.LongStorage, "0"), 0, *indices),
        tensor_call(Stored(8, torch.FloatStorage, "1"), 0, *values),
        shape,
        layout,
    )
    return zipped(pickled(value), {"0": bytes(64), "1": bytes(32)})


def memo_bomb() -> bytes:
    """Each tuple holds the one before twice; as a key of a dict it is hashed 2**60 times."""
    return b"\x80\x02)q\x00" + b"h\x00h\x00\x86q\x00" * 60


def deep_tuples() -> bytes:
    return b"\x80\x02}" + memo_bomb()[2:] + b"K\x01s."


def nested_lists(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def overlapping_entries() -> bytes:
    """Two entries of the directory have one and the same place."""
    data = zipped(pickled(plain()), {"0": DATA, "1": DATA})
    first, second = (data.index(b"archive/data/%d" % n) - 30 for n in (0, 1))
    return patched(
        data, struct.pack("<L", second) + b"archive/data/1", struct.pack("<L", first) + b"archive/data/1"
    )


def many_entries(count: int) -> bytes:
    return zipped(pickled(plain()), {str(n): b"" for n in range(1, count)} | {"0": DATA})


def directory_elsewhere(offset: int) -> bytes:
    data = zip_of()
    return data[:-6] + struct.pack("<L", offset) + data[-2:]


def directory_patch(place: int, value: int, width: str = "<L") -> bytes:
    """Change a field of data/0's entry in the directory."""
    data = bytearray(zip_of())
    start = data.rindex(b"PK\x01\x02")
    struct.pack_into(width, data, start + place, value)
    return bytes(data)


def nan(value: float) -> torch.Tensor:
    tensor = torch.ones(ROWS, HIDDEN)
    tensor[1, 2] = value
    return tensor


FILES: dict[str, Callable[[], bytes]] = {
    # no file at all
    "one byte": lambda: b"\x80",
    "random bytes": lambda: bytes(range(64)),
    "text": lambda: b"hello world",
    "zeros": lambda: bytes(1000),
    "pickle of 5": lambda: pickle.dumps(5),
    "numbers alone": lambda: DATA,
    # cut off
    **{f"zip cut at {part}": partial(cut, zip_file, part) for part in (0.1, 0.5, 0.9, 0.99)},
    **{f"legacy cut at {part}": partial(cut, legacy_file, part) for part in (0.02, 0.1, 0.3, 0.5, 0.99)},
    **{
        f"safetensors cut at {part}": partial(cut, safetensors_file, part) for part in (0.01, 0.05, 0.5, 0.99)
    },
    "zip with a tail": lambda: zip_file(GOOD) + b"x",
    "legacy with a tail": lambda: legacy_file(GOOD) + b"x",
    "safetensors with a tail": lambda: safetensors_file(GOOD) + b"x",
    # other values
    "a number": lambda: zip_file(5),
    "a text": lambda: zip_file("tensor"),
    "nothing": lambda: zip_file(None),
    "a dict": lambda: zip_file({"prompt_embeds": GOOD}),
    "a nested dict": lambda: zip_file({"a": {"b": [GOOD]}}),
    "a list": lambda: zip_file([GOOD, GOOD]),
    "a list of one": lambda: legacy_file([GOOD]),
    "a size": lambda: zip_file(torch.Size([3, HIDDEN])),
    "a module": lambda: zip_file(torch.nn.Linear(2, 2)),
    "a storage": lambda: zip_file(GOOD.untyped_storage()),
    # code
    "code": lambda: pickle.dumps(running(MARKER), 2),
    "code in a zip": lambda: zip_with(pickled(running(MARKER))),
    "code beside a tensor": lambda: zip_with(pickled((plain(), running(MARKER)))),
    "code in a tensor's hooks": lambda: zip_with(
        pickled(
            Call(torch._utils._rebuild_tensor_v2, Stored(192), 0, (3, 64), (64, 1), False, running(MARKER))
        )
    ),
    "code as a shape": lambda: zip_with(pickled(tensor_call(Stored(192), 0, running(MARKER), (64, 1)))),
    "code in a legacy file": lambda: legacy_of(running(MARKER)),
    "code in legacy keys": lambda: legacy_of(
        tensor_call(legacy_reference(192), 0, (3, 64), (64, 1)), [running(MARKER)]
    ),
    "code in legacy system": lambda: legacy_of(5, system={"little_endian": running(MARKER)}),
    "a global alone": lambda: zip_with(b"\x80\x02cos\nsystem\n."),
    "a call by protocol 4": lambda: zip_with(pickle.dumps(running(MARKER), 4)),
    "an object with a state": lambda: zip_with(b"\x80\x02ctorch.nn\nModule\n)\x81}b."),
    # pickles that grow or never end
    "a memo bomb": lambda: zip_with(memo_bomb() + b"."),
    "a bomb as a key": lambda: zip_with(deep_tuples()),
    "a bomb as a shape": lambda: zip_with(
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + memo_bomb()[2:] + b"tR."
    ),
    "nested lists": lambda: zip_with(nested_lists(900)),
    "deeply nested lists": lambda: zip_with(nested_lists(50_000)),
    "a huge memo index": lambda: zip_with(b"\x80\x02Nr\xff\xff\xff\xff."),
    "a declared text of 4 GB": lambda: zip_with(b"\x80\x02X\xff\xff\xff\xffabc."),
    "a declared text of 2**60": lambda: zip_with(b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b"abc."),
    "a declared bytearray of 2**40": lambda: zip_with(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"abc."),
    "a frame of 2**40": lambda: zip_with(b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N."),
    "a long number": lambda: zip_with(b"\x80\x02\x8b\xff\xff\xff\x7f\x01."),
    "a negative long": lambda: zip_with(b"\x80\x02\x8b\xff\xff\xff\xff\x01."),
    "a number in digits": lambda: zip_with(b"\x80\x02I" + b"9" * 60_000 + b"\n."),
    "a list that holds itself": lambda: zip_with(b"\x80\x02]q\x00h\x00a."),
    "an endless pickle": lambda: zip_with(b"\x80\x02" + b"N0" * 30_000 + b"."),
    "a pickle of 1 MB": lambda: zip_with(b"\x80\x02" + b"N" * 1_000_000 + b"."),
    "a pickle without an end": lambda: zip_with(b"\x80\x02N"),
    "an empty pickle": lambda: zip_with(b""),
    "a pickle that pops nothing": lambda: zip_with(b"\x80\x02tR."),
    "a pickle that ends with nothing": lambda: zip_with(b"\x80\x02."),
    "a pickle that ends with a mark": lambda: zip_with(b"\x80\x02(."),
    "an unknown memo": lambda: zip_with(b"\x80\x02h\x07."),
    "an odd dict": lambda: zip_with(b"\x80\x02}(X\x01\x00\x00\x00au."),
    # a description that doesn't fit
    "no rows": lambda: zip_file(GOOD[:0]),
    "no rows, legacy": lambda: legacy_file(GOOD[:0]),
    "no rows, safetensors": lambda: safetensors_file(GOOD[:0]),
    "too many rows": lambda: zip_file(torch.ones(8192, HIDDEN, dtype=torch.bfloat16)),
    "one dimension": lambda: zip_file(GOOD[0]),
    "no dimension": lambda: zip_file(GOOD[0, 0]),
    "a batch of two": lambda: zip_file(torch.stack([GOOD, GOOD])),
    "four dimensions": lambda: zip_file(GOOD[None, None]),
    "another hidden size": lambda: zip_file(numbers(3, HIDDEN + 1)),
    "rows and columns swapped": lambda: zip_file(GOOD.t()),
    "expanded rows": lambda: zip_file(torch.ones(1, HIDDEN).expand(8191, HIDDEN)),
    "an expanded number": lambda: zip_file(torch.ones(1, 1).expand(8191, HIDDEN)),
    "an expanded number, legacy": lambda: legacy_file(torch.ones(1, 1).expand(8191, HIDDEN)),
    "overlapping strides": lambda: zip_of((3, HIDDEN), (1, 1), 0, 66),
    "a huge shape": lambda: zip_of((HUGE, HIDDEN)),
    "a huge shape, expanded": lambda: zip_of((HUGE, HIDDEN), (0, 0)),
    "a shape that overflows": lambda: zip_of((2**32, 2**32)),
    "an endless shape": lambda: zip_of((2**60,) * 300, (1,) * 300),
    "a negative shape": lambda: zip_of((-3, -HIDDEN)),
    "a shape of floats": lambda: zip_of((3.0, 64.0)),
    "a shape of booleans": lambda: zip_of((True, HIDDEN), (HIDDEN, 1)),
    "a shape that is a text": lambda: zip_of("33"),
    "a shape that is a list": lambda: zip_of([3, HIDDEN]),
    "negative strides": lambda: zip_of((3, HIDDEN), (-HIDDEN, -1), 191),
    "huge strides": lambda: zip_of((3, HIDDEN), (HUGE, 1)),
    "too few strides": lambda: zip_of((3, HIDDEN), (1,)),
    "an offset behind the storage": lambda: zip_of(offset=1),
    "a huge offset": lambda: zip_of(offset=HUGE),
    "a negative offset": lambda: zip_of(offset=-1),
    "an offset that is none": lambda: zip_of(offset=None),
    "a storage of fewer bytes": lambda: zipped(pickled(plain()), {"0": DATA[:-4]}),
    "a storage of more bytes": lambda: zipped(pickled(plain()), {"0": DATA + DATA}),
    "a missing storage": lambda: zipped(pickled(plain()), {"1": DATA}),
    "a storage of negative length": lambda: zip_with(pickled(tensor_call(Stored(-1), 0, (3, 64), (64, 1)))),
    "a storage of huge length": lambda: zip_with(pickled(tensor_call(Stored(HUGE), 0, (3, 64), (64, 1)))),
    "a storage of an odd kind": lambda: zip_with(pickled(tensor_call(Stored(192, "f"), 0, (3, 64), (64, 1)))),
    "a reference that is none": lambda: zip_with(b"\x80\x02NQ."),
    "a tensor without a storage": lambda: zip_with(
        pickled(Call(torch._utils._rebuild_tensor_v2, None, 0, (3, 64), (64, 1), False, OrderedDict()))
    ),
    "a conjugated tensor": lambda: zip_with(pickled(plain({"conj": True}))),
    "a lazily negated tensor": lambda: zip_file(torch._neg_view(GOOD)),
    # dtypes
    **{
        f"{dtype}": partial(zip_file, torch.ones(ROWS, HIDDEN).to(dtype))
        for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    },
    "complex": lambda: zip_file(GOOD.to(torch.complex64)),
    "float8": lambda: zip_file(GOOD.to(torch.float8_e4m3fn)),
    "unsigned": lambda: zip_file(torch.ones(ROWS, HIDDEN).to(torch.uint16)),
    "int64, legacy": lambda: legacy_file(torch.ones(ROWS, HIDDEN).to(torch.int64)),
    "int64, safetensors": lambda: safetensors_file(torch.ones(ROWS, HIDDEN).to(torch.int64)),
    "bool, safetensors": lambda: safetensors_file(torch.ones(ROWS, HIDDEN).to(torch.bool)),
    # numbers
    **{f"{value}": partial(zip_file, nan(value)) for value in (float("nan"), float("inf"), float("-inf"))},
    "all NaN, legacy": lambda: legacy_file(torch.full((ROWS, HIDDEN), float("nan"))),
    "NaN, safetensors": lambda: safetensors_file(nan(float("nan"))),
    "sparse NaN": lambda: zip_file(coo([[0], [0]], [float("nan")], (ROWS, HIDDEN))),
    "sparse values that add up to infinity": lambda: zip_file(
        coo([[0, 0], [0, 0]], torch.full((2,), 65504.0, dtype=torch.float16), (ROWS, HIDDEN))
    ),
    # sparse
    "an index out of range": lambda: sparse([[5], [0]], (ROWS, HIDDEN)),
    "an index far out of range": lambda: sparse([[2**40], [0]], (ROWS, HIDDEN)),
    "a column out of range": lambda: sparse([[0], [HIDDEN]], (ROWS, HIDDEN)),
    "a negative index": lambda: sparse([[-1], [0]], (ROWS, HIDDEN)),
    "the least index": lambda: sparse([[-(2**63)], [0]], (ROWS, HIDDEN)),
    "a negative index, legacy": lambda: sparse(
        [[0], [-1]], (ROWS, HIDDEN), _use_new_zipfile_serialization=False
    ),
    "a row out of range": lambda: zip_file(coo([[3]], torch.ones(1, HIDDEN), (ROWS, HIDDEN))),
    "a huge sparse shape": lambda: sparse([[0], [0]], (2**31, HIDDEN)),
    "a huge sparse width": lambda: sparse([[0], [0]], (ROWS, 2**40)),
    "a sparse shape of three batches": lambda: sparse([[0], [0], [0]], (3, ROWS, HIDDEN)),
    "a sparse shape of negative rows": lambda: sparse_by_hand(((2, 1), (1, 1)), ((1,), (1,)), (-3, HIDDEN)),
    "more values than indices": lambda: sparse_by_hand(((2, 1), (1, 1)), ((2,), (1,)), (ROWS, HIDDEN)),
    "more dimensions than a shape has": lambda: sparse_by_hand(
        ((5, 1), (1, 1)), ((1,), (1,)), (ROWS, HIDDEN)
    ),
    "no indexed dimension": lambda: sparse_by_hand(((0, 1), (1, 1)), ((1,), (1,)), (ROWS, HIDDEN)),
    "expanded indices": lambda: sparse_by_hand(((2, 100), (0, 0)), ((100,), (0,)), (ROWS, HIDDEN)),
    "indices behind their storage": lambda: sparse_by_hand(((2, 8), (8, 1)), ((8,), (1,)), (ROWS, HIDDEN)),
    "flat indices": lambda: sparse_by_hand(((2,), (1,)), ((2,), (1,)), (ROWS, HIDDEN)),
    "a sparse shape that is a text": lambda: sparse_by_hand(((2, 1), (1, 1)), ((1,), (1,)), "ab"),
    "indices of floats": lambda: zipped(
        pickled(
            sparse_call(
                tensor_call(Stored(2), 0, (2, 1), (1, 1)), tensor_call(Stored(2), 0, (1,), (1,)), (3, 64)
            )
        ),
        {"0": bytes(8)},
    ),
    "sparse rows": lambda: zip_file(GOOD.to_sparse_csr()),
    "another layout by name": lambda: sparse_by_hand(
        ((2, 1), (1, 1)), ((1,), (1,)), (ROWS, HIDDEN), "torch.sparse_csr"
    ),
    # zip
    "compressed entries": lambda: zipped(pickled(plain()), {"0": DATA}, zipfile.ZIP_DEFLATED),
    "a zip bomb": lambda: zipped(
        pickled(tensor_call(Stored(8191 * HIDDEN), 0, (8191, HIDDEN), (HIDDEN, 1))),
        {"0": bytes(8191 * HIDDEN * 4)},
        zipfile.ZIP_DEFLATED,
    ),
    "overlapping entries": overlapping_entries,
    "too many entries": lambda: many_entries(100),
    "a directory of 60000 entries": lambda: many_entries(60_000),
    "an empty zip": lambda: b"PK\x05\x06" + bytes(18),
    "a zip's end behind its beginning": lambda: b"PK\x03\x04" + b"PK\x05\x06" + bytes(18),
    "a zip without a pickle": lambda: patched(zip_of(), b"data.pkl", b"data.pkx"),
    "two pickles": lambda: zip_with(pickled(plain()), **{"code/data.pkl": b"N."}),
    "the other byte order": lambda: zip_with(pickled(plain()), byteorder=b"big"),
    "a directory at zero": lambda: directory_elsewhere(0),
    "a directory behind the end": lambda: directory_elsewhere(2**31),
    "an entry that is encrypted": lambda: directory_patch(8, 1, "<H"),
    "an entry larger than the file": lambda: directory_patch(24, 2**31),
    "an entry packed to nothing": lambda: directory_patch(20, 0),
    "an entry of 4 GB": lambda: directory_patch(24, 2**32 - 1),
    "an entry behind the file": lambda: directory_patch(42, 2**31),
    "an entry with another one's header": lambda: directory_patch(42, 0),
    "an entry with a long name": lambda: directory_patch(28, 2**16 - 1, "<H"),
    # legacy
    "a legacy storage of huge length": lambda: legacy_of(
        tensor_call(legacy_reference(HUGE), 0, (3, HIDDEN), (HIDDEN, 1)), storages=legacy_storage(HUGE, DATA)
    ),
    "a legacy storage of another length": lambda: legacy_of(
        tensor_call(legacy_reference(192), 0, (3, HIDDEN), (HIDDEN, 1)), storages=legacy_storage(HUGE, DATA)
    ),
    "a legacy storage of negative length": lambda: legacy_of(
        tensor_call(legacy_reference(192), 0, (3, HIDDEN), (HIDDEN, 1)), storages=legacy_storage(-192, DATA)
    ),
    "legacy keys of nothing": lambda: legacy_of(
        tensor_call(legacy_reference(192), 0, (3, HIDDEN), (HIDDEN, 1)), ["7"], legacy_storage(192, DATA)
    ),
    "legacy keys that are no list": lambda: patched(legacy_file(GOOD), b"]q\x00", b"}q\x00"),
    "no legacy keys": lambda: legacy_of(tensor_call(legacy_reference(192), 0, (3, HIDDEN), (HIDDEN, 1)), []),
    "a legacy view": lambda: patched(legacy_file(GOOD), b"Ntq\x05Q", b"\x88tq\x05Q"),
    "a legacy file of the other byte order": lambda: legacy_of(5, system={"little_endian": False}),
    "a legacy file of another version": lambda: patched(
        legacy_file(GOOD), b"\x80\x02M\xe9\x03.", b"\x80\x02M\xe8\x03."
    ),
    # safetensors
    "two tensors": lambda: safetensors_file(GOOD, other=GOOD.clone()),
    "no tensor": lambda: safetensors_of({}),
    "metadata alone": lambda: safetensors_of({"__metadata__": {"format": "pt"}}),
    "a header longer than the file": lambda: safetensors_of({"t": entry()}, DATA, 10**6),
    "a header of 2**63": lambda: safetensors_of({"t": entry()}, DATA, 2**63),
    "a header of nothing": lambda: safetensors_of(b"", DATA),
    "a header that is too short": lambda: safetensors_of({"t": entry()}, DATA, 20),
    "a header of 1 MB": lambda: safetensors_of({"t": entry(), "__metadata__": {"a": "x" * 10**6}}, DATA),
    "a header that nests": lambda: safetensors_of(b'{"a":' * 9000 + b"1" + b"}" * 9000),
    "a header of many names": lambda: safetensors_of({str(n): 1 for n in range(5000)}),
    "a header that is a list": lambda: safetensors_of([entry()], DATA),
    "a header that isn't JSON": lambda: safetensors_of(b"{" + b"x" * 50, DATA),
    "a header that isn't UTF-8": lambda: safetensors_of(b'{"\xff":1}', DATA),
    "an entry that is a number": lambda: safetensors_of({"t": 5}, DATA),
    "an entry without a shape": lambda: safetensors_of(
        {"t": {"dtype": "F32", "data_offsets": [0, 768]}}, DATA
    ),
    "a shape of huge numbers": lambda: safetensors_of({"t": entry(shape=(2**62,) * 3000)}, DATA),
    "a shape of longer numbers": lambda: safetensors_of(
        b'{"t":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,768]}}', DATA
    ),
    "a negative shape in a header": lambda: safetensors_of({"t": entry(shape=(-3, -HIDDEN))}, DATA),
    "a dtype with the wrong bytes": lambda: safetensors_of({"t": entry("F16")}, DATA),
    "an unknown dtype": lambda: safetensors_of({"t": entry("F7")}, DATA),
    "offsets from the middle": lambda: safetensors_of({"t": entry(offsets=(4, 772))}, DATA + b"1234"),
    "offsets the wrong way": lambda: safetensors_of({"t": entry(offsets=(768, 0))}, DATA),
    "offsets behind the end": lambda: safetensors_of({"t": entry(offsets=(0, 2**40))}, DATA),
    "offsets of three": lambda: safetensors_of({"t": entry(offsets=(0, 768, 1))}, DATA),
    "overlapping offsets": lambda: safetensors_of({"t": entry(), "u": entry()}, DATA),
}
"""By what is wrong with them. The model has a hidden size of 64, and a context of 8192."""

TEXTS: dict[str, str] = {
    "empty": "",
    "not base64": "***",
    "padding alone": "====",
    "a letter": "A",
    "no padding": payloads.base64_of(b"1234").rstrip("="),
    "padding in the middle": payloads.base64_of(b"1234") + payloads.base64_of(zip_file(GOOD)),
    "a line break at the end": payloads.base64_of(zip_file(GOOD)) + "\n",
    "line breaks": "\n".join([payloads.base64_of(zip_file(GOOD))[n : n + 76] for n in range(0, 2000, 76)]),
    "spaces": payloads.base64_of(safetensors_file(GOOD)).replace("A", " "),
    "the URL alphabet": payloads.base64_of(safetensors_file(GOOD)).replace("+", "-").replace("/", "_"),
    "a data URL": "data:application/octet-stream;base64," + payloads.base64_of(zip_file(GOOD)),
    "not ASCII": "é" * 64,
    "a NUL": payloads.base64_of(zip_file(GOOD))[:-1] + "\x00",
    "one letter cut off": payloads.base64_of(zip_file(GOOD))[:-1],
    "a bad letter late in a long text": "A" * 700_000 + "*AAA",
    "padding late in a long text": "A" * 262_140 + "AA==" + "A" * 262_144,
}
