"""Checkpoints in a bucket of a real S3 server, which `./test torch` starts: see `tools/ceph.sh`."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import dcp_ranks as ranks
import fsspec
import lmc
import lmc.dcp
import pytest
import torch.distributed.checkpoint as dcp
from conftest import thinned
from dcp_ranks import equal
from dcp_states import load, save, state
from lmc.dcp import _bases, _storage
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")

CHAIN = 4


@pytest.fixture(scope="module")
def fs():
    if "AWS_ENDPOINT_URL" not in os.environ:
        pytest.skip("there is no S3 server: start one with tools/ceph.sh, and set AWS_ENDPOINT_URL and the keys")
    return fsspec.filesystem("s3", use_listings_cache=False)


@pytest.fixture
def run(fs):
    url = f"s3://test/run-{os.urandom(4).hex()}"
    yield url
    if fs.exists(url):
        fs.rm(url, recursive=True)


def data(fs, run: str) -> dict[str, int]:
    """The data files of a run, and their sizes."""
    return {f["name"].rpartition("/")[2]: f["size"] for f in fs.ls(f"{run}/lmc-data", detail=True) if f["size"]}


@pytest.fixture(scope="module")
def saved(fs, tmp_path_factory):
    """Snapshots of a run, saved by `n` ranks in some mode: their location, and their expected states."""
    made: dict[tuple[str, int], tuple[str, Path]] = {}

    def get(mode: str, count: int) -> tuple[str, Path]:
        if (mode, count) not in made:
            folder = tmp_path_factory.mktemp(f"{mode}-{count}")
            url = f"s3://test/{folder.name}-{os.urandom(4).hex()}"
            how = "spawn" if mode == "process" else "forkserver"
            ranks.run(count, ranks.save_run, str(folder), mode, CHAIN, {}, url, start_method=how, folder=folder)
            made[mode, count] = url, folder
        return made[mode, count]

    yield get
    for url, _ in made.values():
        fs.rm(url, recursive=True)


@pytest.fixture
def copied(fs, saved, run):
    """A run of its own with the same snapshots, for a test that spoils it."""

    def get(mode: str, count: int) -> tuple[str, Path]:
        url, folder = saved(mode, count)
        fs.copy(f"{url}/", f"{run}/", recursive=True)
        return run, folder

    return get


@pytest.mark.parametrize(("mode", "counts"), thinned(ranks.MODES, [(1, 2), (2, 3)]))
def test_whole_and_deltas(fs, saved, tmp_path, mode, counts):
    count, loaded = counts
    url, folder = saved(mode, count)
    sizes = data(fs, url)
    assert len(sizes) == count * CHAIN and not fs.glob(f"{url}/lmc-data/*/*")
    notes = [{p.rpartition("/")[2] for p in fs.glob(f"{url}/step-{step}/*.lmc")} for step in range(CHAIN)]
    assert [len(names) for names in notes] == [count] * CHAIN
    whole, *deltas = [sum(sizes[name] for name in names) for names in notes]
    assert all(delta < 0.9 * whole for delta in deltas)
    ranks.run(loaded, ranks.load_all, str(folder), list(range(CHAIN)), url, folder=tmp_path)


def test_older_snapshots_are_deleted(fs, copied, tmp_path):
    url, folder = copied("sync", 2)
    for step in range(CHAIN - 1):
        fs.rm(f"{url}/step-{step}", recursive=True)
    assert lmc.dcp.collect_garbage(url, grace_seconds=-60) == lmc.dcp.UnusedFiles([], [])
    ranks.run(1, ranks.load_all, str(folder), [CHAIN - 1], url, folder=tmp_path)
    fs.rm(f"{url}/step-{CHAIN - 1}", recursive=True)
    young = lmc.dcp.collect_garbage(url)
    assert young.files == [] and set(young.young) == set(data(fs, url))
    assert len(lmc.dcp.collect_garbage(url, grace_seconds=-60, dry_run=True).files) == 2 * CHAIN
    assert set(lmc.dcp.collect_garbage(url, grace_seconds=-60).files) == set(young.young)
    assert not fs.exists(url)


def first_file(fs, url: str) -> str:
    """A data file that only the first snapshot wrote, and all others need."""
    (note, *_) = sorted(fs.glob(f"{url}/step-0/*.lmc"))
    return f"{url}/lmc-data/{note.rpartition('/')[2]}"


def test_missing_base(fs, copied, tmp_path):
    url, _ = copied("sync", 2)
    base = first_file(fs, url)
    fs.rm(base)
    missing = f"the data file {base.rpartition('/')[2]} is not there"
    ranks.run(3, ranks.load_fails, f"{url}/step-{CHAIN - 1}", [missing], folder=tmp_path)


def test_damaged_base(fs, copied, tmp_path):
    url, _ = copied("sync", 2)
    base = first_file(fs, url)
    damaged = bytearray(fs.cat_file(base))
    damaged[len(damaged) // 2] ^= 1
    fs.pipe_file(base, bytes(damaged))
    ranks.run(2, ranks.load_fails, f"{url}/step-{CHAIN - 1}", ["checksum of a block"], folder=tmp_path)


@pytest.mark.parametrize("spoil", ["missing", "damaged", "nonsense", "incomplete"])
@pytest.mark.parametrize("cache", [0, None])
def test_a_save_does_without_a_base_that_is_spoiled(fs, run, spoil, cache):
    save(f"{run}/step-0", 0, cache=cache)
    _bases.forget()
    base = first_file(fs, run)
    if spoil == "missing":
        fs.rm(base)
    elif spoil == "incomplete":
        fs.rm(f"{run}/step-0/.metadata")
    else:
        content = bytearray(fs.cat_file(base))
        content[len(content) // 2] ^= 1
        fs.pipe_file(base, bytes(content) if spoil == "damaged" else b"nonsense")
    if spoil == "incomplete":
        save(f"{run}/step-1", 1, cache=cache)
    else:
        with pytest.warns(UserWarning, match="saving without"):
            save(f"{run}/step-1", 1, cache=cache)
    if spoil != "missing":
        fs.rm(base)
    assert equal(load(f"{run}/step-1"), state(1))


def save_and_die(rank, ranks_, *arguments):
    """Rank 1 dies while it uploads its part of the second snapshot, as if its machine lost power."""
    write = _storage.Fsspec.write

    def dying(self, path, data):
        if self.fs.exists(f"{self.parent(self.parent(path))}/step-0/.metadata") and path.endswith(".lmc"):
            upload = self._fs.call_s3("create_multipart_upload", Bucket="test", Key=path.removeprefix("s3://test/"))
            assert upload["UploadId"]
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, path, data)

    if rank == 1:
        _storage.Fsspec.write = dying
    ranks.save_run(rank, ranks_, *arguments)


def test_a_save_that_is_cut_off(fs, run, tmp_path):
    with pytest.raises(RuntimeError, match="rank 1: died of SIGKILL"):
        ranks.run(2, save_and_die, str(tmp_path), "sync", 2, {}, run, folder=tmp_path)
    assert fs.exists(f"{run}/step-0/.metadata") and not fs.exists(f"{run}/step-1/.metadata")
    assert len(data(fs, run)) in (2, 3), "rank 0 may have written its part, and rank 1 did not"
    with pytest.raises(CheckpointException):
        load(f"{run}/step-1")
    ranks.run(2, ranks.load_all, str(tmp_path), [0], run, folder=tmp_path)
    # The whole run continues in its place, and its leftovers are removed.
    ranks.run(2, ranks.save_run, str(tmp_path), "sync", 2, {}, run, folder=tmp_path)
    lmc.dcp.collect_garbage(run, grace_seconds=-60)
    assert not fs.glob(f"{run}/lmc-data/*/*")
    ranks.run(1, ranks.load_all, str(tmp_path), [0, 1], run, folder=tmp_path)


def test_garbage_is_collected_while_saves_go_on(fs, run):
    """Whatever is deleted meanwhile, the last checkpoint is complete."""
    for seed in range(4):
        save(f"{run}/step-{seed}", seed, cache=0)
        if seed:
            fs.rm(f"{run}/step-{seed - 1}", recursive=True)
        lmc.dcp.collect_garbage(run, grace_seconds=-60)
        assert len(data(fs, run)) == seed + 1
    assert equal(load(f"{run}/step-3"), state(3))
    save(f"{run}/step-4", 4, base=None)
    fs.rm(f"{run}/step-3", recursive=True)
    assert len(lmc.dcp.collect_garbage(run, grace_seconds=-60).files) == 4
    assert len(data(fs, run)) == 1 and equal(load(f"{run}/step-4"), state(4))


def test_pytorchs_own_reader_says_what_is_missing(fs, run):
    save(f"{run}/step-0", 1)
    with pytest.raises(CheckpointException, match="Unknown extension name='lmc.tensor'"):
        dcp.load(state(9), storage_reader=FsspecReader(f"{run}/step-0"), no_dist=True)


def test_unpack(fs, saved, tmp_path):
    url, folder = saved("sync", 2)
    lmc.dcp.unpack(f"{url}/step-{CHAIN - 1}", tmp_path / "plain")
    ranks.run(2, ranks.load_plain, str(folder), str(tmp_path / "plain"), CHAIN - 1, folder=tmp_path)
    arguments = ["unpack", f"{url}/step-0", "-o", str(tmp_path / "st"), "--to", "safetensors"]
    done = ranks.process(ranks.command, *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/st/model.safetensors\n"), done.stderr


def test_what_pytorchs_own_writer_saved(fs, run):
    dcp.save(state(4), storage_writer=dcp.FsspecWriter(f"{run}/step-0"), no_dist=True)
    assert equal(load(f"{run}/step-0"), state(4))


def forks(run):
    """Objects that were opened before a fork work in both processes."""
    save(f"{run}/step-0", 0)
    writer, reader = lmc.dcp.Writer(f"{run}/step-1", threads=1), lmc.dcp.Reader(f"{run}/step-0", threads=1)
    child = os.fork()
    if child == 0:
        found = state(9)
        dcp.load(found, storage_reader=reader, no_dist=True)
        dcp.save(state(1), storage_writer=writer, no_dist=True)
        os._exit(0 if equal(found, state(0)) else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert equal(load(f"{run}/step-1"), state(1))
    save(f"{run}/step-2", 2)
    assert equal(load(f"{run}/step-2"), state(2))


def test_a_process_that_forks(fs, run, tmp_path):
    done = ranks.process(forks, run, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(data(fs, run)) == 3


def test_a_bucket_that_is_not_there(fs, tmp_path):
    with pytest.raises(CheckpointException, match="s3://no-such-bucket/run/step-0 is not a complete checkpoint"):
        load("s3://no-such-bucket/run/step-0")
    with pytest.raises(FileNotFoundError, match="s3://no-such-bucket/run/step-0 is not a complete checkpoint"):
        lmc.dcp.unpack("s3://no-such-bucket/run/step-0", tmp_path / "plain")
    with pytest.raises(CheckpointException, match="(?i)bucket"):
        save("s3://No_Such_Bucket/run/step-0", 0)
