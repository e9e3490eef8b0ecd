"""No output destroys its own sources, and everything reported as success can be restored."""

import io
import os
from pathlib import Path

import lmc
import lmc.numpy
import numpy as np
import pytest
from changing import N, flips, written
from conftest import weights

SIZE = 1 << 20


def later(array, by):
    return array * np.float32(1 + by * 1e-4)


@pytest.fixture
def folder(tmp_path):
    """`base.safetensors`, raw; `base.lmc`, the same, compressed; `delta.lmc`, made from that; `new`, a later one."""
    arrays = {"w": weights(SIZE >> 2)}
    lmc.numpy.save_file(arrays, tmp_path / "base.lmc")
    lmc.decompress_file(tmp_path / "base.lmc", tmp_path / "base.safetensors")
    lmc.numpy.save_file({"w": later(arrays["w"], 1)}, tmp_path / "delta.lmc", base=tmp_path / "base.lmc")
    lmc.numpy.save_file({"w": later(arrays["w"], 2)}, tmp_path / "new.lmc", base=None)
    lmc.decompress_file(tmp_path / "new.lmc", tmp_path / "new")
    return tmp_path


def tensors():
    data = later(weights(SIZE >> 2), 3)
    return [("w", "F32", data.shape, data)]


# Every function of the top package and of lmc.numpy that has a base and writes a file.
WRITERS = {
    "compress_file": lambda folder, dst, base: lmc.compress_file(folder / "new", dst, base=base),
    "compress_stream": lambda folder, dst, base: lmc.compress_stream(folder / "new", dst, base=base),
    "compress_stream of an object": lambda folder, dst, base: lmc.compress_stream(
        io.BytesIO((folder / "new").read_bytes()), dst, base=base
    ),
    "compress_tensors_file": lambda folder, dst, base: lmc.compress_tensors_file(tensors(), dst, base=base),
    "numpy.save_file": lambda folder, dst, base: lmc.numpy.save_file({"w": tensors()[0][3]}, dst, base=base),
}


def names_of(folder, path):
    """Ways to name a file."""
    (folder / "dir").mkdir()
    (folder / "soft").symlink_to(path)
    os.link(path, folder / "hard")
    plain = [path, str(path), folder / "dir" / ".." / path.name, f"{folder}/./{path.name}"]
    return [*plain, folder / "soft", folder / "hard"]


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder, call, dst, base):
    before = contents(folder)
    with pytest.raises(lmc.UsageError) as e:
        call()
    message = str(e.value)
    assert str(dst) in message and Path(base).name in message and "base" in message, message
    assert "\n" not in message
    assert contents(folder) == before, "nothing is written, and nothing is left behind"


@pytest.mark.parametrize("writer", WRITERS)
class TestDestinationIsABase:
    @pytest.mark.parametrize("name", ["base.safetensors", "base.lmc"])
    def test_by_any_name(self, folder, writer, name):
        base = folder / name
        for dst in names_of(folder, base):
            refused(folder, lambda dst=dst: WRITERS[writer](folder, dst, base), dst, base)

    def test_the_base_by_any_name(self, folder, writer):
        path = folder / "base.lmc"
        for base in names_of(folder, path):
            refused(folder, lambda base=base: WRITERS[writer](folder, path, base), path, base)

    def test_one_of_several(self, folder, writer):
        path = folder / "base.lmc"
        bases = [folder / "delta.lmc", path]
        refused(folder, lambda: WRITERS[writer](folder, path, bases), path, path)
        refused(folder, lambda: WRITERS[writer](folder, path, tuple(bases)), path, path)

    def test_an_open_file(self, folder, writer):
        path = folder / "base.lmc"
        with lmc.open(path) as base:
            refused(folder, lambda: WRITERS[writer](folder, path, base), path, path)

    def test_the_base_of_an_open_file(self, folder, writer):
        path = folder / "base.lmc"
        with lmc.open(folder / "delta.lmc", base=path) as base:
            refused(folder, lambda: WRITERS[writer](folder, path, base), path, path)
            refused(folder, lambda: WRITERS[writer](folder, path, [base]), path, path)

    def test_a_named_base(self, folder, writer):
        path = folder / "base.lmc"
        named = lmc.Base(path, name="another name")
        with pytest.raises(lmc.UsageError, match="base"):
            WRITERS[writer](folder, path, named)
        with lmc.open(folder / "delta.lmc", base=path) as opened, pytest.raises(lmc.UsageError, match="base"):
            WRITERS[writer](folder, path, lmc.Base(opened, name="another name"))
        assert lmc.numpy.load_file(path)

    def test_another_file_is_written(self, folder, writer):
        base = folder / "base.lmc"
        WRITERS[writer](folder, folder / "out.lmc", base)
        WRITERS[writer](folder, folder / "out.lmc", base)
        assert lmc.decompress((folder / "out.lmc").read_bytes(), base=base)
        # A buffer that was read from there is not a file.
        WRITERS[writer](folder, base, base.read_bytes())


@pytest.mark.parametrize("restore", [lmc.decompress_file, lmc.decompress_stream])
class TestRestoring:
    def test_onto_the_base(self, folder, restore):
        base = folder / "base.lmc"
        for dst in names_of(folder, base):
            refused(folder, lambda dst=dst: restore(folder / "delta.lmc", dst, base=base), dst, base)

    def test_onto_the_base_of_a_base(self, folder, restore):
        base = folder / "base.lmc"
        third = folder / "third.lmc"
        with lmc.open(folder / "delta.lmc", base=base) as delta:
            lmc.numpy.save_file({"w": tensors()[0][3]}, third, base=delta)
            refused(folder, lambda: restore(third, base, base=delta), base, base)
        refused(folder, lambda: restore(third, base, base=[folder / "delta.lmc", base]), base, base)

    def test_onto_what_is_restored(self, folder, restore):
        delta = folder / "delta.lmc"
        before = contents(folder)
        with pytest.raises(lmc.UsageError):
            restore(delta, delta, base=folder / "base.lmc")
        assert contents(folder) == before


class Appends(io.BytesIO):
    """A file that is read, and another one that is written to meanwhile."""

    def __init__(self, data, path):
        super().__init__(data)
        self.path = path

    def read(self, size=-1):
        data = super().read(size)
        # Once it is open as a base, and before its end is read.
        if self.path is not None:
            with open(self.path, "ab") as base:
                base.write(b"more")
            self.path = None
        return data


class TestABaseThatChanges:
    """A delta whose base is gone could never be restored."""

    @pytest.mark.parametrize("name", ["base.safetensors", "base.lmc"])
    def test_while_a_stream_is_compressed(self, folder, name):
        base, out = folder / name, folder / "out.lmc"
        data = (folder / "new").read_bytes()
        with pytest.raises(lmc.Error, match=f"{name}.*changed"):
            lmc.compress_stream(Appends(data, base), out, base=base)
        assert not out.exists() and not list(folder.glob("*.tmp*"))

    @pytest.mark.parametrize("name", ["base.safetensors", "base.lmc"])
    def test_while_tensors_are_compressed(self, folder, name):
        base, out = folder / name, folder / "out.lmc"
        w = tensors()[0][3]
        given = [("w", "F32", w.shape, Appends(w.tobytes(), base))]
        with pytest.raises(lmc.Error, match=f"{name}.*changed"):
            lmc.compress_tensors_file(given, out, base=base)
        assert not out.exists() and not list(folder.glob("*.tmp*"))

    @pytest.mark.parametrize("name", ["base.safetensors", "base.lmc"])
    def test_while_a_file_is_compressed(self, folder, name):
        """It was opened before it was written to."""
        base, out = folder / name, folder / "out.lmc"
        opened = lmc.Base(base, name=name)
        with open(base, "ab") as file:
            file.write(b"more")
        with pytest.raises(lmc.Error, match=f"{name}.*changed"):
            lmc.compress_file(folder / "new", out, base=opened)
        assert not out.exists() and not list(folder.glob("*.tmp*"))

    def test_that_stays_is_used(self, folder):
        base, out = folder / "base.lmc", folder / "out.lmc"
        data = (folder / "new").read_bytes()
        lmc.compress_stream(Appends(data, None), out, base=base)
        assert lmc.decompress(out.read_bytes(), base=base) == data


class TestMemoryThatChanges:
    """Each byte is copied as it was at some time, and the file decodes."""

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_bytearray(self, threads):
        w = weights(N)
        half = (w.view(np.uint32) >> 16).astype(np.uint16)
        given = [("master", "F32", (N,), w), ("copy", "F32", (N,), w), ("half", "BF16", (N,), half)]
        raw = bytearray(lmc.decompress(lmc.compress_tensors(given)))
        header = bytes(raw[: -10 * N])
        for _ in range(3):
            with written(flips(memoryview(raw)[-10 * N :])):
                file = lmc.compress(raw, threads=threads)
            found = lmc.decompress(file)
            assert len(found) == len(raw) and found.startswith(header)

    def test_tensors(self):
        w = weights(N)
        memory = memoryview(bytearray(w.tobytes() * 2))
        given = [("master", "F32", (N,), memory[: 4 * N]), ("copy", "F32", (N,), memory[4 * N :])]
        for _ in range(5):
            with written(flips(memory)):
                file = lmc.compress_tensors(given)
            assert len(lmc.decompress(file)) > 8 * N

    def test_arrays(self, tmp_path):
        master = weights(N)
        half = master.copy()

        def train(draw):
            start = draw.randrange(N - 1000)
            master[start : start + 1000] += np.float32(1e-3)
            half[start : start + 1000] = master[start : start + 1000]

        for i in range(5):
            path = tmp_path / f"{i}.lmc"
            with written(train):
                lmc.numpy.save_file({"master": master, "half": half}, path)
                file = lmc.numpy.save({"master": master, "half": half})
            for found in (lmc.numpy.load_file(path), lmc.numpy.load(file)):
                # Bytes never written to are unchanged, and all others have one of their values.
                assert np.all(np.isfinite(found["master"])) and np.all(np.isfinite(found["half"]))
