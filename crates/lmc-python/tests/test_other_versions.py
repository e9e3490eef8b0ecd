"""Files and stores of another version are refused with one sentence, and nothing is written."""

import subprocess
import sys

import lmc
import pytest
from conftest import other_version
from lmc.numpy import load_file, safe_open

SENTENCE = "reads version 1: use the lmc that wrote it, or a newer one"
PLAIN, DELTA, BASE, NEXT = "step1.safetensors.lmc", "step2.safetensors.lmc", "step1.safetensors", "step2.safetensors"


@pytest.fixture
def old(tmp_path):
    """Files and a store that say that they have version 2, and which no test may change."""
    folder = tmp_path / "old"
    folder.mkdir()
    for name, byte in ((BASE, b"1"), (NEXT, b"2")):
        (folder / name).write_bytes(byte + bytes(range(256)) * 100)
    lmc.compress_file(folder / BASE, folder / PLAIN)
    lmc.compress_file(folder / NEXT, folder / DELTA, base=folder / BASE)
    store = lmc.Store.create(folder / "store")
    store.save_files([folder / BASE], step=1)
    command = [sys.executable, "-m", "lmc", "-q", "snapshot", "export", folder / "store", folder / "store.tar"]
    subprocess.run(command, check=True)
    other_version(folder)
    before = contents(folder)
    yield folder
    assert contents(folder) == before


def contents(folder):
    return {p.relative_to(folder): p.is_file() and p.read_bytes() for p in folder.rglob("*")}


def refused(function, *arguments, **options):
    with pytest.raises(lmc.UnsupportedError, match=SENTENCE) as raised:
        function(*arguments, **options)
    assert raised.value.kind == "unsupported"


def test_files(old):
    out = bytearray(4096)
    for path in (old / PLAIN, old / DELTA):
        file = path.read_bytes()
        refused(lmc.decompress, file)
        refused(lmc.decompress, file, base=old / BASE)
        refused(lmc.decompress_into, file, out)
        refused(lmc.decompress_file, path, old / "out")
        refused(lmc.decompress_file, path, old / "out", base=old / BASE)
        refused(lmc.Decompressor().decompress, file)
        refused(lmc.open, path)
        refused(lmc.open, file)
        refused(lmc.open, path, base=old / BASE)
        refused(load_file, path)
        refused(safe_open, path, framework="np")
        with path.open("rb") as src:
            refused(lmc.decompress_stream, src, old / "out")
    assert not any(out)


def test_bases(old):
    raw = (old / NEXT).read_bytes()
    delta = lmc.compress(raw, base=old / BASE)
    for path in (old / PLAIN, old / DELTA):
        for base in (path, path.read_bytes()):
            refused(lmc.compress, raw, base=base)
            refused(lmc.decompress, delta, base=base)
            refused(lmc.compress_file, old / NEXT, old / "out", base=base)


def test_stores(old):
    refused(lmc.Store, old / "store")
    refused(lmc.Store.create, old / "store")
    refused(lmc.Store, old / "store.tar")


def test_decoder_in_python(old):
    pytest.importorskip("zstandard")
    for arguments in ([PLAIN], [DELTA], [DELTA, "-b", BASE]):
        command = [sys.executable, "-m", "lmc.decode", *arguments, "-o", "out"]
        run = subprocess.run(command, cwd=old, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (1, "")
        assert "version is 2, not 1" in run.stderr and len(run.stderr.splitlines()) == 1
