"""Models of several files: `load_file` and `safe_open` of a directory, and of an index."""

import json
import os
import shutil

import lmc
import lmc.numpy
import numpy as np
import pytest
import safetensors.numpy
from conftest import equal, weights

INDEX = "model.safetensors.index.json"


def tensors(*names):
    return {name: weights(1000, seed=ord(name)) for name in names}


def saved(path, names, compressed):
    if compressed:
        lmc.numpy.save_file(tensors(*names), f"{path}.lmc")
    else:
        safetensors.numpy.save_file(tensors(*names), path)


def index(folder, weight_map, name=INDEX):
    (folder / name).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return folder / name


@pytest.fixture
def shards(tmp_path):
    """A model of three files: one is compressed, one is not, and one is a delta of a file beside it."""
    folder = tmp_path / "m"
    (folder / "sub").mkdir(parents=True)
    saved(folder / "1.safetensors", "ab", True)
    saved(folder / "2.safetensors", "c", False)
    base = folder / "earlier.bin"
    safetensors.numpy.save_file({"d": weights(1000, seed=ord("d")) * np.float32(1.001)}, base)
    lmc.numpy.save_file(tensors("d"), folder / "sub" / "3.safetensors.lmc", base=base)
    shutil.move(base, folder / "sub")
    index(folder, {"a": "1.safetensors", "b": "1.safetensors", "c": "2.safetensors", "d": "sub/3.safetensors"})
    return folder


def test_a_directory_and_an_index(shards):
    for path in (shards, str(shards), f"{shards}/", shards / INDEX, str(shards / INDEX)):
        assert equal(lmc.numpy.load_file(path), tensors(*"abcd"))
    lmc.compress_file(shards / INDEX, shards / f"{INDEX}.lmc")
    (shards / INDEX).unlink()
    for path in (shards, shards / INDEX, shards / f"{INDEX}.lmc"):
        assert equal(lmc.numpy.load_file(path, threads=1), tensors(*"abcd"))


@pytest.mark.parametrize("compressed", [True, False])
def test_a_directory_with_one_file(tmp_path, monkeypatch, compressed):
    saved(tmp_path / "model.safetensors", "xy", compressed)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "optimizer.pt.lmc").write_bytes(lmc.compress(b"of something else"))
    (tmp_path / "._model.safetensors").write_text("of a Mac")
    assert equal(lmc.numpy.load_file(tmp_path), tensors("x", "y"))
    # Both forms are one model.
    saved(tmp_path / "model.safetensors", "xy", not compressed)
    assert equal(lmc.numpy.load_file(tmp_path), tensors("x", "y"))
    monkeypatch.chdir(tmp_path)
    assert equal(lmc.numpy.load_file("."), tensors("x", "y"))


def test_tensors_of_a_model(shards, monkeypatch):
    monkeypatch.setattr("lmc._shards._MAX_OPEN", 2)
    safetensors.numpy.save_file(tensors("c"), shards / "2.safetensors", {"format": "np"})
    expected = tensors(*"abcd")
    for path in (shards, shards / INDEX):
        with lmc.numpy.safe_open(path) as f, lmc.safe_open(str(path), "np", threads=1) as g:
            assert isinstance(f, lmc.numpy.safe_open)
            assert f.keys() == f.offset_keys() == list("abcd")
            assert f.metadata() == {"format": "np"}
            parts = [f.get_slice(name) for name in "dabc"]
            assert all(np.array_equal(f.get_tensor(name), expected[name]) for name in "dcab")
            for part, name in zip(parts, "dabc", strict=True):
                assert part.get_shape() == [1000] and np.array_equal(part[7:9], expected[name][7:9])
            assert equal(g.get_tensors(), expected)
            with pytest.raises(lmc.NotFoundError, match=f"{INDEX} has no tensor 'x'"):
                f.get_tensor("x")
    for call in (f.keys, f.offset_keys, f.metadata, f.get_tensors, f.__enter__, lambda: f.get_tensor("a")):
        with pytest.raises(lmc.UsageError, match="closed"):
            call()
    with pytest.raises(lmc.UsageError, match="framework='tf'"):
        lmc.numpy.safe_open(shards, "tf")


def test_tensors_of_the_one_file_of_a_directory(tmp_path):
    saved(tmp_path / "model.safetensors", "xy", True)
    with lmc.numpy.safe_open(tmp_path) as f:
        assert f.keys() == ["x", "y"] and f.metadata() is None
        assert np.array_equal(f.get_tensor("y"), tensors("y")["y"])


def test_no_model_and_several(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(lmc.NotFoundError, match=f"{tmp_path} has no model"):
        lmc.numpy.load_file(tmp_path)
    saved(tmp_path / "model.safetensors", "x", True)
    saved(tmp_path / "model.fp16.safetensors", "y", False)
    said = r"several models, model\.fp16\.safetensors and model\.safetensors: name one"
    with pytest.raises(lmc.UsageError, match=said):
        lmc.numpy.load_file(tmp_path)
    (tmp_path / "model.fp16.safetensors").unlink()
    index(tmp_path, {"y": "2.safetensors"})
    with pytest.raises(lmc.UsageError, match=r"several models, model\.safetensors and model\.safetensors\.index\.json"):
        lmc.numpy.load_file(tmp_path)


def test_what_contradicts_an_index(shards):
    saved(shards / "4.safetensors", "ae", False)
    names = {"a": "1.safetensors", "e": "4.safetensors"}
    for weight_map, said in (
        (names, "1.safetensors and 4.safetensors both have the tensor 'a'"),
        ({"z": "2.safetensors"}, "2.safetensors has no tensor 'z'"),
        ({"a": "1.safetensors", "c": "1.safetensors"}, "1.safetensors has no tensor 'c'"),
    ):
        with pytest.raises(lmc.DamagedError, match=said):
            lmc.numpy.load_file(index(shards, weight_map))
    with lmc.numpy.safe_open(shards / INDEX) as f, pytest.raises(lmc.DamagedError, match=said):
        f.get_slice("c")
    with pytest.raises(FileNotFoundError, match=f"{INDEX} names 5.safetensors") as raised:
        lmc.numpy.load_file(index(shards, {"a": "1.safetensors", "b": "5.safetensors"}))
    assert raised.value.kind == "io"
    (shards / "5.safetensors").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match=f"{INDEX} names 5.safetensors"):
        lmc.numpy.load_file(shards / INDEX)


@pytest.mark.parametrize(
    "file", ["../1.safetensors", "/etc/passwd", "sub/../../x", "", ".", "a\0b", 5, None, ["x"], "\ud800"]
)
def test_an_index_names_files_below_it(shards, file):
    with pytest.raises((lmc.DamagedError, FileNotFoundError)) as raised:
        lmc.numpy.load_file(index(shards, {"a": file}))
    assert str(shards / INDEX) in str(raised.value)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b"{}", b'{"weight_map": 7}', b"\xff", b"[" * 100_000, b'{"weight_map": ["a"]}']
)
def test_what_is_no_index(shards, text):
    (shards / INDEX).write_bytes(text)
    for path in (shards, shards / INDEX):
        with pytest.raises(lmc.DamagedError, match=f"{INDEX} is no index of weights"):
            lmc.numpy.load_file(path)


def test_an_index_has_a_limit(shards, monkeypatch):
    monkeypatch.setattr("lmc._shards._MAX_INDEX", 10)
    with pytest.raises(lmc.DamagedError, match="more than 10 bytes"):
        lmc.numpy.load_file(shards)


def test_a_damaged_shard_is_named(shards):
    path = shards / "1.safetensors.lmc"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(lmc.DamagedError, match=str(path)):
        lmc.numpy.load_file(shards)


def test_bases_beside_a_delta(tmp_path):
    states = [{"w": weights(5000) * np.float32(1 + i / 1000)} for i in range(4)]
    paths = [tmp_path / f"{i}.safetensors.lmc" for i in range(4)]
    lmc.numpy.save_file(states[0], paths[0])
    for i in range(1, 4):
        lmc.numpy.save_file(states[i], paths[i], base=paths[:i][::-1])
    (tmp_path / "unreadable.lmc").write_bytes(b"\x89LMC\r\n\x1a\n and no more")
    os.mkfifo(tmp_path / "a pipe")
    for path, state in zip(paths, states, strict=True):
        assert equal(lmc.numpy.load_file(path), state)
        with lmc.numpy.safe_open(path) as f:
            assert np.array_equal(f.get_slice("w")[7:9], state["w"][7:9])
    with lmc.open(paths[3]) as f:
        assert f.read("w") == states[3]["w"].tobytes()
    # By their contents: names say nothing, and a file of the right name and size is another.
    raw = safetensors.numpy.save(states[0])
    paths[0].rename(tmp_path / "renamed")
    (tmp_path / "0.safetensors").write_bytes(raw[:-1] + b"\0")
    assert equal(lmc.numpy.load_file(paths[3]), states[3])
    (tmp_path / "renamed").unlink()
    with pytest.raises(lmc.BaseMismatchError):
        lmc.numpy.load_file(paths[3])
    (tmp_path / "uncompressed").write_bytes(raw)
    assert equal(lmc.numpy.load_file(paths[3]), states[3])
    # Only beside the delta; what is given is all that is used.
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link.lmc").symlink_to(paths[3])
    assert equal(lmc.numpy.load_file(tmp_path / "sub" / "link.lmc"), states[3])
    shutil.copy(paths[3], tmp_path / "sub" / "copy.lmc")
    with pytest.raises(lmc.BaseMismatchError):
        lmc.numpy.load_file(tmp_path / "sub" / "copy.lmc")
    with pytest.raises(lmc.BaseMismatchError):
        lmc.numpy.load_file(paths[3], base=paths[2])


@pytest.mark.parametrize("compressed", [True, False])
def test_an_index_is_a_base(tmp_path, monkeypatch, compressed):
    """Of a delta of one file, and of a model of several: then only the file of the same name is read."""
    base, tuned, alone = tmp_path / "base", tmp_path / "tuned", tmp_path / "alone.lmc"
    base.mkdir()
    tuned.mkdir()
    names = {"1.safetensors": "ab", "2.safetensors": "c"}
    for file, has in names.items():
        saved(base / file, has, compressed)
    of = [base / f"{file}.lmc" if compressed else base / file for file in names]
    later = {name: w * np.float32(1.001) for name, w in tensors(*"abc").items()}
    lmc.numpy.save_file(later, alone, base=of)
    for (file, has), one in zip(names.items(), of, strict=True):
        lmc.numpy.save_file({name: later[name] for name in has}, tuned / f"{file}.lmc", base=one)
    weight_map = {name: file for file, has in names.items() for name in has}
    for given in (index(base, weight_map), base, [str(base)]):
        assert equal(lmc.numpy.load_file(alone, base=given), later)
    index(tuned, weight_map)
    with pytest.raises(lmc.BaseMismatchError):
        lmc.numpy.load_file(tuned)
    read = []
    real = lmc.numpy.File
    monkeypatch.setattr(lmc.numpy, "File", lambda file, **o: (read.append(o["base"]), real(file, **o))[1])
    assert equal(lmc.numpy.load_file(tuned, base=base), later)
    assert {str(path) for given in read for path in given} == {str(path) for path in of}
    assert all(len(given) == 1 for given in read)
    with lmc.safe_open(tuned, "np", base=base / INDEX) as f:
        assert np.array_equal(f.get_tensor("c"), later["c"])
    (base / "1.safetensors.lmc" if compressed else base / "1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="1.safetensors"):
        lmc.numpy.load_file(tuned, base=base)
