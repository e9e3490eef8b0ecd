"""The example that compresses the models of a bucket."""

import importlib.util
import sys
from pathlib import Path

import lmc
import pytest
from conftest import weights

EXAMPLE = Path(__file__).parents[3] / "examples" / "compress_bucket.py"
NAMES = [f"{folder}/{name}" for folder in "abcd" for name in ("1.bin", "2.bin")]


@pytest.fixture
def models(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() + weights(5000).tobytes())
    (tmp_path / "a/config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def run(models, monkeypatch, capsys):
    """Runs it, and returns the files that it compressed, relative to `models`."""
    spec = importlib.util.spec_from_file_location("compress_bucket", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["compress_bucket.py", str(models), *options])
        module.main()
        lines = capsys.readouterr().out.splitlines()
        return [line.split(": ")[0].removeprefix(f"file://{models}/") for line in lines]

    return run


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_compressed_is_left_out(models, run):
    assert run() == NAMES
    assert files(models) == sorted(["a/config.json", *NAMES, *(f"{name}.lmc" for name in NAMES)])
    for name in NAMES:
        assert lmc.decompress((models / f"{name}.lmc").read_bytes()) == (models / name).read_bytes()
    assert run() == []
    (models / "b/2.bin.lmc").unlink()
    assert run() == ["b/2.bin"]


def test_files_are_removed(models, run):
    before = {name: (models / name).read_bytes() for name in NAMES}
    run("--threads", "1")
    assert run("--rm") == NAMES
    assert files(models) == sorted(["a/config.json", *(f"{name}.lmc" for name in NAMES)])
    assert all(lmc.decompress((models / f"{name}.lmc").read_bytes()) == data for name, data in before.items())


def test_jobs_of_an_array_share_the_files(models, run, monkeypatch):
    done = []
    for job in range(5, 8):
        for name, value in (("ID", job), ("COUNT", 3), ("MIN", 5)):
            monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
        done.append(run("--rm"))
    assert sorted(sum(done, [])) == NAMES
    assert all(done)


def test_a_file_that_is_not_what_was_written_is_not_removed(models, run, monkeypatch, capsys):
    monkeypatch.setattr(lmc, "decompress_stream", lambda *_, **__: lmc.compress_file(EXAMPLE, models / "other"))
    with pytest.raises(SystemExit, match="8 of 8 files were not compressed"):
        run("--rm")
    assert set(NAMES) < set(files(models))
    assert capsys.readouterr().err.count("is not what was written") == 8
