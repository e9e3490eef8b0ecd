"""`lmc unpack` beside numpy: it writes what numpy loads, or names what it cannot write and writes nothing."""

import itertools
import subprocess
import sys

import lmc
import numpy as np
import pytest
import safetensors.numpy
from conftest import weights

KINDS = ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"]
SHAPES = [(), (3,), (2, 3), (2, 3, 4), (0, 3), (1, 3), (3, 1)]


def unpack(file, out, *options):
    command = [sys.executable, "-m", "lmc", "unpack", file, "-o", out, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def arrays():
    """Arrays of every dtype that safetensors has, of odd shapes, in both orders."""
    made = {}
    for number, (kind, shape, order) in enumerate(itertools.product(KINDS, SHAPES, "CF")):
        values = weights(int(np.prod(shape)), number) * 100
        name = f"{kind}.{'x'.join(map(str, shape))}.{order}"
        made[name] = np.asarray(values.astype(kind).reshape(shape), order=order)
    return made


def check(found, expected):
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_an_archive_has_what_numpy_loads(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays())
    lmc.compress_file(tmp_path / "a.npz", tmp_path / "a.npz.lmc")
    for name in ("a.npz", "a.npz.lmc"):
        done = unpack(tmp_path / name, tmp_path / f"of-{name}")
        assert done.returncode == 0, done.stderr
        found = safetensors.numpy.load_file(tmp_path / f"of-{name}" / "a.safetensors")
        with np.load(tmp_path / "a.npz") as expected:
            assert found.keys() == set(expected)
            for key in expected:
                check(found[key], expected[key])


@pytest.mark.parametrize("order", "CF")
def test_a_file_has_what_numpy_loads(tmp_path, order):
    np.save(tmp_path / "a.npy", np.asarray(weights(24).reshape(2, 3, 4), order=order))
    done = unpack(tmp_path / "a.npy", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    check(safetensors.numpy.load_file(tmp_path / "out" / "a.safetensors")[""], np.load(tmp_path / "a.npy"))


@pytest.mark.parametrize("kind", [">f4", ">i2", "<c16", "U3", "S3", "M8[s]", "O", "f4,i2", "g"])
def test_what_safetensors_cannot_hold_is_named(tmp_path, kind):
    np.savez(tmp_path / "a.npz", w=np.zeros(3, kind), other=np.ones(2, np.float32))
    done = unpack(tmp_path / "a.npz", tmp_path / "out")
    assert done.returncode == 1 and '"w"' in done.stderr and "--prefix" in done.stderr
    assert not (tmp_path / "out").exists()
    with lmc.open(tmp_path / "a.npz", plain=True) as file:
        assert "w" not in file and file.keys() == ["other"]
        with pytest.raises(lmc.UnsupportedError, match="w"):
            file.read("w")
        with pytest.raises(lmc.NotFoundError):
            file.read("none")


def test_compressed_arrays_are_named(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", w=np.ones(9), v=np.ones(9))
    done = unpack(tmp_path / "a.npz", tmp_path / "out")
    assert done.returncode == 1 and '"w"' in done.stderr and '"v"' in done.stderr and "compressed" in done.stderr
    assert not (tmp_path / "out").exists()
