"""Stores."""

import datetime
import itertools
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import lmc
import numpy as np
import pytest
from changing import written
from conftest import weights


def state(step):
    w = weights(1 << 19) * np.float32(1 + step / 1_000_000)
    return [("w", "F32", (512, 1024), w), ("b", "F32", (3,), weights(3))]


@pytest.fixture
def store(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for step in (100, 200, 300):
        store.save_files({"model.safetensors": (state(step), {"step": str(step)}), "rng": step.to_bytes(8)}, step=step)
    return store


def test_snapshots(store):
    found = store.snapshots()
    assert [s.step for s in found] == [100, 200, 300]
    assert found[1].new_size < 0.6 * found[0].new_size
    assert found[0].raw_size > 1 << 21
    assert store.find().step == store.find("latest").step == 300
    assert store.find(200).id == store.find(found[1].id).id == store.find(found[1]).id == found[1].id
    for at in (5, "0" * 32):
        with pytest.raises(lmc.NotFoundError) as e:
            store.find(at)
        assert e.value.kind == "not_found"
    with pytest.raises(lmc.NotFoundError, match="no tag yesterday"):
        store.find("yesterday")
    for at in ("300", "no tag", ""):
        with pytest.raises(lmc.UsageError, match="nor a tag; steps are int"):
            store.find(at)
    with pytest.raises(lmc.UsageError, match="at=-1: must be from 0"):
        store.find(-1)
    for at in (1.5, [100], b"latest"):
        with pytest.raises(TypeError, match="a snapshot is given by"):
            store.find(at)


def test_reading(store):
    for step in (100, 300):
        (name, _, shape, w), (_, _, _, b) = state(step)
        reader = store.open_snapshot(step, threads=2)
        assert reader.snapshot.step == step
        assert [(f.name, f.layout) for f in reader.files] == [("model.safetensors", "safetensors"), ("rng", "raw")]
        assert {t.name for t in reader.files[0].tensors} == set(reader.keys()) == {"w", "b"}
        assert "w" in reader
        assert "v" not in reader
        assert (reader.tensor("w").shape, reader.tensor("w").dtype) == (shape, "F32")
        assert reader.read("w") == w.tobytes()
        assert reader.read_rows("w", 3, 7) == w.reshape(shape)[3:7].tobytes()
        out, rows = np.zeros(3, np.float32), np.zeros((2, 1024), np.float32)
        assert reader.read_into("b", out) == 12
        assert np.array_equal(out, b)
        assert reader.read_many_into([("b", out), ("w", 510, 512, rows)]) == 12 + rows.nbytes
        assert np.array_equal(rows, w.reshape(shape)[510:])
        assert reader.read_file("rng") == step.to_bytes(8)
        part = bytearray(3)
        reader.read_range_into("rng", 5, part)
        assert part == step.to_bytes(8)[5:]
        wanted = [("rng", 5, part), ("model.safetensors", 0, rows), ("rng", 8, bytearray())]
        assert reader.read_ranges_into(wanted) == 3 + rows.nbytes
        assert part == step.to_bytes(8)[5:] and reader.read_file("model.safetensors").startswith(rows.tobytes())
    with pytest.raises(lmc.NotFoundError):
        reader.read("nothing")
    with pytest.raises(lmc.NotFoundError):
        reader.read_file("nothing")
    for wrong in (lambda: reader.read_into("b", bytearray(3)), lambda: reader.read_rows("w", 5, 600)):
        with pytest.raises(lmc.UsageError):
            wrong()
    with pytest.raises(lmc.UsageError, match="share memory"):
        reader.read_many_into([("b", out), ("b", out)])
    with pytest.raises(lmc.UsageError, match="share memory"):
        reader.read_ranges_into([("rng", 0, part), ("rng", 0, part)])
    with pytest.raises(lmc.UsageError, match="3 bytes from byte 6"):
        reader.read_ranges_into([("rng", 6, part)])


def test_restoring(store, tmp_path):
    paths = store.restore(tmp_path / "back" / "200", 200)
    assert [p.name for p in paths] == ["model.safetensors", "rng"]
    with lmc.open(paths[0], plain=True) as f:
        assert f.read("w") == state(200)[0][3].tobytes()
    assert lmc.decompress(lmc.compress_tensors(state(200), metadata={"step": "200"})) == paths[0].read_bytes()
    assert store.restore(tmp_path / "rng", names=["rng"])[0].read_bytes() == (300).to_bytes(8)
    with pytest.raises(FileExistsError):
        store.restore(tmp_path / "rng", names=["rng"], overwrite=False)
    with pytest.raises(lmc.NotFoundError):
        store.restore(tmp_path / "none", names=["rng", "nothing"])
    assert not (tmp_path / "none").exists()
    store.save_files({"a": b"1", "d/b": b"2", "d/e/c": b"3"}, step=400)
    assert store.restore(tmp_path / "deep") == [tmp_path / "deep" / n for n in ("a", "d/b", "d/e/c")]
    assert [p.read_bytes() for p in store.restore(tmp_path / "deep" / "2", names=["d", "a"])] == [b"2", b"3", b"1"]
    asked = store.restore(tmp_path / "deep" / "3", names=["d/b", "d", "d/b"])
    assert asked == [tmp_path / "deep" / "3" / n for n in ("d/b", "d/e/c")]
    reader = store.open_snapshot(100)
    reader.restore("rng", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == (100).to_bytes(8)


def test_what_is_saved(tmp_path):
    store = lmc.Store.create(str(tmp_path / "store"), cache="memory")
    assert isinstance(lmc.Store.create(tmp_path / "store", cache=tmp_path / "cache"), lmc.Store)
    (tmp_path / "file").write_bytes(b"of a file")
    snapshot = store.save_files([tmp_path / "file"])
    assert (snapshot.step, snapshot.raw_size) == (0, 9)
    inputs = {"a": tmp_path / "file", "b": bytearray(b"of memory"), "c": np.arange(5)}
    snapshot = store.save_files(inputs, metadata={"loss": "1.5"}, level="fast", anchor_every=1, threads=1)
    assert (snapshot.step, snapshot.metadata) == (1, {"loss": "1.5"})
    metadata = {"loss": 0.1 + 0.2, "tokens": 2**53, "epoch": 2.0, "rank": -1, "note": "1e5"}
    given = metadata | {"tokens": np.int64(2**53), "epoch": np.float32(2)}
    saved = store.publish(7, [store.save_shard({"x": b"x"}, step=7).shard], metadata=given)
    for found in (saved, store.find(7), pickle.loads(pickle.dumps(saved))):
        assert found.metadata == metadata
        assert [type(v) for v in found.metadata.values()] == [float, float, str, int, int]
    for wrong, error in (
        (True, TypeError),
        (None, TypeError),
        ([1], TypeError),
        (2**53 + 1, lmc.LimitError),
        (2**99, lmc.UsageError),
        (float("nan"), lmc.LimitError),
    ):
        with pytest.raises(error, match="loss"):
            store.save_files({"y": b"y"}, step=8, metadata={"loss": wrong})
    store.prune(drop=[7])
    reader = store.open_snapshot(1)
    assert [reader.read_file(n) for n in "abc"] == [b"of a file", b"of memory", np.arange(5).tobytes()]
    with pytest.raises(lmc.ExistsError) as e:
        store.save_files(inputs, step=1)
    assert e.value.kind == "exists"
    for wrong in ({"a//b": b"x"}, {"../b": b"x"}, {"/b": b"x"}, {"": b"x"}, {"a": b"x", "a/b": b"y"}):
        with pytest.raises(lmc.UsageError):
            store.save_files(wrong)
    for options in ({"base": "no/tag"}, {"level": "best"}, {"anchor_every": 0}, {"threads": -1}):
        with pytest.raises(lmc.UsageError):
            store.save_files(inputs, **options)
    for wrong in (3, "path", {"a": 3}, {1: b"x"}, [3], b"bytes"):
        with pytest.raises(TypeError):
            store.save_files(wrong)
    with pytest.raises(FileNotFoundError):
        store.save_files({"a": tmp_path / "missing"})
    assert [s.step for s in store.snapshots()] == [0, 1]


def test_an_index_is_saved_with_its_files(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    file = bytes.fromhex("3500000000000000") + b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}' + b"ab"
    (tmp_path / "a.safetensors").write_bytes(file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"w": "a.safetensors"}}')
    store.save_files([index])
    assert sorted(f.name for f in store.open_snapshot().files) == ["a.safetensors", index.name]
    store.save_files({index.name: index})
    assert [f.name for f in store.open_snapshot().files] == [index.name]
    # One that is cut makes the snapshot incomplete.
    (tmp_path / "a.safetensors").write_bytes(file[:-1])
    with pytest.raises(lmc.UsageError, match="names a.safetensors, which is not whole: it has "):
        store.save_files([index])


def test_files_that_a_store_cannot_hold_are_left_out_with_a_warning(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "w").write_bytes(b"weights")
    (tmp_path / "d" / "log_12:30.txt").write_bytes(b"log")
    with pytest.warns(UserWarning, match="log_12:30.txt: has a name that no file in a store can have"):
        store.save_files([tmp_path / "d"])
    assert [f.name for f in store.open_snapshot().files] == ["w"]
    with pytest.raises(lmc.UsageError, match="no file in a store can have"):
        store.save_files([tmp_path / "d" / "log_12:30.txt"])


def test_files_of_a_directory_that_is_exchanged_meanwhile_are_not_saved(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for version in "ab":
        (tmp_path / version).mkdir()
        for name in ("x", "y"):
            (tmp_path / version / name).write_bytes(version.encode())

    class Exchange:
        """A path that is asked for after the first file was opened."""

        def __fspath__(self):
            (tmp_path / "a").rename(tmp_path / "c")
            (tmp_path / "b").rename(tmp_path / "a")
            return str(tmp_path / "a" / "y")

    with pytest.raises(lmc.IOError, match="changed while it was read"):
        store.save_files({"x": tmp_path / "a" / "x", "y": Exchange()})
    assert store.snapshots() == []


def test_shards(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    shards = [store.save_shard({f"rank{n}": bytes([n]) * 1000}, step=7) for n in range(2)]
    assert store.snapshots() == []
    assert [p.raw_size for p in shards] == [1000, 1000]
    snapshot = store.publish(7, [p.shard for p in shards], metadata={"ranks": "2"})
    assert len(snapshot.shards) == 1
    assert store.open_snapshot(7).read_file("rank1") == b"\1" * 1000
    with pytest.raises(lmc.UsageError):
        store.publish(8, ["not an id"])
    # Saved again: with the same contents, and to replace them.
    again = [store.save_shard({f"rank{n}": bytes([n]) * 1000}, step=7).shard for n in range(2)]
    assert store.has_shards(7, again) and not store.has_shards(snapshot, again[:1])
    with pytest.raises(lmc.ExistsError):
        store.publish(7, again[:1])
    assert store.publish(7, again[:1], overwrite=True).shards == again[:1]
    assert [f.name for f in store.open_snapshot(7).files] == ["rank0"]


def test_opening(tmp_path, store):
    assert [s.step for s in lmc.Store(tmp_path / "store").snapshots()] == [100, 200, 300]
    assert lmc.Store(str(tmp_path / "store")).location == str(tmp_path / "store")
    for missing in (tmp_path / "missing", tmp_path):
        with pytest.raises(lmc.NotFoundError):
            lmc.Store(missing)
    with pytest.raises(lmc.UsageError):
        lmc.Store("ftp://bucket")
    # As a path, the URL of a bucket is the name of a directory.
    for place in (Path("s3://bucket/run"), "s3:/bucket/run", "s3:run"):
        for open_ in (lmc.Store, lmc.Store.create):
            with pytest.raises(lmc.UsageError, match="s3:.*is a URL without"):
                open_(place)
    assert not os.path.exists("s3:")
    for wrong in (3, None, b"store"):
        with pytest.raises(TypeError):
            lmc.Store(wrong)
    with pytest.raises(TypeError):
        lmc.Store(tmp_path / "store", cache=3)


def test_verifying(store, tmp_path):
    found = store.verify(deep=True)
    assert (found.problems, found.block_sets > 0, found.objects > 0) == ([], True, True)
    assert store.verify(100).problems == []
    assert store.cost(100).longest_chain == 1
    assert store.cost().longest_chain > 1
    largest = max((tmp_path / "store").rglob("*"), key=lambda p: p.stat().st_size if p.is_file() else 0)
    damaged = bytearray(largest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    largest.write_bytes(damaged)
    problem = store.verify(100, deep=True).problems[0]
    assert problem.step == 100
    assert problem.lost
    assert problem.message
    with pytest.raises(lmc.DamagedError):
        store.open_snapshot(100).read("w")


def test_results_say_what_they_are(store, tmp_path):
    found = store.verify()
    counts = f"objects={found.objects}, block_sets={found.block_sets}"
    assert repr(found) == f"Verified({counts}, problems=[], tags=[], notes=[])"
    saved = store.save_shard({"a": b"not published"}, step=500)
    assert re.sub(r"seconds=[\d.e-]+", "seconds=…", repr(saved)) == (
        f"Saved(shard='{saved.shard}', raw_size=13, new_size={saved.new_size}, document_size={saved.document_size}, "
        f"base_step={saved.base_step}, elements=0, changed={saved.changed}, read_seconds=…, compress_seconds=…, "
        "upload_seconds=…, notes=[])"
    )
    garbage = store.garbage()
    young = garbage.young[0]
    assert repr(young) == f"Orphan(key='{young.key}', size={young.size}, time={young.time})"
    assert repr(garbage).startswith(f"Garbage(time={garbage.time}, orphans=[], young=[{young!r}")
    cost = store.cost(100)
    assert repr(cost) == f"Cost(block_sets={cost.block_sets}, stored_size={cost.stored_size}, longest_chain=1)"
    plan = store.plan_prune(keep_last=1)
    assert repr(plan) == (
        "PrunePlan(keep=[300], why=[['last']], prune=[100, 200], states=[], damaged=[], left_out=[], "
        f"rebase={plan.rebase}, broken=[], before={plan.before}, after={plan.after}, obstacle=None)"
    )
    assert repr(store.prune(keep_last=1)) == f"Pruned(pruned=[100, 200], rebased={plan.rebase}, reduced=[], changed=[])"
    shutil.rmtree(tmp_path / "store" / "data")
    problem = store.verify().problems[0]
    assert repr(problem).startswith(f"Problem(step=300, lost={problem.lost}, intact=False, message=")


def test_the_best_are_kept(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for step, loss in ((1, 2.5), (2, 2.0), (3, 3), (4, "1.0"), (5, 2.0)):
        store.save_files({"w": b"w%d" % step}, step=step, metadata={"loss": loss})
    assert store.plan_prune(keep_best=("loss", "min")).keep == [5]
    assert store.plan_prune(keep_best=("loss", "min", 3)).keep == [1, 2, 5]
    plan = store.plan_prune(keep_last=1, keep_best=[("loss", "max"), ("loss", "min", 2)])
    assert (plan.keep, plan.why) == ([2, 3, 5], [["best loss"], ["best loss"], ["last", "best loss"]])
    with pytest.raises(lmc.NotFoundError, match='"acc"'):
        store.plan_prune(keep_best=("acc", "max"))
    for wrong in (("loss", "least"), ("loss", "min", 0), ("loss", "min", -1)):
        with pytest.raises(lmc.UsageError):
            store.plan_prune(keep_best=wrong)
    for wrong in ("loss", ("loss",), ["loss", "min"], ("loss", 1)):
        with pytest.raises(TypeError):
            store.plan_prune(keep_best=wrong)
    assert store.prune(keep_best=("loss", "min")).pruned == [1, 2, 3, 4]


def test_states_go_and_weights_stay(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    w = [("model.w", "F32", [1 << 16], weights(1 << 16))]
    moments = [("optimizer.exp_avg.w", "F32", [1 << 16], weights(1 << 16))]
    for step in (1, 2):
        store.save_files({"s.safetensors": w + moments, "optimizer.pt": b"o"}, step=step)
    before = store.find(1)
    plan = store.plan_prune(keep_last=1, drop_state=True)
    assert (plan.keep, plan.why, plan.prune, plan.states) == ([1, 2], [["weights"], ["last"]], [], [1])
    done = store.prune(keep_last=1, drop_state=True)
    assert (done.pruned, done.reduced) == ([], [1])
    now, snapshot = store.find(1), store.open_snapshot(1)
    assert now.raw_size + now.dropped == before.raw_size and before.dropped == 0 and now.id != before.id
    assert pickle.loads(pickle.dumps(now)) == now
    assert snapshot.keys() == ["model.w"] and snapshot.read("model.w") == w[0][3].tobytes()
    assert [file.name for file in snapshot.files] == ["s.safetensors"]
    assert store.prune(keep_last=1, drop_state=True).reduced == []


def test_the_base_can_be_asked_for(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    whole = {step: weights(1 << 16) * np.float32(1 + step) for step in (1, 2)}
    saved = [store.save_files({"w": [("w", "F32", [1 << 16], w)]}, step=step) for step, w in whole.items()]
    store.tag("base", 1)
    tuned = (whole[1].view(np.uint32) ^ 1).view(np.float32)
    for step, base in enumerate((1, "base", saved[0], saved[0].id), start=3):
        shard = store.save_shard({"w": [("w", "F32", [1 << 16], tuned)]}, step=step, base=base)
        assert shard.base_step == 1
    assert store.save_shard({"w": [("w", "F32", [1 << 16], tuned)]}, step=3, base="previous").base_step != 1
    # Another process looks for it.
    found = lmc.Store(tmp_path / "store").save_shard({"w": [("w", "F32", [1 << 16], tuned)]}, step=3)
    assert found.base_step == 1
    for wrong in (9, "none", "0" * 32):
        with pytest.raises(lmc.NotFoundError):
            store.save_files({"w": b"w"}, base=wrong)
    with pytest.raises(TypeError):
        store.save_files({"w": b"w"}, base=1.5)


def test_tags(store, tmp_path):
    assert store.tags() == {}
    assert store.tag("best", 200).step == 200
    assert store.save_files({"w": b"w"}, step=400, tag="last").step == 400
    store.tag("last", "best")
    store.tag("v1", store.find(300))
    assert store.tags() == {"best": 200, "last": 200, "v1": 300}
    assert store.find("best") == store.find(200)
    assert store.open_snapshot("v1").read("w") == state(300)[0][3].tobytes()
    assert store.plan_prune(keep_last=1).keep == [200, 300, 400]
    with pytest.raises(lmc.UsageError, match="has the tag v1"):
        store.prune(drop=[300])
    store.untag("v1")
    assert store.prune(drop=[300]).pruned == [300]
    with pytest.raises(lmc.NotFoundError, match="no tag v1"):
        store.untag("v1")
    for name in ("latest", "7", "a/b", "", "0" * 32):
        with pytest.raises(lmc.UsageError, match="cannot be a tag"):
            store.tag(name)
    with pytest.raises(lmc.UsageError, match="cannot be a tag"):
        store.save_files({"w": b"v"}, tag="1")
    assert store.verify().tags == []
    copy = lmc.Store.create(tmp_path / "copy", run=store.run)
    copy.copy_from(store, "best")
    assert copy.tags() == {"best": 200, "last": 200}
    newest = min((tmp_path / "store" / "tags" / "best").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="tags/best"):
        assert store.tags() == {"last": 200}
    assert len(store.verify().tags) == 1


def test_records_are_missed(store, tmp_path):
    assert store.verify(expect=[100, 300]).problems == []
    with pytest.raises(lmc.UsageError, match="leave out at"):
        store.verify(100, expect=[100])
    with pytest.raises(lmc.UsageError):
        store.verify(expect=[1 << 60])
    records = sorted((tmp_path / "store" / "snapshots").rglob("*.json"))
    whole = records[1].read_bytes()
    records[1].unlink()
    assert [p.step for p in store.verify().problems] == [200]
    records[1].write_bytes(whole.replace(b"200", b"201", 1))
    problem = store.verify().problems[0]
    assert (problem.step, problem.intact) == (200, False)
    assert [s.step for s in store.snapshots()] == [100, 300]
    assert [s.step for s in store.snapshots(last=1)] == [300]
    with pytest.raises(lmc.DamagedError, match="put the record back"):
        store.find(200)
    plan = store.plan_prune(keep_last=5)
    assert (plan.left_out, plan.damaged) == ([200], [])
    assert store.plan_prune(damaged=[200]).damaged == [200]
    assert store.prune(damaged=[200]).pruned == [200]
    assert store.verify().problems == []
    (tmp_path / "store" / "snapshots" / ".DS_Store").touch()
    assert any(".DS_Store" in note for note in store.verify().notes)
    # The record that ended step 200 was written last, and names that of step 300, whose key comes first.
    last = records[0].read_bytes()
    records[0].unlink()
    assert [p.step for p in store.verify().problems] == [300]
    records[0].write_bytes(last)
    # No record names the last one.
    store.save_files({"a": b"more"}, step=400)
    assert store.verify(expect=[400]).problems == []
    min((tmp_path / "store" / "snapshots").rglob("*.json")).unlink()
    assert store.verify().problems == []
    assert [p.step for p in store.verify(expect=[100, 400]).problems] == [400]


def test_restoring_follows_no_links(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    store.save_files({"a": b"saved", "sub/config.json": b"saved"})
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "config.json").write_bytes(b"mine")
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "sub").symlink_to("../victim")
    for overwrite in (True, False):
        with pytest.raises(lmc.UsageError, match="sub: is a symbolic link"):
            store.restore(tmp_path / "target", overwrite=overwrite)
    assert (tmp_path / "victim" / "config.json").read_bytes() == b"mine"
    assert not (tmp_path / "target" / "a").exists()
    os.mkfifo(tmp_path / "victim" / "a")
    with pytest.raises(lmc.UsageError, match="a: is not a regular file"):
        store.restore(tmp_path / "victim")
    for inside in ("", "data", "new"):
        with pytest.raises(lmc.UsageError, match="is in the store"):
            store.restore(tmp_path / "store" / inside)
    with pytest.raises(lmc.UsageError, match="is in the store"):
        store.open_snapshot().restore("a", tmp_path / "store" / "lmc-store.json")
    assert store.verify(deep=True).problems == []


def test_housekeeping(store):
    plan = store.plan_prune(keep_last=1, keep_steps=[100])
    assert (plan.keep, plan.prune) == ([100, 300], [200])
    assert plan.before >= plan.after > 0
    assert store.plan_prune(drop=[300]).prune == [300]
    for within in (3600, datetime.timedelta(hours=1)):
        assert store.plan_prune(keep_within=within).keep == [100, 200, 300]
    for within in (0.5, "1h", datetime.timedelta(seconds=-1)):
        with pytest.raises((TypeError, ValueError)):
            store.plan_prune(keep_within=within)
    assert store.plan_prune(keep_every=150).keep == [200, 300]
    done = store.prune(keep_last=1, keep_every=100 * 3)
    assert done.pruned == [100, 200]
    assert [s.step for s in store.snapshots()] == [300]
    assert store.open_snapshot(300).read("w") == state(300)[0][3].tobytes()
    for garbage in (store.garbage(), store.gc()):
        assert garbage.orphans == []
        assert all(o.size >= 0 and o.key for o in garbage.young)
    with pytest.raises(lmc.UsageError):
        store.prune()
    with pytest.raises(lmc.NotFoundError):
        store.plan_prune(keep_steps=[5])


def test_copying(store, tmp_path):
    other = lmc.Store.create(tmp_path / "other", run=store.run)
    assert [s.step for s in other.copy_from(store, 300).snapshots] == [300]
    copied = other.copy_from(store)
    assert ([s.step for s in copied.snapshots], copied.skipped) == ([100, 200], 1)
    assert (copied.damaged, copied.left_out, copied.notes) == ([], [], [])
    shown = ", ".join(map(repr, copied.snapshots))
    assert repr(copied) == f"Copied(snapshots=[{shown}], skipped=1, damaged=[], left_out=[], notes=[])"
    assert other.find(300).id == store.find(300).id
    assert other.open_snapshot(300).read("w") == state(300)[0][3].tobytes()
    another = lmc.Store.create(tmp_path / "another")
    with pytest.raises(lmc.UsageError, match=f"is of run {another.run}, and the .* of run {store.run}: "):
        another.copy_from(store, 300)
    assert another.snapshots() == []
    with pytest.raises(lmc.UsageError, match=f"the store that is here is of run {another.run}, not of {store.run}"):
        lmc.Store.create(tmp_path / "another", run=store.run)


def test_what_is_damaged_is_not_copied(store, tmp_path):
    store.save_files({"a": b"alone" * 1000}, step=400, anchor_every=1)
    newest = max((tmp_path / "store" / "data").rglob("*"), key=lambda path: (path.is_file(), path.stat().st_mtime_ns))
    newest.write_bytes(b"x" * newest.stat().st_size)
    other = lmc.Store.create(tmp_path / "other", run=store.run)
    with pytest.raises(lmc.DamagedError):
        other.copy_from(store, 400)
    copied = other.copy_from(store, skip_damaged=True)
    assert [s.step for s in copied.snapshots] == [100, 200, 300]
    (damaged,) = copied.damaged
    assert damaged[0] == 400 and "is not what was written there" in damaged[1]


def test_a_snapshot_is_restored_whole_or_not_at_all(store, tmp_path):
    there = tmp_path / "there"
    store.save_files({"a": b"first", "b": b"first", "sub/c": b"first"}, step=400)
    store.save_files({"a": b"second", "b": b"second" * 100_000, "sub/c": b"second"}, step=500, anchor_every=1)
    store.restore(there, 400)
    damaged = max((tmp_path / "store" / "data").rglob("*"), key=lambda path: (path.is_file(), path.stat().st_mtime_ns))
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(lmc.DamagedError):
        store.restore(there, 500)
    assert [(there / name).read_bytes() for name in ("a", "b", "sub/c")] == [b"first"] * 3
    damaged.write_bytes(good)
    store.restore(there, 500)
    assert [(there / name).read_bytes()[:6] for name in ("a", "b", "sub/c")] == [b"second"] * 3
    assert sorted(os.listdir(there)) == ["a", "b", "sub"]


def test_files_that_cannot_be_replaced_together(tmp_path):
    program = """if True:
        import pathlib, resource, sys
        import lmc

        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        folder = pathlib.Path(sys.argv[1])
        store = lmc.Store.create(folder / "store")
        store.save_files({f"{i:03}": b"%d" % i for i in range(200)}, step=1)
        store.restore(folder / "new")
        try:
            store.restore(folder / "new")
        except lmc.LimitError as e:
            print(e)
    """
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, text=True)
    assert "200 files are to be replaced together" in done.stdout and "ulimit -n" in done.stdout
    assert len(os.listdir(tmp_path / "new")) == 200


def test_closing(store, tmp_path):
    reader = store.open_snapshot(300)
    with lmc.Store(tmp_path / "store", cache="memory") as other:
        assert not other.closed
    assert other.closed and repr(other).endswith(", closed>")
    store.close()
    store.close()
    for use in (store.find, store.verify, lambda: store.save_files({"a": b""}), lambda: store.copy_from(other)):
        with pytest.raises(lmc.UsageError, match="the store is closed"):
            use()
    with pytest.raises(lmc.UsageError, match="the store is closed"):
        store.follow(tmp_path / "following")
    with pytest.raises(lmc.UsageError, match="the store is closed"), store:
        pass
    assert reader.read_file("rng") == (300).to_bytes(8)


def test_a_directory_that_changes_while_it_is_saved(tmp_path):
    """It is no mistake of the caller."""
    store, folder, numbers = lmc.Store.create(tmp_path / "store"), tmp_path / "checkpoint", itertools.count()
    folder.mkdir()
    (folder / "a").write_bytes(weights(5_000_000).tobytes())

    def grow(_):
        (folder / f"b{next(numbers)}").touch()
        time.sleep(0.001)

    with written(grow), pytest.raises(lmc.IOError, match="got or lost files while it was read"):
        store.save_files([folder])
    assert store.snapshots() == []


def test_warnings_that_are_errors_cost_no_result(store, tmp_path, monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: reported.append(str(given.exc_value)))
    shutil.rmtree(tmp_path / "store" / "data")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.save_files({"model.safetensors": state(400)}, step=400).step == 400
    assert store.find().step == 400
    assert len(reported) == 1 and "is missing" in reported[0]


def test_more_files_than_may_be_open(tmp_path):
    for i in range(1500):
        (tmp_path / f"{i:04}").write_bytes(f"file {i}".encode())
    program = """if True:
        import pathlib, resource, sys
        import lmc

        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        folder = pathlib.Path(sys.argv[1])
        files = sorted(folder.iterdir())
        store = lmc.Store.create(folder / "store")
        store.save_files(files, step=1)
        store.save_files({path.name: path for path in files}, step=2)
        for step in (1, 2):
            reader = store.open_snapshot(step)
            assert all(reader.read_file(path.name) == path.read_bytes() for path in files[::100])
    """
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_a_size_that_the_system_reports_wrongly(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    with pytest.raises(OSError, match="its size is given as 0 bytes, but it has more"):
        store.save_files(["/proc/self/status"], step=1)
    with pytest.raises(OSError, match="its size is given as 0 bytes, but it has more"):
        lmc.compress_file("/proc/self/status", tmp_path / "status.lmc")


def test_a_damaged_latest_is_passed_over(store, tmp_path):
    newest = max((tmp_path / "store" / "snapshots").rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(b"")
    opened, restored = lambda: store.open_snapshot(strict=True), lambda: store.restore(tmp_path / "x", strict=True)
    for strict in (opened, restored, store.find):
        with pytest.raises(lmc.DamagedError, match="step 300"):
            strict()
    with pytest.warns(UserWarning, match="step 300 is damaged, and step 200 is taken instead"):
        assert store.open_snapshot().snapshot.step == 200
    with pytest.warns(UserWarning, match="strict=True raises"):
        store.restore(tmp_path / "x")
    assert (tmp_path / "x" / "rng").read_bytes() == (200).to_bytes(8)
    with pytest.raises(lmc.DamagedError):
        store.open_snapshot(300)


def test_the_logger_has_what_was_done(tmp_path, caplog):
    store = lmc.Store.create(tmp_path / "store", grace_seconds=60)
    store.save_files({"a": b"data"})
    assert not caplog.records
    with caplog.at_level("INFO", logger="lmc"):
        store.save_files({"a": b"data2"}, step=7)
        store.publish(8, [store.save_shard({"a": b"data3"}, step=8).shard])
        store.restore(tmp_path / "out", 7)
        with store.follow(tmp_path / "following") as follower:
            version = follower.update()
        store.prune(keep_last=1)
        store.gc()
    place = tmp_path / "store"
    assert {record.name for record in caplog.records} == {"lmc"}
    assert [record.getMessage() for record in caplog.records] == [
        f"{place}: step 7 saved, 5 bytes => {store_size(caplog)}, without a base",
        f"{place}: step 8 published, 5 bytes => {store_size(caplog, 1)}",
        f"{place}: step 7 restored to {tmp_path / 'out'}",
        f"{version.path}: step 8 is current",
        f"{place}: pruned the steps [0, 7]",
        f"{place}: deleted 0 objects of 0 bytes",
    ]


def store_size(caplog, number=0):
    """The size that a message says."""
    return re.search(r"=> (\d+)", caplog.records[number].getMessage())[1]
