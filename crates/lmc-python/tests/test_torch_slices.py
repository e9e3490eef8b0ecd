"""get_slice: equal to slices of the whole tensor, without decoding all of it."""

import random

import lmc
import lmc.torch
import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from lmc.torch import _slices
from torch_tensors import DTYPES, raised_by, random_bits, same, weights

# Indices of more than one item are tuples here, but for those that torch is about to drop.
pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")


def random_part(r, size):
    def bound():
        return r.choice([None, r.randint(-size - 2, size + 2), r.randint(0, size)])

    kind = r.random()
    if kind < 0.35:
        return slice(bound(), bound(), r.choice([None, 1, 1, 2, 3]))
    if kind < 0.65:
        return r.randint(-size, size - 1) if size and r.random() < 0.9 else r.randint(-size - 3, size + 3)
    if kind < 0.75:
        return ...
    if kind < 0.82:
        return None
    if kind < 0.88:
        return [r.randint(-size, max(size - 1, 0)) for _ in range(r.randint(0, 3))]
    if kind < 0.93:
        return torch.tensor([r.randint(0, max(size - 1, 0)) for _ in range(r.randint(1, 4))])
    if kind < 0.98:
        return torch.tensor([r.random() < 0.5 for _ in range(size)], dtype=torch.bool)
    return r.choice([torch.tensor(0), np.int64(0), True, slice(None, None, -1), slice(0, 1, 0), "a", 1.5])


def random_index(r, shape):
    parts = [random_part(r, shape[i] if i < len(shape) else 1) for i in range(r.randint(0, len(shape) + 1))]
    return parts[0] if len(parts) == 1 and r.random() < 0.8 else tuple(parts)


def outcome(f):
    """The result of a call, or the type of its exception."""
    try:
        return f()
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("small", [False, True], ids=["at once", "in pieces"])
def test_any_index(small, monkeypatch, tmp_path):
    if small:
        monkeypatch.setattr(_slices, "_PIECE", 64)
        monkeypatch.setattr(_slices, "_BLOCK", 16)
    r = random.Random(7)
    dtypes = [dtype for name, dtype in DTYPES.items() if name != "F4"]
    refused = 0
    for case in range(150):
        dtype, shape = r.choice(dtypes), tuple(r.choice([0, 1, 2, 3, 5, 9, 20]) for _ in range(r.randint(0, 4)))
        tensor = random_bits(dtype, shape, case)
        # Torch does not index all dtypes; those of the same width have the same elements.
        carrier = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        path = tmp_path / f"{case}.safetensors"
        safetensors.torch.save_file({"t": tensor}, path)
        for form in (path, lmc.torch.save({"t": tensor})):
            with lmc.torch.safe_open(form) as f, safetensors.safe_open(path, "pt") as theirs:
                for _ in range(12):
                    index = random_index(r, shape)
                    expected = outcome(lambda: tensor.view(carrier)[index].view(dtype))  # noqa: B023
                    found = outcome(lambda: f.get_slice("t")[index])  # noqa: B023
                    if isinstance(expected, type):
                        assert found is expected, (shape, index)
                        refused += 1
                    else:
                        assert same(found, expected), (shape, index)
                        assert found.is_contiguous() and found.untyped_storage().nbytes() == found.nbytes
                        by_safetensors = outcome(lambda: theirs.get_slice("t")[index])  # noqa: B023
                        assert isinstance(by_safetensors, type) or same(by_safetensors, found), (shape, index)
    assert 300 < refused < 2000


class OnGpu(torch.Tensor):
    """A tensor that claims to be on a GPU, and can only be copied from there."""

    def __new__(cls, here):
        made = torch.Tensor._make_wrapper_subclass(cls, here.shape, dtype=here.dtype, device="cuda:0")
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        assert func is torch.ops.aten._to_copy.default
        return args[0].here.clone()


def test_an_index_in_memory_of_another_device():
    tensor, rows, chosen = weights(6, 10), torch.tensor([4, 0, 1]), torch.arange(6) % 2 == 0
    with lmc.torch.safe_open(lmc.torch.save({"w": tensor})) as f:
        w = f.get_slice("w")
        assert torch.equal(w[OnGpu(rows)], tensor[rows])
        assert torch.equal(w[OnGpu(chosen), ..., None], tensor[chosen, ..., None])
        assert torch.equal(w[1:3, [OnGpu(row) for row in rows]], tensor[1:3, [4, 0, 1]])


def test_halves_of_bytes():
    tensor = random_bits(DTYPES["F4"], (6, 10))
    with lmc.torch.safe_open(lmc.torch.save({"t": tensor})) as f:
        part = f.get_slice("t")
        assert part.get_shape() == [6, 20] and part.get_dtype() == "F4"
        # Torch counts bytes, of two elements each.
        for index in ((slice(2, 4), slice(None, None, 3)), 5, (..., [0, 3])):
            assert same(part[index], tensor.view(torch.uint8)[index].view(DTYPES["F4"]))


@pytest.mark.parametrize(
    "index, exception, message",
    [
        (6, IndexError, "out of bounds"),
        ((0, -6), IndexError, "dimension 1"),
        ((0, 0, 0), IndexError, "too many indices"),
        (slice(None, None, -1), ValueError, "step must be greater"),
        ("w", (TypeError, IndexError), ""),
    ],
)
def test_what_is_wrong_with_an_index(index, exception, message):
    with lmc.torch.safe_open(lmc.torch.save({"w": weights(5, 5)})) as f:
        assert len(list(f.get_slice("w"))) == 5
        e = raised_by(f.get_slice("w").__getitem__, index)
        assert isinstance(e, exception) and message in str(e)


def test_no_more_is_decoded_than_is_needed():
    """Damage in other parts of the tensor has no effect."""
    rows = random_bits(torch.uint8, (64, 1 << 17))
    compressed = bytearray(lmc.torch.save({"w": rows}))
    assert len(compressed) > rows.nbytes, "it does not compress: bytes are where they were"
    compressed[len(compressed) // 2] ^= 1
    with lmc.torch.safe_open(compressed) as f:
        w = f.get_slice("w")
        with pytest.raises(lmc.DamagedError) as raised:
            w[:]
        assert raised.value.kind == "damaged"
        for index in (slice(0, 8), 63, -1, (slice(None, None, 63), slice(0, 100)), (slice(50, None), 5)):
            assert torch.equal(w[index], rows[index])


def test_reads(monkeypatch):
    """Rows are read at once, columns in pieces of a bounded size."""
    tensor = weights(1000, 50)
    reads = []
    monkeypatch.setattr(_slices, "_PIECE", 20_000)
    with lmc.torch.safe_open(lmc.torch.save({"w": tensor})) as f:
        read = f._file.read_elements

        def counted(entry, start, out):
            reads.append((start, out.numel()))
            read(entry, start, out)

        monkeypatch.setattr(f._file, "read_elements", counted)
        w = f.get_slice("w")
        assert torch.equal(w[10:900], tensor[10:900])
        assert reads == [(500, 890 * 50)]
        reads.clear()
        assert torch.equal(w[:, 7:9], tensor[:, 7:9])
        assert all(n * 4 <= 20_000 for _, n in reads) and sum(n for _, n in reads) <= tensor.numel()
        reads.clear()
        assert torch.equal(w[5, 3], tensor[5, 3]) and reads == [(253, 1)]
        reads.clear()
        assert w[5:5].shape == (0, 50) and reads == []
        # Integers of numpy are as good as those of Python; booleans are masks.
        for index in (np.int64(5), (np.uint8(5), np.int32(-1)), (np.int16(3), ...)):
            reads.clear()
            assert torch.equal(w[index], tensor[index]) and 0 < sum(n for _, n in reads) <= 50
        monkeypatch.undo()
        for index in (True, (5, False)):
            assert torch.equal(w[index], tensor[index])
