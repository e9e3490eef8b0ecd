"""Checkpoints that take the place of others."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

import lmc.dcp
import pytest
from dcp_ranks import equal
from dcp_states import load, save, state
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
    appear = [("replace", ".metadata.tmp", ".metadata")]
    wanted = [("sync", ".metadata.tmp"), *appear, ("sync", "a")] if sync else appear
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
