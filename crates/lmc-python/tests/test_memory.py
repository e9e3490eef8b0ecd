"""The memory use of calls: no copies of large data, and no leaks."""

import gc
import subprocess
import sys

import lmc
import numpy as np
import pytest
from conftest import weights

ROUNDS = 1000


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def rounds(tmp_path):
    data = weights(1 << 14)
    file = lmc.compress(data, dtype="F32")
    damaged = file[: len(file) // 2]
    out = np.empty_like(data)
    path = tmp_path / "file.lmc"
    path.write_bytes(file)
    store = lmc.Store.create(tmp_path / "store")
    store.save_files({"w": data})
    compressor, decompressor = lmc.Compressor(threads=2), lmc.Decompressor(threads=2)

    def memory():
        lmc.compress(bytearray(data.tobytes()), base=data)
        lmc.decompress_into(file, out)
        assert decompressor.decompress(compressor.compress(data)) == data.tobytes()

    def errors():
        for fail in (lambda: lmc.decompress(damaged), lambda: lmc.open("missing"), lambda: lmc.compress(3)):
            with pytest.raises((lmc.Error, TypeError)):
                fail()

    def files():
        with lmc.open(path) as f:
            f.read("")
            f.read_many_into([("", out)])
        with open(path, "rb") as o, lmc.open(o) as f:
            f.read_rows("", 1, 2)
        lmc.compress_tensors([("w", "F32", data.shape, data)])

    def snapshots():
        store.open_snapshot().read_file("w")

    return [memory, errors, files, snapshots]


@pytest.mark.parametrize("which", range(4), ids=["memory", "errors", "files", "snapshots"])
def test_nothing_stays(which, tmp_path):
    work = rounds(tmp_path)[which]
    for _ in range(ROUNDS // 5):
        work()
    gc.collect()
    before = rss()
    for _ in range(ROUNDS):
        work()
    gc.collect()
    # Half of the size of one leaked copy per round is far more than allocators need.
    assert rss() - before < ROUNDS * (1 << 15) // 4


SCRIPT = """
import sys
import lmc, numpy as np

def peak():
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM"))

size = 256 << 20
tile = (np.random.default_rng(0).standard_normal(1 << 22) * 0.02).astype(np.float32)
data = np.tile(tile, size // tile.nbytes)
small = data[: 1 << 20]
{before}
lmc.compress(small, threads=2)
start = peak()
{call}
print((peak() - start) / size)
"""


@pytest.mark.parametrize(
    ("before", "call", "most"),
    [
        # A small result: more memory than that would be a copy of the input.
        ("zeros = np.zeros(size, np.uint8); zeros[:] = 1", "lmc.compress(zeros, threads=2)", 0.25),
        # A large one is moved: it never exists twice.
        ("", "file = lmc.compress(data, dtype='F32', threads=2)", 1.25),
        ("file = lmc.compress(data, dtype='F32'); out = bytearray(size)", "lmc.decompress_into(file, out)", 0.25),
        ("file = bytearray(lmc.compress(data, dtype='F32')); del data", "out = lmc.decompress(file, threads=2)", 1.25),
        ("t = [('w', 'F32', data.shape, data)]", "lmc.compress_tensors_file(t, 'FILE')", 0.25),
    ],
    ids=["compress", "compress to a large result", "decompress_into", "decompress", "compress_tensors_file"],
)
def test_no_copies(before, call, most, tmp_path):
    script = SCRIPT.format(before=before, call=call).replace("FILE", str(tmp_path / "file"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < most
