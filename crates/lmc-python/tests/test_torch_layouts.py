"""Files of PyTorch as they are: sizes beside those of safetensors, deltas between formats, tensors by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmc
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat

TESTDATA = Path(__file__).resolve().parents[3] / "testdata"

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")

FORMATS = ("safetensors", "pt", "distcp", "distcp-safetensors")


def write(tensors: dict[str, torch.Tensor], folder: Path, form: str) -> Path:
    """Writes tensors in a format; returns the file."""
    folder.mkdir()
    match form:
        case "safetensors":
            save_file(tensors, folder / "state.safetensors")
        case "pt":
            torch.save(tensors, folder / "state.pt")
        case "distcp":
            dcp.save(tensors, checkpoint_id=folder)
        case "distcp-safetensors":
            writer = FileSystemWriter(folder, serialization_format=SerializationFormat.SAFETENSORS)
            dcp.save(tensors, storage_writer=writer)
    (file,) = (p for p in folder.iterdir() if p.suffix in (".safetensors", ".pt", ".distcp"))
    return file


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Path]:
    """A training state at two steps, in every format."""
    folder = tmp_path_factory.mktemp("states")
    files = {}
    for step in (300, 301):
        tensors = load_file(TESTDATA / f"gpt-step{step}-state.safetensors")
        for form in FORMATS:
            files[form, step] = write(tensors, folder / f"{form}-{step}", form)
    return files


def size(file: Path, base: Path | None = None) -> float:
    """The part of a file's size that it takes compressed; it is restored and compared."""
    compressed = file.with_name(file.name + ".lmc")
    lmc.compress_file(file, compressed, base=base, overwrite=True)
    assert lmc.decompress(compressed.read_bytes(), base=base) == file.read_bytes()
    return compressed.stat().st_size / file.stat().st_size


@pytest.mark.parametrize("form", FORMATS[1:])
def test_a_state_is_as_small_as_in_safetensors(states: dict[tuple[str, int], Path], form: str) -> None:
    assert size(states[form, 301]) <= size(states["safetensors", 301]) + 0.005


@pytest.mark.parametrize("form", FORMATS[1:])
def test_a_delta_is_as_small_as_in_safetensors(states: dict[tuple[str, int], Path], form: str) -> None:
    alone = size(states["safetensors", 301], states["safetensors", 300])
    assert size(states[form, 301], states[form, 300]) <= alone + 0.005


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("base", FORMATS)
def test_equal_tensors_in_another_format_cost_nothing(
    states: dict[tuple[str, int], Path], form: str, base: str
) -> None:
    assert size(states[form, 301], states[base, 301]) <= 0.005


def test_tensors_are_read_by_name(states: dict[tuple[str, int], Path]) -> None:
    expected = load_file(states["safetensors", 301])
    for form in FORMATS[1:]:
        with lmc.open(states[form, 301], plain=True) as file:
            assert set(file.keys()) == set(expected)
            for name, tensor in expected.items():
                assert file.read(name) == tensor.view(torch.uint8).numpy().tobytes()
            name = max(expected, key=lambda name: expected[name].ndim)
            assert file.read_rows(name, 1, 3) == expected[name][1:3].view(torch.uint8).numpy().tobytes()


def test_unpacked_tensors_are_those_that_were_saved(states: dict[tuple[str, int], Path], tmp_path: Path) -> None:
    expected = load_file(states["safetensors", 301])
    for form in ("pt", "distcp"):
        file = states[form, 301]
        command = [sys.executable, "-m", "lmc", "unpack", file, "-o", tmp_path / form]
        subprocess.run(command, check=True)
        found = load_file((tmp_path / form / file.name).with_suffix(".safetensors"))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return Path.write_text, (Path(tmp_path / "ran"), "")

    file = tmp_path / "evil.pt"
    torch.save({"weight": torch.ones(3), "evil": Evil()}, file)
    size(file)
    with lmc.open(file, plain=True) as opened:
        assert opened.read("weight") == torch.ones(3).numpy().tobytes()
    subprocess.run([sys.executable, "-m", "lmc", "unpack", file, "-o", tmp_path / "out"], check=True)
    subprocess.run([sys.executable, "-m", "lmc", "list", f"{file}.lmc"], check=True, stdout=subprocess.DEVNULL)
    assert not (tmp_path / "ran").exists()


def test_module_names_are_those_of_its_state(tmp_path: Path) -> None:
    """A pickled module has the tensors of its `state_dict`, and so has a compiled one."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    torch.save(module, tmp_path / "module.pt")
    torch.jit.save(torch.jit.script(module), str(tmp_path / "script.pt"))
    for name in ("module.pt", "script.pt"):
        with lmc.open(tmp_path / name, plain=True) as file:
            assert set(file.keys()) == set(module.state_dict()), name
