"""Files in memory."""

import array as arrays
import hashlib
import io
import json
import mmap

import lmc
import numpy as np
import pytest
from conftest import weights
from xxhash import xxh3_64_intdigest


def test_round_trip(raw):
    file = lmc.compress(raw, dtype="F32")
    assert isinstance(file, bytes)
    assert len(file) < 0.9 * len(raw)
    assert lmc.decompress(file) == raw


@pytest.mark.parametrize("data", [b"", b"x", bytes(1000), b"text " * 100_000])
def test_any_bytes(data):
    assert lmc.decompress(lmc.compress(data)) == data


@pytest.mark.parametrize("level", ["fast", "default", "max"])
def test_output_does_not_depend_on_threads(raw, level):
    files = {lmc.compress(raw, dtype="F32", level=level, threads=n) for n in (None, 0, 1, 3)}
    assert len(files) == 1
    assert all(lmc.decompress(file, threads=n) == raw for file in files for n in (1, 3))


def test_digests(raw, tmp_path):
    new = raw + b"more"
    whole, base = (hashlib.sha256(data).hexdigest() for data in (new, raw))
    want = [lmc.Digest(0, "SHA-256", whole), lmc.Digest(1, "SHA-256", base)]
    (tmp_path / "new").write_bytes(new)
    lmc.compress_file(tmp_path / "new", tmp_path / "file", base=raw, digest=True)
    lmc.compress_stream(io.BytesIO(new), tmp_path / "streamed", base=raw, digest=True)
    for file in (lmc.compress(new, base=raw, digest=True), tmp_path / "file", tmp_path / "streamed"):
        with lmc.open(file, base=raw) as opened:
            assert opened.digests == want
            assert "ranges" in opened.features
    with lmc.open(lmc.compress(raw)) as opened:
        assert (opened.digests, opened.features) == ([], [])
    # As if somebody had changed the raw bytes.
    file = bytearray(lmc.compress(raw, digest=True))
    at = file.index(bytes.fromhex(base))
    file[at] ^= 1
    record = file.index(b"dIGS")
    check = xxh3_64_intdigest(bytes(file[record : record + 16] + file[record + 24 : at + 32]))
    file[record + 16 : record + 24] = check.to_bytes(8, "little")
    with pytest.raises(lmc.DamagedError, match="the SHA-256 of the raw bytes is"):
        lmc.decompress(file)


def test_tensors_that_no_index_can_have_are_counted():
    tensors = [(name, "U8", [1], b"x") for name in ("a", "n" * 2**16)]
    header = json.dumps(
        {n: {"dtype": d, "shape": s, "data_offsets": [i, i + 1]} for i, (n, d, s, _) in enumerate(tensors)}
    ).encode()
    raw = len(header).to_bytes(8, "little") + header + b"xx"
    file = io.BytesIO()
    assert lmc.compress_stream(io.BytesIO(raw), file).unlisted_tensors == 1
    with lmc.open(file.getvalue()) as opened:
        assert opened.keys() == ["a"]
    assert lmc.decompress(file.getvalue()) == raw


def test_levels_differ(raw):
    fast, best = (len(lmc.compress(raw, dtype="F32", level=level)) for level in ("fast", "max"))
    assert best < fast


def test_every_kind_of_buffer(array, raw):
    want = lmc.compress(raw, dtype="F32")
    with mmap.mmap(-1, len(raw)) as mapped:
        mapped.write(raw)
        buffers = [
            bytearray(raw),
            memoryview(raw),
            memoryview(bytearray(raw)),
            array,
            array.view(np.uint8),
            array.reshape(1 << 9, -1),
            arrays.array("f", raw),
            io.BytesIO(raw).getbuffer(),
            mapped,
        ]
        for buffer in buffers:
            assert lmc.compress(buffer, dtype="F32") == want, type(buffer)


def test_odd_addresses(raw):
    """Memory that may change is read by words, wherever it begins."""
    memory = bytearray(raw)
    for start, size in [(1, 100_001), (3, 5), (7, 64), (8, 65), (5, 0), (2, 1 << 20)]:
        part = memoryview(memory)[start : start + size]
        assert lmc.compress(part) == lmc.compress(raw[start : start + size])


def test_into_every_kind_of_buffer(array, raw):
    file = lmc.compress(raw, dtype="F32")
    for data in (file, bytearray(file)):
        for out in (bytearray(len(raw)), np.zeros_like(array), np.zeros((1 << 9, len(array) >> 9), np.float32)):
            assert lmc.decompress_into(data, out) == len(raw)
            assert bytes(out) == raw
    with mmap.mmap(-1, len(raw)) as mapped:
        lmc.decompress_into(file, mapped)
        assert mapped[:] == raw
    assert lmc.decompress_into(lmc.compress(b""), bytearray()) == 0


def test_into_refuses_what_does_not_fit(raw):
    file = lmc.compress(raw)
    for out in (bytearray(len(raw) - 1), bytearray(len(raw) + 1), bytes(len(raw))):
        with pytest.raises(lmc.UsageError) as e:
            lmc.decompress_into(file, out)
        assert e.value.kind == "usage"
    with pytest.raises(lmc.UsageError, match="contiguous"):
        lmc.decompress_into(file, np.zeros(2 * len(raw), np.uint8)[::2])
    with pytest.raises(TypeError, match="not int"):
        lmc.decompress_into(file, 3)


def test_into_refuses_shared_memory(raw):
    file = lmc.compress(raw)
    memory = bytearray(file) + bytearray(len(raw))
    view = memoryview(memory)
    with pytest.raises(lmc.UsageError, match="shares memory with data"):
        lmc.decompress_into(view[: len(file)], view[len(file) - 1 : len(file) - 1 + len(raw)])
    lmc.decompress_into(view[: len(file)], view[len(file) :])
    assert memory[len(file) :] == raw
    base = bytearray(raw)
    delta = lmc.compress(raw, base=base)
    with pytest.raises(lmc.UsageError, match="shares memory with a base"):
        lmc.decompress_into(delta, base, base=base)


def test_compressing_into_memory_that_is_there(array, raw, later):
    want = lmc.compress(raw, dtype="F32")
    sizes = (lmc.compress_bound(len(raw)), len(want) + 1, len(want))
    for size in sizes:
        for data in (raw, memoryview(raw), array):
            out = bytearray(b"\xaa" * size)
            assert lmc.compress_into(data, out, dtype="F32", threads=1) == len(want)
            assert out[: len(want)] == want
    encode, out = lmc.Compressor(dtype="F32", threads=2), np.empty(sizes[0], np.uint8)
    delta = lmc.compress(later, dtype="F32", base=raw)
    for _ in range(2):
        assert out[: encode.compress_into(array, out)].tobytes() == want
        assert out[: encode.compress_into(later, out, base=raw)].tobytes() == delta
    for size in (0, 1, len(want) - 1):
        with pytest.raises(lmc.LimitError, match=f"room for {size} bytes, and the file has {len(want)}"):
            lmc.compress_into(raw, bytearray(size), dtype="F32")


def test_compressing_into_what_cannot_be_written(raw):
    memory = bytearray(2 * len(raw))
    both = memoryview(memory)
    for data, base in ((both[: len(raw)], None), (raw, both[-len(raw) :])):
        with pytest.raises(lmc.UsageError, match="shares memory with"):
            lmc.compress_into(data, memory, base=base)
    with pytest.raises(lmc.UsageError, match="out must be a writable"):
        lmc.compress_into(raw, bytes(len(raw)))
    with pytest.raises(TypeError):
        lmc.compress_into(raw, None)


def test_what_is_no_buffer():
    for data in ("text", 7, None, [1, 2], object()):
        with pytest.raises(TypeError, match="bytes-like object, not "):
            lmc.compress(data)
        with pytest.raises(TypeError):
            lmc.decompress(data)


def test_what_is_not_contiguous(array):
    for data in (array[::2], array.reshape(3, -1).T, memoryview(b"abcd")[::2]):
        with pytest.raises(lmc.UsageError, match="contiguous"):
            lmc.compress(data)


@pytest.mark.parametrize(
    "options", [{"level": "best"}, {"dtype": "F33"}, {"threads": -1}, {"threads": 5000}, {"dtype": ""}]
)
def test_options_that_do_not_exist(options):
    with pytest.raises(lmc.UsageError, match=next(iter(options))) as e:
        lmc.compress(b"data", **options)
    assert isinstance(e.value, ValueError)
    with pytest.raises(lmc.UsageError):
        lmc.Compressor(**options)


def test_options_of_another_type():
    for options in ({"level": 3}, {"threads": "2"}, {"dtype": 1}, {"unknown": 1}, {"base": 3}):
        with pytest.raises(TypeError):
            lmc.compress(b"data", **options)


def test_dtypes_in_any_case(raw):
    assert lmc.compress(raw, dtype="f32") == lmc.compress(raw, dtype="F32")


def test_damage(raw):
    file = lmc.compress(raw, dtype="F32")
    for at in (9, len(file) // 2, len(file) - 1):
        damaged = bytearray(file)
        damaged[at] ^= 1
        with pytest.raises(lmc.FormatError) as e:
            lmc.decompress(damaged)
        assert e.value.kind in ("damaged", "unsupported")
    in_block = bytearray(file)
    in_block[len(file) // 2] ^= 1
    with pytest.raises(lmc.DamagedError) as e:
        lmc.decompress(in_block)
    assert e.value.kind == "damaged"
    assert e.value.block > 0
    assert e.value.offset > 0


def test_every_truncation():
    file = lmc.compress(b"a few bytes")
    for end in range(len(file)):
        with pytest.raises(lmc.FormatError):
            lmc.decompress(file[:end])


def test_what_is_no_lmc_file():
    with pytest.raises(lmc.UnsupportedError, match="not an lmc file") as e:
        lmc.decompress(b"something else")
    assert (e.value.kind, isinstance(e.value, ValueError)) == ("unsupported", True)


def test_limit(raw):
    file = lmc.compress(raw)
    assert lmc.decompress(file, max_size=len(raw)) == raw
    for decompress in (
        lambda: lmc.decompress(file, max_size=len(raw) - 1),
        lambda: lmc.Decompressor(max_size=1000).decompress(file),
    ):
        with pytest.raises(lmc.LimitError) as e:
            decompress()
        assert e.value.kind == "limit"


def test_deltas(array, later, tmp_path):
    raw, new = array.tobytes(), later.tobytes()
    file, path = lmc.compress(raw), tmp_path / "old"
    path.write_bytes(raw)
    lmc.compress_file(path, tmp_path / "old.lmc")
    alone, want = lmc.compress(new, dtype="F32"), lmc.compress(new, dtype="F32", base=raw)
    assert len(want) < 0.6 * len(alone)
    with lmc.open(file) as opened:
        for base in (raw, array, bytearray(raw), file, opened, [raw], (file,)):
            assert lmc.compress(new, dtype="F32", base=base) == want
            assert lmc.decompress(want, base=base) == new
        out = bytearray(len(new))
        lmc.decompress_into(want, out, base=opened)
        assert out == new
    for base in (path, str(path), tmp_path / "old.lmc"):
        # The name of its file goes into the delta.
        assert lmc.decompress(lmc.compress(new, base=base), base=raw) == new
        assert lmc.decompress(want, base=base) == new


def test_deltas_of_deltas(array):
    steps = [(array * np.float32(1 + n / 1000)).tobytes() for n in range(3)]
    files = [lmc.compress(steps[0])]
    for n in (1, 2):
        files.append(lmc.compress(steps[n], base=steps[n - 1]))
    assert lmc.decompress(files[2], base=[files[1], files[0]]) == steps[2]
    assert lmc.decompress(files[2], base=[files[0], files[1]]) == steps[2]
    with lmc.open(files[1], base=files[0]) as first:
        assert lmc.decompress(files[2], base=first) == steps[2]
    with pytest.raises(lmc.BaseMismatchError, match="is a delta itself"):
        lmc.decompress(files[2], base=files[1])


def test_wrong_bases(array, later, tmp_path):
    raw, new = array.tobytes(), later.tobytes()
    delta = lmc.compress(new, base=raw)
    for base in (None, [], new, weights(len(array), seed=9), b"short", [raw, b"another one"]):
        with pytest.raises(lmc.BaseMismatchError) as e:
            lmc.decompress(delta, base=base)
        assert (e.value.kind, isinstance(e.value, ValueError)) == ("base", True)
    with pytest.raises(lmc.BaseMismatchError, match="no delta"):
        lmc.decompress(lmc.compress(raw), base=raw)
    with pytest.raises(FileNotFoundError):
        lmc.compress(new, base=tmp_path / "missing")
    with pytest.raises(TypeError, match="base must be"):
        lmc.compress(new, base={"old": raw})
    closed = lmc.open(lmc.compress(raw))
    closed.close()
    with pytest.raises(lmc.UsageError, match="closed"):
        lmc.compress(new, base=closed)


def test_objects_keep_nothing_of_earlier_files(array, raw, later):
    compressor, decompressor = lmc.Compressor(dtype="F32", threads=2), lmc.Decompressor(threads=2)
    new = later.tobytes()
    for _ in range(3):
        for data in (raw, b"", new[:1001], array):
            file = compressor.compress(data)
            assert file == lmc.compress(data, dtype="F32")
            assert decompressor.decompress(file) == bytes(data)
        delta = compressor.compress(new, base=raw)
        out = bytearray(len(new))
        assert decompressor.decompress_into(delta, out, base=raw) == len(new)
        assert out == new
        with pytest.raises(lmc.BaseMismatchError):
            decompressor.decompress(delta)


def test_estimate(raw, later, tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(raw)
    file = lmc.compress(raw, dtype="F32")
    for data in (raw, path):
        found = lmc.estimate(data, dtype="F32")
        assert (found.raw_size, found.compressed_size, found.sampled) == (len(raw), len(file), len(raw))
        assert found.margin == 0
    assert lmc.estimate(later, dtype="F32", base=raw).compressed_size < 0.6 * len(file)
    with pytest.raises(TypeError):
        lmc.estimate(3)


def test_compressing_what_is_compressed(raw):
    file = lmc.compress(raw)
    assert lmc.decompress(lmc.decompress(lmc.compress(file))) == raw
