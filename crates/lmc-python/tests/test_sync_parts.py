"""Versions that several ranks publish together, and streams of tensors."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys

import lmc
import lmc.sync
import numpy as np
import pytest
from conftest import equal, weights

WORLD = 3


def tensors(rank, step=0):
    """The tensors of a rank; some change with each step."""
    w = weights(1 << 17).reshape(128, 1024) * np.float32(1 + rank / 100)
    for n in range(step):
        w.reshape(-1)[n::70] *= np.float32(1.01)
    return {f"layers.{rank}.w": w, f"layers.{rank}.bias": w[0] + 1, f"layers.{rank}.still": np.arange(50.0) + rank}


def whole(step):
    return {name: array for rank in range(WORLD) for name, array in tensors(rank, step).items()}


def save(store, step, rank):
    publisher = lmc.sync.Publisher(store)
    # Two files for each rank; as pairs from every second one.
    given = tensors(rank, step)
    return publisher.save_part(
        given.items() if rank % 2 else given, step=step, rank=rank, world_size=WORLD, file_size=1 << 19
    )


def test_ranks_publish_a_version_together(tmp_path):
    store = str(tmp_path / "store")
    publisher = lmc.sync.Publisher(store)
    follower = lmc.sync.Follower(store, framework="np")
    with multiprocessing.get_context("spawn").Pool(WORLD) as ranks:
        for step in (1, 2, 4):
            parts = ranks.starmap(save, [(store, step, rank) for rank in range(WORLD)])
            # Nothing is there before all is published.
            assert all(s.step < step for s in publisher.store.snapshots())
            done = publisher.publish_parts(reversed(parts), metadata={"loss": "1"})
            assert (done.step, follower.update()) == (step, step)
            assert equal(follower.tensors, whole(step))
            assert done.raw_size == publisher.store.find(step).raw_size > sum(part.raw_size for part in parts)
            assert done.elements == sum(array.size for array in whole(step).values())
            if step > 1:
                assert 0 < done.new_size < done.raw_size / 20
                assert done.changed is not None
                assert 0 < done.changed < done.elements / 20
    reader = publisher.store.open_snapshot()
    files = [f"model-{rank:05}-{n:05}.safetensors" for rank in range(WORLD) for n in range(2)]
    assert sorted(f.name for f in reader.files) == [*files, "model.safetensors.index.json"]
    publisher.store.restore(tmp_path / "restored")
    index = json.loads((tmp_path / "restored" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == whole(4).keys()
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in whole(4).values())
    for name, file in index["weight_map"].items():
        with lmc.safe_open(tmp_path / "restored" / file, "np") as f:
            assert np.array_equal(f.get_tensor(name), whole(4)[name])


def test_what_is_no_whole_version_is_not_published(tmp_path):
    store = str(tmp_path / "store")
    publisher = lmc.sync.Publisher(store)
    parts = [save(store, 5, rank) for rank in range(WORLD)]
    other = lmc.sync.Publisher(tmp_path / "other").save_part(tensors(1), step=5, rank=1, world_size=WORLD)
    same = publisher.save_part(tensors(0), step=5, rank=1, world_size=WORLD)
    empty = publisher.save_part({}, step=5, rank=0, world_size=1)
    again = publisher.save_part(tensors(1), step=5, rank=1, world_size=WORLD, attempt="second")
    for given, why in [
        ([], "no parts"),
        (parts[:2], r"ranks \[2\] of 3 are missing"),
        ([*parts, parts[1]], r"several parts of ranks \[1\]"),
        ([parts[0], other, parts[2]], "more than one run"),
        ([parts[0], same, parts[2]], "tensor 'layers.0.w' is in model-00000-00000.safetensors and in model-00001"),
        ([parts[0], save(store, 6, 1), parts[2]], "more than one step: 5, 6"),
        ([parts[0], again, parts[2]], "more than one attempt: '', 'second'"),
        ([empty], "no tensors"),
    ]:
        with pytest.raises(lmc.UsageError, match=why):
            publisher.publish_parts(given)
    with pytest.raises(lmc.UsageError, match=f"of run {other.run}, and the store is of run {publisher.store.run}"):
        publisher.publish_parts(
            [lmc.sync.Publisher(tmp_path / "other").save_part(tensors(1), step=5, rank=0, world_size=1)]
        )
    assert publisher.store.snapshots() == []
    publisher.publish_parts(parts)
    with pytest.raises(lmc.ExistsError):
        publisher.publish_parts(parts)
    with pytest.raises(lmc.ExistsError):
        save(store, 5, 0)
    with pytest.raises(lmc.UsageError, match="comes before the last one"):
        save(store, 4, 0)
    for options, why in [
        ({"rank": 3, "world_size": 3}, "rank=3: must be from 0 to 2"),
        ({"file_size": 0}, "file_size=0"),
    ]:
        with pytest.raises(lmc.UsageError, match=why):
            publisher.save_part(tensors(0), step=9, **{"rank": 0, "world_size": 1, **options})


KILLED = """
import os, signal, sys
import lmc.sync, numpy as np

def stream():
    for i in range(3):
        yield f"w{i}", np.full(100_000, i, "f4")
    os.kill(os.getpid(), signal.SIGKILL)

lmc.sync.Publisher(sys.argv[1]).save_part(stream(), step=1, rank=1, world_size=2, file_size=400_000)
"""


def test_a_rank_that_is_killed_leaves_no_version(tmp_path):
    store = str(tmp_path / "store")
    publisher = lmc.sync.Publisher(store)
    mine = publisher.save_part({"mine": np.ones(1000)}, step=1, rank=0, world_size=2)
    killed = subprocess.run([sys.executable, "-c", KILLED, store], env=os.environ, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    # It has stored some, which no version has.
    assert len(list((tmp_path / "store" / "shards").iterdir())) == 4
    assert publisher.store.snapshots() == []
    with pytest.raises(lmc.UsageError, match=r"ranks \[1\] of 2 are missing"):
        publisher.publish_parts([mine])
    again = lmc.sync.Publisher(store).save_part({"w0": np.zeros(10)}, step=1, rank=1, world_size=2)
    publisher.publish_parts([mine, again])
    follower = lmc.sync.Follower(store, framework="np")
    assert follower.update() == 1
    assert equal(follower.tensors, {"mine": np.ones(1000), "w0": np.zeros(10)})


def test_a_stream_is_published_in_bounded_memory(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "store", cache_size=0)
    alive, most = set(), 0

    class Counted(np.ndarray):
        def __del__(self):
            alive.discard(id(self))

    def stream(seed):
        nonlocal most
        for i in range(40):
            array = np.full(25_000, i + seed, "f4").view(Counted)
            alive.add(id(array))
            most = max(most, len(alive))
            yield f"w{i}", array
            del array

    parts = [publisher.save_part(stream(1), step=3, rank=0, world_size=1, file_size=500_000)]
    # Five in each file, and one that is being made.
    assert 5 <= most <= 7
    publisher.publish_parts(parts)
    assert publisher.publish(stream(2)).step == 4
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.load()
    assert equal(follower.tensors, {f"w{i}": np.full(25_000, i + 2, "f4") for i in range(40)})

    def twice():
        yield "w", np.zeros(3)
        yield "w", np.ones(3)

    def fails():
        yield "w", np.zeros(3)
        raise ValueError("no more")

    for bad, error in [(twice, lmc.UsageError), (fails, ValueError)]:
        with pytest.raises(error):
            publisher.publish(bad())
    assert publisher.store.find().step == 4


def test_memory_that_is_used_again_is_refused(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "store")
    buffer = np.zeros(100, "f4")

    def again(views):
        for i in range(3):
            buffer[:] = i
            yield f"w{i}", buffer[:] if views else buffer

    for views in (False, True):
        with pytest.raises(lmc.UsageError, match="tensor 'w1' is in the memory of 'w0'"):
            publisher.publish(again(views))
    with pytest.raises(lmc.UsageError, match="tensor 'b' is in the memory of 'a'"):
        publisher.publish([("a", buffer[10:20]), ("c", buffer[20:]), ("b", buffer[5:11])])
    assert publisher.store.snapshots() == []
    # Each is saved before the next one is made; or a copy is, or they do not overlap.
    part = publisher.save_part(again(False), step=1, rank=0, world_size=1, file_size=1)
    publisher.publish_parts([part])
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.load()
    assert equal(follower.tensors, {f"w{i}": np.full(100, i, "f4") for i in range(3)})
    matrix = np.arange(100.0).reshape(10, 10)
    columns = {"left": matrix[:, :5], "right": matrix[:, 5:], "top": matrix[:5], "bottom": matrix[5:]}
    publisher.publish(columns.items())
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.load()
    assert equal(follower.tensors, columns)


def test_ranks_that_are_not_in_step_do_not_say_what_changed(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "store")
    publisher.publish(whole(1), step=1)
    early = save(publisher.store.location, 3, 0)
    publisher.publish_parts([save(publisher.store.location, 2, rank) for rank in range(WORLD)])
    late = [save(publisher.store.location, 3, rank) for rank in (1, 2)]
    assert (early.base_step, late[0].base_step) == (1, 2)
    assert publisher.publish_parts([early, *late]).changed is None
    assert publisher.publish_parts([save(publisher.store.location, 4, rank) for rank in range(WORLD)]).changed > 0


def test_a_part_that_is_gone_is_expired(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "store")
    part = publisher.save_part(tensors(0), step=1, rank=0, world_size=1)
    assert len({part, publisher.save_part(tensors(0), step=1, rank=0, world_size=1)}) == 2
    for shard in (tmp_path / "store" / "shards").iterdir():
        shard.unlink()
    with pytest.raises(lmc.ExpiredError, match="no longer there: save it again"):
        publisher.publish_parts([part])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("weights", "str 'weights'"),
        (b"weights", "bytes b'weights'"),
        (None, "not NoneType"),
        (7, "not int"),
        (np.ones((3, 2)), "ndarray is none"),
        (["w", "v"], "str 'w' is none"),
        ([("w", np.ones(3), 1)], "tuple is none"),
        ([(1, np.ones(3))], "tuple is none"),
        ({1: np.ones(3)}, "tuple is none"),
    ],
)
def test_what_is_no_weights_is_named(tmp_path, given, why):
    publisher = lmc.sync.Publisher(tmp_path / "store")
    with pytest.raises(lmc.UsageError, match=why):
        publisher.save_part(given, step=1, rank=0, world_size=1)
    with pytest.raises(lmc.UsageError, match="tensors='weight'"):
        lmc.sync.Follower(publisher.store, "weight")
