"""Files of lmc 0.1 are refused with one sentence that says what to do, and nothing is written."""

import shutil
import subprocess
import sys
from pathlib import Path

import lmc
import pytest
from lmc.numpy import load_file, safe_open

SENTENCE = "written by lmc 0.1; restore it with that version, and see docs/upgrade.md"
TESTDATA = Path(__file__).resolve().parents[3] / "testdata" / "version0"
PLAIN, DELTA, BASE, NEXT = "step1.safetensors.lmc", "step2.safetensors.lmc", "step1.safetensors", "step2.safetensors"


@pytest.fixture
def old(tmp_path):
    """A copy of the files of lmc 0.1, which no test may change."""
    folder = tmp_path / "version0"
    shutil.copytree(TESTDATA, folder)
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
    for name in ("store", "hf/lmc-store"):
        refused(lmc.Store, old / name)
        refused(lmc.Store.create, old / name)
    refused(lmc.Store, old / "store.tar")


def test_decoder_in_python(old):
    pytest.importorskip("zstandard")
    for arguments in ([PLAIN], [DELTA], [DELTA, "-b", BASE]):
        command = [sys.executable, "-m", "lmc.decode", *arguments, "-o", "out"]
        run = subprocess.run(command, cwd=old, capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (1, "")
        assert SENTENCE in run.stderr and len(run.stderr.splitlines()) == 1
