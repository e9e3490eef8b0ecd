"""Checkpoints that are made plain: what is written, and what is refused."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lmc
import lmc.dcp
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from dcp_ranks import command, equal, process
from dcp_states import model, save, state
from lmc.dcp import _cover, _unpack
from safetensors.torch import load_file
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def test_to_a_plain_checkpoint(tmp_path):
    save(tmp_path / "a", 1)
    save(tmp_path / "b", 2)
    lmc.dcp.unpack(tmp_path / "b", tmp_path / "plain")
    found = state(99)
    dcp.load(found, storage_reader=dcp.FileSystemReader(tmp_path / "plain"), no_dist=True)
    assert equal(found, state(2))


@pytest.mark.parametrize("to", ["dcp", "safetensors"])
def test_the_default_device_makes_no_difference(tmp_path, to):
    save(tmp_path / "a", 1)
    with torch.device("meta"):
        lmc.dcp.unpack(tmp_path / "a", tmp_path / "there", to=to)
    lmc.dcp.unpack(tmp_path / "a", tmp_path / "here", to=to)
    there, here = ({p.name: p.read_bytes() for p in (tmp_path / f).glob("*s*")} for f in ("there", "here"))
    assert there == here and here


def test_to_safetensors(tmp_path):
    save(tmp_path / "a", 1)
    done = lmc.dcp.unpack(tmp_path / "a", tmp_path / "st", to="safetensors", prefix="weights.")
    assert done.files == [str(tmp_path / "st" / "model.safetensors")]
    assert equal(load_file(done.files[0]), model(1))


@pytest.mark.parametrize("options", [["-v"], ["--quiet"], ["--no-progress", "-q"]])
def test_options_before_the_command(tmp_path, capsys, options):
    save(tmp_path / "a", 1)
    assert command(*options, "unpack", str(tmp_path / "a"), "--to", "dcp", "-o", str(tmp_path / "plain")) == 0
    assert (tmp_path / "plain" / ".metadata").is_file()
    assert (capsys.readouterr().out == "") == ("-v" not in options)


def test_to_several_files(tmp_path, monkeypatch):
    save(tmp_path / "a", 1)
    monkeypatch.setattr(_unpack, "SHARD", 1000)
    done = lmc.dcp.unpack(tmp_path / "a", tmp_path / "st", to="safetensors")
    assert len(done.files) == 5 and done.left_out == ["step"]
    found = {n: t for f in done.files[:-1] for n, t in load_file(f).items()}
    wanted = state(1)
    assert equal(found, {f"{g}.{n}": t for g in ("half", "weights") for n, t in wanted[g].items()})


def test_the_command(tmp_path):
    save(tmp_path / "a", 1)
    run = [sys.executable, "-m", "lmc", "unpack", str(tmp_path / "a"), "-o", str(tmp_path / "plain")]
    done = subprocess.run([*run, "--to", "dcp"], capture_output=True, text=True)
    written = "".join(f"{tmp_path}/plain/{name}\n" for name in ("__0_0.distcp", ".metadata"))
    assert (done.returncode, done.stdout, done.stderr) == (0, written, "")
    # A new interpreter takes long to import PyTorch.
    run = functools.partial(process, command, "unpack", folder=tmp_path)
    again = run(str(tmp_path / "a"), "--to=dcp", "-o", str(tmp_path / "plain"))
    assert again.returncode == 1 and "holds files" in again.stderr
    # The program reads it, and the output of PyTorch's own writer; both have the same tensors.
    for name in ("a", "plain"):
        done = run(name, "-o", f"{name}-st", "--prefix", "weights.")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert equal(load_file(tmp_path / f"{name}-st" / "model.safetensors"), model(1))
    done = run("a", "-o", "all")
    assert done.stderr == "lmc: a: left out an entry that is not a tensor: step\n"
    nothing = run(str(tmp_path / "none"), "--to", "dcp", "-o", str(tmp_path / "x"))
    assert nothing.returncode == 1 and nothing.stderr.count("\n") == 1
    assert run(str(tmp_path / "a"), "--to", "dcp").returncode == 2
    half = run("s3:/bucket/a", "-o", "x")
    assert half.returncode == 2 and "s3:/bucket/a: is a URL without" in half.stderr


def test_the_command_without_pytorch(tmp_path):
    save(tmp_path / "a", 1)
    script = "import sys; sys.modules['torch'] = None; from lmc.__main__ import main; sys.exit(main())"
    run = [sys.executable, "-c", script, "unpack", "a", "-o", "st"]
    subprocess.run([*run, "--to", "safetensors"], cwd=tmp_path, check=True)
    wanted = {f"{g}.{n}": t for g in ("half", "weights") for n, t in state(1)[g].items()}
    assert equal(load_file(tmp_path / "st" / "model.safetensors"), wanted)
    done = subprocess.run([*run, "--to", "dcp"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "install lmc with its extra torch" in done.stderr


def test_what_is_plain_already(tmp_path):
    dcp.save(state(4), storage_writer=dcp.FileSystemWriter(tmp_path / "a"), no_dist=True)
    with pytest.raises(lmc.UsageError, match="already a plain checkpoint"):
        lmc.dcp.unpack(tmp_path / "a", tmp_path / "b")


def changed(checkpoint: Path, change) -> Path:
    """A checkpoint whose metadata are changed."""
    path = checkpoint / ".metadata"
    path.write_bytes(pickle.dumps(change(pickle.loads(path.read_bytes()))))
    return checkpoint


def joined(folder: Path, shape, *chunks) -> Path:
    """A checkpoint of one tensor; its chunks, given by offsets and sizes, are filled with 1, 2 and so on."""
    parts = {f"part{i}": torch.full(sizes, float(i)) for i, (_, sizes) in enumerate(chunks, 1)}
    dcp.save(parts or {"none": 0}, storage_writer=lmc.dcp.Writer(folder / "a"), no_dist=True)

    def join(metadata: Metadata) -> Metadata:
        boxes = [ChunkStorageMetadata(torch.Size(o), torch.Size(n)) for o, n in chunks]
        entry = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size(shape), boxes)
        places = {i.fqn: place for i, place in metadata.storage_data.items()}
        stored = {MetadataIndex("t", box.offsets): places[name] for name, box in zip(parts, boxes, strict=True)}
        return replace(metadata, state_dict_metadata={"t": entry}, storage_data=stored)

    return changed(folder / "a", join)


def refused(checkpoint: Path, error, match: str, tos=("dcp", "safetensors")) -> None:
    for to in tos:
        with pytest.raises(error, match=match):
            lmc.dcp.unpack(checkpoint, checkpoint.parent / "out", to=to)
        assert not (checkpoint.parent / "out").exists()


def test_chunks_are_joined(tmp_path):
    checkpoint = joined(tmp_path, (4, 4), ([2, 0], [2, 3]), ([0, 0], [2, 4]), ([2, 3], [2, 1]))
    lmc.dcp.unpack(checkpoint, tmp_path / "st", to="safetensors")
    whole = torch.full((4, 4), 2.0)
    whole[2:, :3], whole[2:, 3:] = 1, 3
    assert equal(load_file(tmp_path / "st" / "model.safetensors"), {"t": whole})
    lmc.dcp.unpack(checkpoint, tmp_path / "plain")
    found = {"t": torch.zeros(4, 4)}
    dcp.load(found, storage_reader=dcp.FileSystemReader(tmp_path / "plain"), no_dist=True)
    assert equal(found, {"t": whole})


@pytest.mark.parametrize("shape", [(0, 4), (4, 0, 2), (0,)])
@pytest.mark.parametrize("stored", [False, True])
def test_tensors_without_elements(tmp_path, shape, stored):
    checkpoint = joined(tmp_path, shape, *([([0] * len(shape), shape)] if stored else []))
    lmc.dcp.unpack(checkpoint, tmp_path / "st", to="safetensors")
    assert load_file(tmp_path / "st" / "model.safetensors")["t"].shape == shape
    lmc.dcp.unpack(checkpoint, tmp_path / "plain")
    dcp.load({"t": torch.zeros(shape)}, storage_reader=dcp.FileSystemReader(tmp_path / "plain"), no_dist=True)


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        # As many elements as the tensor has, but not each of them once.
        ([([0, 0], [2, 4]), ([1, 0], [2, 4])], r"t: its chunk \[1..3, 0..4\] overlaps another one"),
        ([([0, 0], [2, 4]), ([0, 0], [2, 4])], r"t: its chunk \[0..2, 0..4\] overlaps another one"),
        ([([0, 0], [4, 2]), ([0, 1], [4, 2])], r"t: its chunk \[0..4, 1..3\] overlaps another one"),
        ([([0, 0], [4, 4]), ([3, 3], [1, 1])], r"t: its chunk \[3..4, 3..4\] overlaps another one"),
        ([([0, 0], [2, 4])], r"t: its chunks do not cover its shape \[4, 4\]: 8 of 16 elements are missing"),
        ([([0, 0], [2, 4]), ([2, 1], [2, 3])], "2 of 16 elements are missing"),
        ([], "16 of 16 elements are missing"),
        ([([0, 0], [2, 4]), ([3, 0], [2, 4])], r"t: its chunk \[3..5, 0..4\] is not inside of its shape \[4, 4\]"),
        ([([0], [16])], r"t: its chunk \[0..16\] is not inside"),
    ],
)
def test_chunks_that_do_not_make_a_tensor_are_refused(tmp_path, chunks, why):
    refused(joined(tmp_path, (4, 4), *chunks), lmc.FormatError, why)


def test_two_chunks_of_a_scalar_are_refused(tmp_path):
    refused(joined(tmp_path, (), ([], []), ([], [])), lmc.FormatError, "overlaps another one")


def test_shapes_of_no_tensor_are_refused(tmp_path):
    refused(joined(tmp_path, (-4, 4)), lmc.FormatError, "is that of no tensor")


def test_irregular_chunks_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(_cover, "_CELLS", 0)
    monkeypatch.setattr(_cover, "_CELLS_EACH", 1)
    checkpoint = joined(tmp_path, (4, 4), ([0, 0], [3, 1]), ([0, 1], [1, 3]), ([3, 0], [1, 3]), ([1, 3], [3, 1]))
    refused(checkpoint, lmc.LimitError, "t: its 4 chunks are too irregular")


@pytest.mark.parametrize("lost", ["weights.w", "step"])
def test_what_is_stored_nowhere_is_refused(tmp_path, lost):
    def lose(metadata: Metadata) -> Metadata:
        places = {index: place for index, place in metadata.storage_data.items() if index.fqn != lost}
        return replace(metadata, storage_data=places)

    save(tmp_path / "a", 1)
    what = "it" if lost == "step" else r"its chunk \[0..300, 0..200\]"
    refused(changed(tmp_path / "a", lose), lmc.FormatError, f"{lost}: nothing says where {what} is stored")
    # What else there is can be unpacked alone.
    lmc.dcp.unpack(tmp_path / "a", tmp_path / "st", to="safetensors", prefix="half.")
    wanted = {name: t.bfloat16() for name, t in model(1).items()}
    assert equal(load_file(tmp_path / "st" / "model.safetensors"), wanted)


def test_metadata_without_locations_are_refused(tmp_path):
    save(tmp_path / "a", 1)
    checkpoint = changed(tmp_path / "a", lambda metadata: replace(metadata, storage_data=None))
    refused(checkpoint, lmc.FormatError, "nothing says where")
    objects = {"step": BytesStorageMetadata()}
    changed(checkpoint, lambda metadata: replace(metadata, state_dict_metadata=objects))
    refused(checkpoint, lmc.FormatError, "step: nothing says where it is stored")


@pytest.mark.parametrize("to", ["dcp", "safetensors"])
def test_files_have_their_names_when_they_are_complete_and_on_disk(tmp_path, monkeypatch, on_disk, to):
    save(tmp_path / "a", 1)
    on_disk.clear()
    def written(tensors, path, metadata):
        on_disk.append(("write", Path(path).name))
        write(tensors, path, metadata)

    write = safetensors.torch.save_file
    monkeypatch.setattr(safetensors.torch, "save_file", written)
    monkeypatch.setattr(_unpack, "SHARD", 200_000)
    files = [Path(file).name for file in lmc.dcp.unpack(tmp_path / "a", tmp_path / "out", to=to).files]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(files)
    if to == "dcp":
        assert on_disk[0] == ("sync", "__0_0.distcp")
        files, on_disk = files[1:], on_disk[1:]
    made = [[("sync", f"{f}.tmp"), ("replace", f"{f}.tmp", f), ("sync", "out")] for f in files]
    for file, of_file in zip(files, made, strict=True):
        if "tensors" in file and not file.endswith(".json"):
            of_file.insert(0, ("write", f"{file}.tmp"))
    assert on_disk == [one for of_file in made for one in of_file]
