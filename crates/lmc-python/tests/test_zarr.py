"""`lmc.zarr` and `lmc.numcodecs` with zarr and numcodecs themselves."""

import importlib.metadata

import lmc
import lmc.numcodecs
import lmc.zarr
import numcodecs
import numpy as np
import pytest
import zarr
from conftest import weights
from lmc.numcodecs import Lmc
from lmc.zarr import LmcCodec

numcodecs.register_codec(Lmc)
zarr.registry.register_codec("lmc", LmcCodec)

SHAPE, CHUNKS = (300, 1000), (128, 1000)
ARRAY = weights(300_000, 4).reshape(SHAPE)


def made(folder, array, compressor, **options):
    """An array of zarr on disk."""
    found = zarr.create_array(
        folder, shape=array.shape, dtype=array.dtype, compressors=compressor, **{"chunks": CHUNKS} | options
    )
    found[...] = array
    return found


def chunks(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".z", "zarr")))


@pytest.mark.wheel
def test_both_libraries_find_their_codecs():
    for group, expected in (("zarr.codecs", LmcCodec), ("numcodecs.codecs", Lmc)):
        (found,) = importlib.metadata.entry_points(group=group, name="lmc")
        assert found.load() is expected


@pytest.mark.parametrize("version, compressor", [(3, LmcCodec(level="fast")), (2, Lmc(level="fast"))])
def test_chunks_are_compressed_by_type(tmp_path, version, compressor):
    made(tmp_path, ARRAY, compressor, zarr_format=version)
    again = zarr.open_array(tmp_path, mode="r")
    assert np.array_equal(again[...], ARRAY)
    assert np.array_equal(again[100:200, 5], ARRAY[100:200, 5])
    assert "fast" in str(again.compressors)
    assert len(chunks(tmp_path)) == 3
    for path in chunks(tmp_path):
        with lmc.open(path) as file:
            assert [t.dtype for t in file.tensors()] == ["F32"]
            assert file.size == 128 * 1000 * 4


@pytest.mark.parametrize("compressor", [{"name": "lmc"}, {"name": "lmc", "configuration": {"level": "max"}}])
def test_it_has_a_name(tmp_path, compressor):
    made(tmp_path, ARRAY, compressor)
    assert np.array_equal(zarr.open_array(tmp_path)[...], ARRAY)


@pytest.mark.parametrize("version, compressor", [(3, LmcCodec()), (2, Lmc())])
@pytest.mark.parametrize("dtype", ["?", "i1", "<u2", ">u2", "<i8", "<f2", ">f4", "<f8", "<c8", "<c16", "<M8[s]", "<U4"])
def test_types_of_elements(tmp_path, version, compressor, dtype):
    array = (np.arange(1000) % 77).reshape(10, 100).astype(dtype)
    made(tmp_path, array, compressor, zarr_format=version, chunks=(3, 7))
    assert np.array_equal(zarr.open_array(tmp_path)[...], array)


def test_texts_of_any_length(tmp_path):
    array = np.array(["one", "", "three…"] * 99, dtype=np.dtypes.StringDType())
    made(tmp_path, array, LmcCodec(), chunks=(50,))
    assert np.array_equal(zarr.open_array(tmp_path)[...], array)


def test_with_other_codecs_and_in_shards(tmp_path):
    made(tmp_path / "a", ARRAY, [LmcCodec(), zarr.codecs.Crc32cCodec()])
    made(tmp_path / "b", ARRAY, [zarr.codecs.GzipCodec(), LmcCodec()])
    made(tmp_path / "c", ARRAY, LmcCodec(), chunks=(64, 100), shards=(128, 1000))
    for name in "abc":
        assert np.array_equal(zarr.open_array(tmp_path / name)[...], ARRAY)
    assert np.array_equal(zarr.open_array(tmp_path / "c")[70, 150:250], ARRAY[70, 150:250])


@pytest.mark.parametrize("version, compressor", [(3, LmcCodec()), (2, Lmc())])
def test_damaged_chunks(tmp_path, version, compressor):
    array = made(tmp_path, ARRAY, compressor, zarr_format=version)
    path = chunks(tmp_path)[0]
    data = path.read_bytes()
    for wrong in (data[:-1], data[:100] + bytes(4) + data[104:], b"", b"no lmc file"):
        path.write_bytes(wrong)
        with pytest.raises(lmc.FormatError):
            array[...]


def test_levels_that_there_are_not():
    for wrong in (LmcCodec, Lmc):
        with pytest.raises(lmc.UsageError, match="level"):
            wrong(level="best")
    with pytest.raises(lmc.UsageError, match="level"):
        LmcCodec.from_dict({"name": "lmc", "configuration": {"level": "best"}})


def test_numcodecs_alone():
    codec = numcodecs.get_codec({"id": "lmc", "level": "max"})
    assert codec == Lmc("max")
    assert codec.get_config() == {"id": "lmc", "level": "max"}
    for given in (ARRAY, ARRAY.astype(">f4"), ARRAY[:3].tobytes(), bytearray(b"text"), memoryview(b"")):
        data = bytes(memoryview(given).cast("B"))
        file = codec.encode(given)
        assert bytes(codec.decode(file)) == data
        out = bytearray(len(data))
        assert codec.decode(file, out=out) is out
        assert out == data
    for size in (3, 5):
        with pytest.raises(lmc.Error):
            codec.decode(codec.encode(b"four"), out=bytearray(size))
    with pytest.raises(TypeError):
        codec.encode(np.array([object()]))
    with pytest.raises(ValueError):
        codec.encode(ARRAY[:, ::2])
