"""Checkpoints that take the place of others."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from pathlib import Path

import fsspec
import lmc.dcp
import pytest
from dcp_ranks import equal
from dcp_states import load, save, state
from lmc.dcp._storage import storage_of
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def files(folder: Path) -> set[str]:
    return {p.name for p in folder.glob("*.lmc")}


def test_a_checkpoint_is_replaced(tmp_path):
    save(tmp_path / "a", 1)
    before = files(tmp_path / "a")
    with pytest.warns(UserWarning, match="overwriting"):
        save(tmp_path / "a", 2)
    assert before < files(tmp_path / "a"), "the second is made from the first"
    with pytest.warns(UserWarning, match="overwriting"):
        save(tmp_path / "a", 3, base=None)
    assert len(files(tmp_path / "a")) == 1
    assert equal(load(tmp_path / "a"), state(3))
    with pytest.raises(CheckpointException, match="already exists"):
        save(tmp_path / "a", 4, overwrite=False)


def test_a_save_that_is_killed_leaves_the_checkpoint_that_it_replaces(tmp_path, monkeypatch):
    """At any call by which the metadata appear."""

    class Killed(BaseException):
        """Nothing handles it."""

    def killed(operation, path, *arguments, **options):
        if ".metadata" in os.fspath(path):
            raise Killed
        return operation(path, *arguments, **options)

    save(tmp_path / "a", 1)
    for name in ("replace", "rename", "unlink", "remove"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, functools.partial(killed, getattr(os, name)))
            with contextlib.suppress(Killed, CheckpointException), pytest.warns(UserWarning, match="overwriting"):
                save(tmp_path / "a", 2)
        assert any(equal(load(tmp_path / "a"), state(seed)) for seed in (1, 2)), name
    assert equal(load(tmp_path / "a"), state(2)), "no other call was needed"


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_metadata_are_on_disk(tmp_path, on_disk, sync, url):
    save(f"file://{tmp_path}/a" if url else tmp_path / "a", 1, sync_files=sync)
    partial = on_disk[-2 if sync else -1][1]
    assert re.fullmatch(r"\.metadata\.[0-9a-f]{8}\.tmp", partial)
    appear = [("replace", partial, ".metadata")]
    wanted = [("sync", partial), *appear, ("sync", "a")] if sync else appear
    assert on_disk[-len(wanted) :] == wanted and on_disk.count(wanted[0]) == 1


def test_what_a_save_that_failed_left_goes(tmp_path):
    save(tmp_path / "a", 1)
    (tmp_path / "a" / ".metadata").unlink()
    (tmp_path / "a" / "held-0123-__0_4567.lmc").write_bytes(b"")
    save(tmp_path / "a", 2)
    assert len(files(tmp_path / "a")) == 1
    assert equal(load(tmp_path / "a"), state(2))


def test_a_checkpoint_is_saved_even_if_what_it_replaces_cannot_be_removed(tmp_path, monkeypatch):
    def fails(self, metadata):
        raise PermissionError("no")

    save(tmp_path / "a", 1)
    monkeypatch.setattr(lmc.dcp.Writer, "_remove_replaced", fails)
    with pytest.warns(UserWarning, match="is saved, but"):
        save(tmp_path / "a", 2)
    assert equal(load(tmp_path / "a"), state(2))


@pytest.mark.parametrize("url", [False, True])
def test_two_that_replace_a_file_write_into_files_of_their_own(tmp_path, monkeypatch, url):
    path = f"{tmp_path}/file"
    _, storage, _ = storage_of(f"file://{tmp_path}" if url else tmp_path, None, ())
    rename, done = os.replace, []

    def other_first(source, target):
        if not done:
            done.append(source)
            storage.replace(path, b"of the other one, which is longer", sync=False)
        rename(source, target)

    monkeypatch.setattr(os, "replace", other_first)
    storage.replace(path, b"of one", sync=False)
    assert Path(path).read_bytes() == b"of one"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("url", ["", "file://", "local-without-sync://"])
def test_what_cannot_be_replaced_leaves_nothing(tmp_path, monkeypatch, url):
    def fails(*_, **options):
        raise OSError("no")

    _, storage, _ = storage_of(f"file://{tmp_path}" if url else tmp_path, None, ())
    if url.startswith("local"):
        storage.has_fsync = False
        monkeypatch.setattr(fsspec.get_filesystem_class("file"), "mv", fails)
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no"):
        storage.replace(f"{tmp_path}/file", b"of one", sync=True)
    assert os.listdir(tmp_path) == []
