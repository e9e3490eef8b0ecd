"""The `lmc` command of the package."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import lmc
import pytest
from packaging.version import Version

SCRIPT = shutil.which("lmc", path=sysconfig.get_path("scripts"))


@pytest.fixture(params=[pytest.param("script", marks=pytest.mark.wheel), "module"])
def command(request):
    if request.param == "module":
        return [sys.executable, "-m", "lmc"]
    assert SCRIPT, "the package is not installed"
    return [SCRIPT]


def run(command, *args, **options):
    options = {"capture_output": True, "timeout": 60, "check": False} | options
    return subprocess.run([*command, *map(str, args)], **options)


def test_files(command, raw, tmp_path):
    (tmp_path / "raw").write_bytes(raw)
    assert run(command, "compress", tmp_path / "raw", "--dtype", "f32").returncode == 0
    assert (tmp_path / "raw.lmc").read_bytes() == lmc.compress(raw, dtype="F32")
    assert run(command, "decompress", tmp_path / "raw.lmc", "-o", tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == raw


def test_pipes(command, raw):
    file = run(command, "compress", input=raw).stdout
    assert run(command, "decompress", input=file).stdout == raw


def test_exit_codes(command, tmp_path):
    missing = run(command, "compress", tmp_path / "missing")
    assert missing.returncode == 1
    assert missing.stderr.startswith(b"lmc: ")
    wrong = run(command, "compress", "--no-such-option")
    assert wrong.returncode == 2
    assert b"--no-such-option" in wrong.stderr
    for shown in ("--version", "--help"):
        done = run(command, shown)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"lmc" in done.stdout
    # Cargo and Python spell pre-release versions differently.
    assert Version(run(command, "--version").stdout.split()[1].decode()) == Version(lmc.__version__)


def test_interrupt(command, tmp_path):
    """It dies of the signal, as the shell expects, and leaves nothing behind."""
    # A test run in the background may inherit an ignored signal, which the command would respect.
    heeding = ["env", "--default-signal=INT", *command]
    # What is written has a name that can be waited for.
    named = {**os.environ, "LMC_TEMPORARY": "named"}
    process = subprocess.Popen(
        [*heeding, "compress", "-", "-o", str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=named,
    )
    with process:
        process.stdin.write(bytes(32 << 20))
        process.stdin.flush()
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_not_utf8(command, tmp_path):
    name = Path(bytes(tmp_path / "raw-").decode() + "\udcff")
    name.write_bytes(b"data")
    assert run(command, "compress", name).returncode == 0
    assert lmc.decompress_file(str(name) + ".lmc", tmp_path / "back").raw_size == 4
