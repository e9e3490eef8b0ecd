"""The version of the file format that is written: 1.0 has no grids."""

import io

import lmc
import lmc.numpy
import lmc.sync
import pytest
from conftest import dequantised, has_grids

W = dequantised()
RAW = lmc.decompress(lmc.numpy.save({"w": W}))
TENSORS = [("w", "F32", W.shape, W)]


def of_file(write):
    """A way to make a `.lmc` file in memory out of one that writes to a path."""

    def made(folder, **options):
        write(folder / "w.lmc", **options)
        return (folder / "w.lmc").read_bytes()

    return made


def into(folder, **options):
    out = bytearray(lmc.compress_bound(len(RAW)))
    return bytes(out[: lmc.compress_into(RAW, out, **options)])


def file(path, **options):
    raw = path.with_suffix(".safetensors")
    raw.write_bytes(RAW)
    lmc.compress_file(raw, path, **options)


FILES = {
    "compress": lambda folder, **options: lmc.compress(RAW, **options),
    "compress_into": into,
    "compress_file": of_file(file),
    "compress_stream": of_file(lambda path, **options: lmc.compress_stream(io.BytesIO(RAW), path, **options)),
    "compress_tensors": lambda folder, **options: lmc.compress_tensors(TENSORS, **options),
    "compress_tensors_file": of_file(lambda path, **options: lmc.compress_tensors_file(TENSORS, path, **options)),
    "Compressor": lambda folder, **options: lmc.Compressor(**options).compress(RAW),
    "numpy.save": lambda folder, **options: lmc.numpy.save({"w": W}, **options),
    "numpy.save_file": of_file(lambda path, **options: lmc.numpy.save_file({"w": W}, path, **options)),
}


@pytest.mark.parametrize("way", FILES)
def test_files(tmp_path, way):
    made = FILES[way]
    newest, old = made(tmp_path), made(tmp_path, format="1.0")
    assert has_grids(newest) and not has_grids(old)
    assert 2 * len(newest) < len(old)
    assert lmc.decompress(newest) == lmc.decompress(old) == RAW
    assert made(tmp_path, format="1.1") == made(tmp_path, format=None) == newest
    for wrong in ("2", "1", "01.0", ""):
        with pytest.raises(lmc.UsageError, match=f'^format="{wrong}": must be one of 1.0, 1.1$'):
            made(tmp_path, format=wrong)
    with pytest.raises(TypeError, match="'?format'?"):
        made(tmp_path, format=1.0)


def test_estimates(tmp_path):
    newest, old = (lmc.estimate(RAW, format=version).compressed_size for version in lmc.FORMATS[::-1])
    assert lmc.estimate(RAW).compressed_size == newest < old / 2
    with pytest.raises(lmc.UsageError, match='format="2": must be one of'):
        lmc.estimate(RAW, format="2")


def save_shard(store, **options):
    store.publish(1, [store.save_shard({"w.safetensors": TENSORS}, step=1, **options).shard])


def publish(store, **options):
    lmc.sync.Publisher(store.location, **options).publish({"w": W}, step=1)


STORES = {
    "save": lambda store, **options: store.save({"w.safetensors": TENSORS}, step=1, **options),
    "save_shard": save_shard,
    "Publisher": publish,
}


def contents(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize("way", STORES)
def test_stores(tmp_path, way):
    for name, options in {"newest": {}, "given": {"format": "1.1"}, "old": {"format": "1.0"}}.items():
        store = lmc.Store.create(tmp_path / name)
        STORES[way](store, **options)
        assert has_grids(contents(tmp_path / name)) == (name != "old")
        assert store.open_snapshot(1).read("w") == W.tobytes()
    store = lmc.Store.create(tmp_path / "wrong")
    with pytest.raises(lmc.UsageError, match='format="2": must be one of 1.0, 1.1'):
        STORES[way](store, format="2")
    assert store.snapshots() == []


@pytest.mark.parametrize("options", [{}, {"format": "1.0"}])
def test_what_is_encoded_again(tmp_path, options):
    store = lmc.Store.create(tmp_path / "store")
    w = W.copy()
    for step in range(6):
        # So many elements change that the deltas take more than a quarter of the data.
        w[:, step::6] *= -1
        store.save({"w.safetensors": [("w", "F32", w.shape, w)]}, step=step, base="previous", format="1.0")
    assert not has_grids(contents(tmp_path / "store"))
    assert store.prune(keep_last=1, **options).rebased == [5]
    assert has_grids(contents(tmp_path / "store")) == (not options)
    assert store.open_snapshot().read("w") == w.tobytes()
    with pytest.raises(lmc.UsageError, match='format="2": must be one of 1.0, 1.1'):
        store.prune(keep_last=1, format="2")
