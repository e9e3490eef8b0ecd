"""Checkpoints without hard links: fsspec's file system in memory stands for a bucket."""

from __future__ import annotations

import contextlib
import datetime
import os
from pathlib import Path

import lmc
import lmc.dcp
import pytest
import torch.distributed.checkpoint as dcp
from dcp_ranks import equal
from dcp_states import load, save, state
from lmc.dcp import _bases, _garbage, _hold, _notices
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


@pytest.fixture
def run():
    import fsspec

    fs = fsspec.filesystem("memory")
    root = f"/run-{os.urandom(4).hex()}"
    yield fs, root
    fs.rm(root, recursive=True)


def test_old_checkpoints_can_be_deleted(run):
    fs, root = run
    for seed in range(4):
        save(f"memory://{root}/step-{seed}", seed, max_chain=2)
    for seed in range(3):
        fs.rm(f"{root}/step-{seed}", recursive=True)
    _bases.forget()
    assert equal(load(f"memory://{root}/step-3"), state(3))
    garbage = lmc.dcp.collect_garbage(f"memory://{root}")
    assert (len(garbage.files), len(garbage.young)) == (0, 3)
    dry = lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1, dry_run=True)
    assert len(dry.files) == 3 and len(fs.glob(f"{root}/lmc-data/*.lmc")) == 4
    assert lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1) == dry
    assert len(fs.glob(f"{root}/lmc-data/*.lmc")) == 1
    assert equal(load(f"memory://{root}/step-3"), state(3))


def test_deltas_need_their_bases(run, tmp_path):
    fs, root = run
    for seed in range(2):
        save(f"memory://{root}/step-{seed}", seed, cache=0)
    fs.rm(f"{root}/step-0", recursive=True)
    assert lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1).files == []
    assert equal(load(f"memory://{root}/step-1"), state(1))
    assert len(lmc.dcp.unpack(f"memory://{root}/step-1", tmp_path / "plain").files) == 2


def test_what_a_save_under_way_is_made_from_stays(run):
    fs, root = run
    for seed in range(2):
        save(f"memory://{root}/step-{seed}", seed, cache=0)
    old = fs.glob(f"{root}/lmc-data/*.lmc")
    save(f"memory://{root}/step-2", 2, cache=0)
    (new,) = set(fs.glob(f"{root}/lmc-data/*.lmc")) - set(old)
    made = fs.store[new].created
    for name in old:
        fs.store[name].created = made - datetime.timedelta(days=2)
    for seed in range(3):  # the last one is incomplete, and its bases were deleted
        fs.rm(f"{root}/step-{seed}", recursive=True)
    garbage = lmc.dcp.collect_garbage(f"memory://{root}")
    assert garbage.files == [] and len(garbage.young) == 3
    for name in [new, *old]:
        fs.store[name].created = made - datetime.timedelta(days=2)
    assert len(lmc.dcp.collect_garbage(f"memory://{root}").files) == 3


def test_checkpoints_of_ranks_without_collectives_are_no_garbage(run):
    fs, root = run
    path = f"memory://{root}/step-0"
    dcp.save(state(0), storage_writer=lmc.dcp.Writer(path), no_dist=True, use_collectives=False)
    assert not fs.exists(f"{root}/step-0/.metadata")
    assert lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1).files == []
    assert equal(load(path), state(0))


def test_garbage_is_not_collected_where_files_have_no_times(run, monkeypatch):
    fs, root = run
    for seed in range(2):
        save(f"memory://{root}/step-{seed}", seed, base=None)
    fs.rm(f"{root}/step-0", recursive=True)
    info = fs.info
    monkeypatch.setattr(type(fs), "info", lambda self, path: {**info(path), "created": None})
    monkeypatch.setattr(type(fs), "modified", lambda self, path: self.nothing)
    with pytest.raises(lmc.UnsupportedError, match="no modification time"):
        lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1)
    save(f"memory://{root}/step-2", 2)
    assert equal(load(f"memory://{root}/step-2"), state(2))


def test_garbage_is_not_collected_where_something_is_missing(run):
    fs, root = run
    for seed in range(2):
        save(f"memory://{root}/step-{seed}", seed, base=None)
    fs.rm(fs.glob(f"{root}/lmc-data/*.lmc")[0])
    with pytest.raises(FileNotFoundError):
        lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-1)
    assert len(fs.glob(f"{root}/lmc-data/*.lmc")) == 1


def older(fs, root, days=2):
    """Takes all data files for so old."""
    for name in fs.glob(f"{root}/lmc-data/*.lmc"):
        fs.store[name].created -= datetime.timedelta(days=days)


class Deleting(lmc.dcp.Writer):
    """Its base is deleted, and the garbage collected, once the files of the base are chosen."""

    grace_seconds: float

    def _compress_from(self, chunks, path, made_from):
        if made_from:
            root = self._storage.parent(self.path)
            self._storage._fs.rm(f"{root}/step-0", recursive=True)
            self.garbage = lmc.dcp.collect_garbage(root, grace_seconds=self.grace_seconds)
        return super()._compress_from(chunks, path, made_from)


@pytest.mark.parametrize("cache", [0, None])
def test_a_base_that_is_deleted_meanwhile_stays_for_the_save(run, cache):
    fs, root = run
    save(f"memory://{root}/step-0", 0)
    older(fs, root)
    writer = Deleting(f"memory://{root}/step-1", cache=cache)
    writer.grace_seconds = 86_400
    dcp.save(state(1), storage_writer=writer, no_dist=True)
    assert writer.garbage.files == [] and len(writer.garbage.young) == 1
    assert len(fs.glob(f"{root}/lmc-data/*.lmc")) == 2 and not fs.glob(f"{root}/lmc-data/*/*.json")
    assert lmc.dcp.collect_garbage(f"memory://{root}").files == []
    assert equal(load(f"memory://{root}/step-1"), state(1))


@pytest.mark.parametrize("cache", [0, None])
def test_a_save_whose_base_is_gone_is_whole(run, cache):
    """Deleting the data of a checkpoint by hand, or without grace, damages no other."""
    fs, root = run
    save(f"memory://{root}/step-0", 0, cache=cache)
    writer = Deleting(f"memory://{root}/step-1", cache=cache)
    writer.grace_seconds = -60
    with pytest.warns(UserWarning, match="saving without the base"):
        dcp.save(state(1), storage_writer=writer, no_dist=True)
    assert len(writer.garbage.files) == 1
    assert len(fs.glob(f"{root}/lmc-data/*.lmc")) == 1
    assert equal(load(f"memory://{root}/step-1"), state(1))


def test_a_base_that_is_being_deleted_is_not_used(run, monkeypatch):
    fs, root = run
    save(f"memory://{root}/step-0", 0)
    older(fs, root)
    take, stack = _hold.HoldInBucket.take, contextlib.ExitStack()

    def deleting_first(hold, names):
        # The collection has looked for saves, and found none.
        stack.enter_context(_notices.deleting(hold._bucket, hold._pool, list(names)))
        take(hold, names)

    monkeypatch.setattr(_hold.HoldInBucket, "take", deleting_first)
    with stack, pytest.warns(UserWarning, match="is being deleted"):
        save(f"memory://{root}/step-1", 1)
    fs.rm(f"{root}/step-0", recursive=True)
    assert len(lmc.dcp.collect_garbage(f"memory://{root}", grace_seconds=-60).files) == 1
    assert equal(load(f"memory://{root}/step-1"), state(1))


def test_garbage_that_a_save_needs_after_all(run, monkeypatch):
    fs, root = run
    save(f"memory://{root}/step-0", 0)
    (name,) = (Path(p).name for p in fs.glob(f"{root}/lmc-data/*.lmc"))
    older(fs, root)
    fs.rm(f"{root}/step-0", recursive=True)
    look, looked, stack = _garbage._unneeded, [], contextlib.ExitStack()

    def look_and_save(storage, run, since, bases):
        found = look(storage, run, since, bases)
        if not looked:
            looked.append(found)
            assert found.files == [name]
            stack.enter_context(_notices.saving(storage, f"{run}/lmc-data", [name]))
        return found

    monkeypatch.setattr(_garbage, "_unneeded", look_and_save)
    with stack:
        assert lmc.dcp.collect_garbage(f"memory://{root}") == lmc.dcp.UnusedFiles([], [name])
    monkeypatch.undo()
    assert lmc.dcp.collect_garbage(f"memory://{root}") == lmc.dcp.UnusedFiles([name], [])


@pytest.mark.parametrize("notice", [b"[", b"[" * 200_000, b"{}", b"[[]]", b"[1]"])
def test_notices_of_saves_that_died(run, notice):
    fs, root = run
    for seed in range(2):
        save(f"memory://{root}/step-{seed}", seed, base=None)
    fs.rm(f"{root}/step-0", recursive=True)
    older(fs, root)
    for kind in ("saving", "deleting"):
        fs.pipe_file(f"{root}/lmc-data/{kind}/00.json", notice)
    with pytest.raises(lmc.FormatError, match="00.json is not a list of data files"):
        lmc.dcp.collect_garbage(f"memory://{root}")
    for path in fs.glob(f"{root}/lmc-data/*/*.json"):
        fs.store[path].created -= datetime.timedelta(days=2)
    assert len(lmc.dcp.collect_garbage(f"memory://{root}").files) == 1
    assert not fs.glob(f"{root}/lmc-data/*/*.json")


def test_a_checkpoint_is_replaced(run):
    fs, root = run
    save(f"memory://{root}/step-0", 0)
    with pytest.warns(UserWarning, match="overwriting"):
        save(f"memory://{root}/step-0", 1)
    assert len(fs.glob(f"{root}/step-0/*.lmc")) == 1
    assert equal(load(f"memory://{root}/step-0"), state(1))


def test_metadata_that_are_replaced_are_there_all_the_time(run, monkeypatch):
    fs, root = run
    save(f"memory://{root}/step-0", 0)
    removed = []
    for name in ("rm", "rm_file", "_rm", "mv"):
        operation = getattr(type(fs), name)

        def recorded(self, path, *arguments, operation=operation, **options):
            removed.append(str(path))
            return operation(self, path, *arguments, **options)

        monkeypatch.setattr(type(fs), name, recorded)
    with pytest.warns(UserWarning, match="overwriting"):
        save(f"memory://{root}/step-0", 1)
    assert removed and not [path for path in removed if "metadata" in path]
    assert equal(load(f"memory://{root}/step-0"), state(1))


def test_checkpoints_that_were_copied(run, tmp_path):
    """From a directory to a bucket, and back."""
    fs, root = run
    for seed in range(2):
        save(tmp_path / f"step-{seed}", seed)
    fs.put(str(tmp_path / "step-1"), f"{root}/step-1", recursive=True)
    assert equal(load(f"memory://{root}/step-1"), state(1))
    with pytest.warns(UserWarning, match="is not in"):
        save(f"memory://{root}/step-2", 2)
    fs.rm(f"{root}/step-1", recursive=True)
    save(f"memory://{root}/step-3", 3)
    assert len(fs.glob(f"{root}/lmc-data/*.lmc")) == 2
    fs.get(f"{root}/", str(tmp_path / "back"), recursive=True)
    assert equal(load(tmp_path / "back" / "step-3"), state(3))


def test_a_url_that_became_a_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (Path("s3://bucket/run/1"), "gs:/bucket/run/1"):
        for made in (lmc.dcp.Writer, lmc.dcp.Reader):
            with pytest.raises(lmc.UsageError, match="is a URL without"):
                made(path)
    with pytest.raises(lmc.UsageError, match="is a URL without"):
        lmc.dcp.collect_garbage(Path("s3://bucket/run"))
    assert not list(tmp_path.iterdir())
    # Names with a colon are names.
    dcp.save(state(0), storage_writer=lmc.dcp.Writer("run:1"), no_dist=True)
    assert (tmp_path / "run:1" / ".metadata").exists()


def test_files_under_a_url(tmp_path):
    """They are brought to stable storage as any files are, and their garbage is found by path, too."""
    for seed in range(3):
        save(f"file://{tmp_path}/step-{seed}", seed)
    for seed in range(3):
        assert equal(load(f"file://{tmp_path}/step-{seed}"), state(seed))
    (tmp_path / "step-2" / ".metadata").unlink()
    assert len(lmc.dcp.collect_garbage(tmp_path, grace_seconds=-60).files) == 1
    assert equal(load(tmp_path / "step-1"), state(1))


def test_pytorchs_own_reader_says_what_is_missing(run):
    _, root = run
    save(f"memory://{root}/step-0", 1)
    with pytest.raises(CheckpointException, match="Unknown extension name='lmc.tensor'"):
        dcp.load(state(9), storage_reader=FsspecReader(f"memory://{root}/step-0"), no_dist=True)
