"""lmc.torch.save and save_file: the file that safetensors writes, and tensors that it rejects."""

import subprocess
import sys
from pathlib import Path

import lmc
import lmc.torch
import pytest
import safetensors.torch
import torch
from torch._subclasses import FakeTensorMode
from torch_tensors import DTYPES, assert_same, bits, no_warning, raised_by, random_bits, shapes_of, weights

TESTDATA = Path(__file__).parents[3] / "testdata"


def raw(compressed, base=None):
    return lmc.decompress(compressed, base=base)


def changed(tensor, seed):
    """A tensor with some bits changed."""
    other = tensor.clone()
    bytes_of = other.view(-1).view(torch.uint8)
    flips = torch.rand(bytes_of.shape, generator=torch.Generator().manual_seed(seed)) < 0.05
    bytes_of[flips] ^= 1
    return other


@pytest.mark.parametrize("name", DTYPES)
def test_bytes_are_those_of_safetensors(name):
    dtype = DTYPES[name]
    tensors = {f"t{shape}": random_bits(dtype, shape, seed) for seed, shape in enumerate(shapes_of(dtype))}
    expected = safetensors.torch.save(tensors)
    alone = lmc.torch.save(tensors)
    assert raw(alone) == expected
    assert_same(lmc.torch.load(alone), tensors)

    later = {key: changed(tensor, 1) for key, tensor in tensors.items()}
    delta = lmc.torch.save(later, base=alone)
    assert raw(delta, base=alone) == safetensors.torch.save(later)
    assert_same(lmc.torch.load(delta, base=alone), later)


def test_all_dtypes_in_one_file(tmp_path):
    tensors = {f"{name}.{i}": random_bits(d, s) for name, d in DTYPES.items() for i, s in enumerate(shapes_of(d))}
    ours, theirs = tmp_path / "ours.lmc", tmp_path / "theirs.safetensors"
    lmc.torch.save_file(tensors, ours)
    safetensors.torch.save_file(tensors, theirs)
    assert raw(ours.read_bytes()) == theirs.read_bytes()
    assert_same(lmc.torch.load_file(ours), safetensors.torch.load_file(theirs))


def test_order_of_the_dict_makes_no_difference():
    a, b = weights(40, seed=1), weights(30, seed=2, dtype=torch.bfloat16)
    assert lmc.torch.save({"a": a, "b": b}) == lmc.torch.save({"b": b, "a": a})


def test_no_tensors():
    assert raw(lmc.torch.save({})) == safetensors.torch.save({})
    assert lmc.torch.load(lmc.torch.save({})) == {}


@pytest.mark.parametrize("metadata", [None, {}, {"step": "300"}, {"": "", 'é\n"\\': "\u2028\0"}])
def test_metadata(metadata):
    tensors = {"w": weights(10)}
    expected = safetensors.torch.save(tensors, metadata=metadata)
    saved = raw(lmc.torch.save(tensors, metadata=metadata))
    # Of several entries safetensors picks a new order each time.
    assert saved == expected if len(metadata or {}) < 2 else len(saved) == len(expected)
    with lmc.torch.safe_open(saved) as f:
        assert f.metadata() == metadata


def test_file_and_memory_are_the_same(tmp_path):
    base = {"w": weights(500, 600)}
    tensors = {"w": base["w"] * 1.001, "b": weights(7)}
    lmc.torch.save_file(base, tmp_path / "base.lmc", level="fast")
    options = {"metadata": {"a": "b"}, "base": tmp_path / "base.lmc", "level": "max"}
    lmc.torch.save_file(tensors, tmp_path / "file.lmc", threads=2, **options)
    assert (tmp_path / "file.lmc").read_bytes() == lmc.torch.save(tensors, threads=1, **options)


def test_checkpoint_and_its_delta(tmp_path):
    first, second = (TESTDATA / f"gpt-step{step}-state.safetensors" for step in (300, 310))
    lmc.torch.save_file(safetensors.torch.load_file(first), tmp_path / "300.lmc")
    tensors = safetensors.torch.load_file(second)
    lmc.torch.save_file(tensors, tmp_path / "310.lmc", base=tmp_path / "300.lmc")
    lmc.torch.save_file(tensors, tmp_path / "alone.lmc")
    assert (tmp_path / "310.lmc").stat().st_size < 0.9 * (tmp_path / "alone.lmc").stat().st_size
    assert raw((tmp_path / "310.lmc").read_bytes(), base=tmp_path / "300.lmc") == safetensors.torch.save(tensors)
    assert_same(lmc.torch.load_file(tmp_path / "310.lmc", base=tmp_path / "300.lmc"), tensors)


class Odd(torch.Tensor):
    """A subclass whose memory is that of a tensor."""


def tensor_kinds():
    w = weights(6, 4)
    return {
        "parameter": torch.nn.Parameter(w.clone()),
        "with a gradient": w.clone().requires_grad_() * 2,
        "subclass": w.clone().as_subclass(Odd),
        "rows of a larger one": w[2:4],
        "flat": w.t().contiguous().view(-1),
    }


@pytest.mark.parametrize("kind", tensor_kinds())
def test_kinds_of_tensors(kind):
    tensors = {"w": tensor_kinds()[kind]}
    assert raw(lmc.torch.save(tensors)) == safetensors.torch.save(tensors)


def test_values_that_are_computed_as_they_are_read():
    z = torch.complex(weights(5), weights(5, seed=1))
    assert lmc.torch.load(lmc.torch.save({"z": z.conj()}))["z"].equal(z.conj().resolve_conj())
    negative = torch._neg_view(weights(5))
    assert lmc.torch.load(lmc.torch.save({"n": negative}))["n"].equal(-weights(5))


def refused():
    w = weights(4, 4)
    whole = weights(10)
    model = torch.nn.Linear(3, 3)
    return {
        "a list": ([w], "usage", "Expected a dict of [str, torch.Tensor]"),
        "a mapping that is no dict": (torch.nn.ParameterDict({"w": w}), "usage", "Expected a dict"),
        "no tensor": ({"w": w, "step": 3}, "usage", "Key `step` is invalid, expected torch.Tensor"),
        "an array": ({"w": w.numpy()}, "usage", "Key `w` is invalid"),
        "sparse": ({"a": w, "s": w.to_sparse()}, "usage", "sparse tensors: `['s']`"),
        "rows of sparse": ({"s": no_warning(w.to_sparse_csr)}, "usage", ".to_dense()"),
        "transposed": ({"w": weights(2, 3).t()}, "usage", "non contiguous tensor: `w`"),
        "a column": ({"w": w[:, :1]}, "usage", "`.contiguous()`"),
        "expanded": ({"w": torch.ones(1).expand(4)}, "usage", "non contiguous"),
        "twice the same": ({"a": w, "b": w}, "usage", "['a', 'b']"),
        "overlapping": ({"a": whole[:6], "b": whole[5:]}, "usage", "Some tensors share memory"),
        "tied": ({"a": model.weight, "b": model.weight.detach()}, "usage", "use `save_model`"),
        "meta": ({"m": torch.empty(3, device="meta")}, "usage", "Cannot copy out of meta tensor"),
        "nested": ({"n": no_warning(torch.nested.nested_tensor, [w, w[:2]])}, "usage", "nested tensors"),
        "jagged": ({"n": torch.nested.nested_tensor([w, w[:2]], layout=torch.jagged)}, "usage", "nested"),
    }


@pytest.mark.parametrize("case", refused())
def test_refused_as_by_safetensors(case, tmp_path):
    tensors, kind, hint = refused()[case]
    theirs, ours = raised_by(safetensors.torch.save, tensors), raised_by(lmc.torch.save, tensors)
    expected = RuntimeError if isinstance(theirs, RuntimeError) else type(theirs)
    assert isinstance(ours, lmc.Error) and isinstance(ours, expected), (ours, theirs)
    assert ours.kind == kind and hint in str(ours)
    with pytest.raises(type(ours)):
        lmc.torch.save_file(tensors, tmp_path / "none.lmc")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tensors", [{1: weights(3)}, {None: weights(3)}, {("a",): weights(3)}])
def test_names_are_strings(tensors):
    assert isinstance(raised_by(safetensors.torch.save, tensors), TypeError)
    with pytest.raises(TypeError, match="names of tensors must be str"):
        lmc.torch.save(tensors)


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, "text", [("a", "b")]])
def test_metadata_is_text(metadata):
    assert isinstance(raised_by(safetensors.torch.save, {}, metadata), TypeError)
    assert isinstance(raised_by(lmc.torch.save, {}, metadata), TypeError)


def quantized():
    return no_warning(torch.quantize_per_tensor, weights(3), 0.1, 0, torch.qint8)


@pytest.mark.parametrize("tensor", [torch.ones(2, dtype=torch.complex128), quantized()], ids=["complex128", "qint8"])
def test_dtypes_that_safetensors_does_not_have(tensor):
    assert isinstance(raised_by(safetensors.torch.save, {"t": tensor}), KeyError)
    with pytest.raises(lmc.UsageError, match=f"'t' is of {tensor.dtype}"):
        lmc.torch.save({"t": tensor})


def test_halves_of_bytes_have_a_dimension():
    pair = {"t": torch.empty((), dtype=torch.float4_e2m1fn_x2)}
    assert raised_by(safetensors.torch.save, pair) is not None
    with pytest.raises(lmc.UsageError, match="'t' is of torch.float4_e2m1fn_x2"):
        lmc.torch.save(pair)


def test_name_of_the_metadata_is_no_tensors():
    with pytest.raises(lmc.UsageError, match="__metadata__"):
        lmc.torch.save({"__metadata__": weights(3)})


class Sharded(torch.Tensor):
    """A tensor subclass that wraps another, as those of torch.distributed."""

    @staticmethod
    def __new__(cls, local):
        return torch.Tensor._make_wrapper_subclass(cls, local.shape, dtype=local.dtype)

    @classmethod
    def __torch_dispatch__(cls, f, types, args=(), kwargs=None):
        if f is torch.ops.aten.detach.default:
            return args[0]
        raise AssertionError(f"{f} is not needed")


def fake():
    with FakeTensorMode():
        return torch.empty(4)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("kind, tensor", [("Sharded", Sharded(weights(4))), ("FakeTensor", fake())])
def test_tensors_without_memory_of_their_own(kind, tensor):
    with pytest.raises(lmc.torch.TensorError, match=f"'t': a {kind} has no memory of its own") as raised:
        lmc.torch.save({"t": tensor})
    assert raised.value.kind == "usage"


@pytest.mark.parametrize("options", [{"level": "best"}, {"threads": -1}, {"base": 7}, {"base": "none.lmc"}])
def test_bad_options(options, tmp_path):
    path = tmp_path / "w.lmc"
    lmc.torch.save_file({"w": torch.ones(3)}, path)
    before = path.read_bytes()
    with pytest.raises((lmc.UsageError, TypeError, FileNotFoundError)):
        lmc.torch.save_file({"w": weights(3)}, path, **options)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_base_of_no_use(tmp_path):
    path = tmp_path / "w.lmc"
    lmc.torch.save_file({"w": weights(3)}, path, base=b"any bytes")
    assert lmc.open(path).bases == []
    assert_same(lmc.torch.load_file(path, base=b"any bytes"), {"w": weights(3)})


def test_nowhere_to_write(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        lmc.torch.save_file({"w": weights(3)}, tmp_path / "none" / "w.lmc")
    assert raised.value.kind == "io"


def test_big_endian_machine(monkeypatch):
    saved = lmc.torch.save({"w": weights(3)})
    monkeypatch.setattr(sys, "byteorder", "big")
    for call, argument in ((lmc.torch.save, {"w": weights(3)}), (lmc.torch.load, saved)):
        with pytest.raises(lmc.UnsupportedError, match="little-endian"):
            call(argument)


def test_importing_lmc_does_not_import_torch():
    code = "import sys, lmc; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_numpy_is_not_needed():
    code = """
import sys
sys.modules["numpy"] = None
import warnings
warnings.simplefilter("ignore")
import torch, lmc.torch
saved = lmc.torch.save({"w": torch.arange(5.0), "s": torch.tensor(1)})
assert lmc.torch.load(saved)["w"].tolist() == [0, 1, 2, 3, 4]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tensors_are_not_copied(tmp_path):
    code = """
import resource, sys
import torch, lmc.torch
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tensors = {f"w{i}": torch.randint(0, 256, (48 << 20,), dtype=torch.uint8) for i in range(4)}
lmc.torch.save_file({"w": tensors["w0"][:1 << 20]}, sys.argv[1], threads=1)
before = peak()
lmc.torch.save_file(tensors, sys.argv[1], threads=1)
assert peak() - before < 40 << 10, peak() - before
del tensors
before = peak()
loaded = lmc.torch.load_file(sys.argv[1], threads=1)
assert peak() - before < 40 << 10, peak() - before
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "w.lmc"], check=True)


def test_tensors_stay_as_they_are():
    tensors = {"w": weights(9), "h": weights(9, dtype=torch.float16)}
    before = {name: bits(tensor).clone() for name, tensor in tensors.items()}
    lmc.torch.save(tensors)
    assert all(torch.equal(bits(tensors[name]), before[name]) for name in before)


@pytest.mark.parametrize("which", ["apart", "same", "nothing in the middle", "nothing at the end", "two storages"])
def test_memory_that_is_side_by_side(which):
    """Tensors that safetensors saves are saved, and those that it rejects are rejected."""
    whole = weights(12)
    memory = bytearray(bits(whole).numpy())
    tensors = {
        "apart": {"a": weights(4), "b": torch.nn.Parameter(weights(4, seed=1)), "c": torch.empty(0)},
        "same": {"a": whole, "b": whole.view(3, 4)},
        "nothing in the middle": {"a": whole, "b": whole[6:6]},
        "nothing at the end": {"a": whole, "b": whole[12:]},
        "two storages": {name: torch.frombuffer(memory, dtype=torch.float32) for name in "ab"},
    }[which]
    theirs = raised_by(safetensors.torch.save, tensors)
    ours = raised_by(lmc.torch.save, tensors)
    assert (ours is None) == (theirs is None)
    if ours is None:
        assert raw(lmc.torch.save(tensors)) == safetensors.torch.save(tensors)


def test_values_that_are_computed_among_others():
    z = torch.view_as_complex(weights(6, 2))
    many = {"z": z.conj(), "imag": z.clone().conj().imag[:0], "w": weights(3), "negated": torch._neg_view(weights(4))}
    found = lmc.torch.load(lmc.torch.save(many))
    assert_same(found, {name: tensor.resolve_conj().resolve_neg() for name, tensor in many.items()})
