"""Checkpoints in a bucket of a real S3 server, which `./test torch` starts: see `tools/ceph.sh`."""

from __future__ import annotations

import os

import dcp_ranks as ranks
import lmc
import lmc.dcp
import pytest
import torch.distributed.checkpoint as dcp
from conftest import thinned
from dcp_ranks import equal
from dcp_states import load, save, state
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")

CHAIN = 4


@pytest.fixture
def run():
    if "AWS_ENDPOINT_URL" not in os.environ:
        pytest.skip("there is no S3 server: start one with tools/ceph.sh, and set AWS_ENDPOINT_URL and the keys")
    return f"s3://test/run-{os.urandom(4).hex()}"


@pytest.mark.parametrize(("mode", "counts"), thinned(ranks.MODES, [(1, 2), (2, 3)]))
def test_whole_and_deltas(run, tmp_path, mode, counts):
    saved, loaded = counts
    how = "spawn" if mode == "process" else "forkserver"
    ranks.run(saved, ranks.save_run, str(tmp_path), mode, CHAIN, {}, run, start_method=how, folder=tmp_path)
    whole, *deltas = [snapshot.new_size for snapshot in lmc.Store(run).snapshots()]
    assert len(deltas) == CHAIN - 1 and max(deltas) < 0.9 * whole
    ranks.run(loaded, ranks.load_all, str(tmp_path), list(range(CHAIN)), run, folder=tmp_path)
    lmc.dcp.export(run, tmp_path / "plain", step=CHAIN - 1)
    ranks.run(2, ranks.load_plain, str(tmp_path), str(tmp_path / "plain"), CHAIN - 1, folder=tmp_path)


def test_a_rank_that_is_killed(run, tmp_path):
    with pytest.raises(RuntimeError, match="rank 1: died of SIGKILL"):
        ranks.run(2, ranks.save_and_die, str(tmp_path), "sync", 2, {}, run, folder=tmp_path)
    assert [s.step for s in lmc.Store(run).snapshots()] == [0]
    ranks.run(2, ranks.save_run, str(tmp_path), "sync", 2, {}, run, folder=tmp_path)
    ranks.run(1, ranks.load_all, str(tmp_path), [0, 1], run, folder=tmp_path)


@pytest.mark.parametrize("same", [True, False])
def test_groups_that_save_the_same_step(run, tmp_path, same):
    ranks.run(2, ranks.savers, run, 4, same, folder=tmp_path)
    assert [s.step for s in lmc.Store(run).snapshots()] == list(range(4))


def test_only_the_last_ones_stay(run):
    for step in range(4):
        save(run, step, keep_last=2)
    save(run, 3, state(7), overwrite=True)
    assert [s.step for s in lmc.Store(run).snapshots()] == [2, 3]
    assert equal(load(f"{run}/step-2"), state(2)) and equal(load(run), state(7))


def forks(run):
    """Objects that were opened before a fork work in both processes."""
    save(run, 0)
    writer, reader = lmc.dcp.Writer(f"{run}/step-1", threads=1), lmc.dcp.Reader(f"{run}/step-0", threads=1)
    child = os.fork()
    if child == 0:
        found = state(9)
        dcp.load(found, storage_reader=reader, no_dist=True)
        dcp.save(state(1), storage_writer=writer, no_dist=True)
        os._exit(0 if equal(found, state(0)) else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert equal(load(run), state(1))
    save(run, 2)
    assert equal(load(run), state(2))


def test_a_process_that_forks(run, tmp_path):
    done = ranks.process(forks, run, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_bucket_that_is_not_there(run):
    with pytest.raises(CheckpointException, match="(?i)bucket"):
        load("s3://no-such-bucket/run/step-0")
    with pytest.raises(CheckpointException, match="(?i)bucket"):
        save("s3://No_Such_Bucket/run", 0)
