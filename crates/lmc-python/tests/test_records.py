"""Records: results that are compared, pickled and copied by their fields."""

import copy
import multiprocessing
import pickle
import shutil

import lmc
import numpy as np
import pytest
from conftest import weights
from lmc._records import Record


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two different ones of each class, made twice."""
    folder = tmp_path_factory.mktemp("records")
    store = lmc.Store.create(folder / "store")
    w = weights(1 << 16)
    saved = [store.save_shard({"m.safetensors": [("w", "F32", (256, 256), w)], "b": b"b" * n}, step=n) for n in (1, 2)]
    found = [store.publish(n, [s.shard], metadata={"n": str(n)}) for n, s in zip((1, 2), saved, strict=True)]
    store.save_files({"b": b"third"}, step=3)
    (folder / "raw").write_bytes(w.tobytes())
    (folder / "less").write_bytes(w.tobytes()[: 1 << 17])
    names = ("raw", "less")
    for name in names:
        lmc.compress_file(folder / name, folder / f"{name}.lmc")
    files = [lmc.compress_tensors([(name, "F32", (256, 256), w)]) for name in names]
    deltas = [lmc.compress(of * np.float32(1.0001), base=of, dtype="F32") for of in (w, weights(1 << 16, seed=1))]
    follower = store.follow(folder / "following")
    versions = [follower.update()]
    store.save_files({"b": b"fourth"}, step=4)
    versions.append(follower.update())
    other = lmc.Store.create(folder / "other", run=store.run)
    store.save_shard({"b": b"not published"}, step=9)
    garbage = store.garbage()
    made = {
        lmc.Estimate: [lambda name=name: lmc.estimate(folder / name) for name in names],
        lmc.Summary: [lambda name=name: lmc.decompress_file(folder / f"{name}.lmc", folder / "back") for name in names],
        lmc.BaseInfo: [lambda f=f: lmc.open(f).bases[0] for f in deltas],
        lmc.Digest: [lambda d=d: lmc.open(lmc.compress(d, digest=True)).digests[0] for d in (b"one", b"other")],
        lmc.Tensor: [lambda f=f: lmc.open(f).tensors()[0] for f in files],
        lmc.store.Snapshot: [lambda n=n: store.find(n) for n in (1, 2)],
        lmc.store.FileInfo: [lambda n=n: store.open_snapshot(2).files[n] for n in (0, 1)],
        lmc.store.Cost: [lambda n=n: store.cost(n) for n in (1, 3)],
        lmc.store.PrunePlan: [lambda n=n: store.plan_prune(keep_last=n) for n in (1, 2)],
        lmc.store.Version: [lambda v=v: v for v in versions],
        lmc.store.Verified: [lambda s=s: s.verify() for s in (store, other)],
        lmc.store.Copied: [lambda n=n: other.copy_from(store, n) for n in (1, None)],
        lmc.store.Orphan: [lambda: store.garbage().young[0]],
        lmc.store.Garbage: [lambda: garbage],  # it has the time at which it was found
        lmc.store.Saved: [lambda s=s: s for s in saved],
    }
    for make in made[lmc.store.Copied]:
        make()
    made = {kind: [(make(), make()) for make in all_of] for kind, all_of in made.items()}
    made[lmc.store.Pruned] = [(done, done) for done in [store.prune(keep_last=n) for n in (3, 2)]]
    shutil.rmtree(folder / "store" / "data")
    made[lmc.store.Problem] = list(zip(*[store.verify().problems for _ in range(2)], strict=True))
    assert found[0] == made[lmc.store.Snapshot][0][0]
    return made


KINDS = [lmc.Estimate, lmc.Summary, lmc.BaseInfo, lmc.Digest, lmc.Tensor]
KINDS += [lmc.store.Snapshot, lmc.store.FileInfo, lmc.store.Cost, lmc.store.PrunePlan, lmc.store.Version]
KINDS += [lmc.store.Verified, lmc.store.Copied, lmc.store.Orphan, lmc.store.Garbage, lmc.store.Saved]
KINDS += [lmc.store.Pruned, lmc.store.Problem]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_equal_by_their_fields(records, kind):
    made = records[kind]
    assert made
    for one, again in made:
        assert type(one) is kind
        for same in (again, pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert type(same) is kind
            assert one == same and not one != same and hash(one) == hash(same)
            assert repr(one) == repr(same)
            fields = [name for name in dir(kind) if not name.startswith("_")]
            assert fields and all(getattr(one, name) == getattr(same, name) for name in fields)
        assert one != "another" and one != (1,) and one is not None
    firsts = [one for one, _ in made]
    assert len(set(firsts)) == len(firsts)
    assert all(a != b for a in firsts for b in firsts if a is not b)


def test_every_record_is_tested():
    named = {**vars(lmc), **vars(lmc.store)}
    records = {of for of in named.values() if isinstance(of, type) and ("_of" in vars(of) or issubclass(of, Record))}
    assert records == set(KINDS)


def test_a_record_does_not_change():
    record = lmc.Summary(1, 2, "", 3, 4)
    with pytest.raises(AttributeError):
        record.raw_size = 5
    assert record == lmc.Summary(1, 2, "", 3, 4) != lmc.Summary(1, 2, "", 3, 5)


def test_long_fields_are_shown_short():
    garbage = lmc.store.Garbage(1, [lmc.store.Orphan(f"data/{n}", n, n) for n in range(1000)], [], None)
    assert len(repr(garbage)) < 1000


def compressed(paths):
    return lmc.compress_file(*paths)


def test_results_come_from_other_processes(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(1000))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (done,) = pool.map(compressed, [(tmp_path / "raw", tmp_path / "raw.lmc")])
    assert done == lmc.compress_file(tmp_path / "raw", tmp_path / "again.lmc")


def test_a_snapshot_of_another_process_is_found(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    saved = pickle.loads(pickle.dumps(store.save_files({"a": b"data"}, metadata={"loss": "1"})))
    assert store.open_snapshot(saved).read_file("a") == b"data"
    assert (saved.metadata, len(saved.shards)) == ({"loss": "1"}, 1)
