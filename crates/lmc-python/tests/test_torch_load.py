"""lmc.torch.load, load_file and safe_open."""

import copy
import io
import json
import mmap
import pickle
import struct
import threading
from pathlib import Path

import lmc
import lmc.torch
import pytest
import safetensors
import safetensors.torch
import torch
from conftest import resident
from lmc.torch import _file, _memory
from torch_tensors import DTYPES, assert_same, raised_by, random_bits, same, weights

SMALL = Path(__file__).parents[3] / "testdata" / "small"
TENSORS = {
    "z": weights(70, 90),
    "a.bf16": weights(33, dtype=torch.bfloat16),
    "step": torch.tensor(7),
    "none": torch.empty(0, 4),
}


@pytest.fixture(params=["lmc", "safetensors"])
def path(request, tmp_path):
    """A file of `TENSORS`, compressed or not."""
    path = tmp_path / f"model.{request.param}"
    (lmc if request.param == "lmc" else safetensors).torch.save_file(TENSORS, path, metadata={"step": "7"})
    return path


def test_paths_and_bytes(path):
    for found in (
        lmc.torch.load_file(path),
        lmc.torch.load_file(str(path)),
        lmc.torch.load_file(path, backend="pread", threads=1),
        lmc.torch.load(path.read_bytes()),
        lmc.torch.load(bytearray(path.read_bytes())),
    ):
        assert_same(found, TENSORS)


def test_order(path):
    with lmc.torch.safe_open(path) as ours, safetensors.safe_open(plain(path), "pt") as theirs:
        assert ours.keys() == theirs.keys() == sorted(TENSORS)
        assert ours.offset_keys() == theirs.offset_keys() == list(ours.get_tensors()) == list(lmc.torch.load_file(path))


def plain(path):
    """The safetensors file that a file holds."""
    raw = path.with_suffix(".raw")
    raw.write_bytes(safetensors.torch.save(TENSORS, metadata={"step": "7"}))
    return raw


def test_parts_of_a_file(path):
    with lmc.torch.safe_open(path, framework="pt", device="cpu") as f:
        for name, tensor in TENSORS.items():
            assert same(f.get_tensor(name), tensor)
        assert f.get_slice("a.bf16").get_shape() == [33] and f.get_slice("a.bf16").get_dtype() == "BF16"
        metadata = f.metadata()
        metadata["step"] = "changed"
        assert f.metadata() == {"step": "7"}


def test_files_of_a_model(tmp_path):
    halves = [dict(list(TENSORS.items())[i : i + 2]) for i in (0, 2)]
    lmc.torch.save_file(halves[0], tmp_path / "1.safetensors.lmc")
    safetensors.torch.save_file(halves[1], tmp_path / "2.safetensors", {"format": "pt"})
    names = {name: f"{i}.safetensors" for i, half in enumerate(halves, 1) for name in half}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert_same(lmc.torch.load_file(tmp_path), TENSORS)
    with lmc.torch.safe_open(tmp_path, device="cpu") as f:
        assert isinstance(f, lmc.torch.safe_open)
        assert f.keys() == sorted(TENSORS) and f.metadata() == {"format": "pt"}
        assert_same({name: f.get_tensor(name) for name in f.keys()}, TENSORS)  # noqa: SIM118
        assert same(f.get_slice("z")[3:5, ::2], TENSORS["z"][3:5, ::2])
    with pytest.raises(lmc.UsageError, match="device 'meta'"):
        lmc.torch.safe_open(tmp_path, device="meta")


def test_each_tensor_has_memory_of_its_own(path):
    found = lmc.torch.load_file(path)
    path.unlink()
    for name, tensor in found.items():
        assert tensor.untyped_storage().nbytes() == TENSORS[name].nbytes and tensor.is_contiguous()
        tensor.add_(1)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values() if tensor.numel()}) == 3
    lmc.torch.save(found)


def test_default_device_makes_no_difference(path):
    with torch.device("meta"):
        found = lmc.torch.load_file(path)
    assert_same(found, TENSORS)


def test_closed(path):
    f = lmc.torch.safe_open(path)
    with f:
        part = f.get_slice("z")
    for call in (f.keys, f.offset_keys, f.metadata, f.get_tensors, f.__enter__, lambda: part[:2]):
        with pytest.raises(lmc.UsageError, match="closed"):
            call()
    for call in (f.get_tensor, f.get_slice):
        with pytest.raises(lmc.UsageError, match="closed"):
            call("z")


def test_unknown_name(path):
    with lmc.torch.safe_open(path) as f:
        for call in (f.get_tensor, f.get_slice):
            with pytest.raises(lmc.NotFoundError, match="'y'") as raised:
                call("y")
            assert raised.value.kind == "not_found"


def test_missing_file(tmp_path):
    for call in (lmc.torch.safe_open, lmc.torch.load_file):
        with pytest.raises(FileNotFoundError, match="none.lmc") as raised:
            call(tmp_path / "none.lmc")
        assert raised.value.kind == "io"


@pytest.mark.parametrize("device", ["", "gpu", "cpu:x", "cuda:-1", "meta", -5, None, 1.5])
def test_no_such_device(device, path):
    with pytest.raises(lmc.UsageError, match="device .* is invalid") as raised:
        lmc.torch.load_file(path, device=device)
    assert raised.value.kind == "usage"


@pytest.mark.parametrize("options", [{"framework": "np"}, {"framework": "jax"}, {"backend": "disk"}])
def test_no_such_option(options, path):
    raised = raised_by(lmc.torch.safe_open, path, **options)
    assert isinstance(raised, lmc.UsageError)
    assert "'pt'" in str(raised) or "'mmap'" in str(raised)


@pytest.mark.parametrize("framework", ["pt", "torch", "pytorch"])
def test_safe_open_of_any_framework(framework, path):
    with lmc.safe_open(path, framework, device=torch.device("cpu"), threads=1) as f, lmc.torch.safe_open(path) as own:
        assert isinstance(f, lmc.torch.safe_open)
        assert_same({name: f.get_tensor(name) for name in f.keys()}, own.get_tensors())
        f.close()
        with pytest.raises(lmc.UsageError, match="closed"):
            f.get_tensor("z")
    with pytest.raises(lmc.UsageError, match="meta"):
        lmc.safe_open(path, framework, device="meta")


@pytest.mark.parametrize("framework", ["pt", "torch", "pytorch"])
def test_names_of_the_framework(framework, path):
    with lmc.torch.safe_open(path, framework) as f:
        assert same(f.get_tensor("z"), TENSORS["z"])


def test_mapped_memory_is_bytes(path):
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert_same(lmc.torch.load(mapped), TENSORS)


@pytest.mark.parametrize("data", [b"", b"PK\3\4" * 9, b"\0" * 40, lmc.compress(b""), lmc.compress(b"text " * 99)])
def test_other_files(data):
    with pytest.raises(lmc.UnsupportedError, match="not a safetensors file") as raised:
        lmc.torch.load(data)
    assert raised.value.kind == "unsupported"


@pytest.mark.parametrize("file", sorted(SMALL.glob("*.safetensors")), ids=lambda file: file.stem)
def test_what_safetensors_takes_and_what_it_refuses(file, tmp_path):
    data = file.read_bytes()
    theirs = raised_by(safetensors.torch.load_file, file)
    compressed = lmc.compress(data)
    if theirs is None:
        expected = safetensors.torch.load_file(file)
        assert_same(lmc.torch.load(compressed), expected)
        assert_same(lmc.torch.load(data), expected)
    else:
        for form in (data, compressed):
            ours = raised_by(lmc.torch.load, form)
            assert isinstance(ours, lmc.FormatError), (ours, theirs)


def test_every_cut_and_every_changed_byte():
    data = safetensors.torch.save({"a": weights(5), "b": torch.ones(3, dtype=torch.bool)}, {"k": "v"})
    compressed = lmc.torch.save({"a": weights(5), "b": torch.ones(3, dtype=torch.bool)}, {"k": "v"})
    for end in range(len(data)):
        assert isinstance(raised_by(lmc.torch.load, data[:end]), lmc.FormatError), end
    for end in range(len(compressed)):
        assert isinstance(raised_by(lmc.torch.load, compressed[:end]), lmc.FormatError), end
    # Features in the header that no block needs, known or not, are ignored.
    for i in [*range(12), *range(16, len(compressed))]:
        broken = bytearray(compressed)
        broken[i] ^= 0x55
        e = raised_by(lmc.torch.load, broken)
        assert isinstance(e, lmc.FormatError), (i, e)
        assert e.kind in ("damaged", "unsupported")
    header = int.from_bytes(data[:8], "little")
    for i in range(8 + header):
        # In a plain header some changes, such as of a name, cannot be detected.
        broken = bytearray(data)
        broken[i] ^= 0x55
        theirs, ours = raised_by(safetensors.torch.load, bytes(broken)), raised_by(lmc.torch.load, broken)
        assert (ours is None) == (theirs is None), (i, ours, theirs)
        assert ours is None or isinstance(ours, lmc.FormatError), (i, ours)


def header_of(*fields, data=b"", metadata=""):
    text = "{" + ",".join([*([f'"__metadata__":{metadata}'] if metadata else []), *fields]) + "}"
    return len(text.encode()).to_bytes(8, "little") + text.encode() + data


def field(name="t", dtype="U8", shape="[4]", offsets="[0,4]"):
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


WRONG = {
    "overlapping": header_of(field("a"), field("b", offsets="[2,6]"), data=b"123456"),
    "a hole": header_of(field("a"), field("b", offsets="[5,9]"), data=b"123456789"),
    "bytes behind": header_of(field(), data=b"12345"),
    "bytes missing": header_of(field(), data=b"123"),
    "twice the same name": header_of(field("a"), field("a", offsets="[4,8]"), data=b"12345678"),
    "an unknown dtype": header_of(field(dtype="U3"), data=b"1234"),
    "a shape that does not fit": header_of(field(shape="[5]"), data=b"1234"),
    "a shape beyond numbers": header_of(field(shape=f"[{','.join([str(2**63 - 1)] * 9999)}]"), data=b"1234"),
    "a shape beyond numbers, of nothing": header_of(field(shape="[9223372036854775807,9,0]", offsets="[0,0]")),
    "a negative shape": header_of(field(shape="[-2,-2]"), data=b"1234"),
    "a shape of booleans": header_of(field(shape="[true]", offsets="[0,1]"), data=b"1"),
    "a shape of fractions": header_of(field(shape="[4.0]"), data=b"1234"),
    "backwards": header_of(field(offsets="[4,0]"), data=b"1234"),
    "three offsets": header_of(field(offsets="[0,4,4]"), data=b"1234"),
    "no offsets": header_of('"t":{"dtype":"U8","shape":[4]}', data=b"1234"),
    "a list for a tensor": header_of('"t":[]'),
    "nothing for a tensor": header_of('"t":null'),
    "metadata that are no text": header_of(metadata='{"a":1}'),
    "metadata that are a list": header_of(metadata="[]"),
    "nested a million times": header_of('"t":' + "[" * 1_000_000),
    "a number of a million digits": header_of(f'"t":{"9" * 1_000_000}'),
    "no UTF-8": header_of(field("x"), data=b"1234").replace(b'"x"', b'"\xff"'),
    "no JSON": header_of("t"),
    "a long name": header_of(field("n" * 100_000, shape="[5]"), data=b"1234"),
    "half of a byte": header_of(field(dtype="F4", shape="[3]", offsets="[0,1]"), data=b"1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_headers(case):
    data = WRONG[case]
    assert raised_by(safetensors.torch.load, data) is not None
    for form in (data, lmc.compress(data)):
        with pytest.raises(lmc.DamagedError) as raised:
            lmc.torch.load(form)
        assert raised.value.kind == "damaged" and len(str(raised.value)) < 500


@pytest.mark.parametrize("dtype, shape", [("F6_E2M3", "[4]"), ("F6_E3M2", "[2,2]"), ("F4", "[2,3]")])
def test_what_torch_has_no_tensor_for(dtype, shape):
    data = header_of(field(dtype=dtype, shape=shape, offsets="[0,3]"), data=b"123")
    assert raised_by(safetensors.torch.load, data) is not None
    with lmc.torch.safe_open(data) as f:
        for call in (f.get_tensor, f.get_slice):
            with pytest.raises(lmc.UnsupportedError, match=f"'t'.* {dtype}"):
                call("t")


@pytest.mark.parametrize("dims", [0, 1, 8, 41, 64])
def test_dimensions(dims):
    tensors = {"deep": torch.arange(2 if dims else 1).view([1] * (dims - 1) + [2] * (dims > 0))}
    assert_same(lmc.torch.load(lmc.torch.save(tensors)), tensors)


def test_tensors_of_more_dimensions_than_numpy_has():
    data = header_of(field("deep", shape=f"[{'1,' * 69}4]"), field("flat", offsets="[4,8]"), data=b"12345678")
    compressed = lmc.compress(data)
    assert lmc.open(compressed).keys() == ["flat"]
    assert lmc.decompress(compressed) == data
    with pytest.raises(lmc.DamagedError, match='"deep" has more than 64 dimensions'):
        lmc.torch.load(compressed)


def test_deltas_and_their_bases(tmp_path):
    base, later = {"w": weights(300, 50)}, {"w": weights(300, 50) * 1.001}
    first, second, third = (tmp_path / f"{i}.lmc" for i in range(3))
    lmc.torch.save_file(base, first)
    lmc.torch.save_file(later, second, base=first)
    lmc.torch.save_file(base, third, base=[second, first])
    for form in (first, str(first), first.read_bytes(), lmc.open(first), [first]):
        assert_same(lmc.torch.load_file(second, base=form), later)
    assert_same(lmc.torch.load_file(third, base=[second, first]), base)
    with lmc.torch.safe_open(second, base=first) as f:
        assert torch.equal(f.get_slice("w")[7:9, ::3], later["w"][7:9, ::3])
    assert_same(lmc.torch.load_file(third), base)
    for wrong in (third.read_bytes()[:-1], safetensors.torch.save(later)):
        with pytest.raises((lmc.BaseMismatchError, lmc.FormatError)):
            lmc.torch.load_file(second, base=wrong)


def test_threads_share_a_file(path):
    failures = []

    def read(f):
        try:
            for _ in range(20):
                assert_same(f.get_tensors(), TENSORS)
                assert torch.equal(f.get_slice("z")[3:5], TENSORS["z"][3:5])
        except BaseException as e:
            failures.append(e)

    with lmc.torch.safe_open(path) as f:
        threads = [threading.Thread(target=read, args=(f,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_windows_on_the_way_to_a_device(monkeypatch):
    """Data for other devices are read in windows: larger tensors in chunks, small ones together."""
    tensors = {f"{name}.{n}": random_bits(dtype, (n,)) for name, dtype in DTYPES.items() for n in (0, 1, 130, 1000)}
    monkeypatch.setattr(_file, "_WINDOW", 1000)
    file = _file.TensorFile(lmc.torch.save(tensors))
    wanted = [(e, file.empty(e, torch.device("cpu"))) for name, e in file.entries().items() if "U16" not in name]
    reads = []

    def read_into(offset, out):
        reads.append((offset, len(out)))
        return file._file.read_range_into(offset, out)

    _file.send(read_into, _file._pieces(wanted), torch.device("cpu"))
    assert_same({e.name: tensor for e, tensor in wanted}, {k: v for k, v in tensors.items() if "U16" not in k})
    total = sum(e.nbytes for e, _ in wanted)
    assert sum(n for _, n in reads) == total and max(n for _, n in reads) <= 1000
    assert reads == sorted(reads) and len(reads) < 3 * total / 1000


def test_no_memory():
    with pytest.raises(lmc.LimitError, match="out of memory") as raised:
        _memory.empty((1 << 60,), torch.uint8)
    assert raised.value.kind == "limit"


def many(count=1500):
    """Small tensors between larger ones, more than a block of them."""
    found = {}
    for i in range(count):
        found[f"{i:04}.bias"] = weights(1 + i % 60, 31, seed=i)
        found[f"{i:04}.flag"] = torch.tensor([i % 2 == 0])
        if i % 300 == 0:
            found[f"{i:04}.weight"] = weights(300, 200, seed=i)
            found[f"{i:04}.none"] = torch.empty(0, 3)
            found[f"{i:04}.f8"] = weights(40, seed=i).to(torch.float8_e4m3fn)
    return found


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("package", [lmc.torch, safetensors.torch])
def test_small_tensors_among_large_ones(tmp_path, package, threads):
    expected = many()
    package.save_file(expected, tmp_path / "many")
    found = lmc.torch.load_file(tmp_path / "many", threads=threads)
    assert_same(found, expected)
    assert list(found) == list(lmc.torch.safe_open(tmp_path / "many").offset_keys())
    end = 0
    for tensor in sorted((t for t in found.values() if t.numel()), key=torch.Tensor.data_ptr):
        assert tensor.data_ptr() >= end and tensor.data_ptr() % 16 == 0
        end = tensor.data_ptr() + tensor.nbytes
        assert tensor.is_contiguous() and tensor.is_leaf and tensor._base is None and tensor.storage_offset() == 0
        assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensor.untyped_storage().nbytes() == tensor.nbytes
    assert raised_by(safetensors.torch.save, found) is None and raised_by(lmc.torch.save, found) is None


def test_small_tensors_are_like_any_other():
    found = lmc.torch.load(lmc.torch.save({f"{i}": weights(5, 4, seed=i) for i in range(9)}))
    file = io.BytesIO()
    torch.save(found["0"], file)
    assert len(file.getvalue()) < 4000
    for copied in (pickle.loads(pickle.dumps(found["0"])), copy.deepcopy(found["0"]), found["0"].clone()):
        assert same(copied, weights(5, 4, seed=0))
    found["1"].fill_(1)
    found["2"].share_memory_()
    found["3"].requires_grad_().sum().backward()
    assert torch.equal(found["3"].grad, torch.ones(5, 4))
    parameter = torch.nn.Parameter(found["4"])
    found["5"].resize_(2, 3)
    found["6"].set_(torch.zeros(100))
    assert torch.equal(found["1"], torch.ones(5, 4)) and same(found["2"], weights(5, 4, seed=2))
    last = found["7"]
    del found
    assert same(parameter, weights(5, 4, seed=4)) and same(last, weights(5, 4, seed=7))
    with torch.inference_mode():
        assert lmc.torch.load(lmc.torch.save({"a": last, "b": parameter}))["a"].is_inference()


def test_offsets_that_no_element_is_aligned_to():
    header = '{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
    header += '"b":{"dtype":"F32","shape":[2],"data_offsets":[3,11]},'
    header += '"c":{"dtype":"I64","shape":[1,1],"data_offsets":[11,19]}}'
    elements = bytes([1, 2, 3]) + struct.pack("<2fq", 0.5, -2, -7)
    file = struct.pack("<Q", len(header)) + header.encode() + elements
    a, b, c = torch.tensor([1, 2, 3], dtype=torch.uint8), torch.tensor([0.5, -2]), torch.tensor([[-7]])
    for data in (file, lmc.compress(file)):
        found = lmc.torch.load(data)
        assert_same(found, {"a": a, "b": b, "c": c})
        assert all(tensor.data_ptr() % 64 == 0 for tensor in found.values())


def test_memory_of_small_tensors_is_freed(tmp_path):
    count, size = 8192, 1024
    lmc.torch.save_file({f"{i:05}": torch.full((size,), i) for i in range(count)}, tmp_path / "many.lmc")

    def kept():
        return lmc.torch.load_file(tmp_path / "many.lmc", threads=1)["04000"]

    kept()
    before, all_kept = resident(), []
    for _ in range(3):
        all_kept.append(kept())
    # All of them have 64 MiB each time.
    assert resident() - before < 32 << 20
    assert all(torch.equal(tensor, torch.full((size,), 4000)) for tensor in all_kept)
