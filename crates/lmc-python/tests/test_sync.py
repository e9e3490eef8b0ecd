"""Weights that are published and followed in memory: arrays of numpy."""

import os
import shutil
import threading

import lmc
import lmc.sync
import numpy as np
import pytest
from conftest import equal, weights


def model(seed=0):
    w = weights(1 << 18).reshape(512, 512) * np.float32(1 + seed / 1000)
    return {"w": w, "bias": w[0, :100].copy(), "scale": np.array(float(seed)), "empty": np.zeros((0, 3), "f4")}


def change(tensors, seed, every=50):
    flat = tensors["w"].reshape(-1)
    flat[seed::every] *= np.float32(1.01)


@pytest.fixture
def publisher(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "store")
    publisher.published = model()
    publisher.publish(publisher.published, step=1)
    return publisher


def test_arrays_follow_what_is_published(publisher):
    published = publisher.published
    with lmc.sync.Follower(publisher.store.location, framework="np") as follower:
        assert follower.step is None
        assert follower.update() == 1
        assert equal(follower.tensors, published)
        assert follower.update() is None
        assert follower.stage() is None
        before = {name: array.copy() for name, array in follower.tensors.items()}
        copies = {name: array.copy() for name, array in follower.tensors.items()}
        change(published, 3)
        done = publisher.publish(published, step=7, metadata={"loss": "2"})
        assert done.raw_size > 1 << 20 > 20 * done.new_size
        assert 0 < done.document_size < 10_000
        assert done.elements == sum(array.size for array in published.values())
        assert set(done.phases) == {"read", "compress", "upload", "commit"}
        assert 0 < done.phases["commit"] <= done.seconds
        assert publisher.store.find(7).metadata == {"loss": "2"}
        update = follower.stage()
        assert (update.step, update.base_step, update.id) == (7, 1, done.id)
        assert 0 < update.fetched_size <= done.new_size
        assert equal(follower.tensors, before)
        differing = np.flatnonzero(published["w"] != before["w"])
        assert update.changed == len(differing)
        assert (done.changed, done.density) == (len(differing), len(differing) / done.elements)
        patches = list(update.patches())
        assert {p.name for p in patches} == {"w"}
        assert np.array_equal(np.concatenate([p.indices for p in patches]), differing)
        assert np.array_equal(np.concatenate([p.values for p in patches]), published["w"].reshape(-1)[differing])
        for p in patches:
            p.write(copies[p.name])
        assert equal(copies, published)
        follower.commit(update)
        assert follower.step == 7
        assert equal(follower.tensors, published)
        assert "step 7" in repr(follower)
        assert "step 7 from 1" in repr(update)
        with pytest.raises(lmc.UsageError, match="was made from what tensors held at step 1"):
            follower.commit(update)
    assert follower.step == 7
    assert "step 7" in repr(follower)
    with pytest.raises(lmc.UsageError, match="is closed"):
        follower.stage()


def test_what_is_closed(publisher, tmp_path):
    store = lmc.Store(tmp_path / "store")
    given, own = (lmc.sync.Follower(of, framework="np") for of in (store, tmp_path / "store"))
    with given, own:
        assert given.update() == own.update() == 1
    for follower in (given, own):
        with pytest.raises(lmc.UsageError, match="the follower is closed"), follower:
            pass
        for use in (follower.update, follower.load, lambda f=follower: f.tensors):
            with pytest.raises(lmc.UsageError, match="is closed"):
                use()
    unused = lmc.sync.Follower(store, framework="np")
    unused.close()
    with pytest.raises(lmc.UsageError, match="the follower is closed"):
        unused.update()
    assert not store.closed
    with lmc.sync.Publisher(store) as another:
        change(publisher.published, 7)
        assert another.publish(publisher.published, step=2).step == 2
        assert another.store is store
    assert not store.closed
    with publisher:
        pass
    with pytest.raises(lmc.UsageError, match="the store is closed"):
        publisher.publish(publisher.published, step=3)
    with store.follow(tmp_path / "files") as files:
        pass
    with pytest.raises(lmc.UsageError, match="the follower is closed"), files:
        pass


def test_an_update_of_everything_is_written_whole(publisher):
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.load()
    copies = {name: array.copy() for name, array in follower.tensors.items()}
    new = {name: array + 1 for name, array in publisher.published.items()}
    publisher.publish(new)
    update = follower.stage()
    assert all(p.indices is None for p in update.patches() if p.name == "w")
    for p in update.patches():
        p.write(copies[p.name])
    assert equal(copies, new)
    assert follower.update() == 2
    assert equal(follower.tensors, new)


def test_tensors_of_the_caller_follow(publisher):
    published = publisher.published
    mine = {name: np.full_like(array, 7) for name, array in published.items() if name != "bias"}
    follower = lmc.sync.Follower(publisher.store, mine, verify=True, threads=1)
    follower.load(1)
    assert follower.tensors["w"] is mine["w"]
    assert equal(mine, {name: array for name, array in published.items() if name != "bias"})
    change(published, 1)
    publisher.publish(published)
    # Written to by another program: noticed, with `verify` also where nothing changed.
    mine["w"][5, 5] = 0
    mine["scale"][...] = 5
    assert follower.update() == 2
    assert equal(mine, {name: array for name, array in published.items() if name != "bias"})


def test_tensors_that_hold_a_version_are_adopted(publisher):
    published = publisher.published
    mine = {name: array.copy() for name, array in published.items()}
    follower = lmc.sync.Follower(publisher.store, mine)
    assert follower.adopt(1) == 1
    change(published, 1)
    publisher.publish(published)
    assert follower.stage().fetched_size < 100_000
    assert follower.update() == 2
    assert equal(mine, published)
    mine["bias"][3] += 1
    with pytest.raises(lmc.UsageError, match="is not that of step 2: load it"):
        lmc.sync.Follower(publisher.store, mine).adopt(2)
    with pytest.raises(lmc.UsageError, match="adopt needs tensors"):
        lmc.sync.Follower(publisher.store, framework="np").adopt(2)


def test_wrong_tensors_and_versions_are_refused(publisher):
    store = publisher.store
    follower = lmc.sync.Follower(store, framework="np")
    assert follower.step is None
    for early in (follower.stage, lambda: follower.tensors, lambda: follower.commit(None)):
        with pytest.raises(lmc.UsageError, match="load one first"):
            early()
    w = publisher.published["w"]
    for tensors, match in [
        ({"w": w.astype("f8")}, r"\"w\": is F32 of shape \[512, 512\] in step 1, and F64"),
        ({"w": w.reshape(-1).copy()}, r"and F32 of shape \[262144\] here"),
        ({"w": w.T}, "not contiguous"),
        ({"w": w.astype(">f4")}, "big-endian"),
        ({"w": np.broadcast_to(np.float32(0), (512, 512))}, "read-only"),
        ({"w": np.float32(3)}, "read-only"),
        ({"w": np.zeros(3, "c16")}, "safetensors has no dtype complex128"),
    ]:
        with pytest.raises(lmc.UsageError, match=match):
            lmc.sync.Follower(store, tensors).load()
    with pytest.raises(lmc.NotFoundError, match="absent"):
        lmc.sync.Follower(store, {"absent": w.copy()}).load()
    with pytest.raises(lmc.UsageError, match="there are no tensors"):
        lmc.sync.Follower(store, {})
    with pytest.raises(TypeError, match="not list"):
        lmc.sync.Follower(store, {"w": [1, 2]})
    with pytest.raises(lmc.UsageError, match="framework='tf'"):
        lmc.sync.Follower(store, framework="tf")
    copies = lmc.sync.Follower(store, framework="np")
    copies.load()
    # Two publishers of one step: the second gets an error.
    with pytest.raises(lmc.ExistsError):
        lmc.sync.Publisher(store.location).publish(publisher.published, step=1)
    # Back in the steps only with leave.
    change(publisher.published, 1)
    publisher.publish(publisher.published, step=5)
    with pytest.raises(lmc.UsageError, match="step 4 comes before the last one of the store, 5"):
        publisher.publish(publisher.published, step=4)
    # Which is found out first: tensors are converted afterwards, from a GPU with copies.
    for step, error in [(4, lmc.UsageError), (5, lmc.ExistsError), (6, TypeError)]:
        with pytest.raises(error):
            publisher.publish({"w": "no tensor"}, step=step)
    patch = next(iter(copies.stage().patches()))
    for other in (w.astype("f8"), w[:100].copy()):
        with pytest.raises(lmc.UsageError, match="is to be written to"):
            patch.write(other)
    with pytest.raises(lmc.UsageError, match="not contiguous"):
        patch.write(w.T)
    with pytest.raises(lmc.UsageError, match="read-only"):
        patch.write(np.frombuffer(bytes(w.nbytes), w.dtype).reshape(w.shape))
    follower.load()
    with pytest.raises(lmc.UsageError, match="if the run was rewound"):
        follower.stage(1)
    rewinding = lmc.sync.Follower(store, framework="np", rewind=True)
    rewinding.load(5)
    rewinding.commit(rewinding.stage(1))
    assert rewinding.step == 1


def test_what_is_known_of_a_version(publisher):
    published = publisher.published
    change(published, 3)
    first = lmc.sync.Publisher(publisher.store.location + "-2").publish(published)
    assert (first.step, first.changed, first.density) == (0, None, None)
    same = publisher.publish(published)
    assert (same.step, same.changed is None or same.changed > 0) == (2, True)
    same = publisher.publish(published)
    assert (same.step, same.changed, same.density, same.new_size) == (3, 0, 0.0, 0)


def test_a_store_of_another_run_is_refused(publisher, tmp_path):
    follower = lmc.sync.Follower(publisher.store.location, framework="np")
    rewinding = lmc.sync.Follower(publisher.store.location, framework="np", rewind=True)
    assert (follower.update(), rewinding.update()) == (1, 1)
    was = publisher.store.run
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(lmc.NotFoundError):
        follower.update()
    other = lmc.sync.Publisher(tmp_path / "store")
    new = model(1)
    other.publish(new, step=2)
    assert len(was) == 32
    assert other.store.run != was
    for ask in (follower.update, follower.stage, follower.load, lambda: follower.stage(2)):
        with pytest.raises(lmc.UsageError, match=f"of run {was}, and the store is of run {other.store.run}"):
            ask()
    assert rewinding.update() == 2
    assert equal(rewinding.tensors, new)
    # A copy is followed like the original.
    copy = lmc.Store.create(tmp_path / "copy", run=other.store.run)
    copy.copy_from(other.store)
    assert copy.run == other.store.run
    with pytest.raises(lmc.UsageError, match="is not the id of a run"):
        lmc.Store.create(tmp_path / "other", run="7")


def test_a_store_that_has_no_version_yet(tmp_path):
    store = lmc.Store.create(tmp_path / "s")
    follower = lmc.sync.Follower(store, framework="np")
    assert follower.update() is None
    with pytest.raises(lmc.NotFoundError):
        follower.load()
    lmc.sync.Publisher(tmp_path / "s").publish({"w": np.arange(9.0)})
    assert follower.update() == 0
    assert np.array_equal(follower.tensors["w"], np.arange(9.0))


@pytest.mark.parametrize("is_there", [False, True], ids=["no directory", "an empty one"])
def test_a_follower_begins_before_the_store(tmp_path, monkeypatch, is_there):
    if is_there:
        (tmp_path / "s").mkdir()
    follower = lmc.sync.Follower(tmp_path / "s", framework="np")
    assert repr(follower) == f"<lmc.sync.Follower of {str(tmp_path / 's')!r}: step None>"
    assert follower.update() is None
    assert not follower.wait(0.01, interval=10)
    with pytest.raises(lmc.NotFoundError, match="no such directory|no store here"):
        follower.load()
    lmc.sync.Publisher(tmp_path / "s").publish({"w": np.arange(9.0)}, step=3)
    assert follower.wait(0)
    assert follower.update() == 3
    assert np.array_equal(follower.tensors["w"], np.arange(9.0))
    follower.close()
    with pytest.raises(lmc.UsageError, match="closed"):
        follower.update()
    # A relative path is that of the directory in which the follower was made.
    monkeypatch.chdir(tmp_path)
    follower = lmc.sync.Follower("later", framework="np")
    monkeypatch.chdir("/")
    lmc.sync.Publisher(tmp_path / "later").publish({"w": np.arange(3.0)}, step=1)
    assert follower.update() == 1
    # It ends where there never was a store, too.
    lmc.sync.Follower(tmp_path / "other", framework="np").close()
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(lmc.DamagedError, match="is a file, not a store"):
        lmc.sync.Follower(tmp_path / "file", framework="np")
    with pytest.raises(lmc.UsageError):
        lmc.sync.Follower("s3://", framework="np")


def test_every_version_costs_what_changed(tmp_path):
    weights_of = model()
    with lmc.sync.Publisher(tmp_path / "store", anchor_every=2) as publisher:
        publisher.publish(weights_of, step=0)
        follower = lmc.sync.Follower(publisher.store.location, framework="np")
        assert follower.update() == 0
        stored = []
        for step in range(1, 5):
            change(weights_of, step)
            published = publisher.publish(weights_of, step=step)
            stored.append(published.new_size)
            assert published.changed is not None
            update = follower.stage()
            assert 0 < update.fetched_size < published.raw_size // 20
            follower.commit(update)
            assert equal(follower.tensors, weights_of)
        # Every other one is stored whole, too.
        assert min(stored[1::2]) > 10 * max(stored[0::2])


def test_a_follower_waits(tmp_path):
    with lmc.sync.Publisher(tmp_path / "store") as publisher:
        follower = lmc.sync.Follower(publisher.store.location, framework="np")
        for step in (1, 2):
            assert not follower.wait(0.01, interval=10)
            publish = threading.Timer(0.1, publisher.publish, [{"w": weights(1000, seed=step)}], {"step": step})
            publish.start()
            assert follower.wait(60, interval=0.05)
            assert follower.wait(0)
            publish.join()
            assert follower.update() == step
        assert not follower.wait(0.01)
        with pytest.raises(lmc.UsageError, match="interval=0"):
            follower.wait(interval=0)
        follower.close()
        with pytest.raises(lmc.UsageError, match="closed"):
            follower.wait(0)


def test_files_and_directories_are_published(tmp_path, publisher):
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / "config.json").write_bytes(b"{}")
    (model / "sub" / "x.bin").write_bytes(b"x" * 1000)
    publisher.publish(model, step=10)
    assert {f.name for f in publisher.store.open_snapshot(10).files} == {"config.json", "sub/x.bin"}
    publisher.publish(str(model / "config.json"), step=11)
    assert [f.name for f in publisher.store.open_snapshot(11).files] == ["config.json"]
    (tmp_path / "nothing").mkdir()
    with pytest.raises(lmc.UsageError, match="no files to save"):
        publisher.publish(tmp_path / "nothing")
    (model / "link").symlink_to(tmp_path)
    with pytest.raises(lmc.UsageError, match="symbolic link"):
        publisher.publish(model)
    (model / "link").unlink()
    with pytest.raises(lmc.UsageError, match="is the store itself"):
        publisher.publish(tmp_path)
    with pytest.raises(FileNotFoundError):
        publisher.publish(tmp_path / "absent")
    with pytest.raises(TypeError, match="not list"):
        publisher.publish({"w": [1]})
    assert publisher.store.find().step == 11


def test_files_that_change_while_they_are_read_are_not_published(tmp_path, publisher):
    file = tmp_path / "f.bin"
    file.write_bytes(os.urandom(1 << 20) * 100)
    stop = threading.Event()

    def write():
        with open(file, "r+b") as f:
            while not stop.is_set():
                f.seek(0)
                f.write(os.urandom(16))
                f.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(lmc.IOError, match="changed while it was read"):
            publisher.publish(file, step=20)
    finally:
        stop.set()
        writer.join()
    assert publisher.store.find().step == 1
    publisher.publish(file, step=20)


def test_a_first_version_that_is_damaged_leaves_a_follower_that_can_begin(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"a": np.arange(1 << 16)}, step=1)
    follower = lmc.sync.Follower(publisher.store, framework="np")
    for data in (tmp_path / "s" / "data").rglob("*"):
        if data.is_file():
            data.unlink()
    with pytest.raises(lmc.DamagedError):
        follower.load()
    with pytest.raises(lmc.UsageError, match="load one first"):
        _ = follower.tensors
    lmc.sync.Publisher(tmp_path / "s").publish({"b": np.arange(9)}, step=2)
    assert follower.update() == 2
    assert list(follower.tensors) == ["b"]


def test_an_update_of_another_follower_is_refused(publisher):
    followers = [lmc.sync.Follower(publisher.store, framework="np") for _ in range(2)]
    for follower in followers:
        follower.load()
    change(publisher.published, 1)
    publisher.publish(publisher.published)
    with pytest.raises(lmc.UsageError, match="stage it again"):
        followers[0].commit(followers[1].stage())
    assert [f.step for f in followers] == [1, 1]
    assert [f.update() for f in followers] == [2, 2]


def test_arrays_that_share_memory_are_one(publisher):
    w, alias = publisher.published["w"], None
    mine = {"tied": np.zeros_like(w)}
    alias = mine["tied"]
    mine["w"] = alias
    follower = lmc.sync.Follower(publisher.store, mine)
    follower.load()
    assert list(follower.tensors) == ["w"]
    assert np.array_equal(alias, w)


def test_a_follower_belongs_to_one_thread_and_process(publisher):
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.load()
    change(publisher.published, 2)
    publisher.publish(publisher.published)
    raised = []
    barrier = threading.Barrier(3)

    def work():
        barrier.wait()
        for _ in range(30):
            try:
                follower.stage()
            except Exception as e:
                raised.append(e)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert raised
    assert {type(e) for e in raised} == {lmc.UsageError}
    assert {str(e) for e in raised} == {"another thread uses the follower"}
    assert repr(follower).endswith("step 1>")
    child = os.fork()
    if child == 0:
        try:
            follower.stage()
        except lmc.UsageError as e:
            os._exit(0 if "forked child" in str(e) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert follower.update() == 2


@pytest.mark.parametrize("given", [False, True])
def test_rows_of_tensors_follow(publisher, given):
    published = publisher.published
    rows = [{"w": (0, 171), "bias": (0, 50)}, {"w": (171, 512), "bias": (50, 100)}]

    def part(worker, name):
        return published[name][slice(*rows[worker][name])]

    def follower(worker):
        some = {name: np.empty_like(part(worker, name)) for name in rows[worker]} if given else list(rows[worker])
        return lmc.sync.Follower(publisher.store.location, some, rows=rows[worker], framework="np")

    workers = [follower(0), follower(1)]
    copies = []
    for worker, f in enumerate(workers):
        assert f.update() == 1
        assert f.tensors["w"].shape == part(worker, "w").shape
        copies.append({name: array.copy() for name, array in f.tensors.items()})
    for step in range(2, 7):
        # Sparse, then dense, then of a single worker.
        change(published, step, 50 if step < 5 else 1)
        if step == 6:
            published["w"][511, 3] = 7
        publisher.publish(published, step=step)
        for worker, f in enumerate(workers):
            if step == 3:
                # This one will be several versions behind.
                continue
            update = f.stage()
            for patch in update.patches():
                patch.write(copies[worker][patch.name])
            f.commit(update)
            for name, array in f.tensors.items():
                assert np.array_equal(array, part(worker, name)), (step, worker, name)
                assert np.array_equal(array, copies[worker][name])


def test_rows_that_there_are_not(publisher):
    store, w = publisher.store.location, np.zeros((10, 512), "f4")

    def load(*tensors, rows):
        lmc.sync.Follower(store, *tensors, rows=rows, framework="np").load()

    load({"w": w}, rows={"w": (502, 512)})
    assert np.array_equal(w, publisher.published["w"][502:])
    for tensors, rows, why in [
        ([{"w": w}], {"w": (503, 513)}, r"\[512, 512\] in step 1, and F32 of shape \[10, 512\] from row 503 on"),
        ([{"w": w}], {"w": (0, 11)}, r"rows=\(0, 11\) of 'w', and the tensor has the shape \[10, 512\]"),
        ([{"w": w}], {"w": (-10, 0)}, r"rows=\(-10, 0\) of 'w'"),
        ([{"w": w[:, :5].copy()}], {"w": (0, 10)}, r"F32 of shape \[10, 5\] from row 0 on"),
        ([{"w": w}], {"w": (0, 10), "x": (0, 1)}, "rows of 'x': no tensor of this name follows"),
        ([], {"x": (0, 1)}, "rows of 'x': no tensor of this name follows"),
        ([], {"w": (500, 513)}, r"rows=\(500, 513\) of 'w', which has the shape \[512, 512\]"),
        ([["scale"]], {"scale": (0, 1)}, r"rows=\(0, 1\) of 'scale', which has the shape \[\]"),
    ]:
        with pytest.raises(lmc.UsageError, match=why):
            load(*tensors, rows=rows)
    with pytest.raises(lmc.NotFoundError):
        lmc.sync.Follower(store, ["absent"], framework="np").load()
    with pytest.raises(TypeError):
        lmc.sync.Follower(store, rows={"w": (0.5, 2)})
    some = lmc.sync.Follower(store, ["bias", "w"], framework="np")
    some.load()
    assert list(some.tensors) == ["bias", "w"]


def test_arrays_of_one_memory_take_one_value(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "s")
    a = weights(3000).reshape(30, 100)
    publisher.publish({"embed": a, "head": a}, step=1)
    w = np.zeros((30, 100), "f4")
    follower = lmc.sync.Follower(publisher.store, {"embed": w, "head": w})
    assert follower.update() == 1 and np.array_equal(w, a)
    publisher.publish({"embed": a, "head": a + 1}, step=2)
    with pytest.raises(lmc.UsageError, match='"embed" and "head" share their memory, and step 2 of the store'):
        follower.update()
    assert follower.step == 1 and np.array_equal(w, a)
    part = {"embed": w[:9], "head": w[:9]}
    rows = lmc.sync.Follower(publisher.store, part, rows=dict.fromkeys(part, (0, 9)))
    with pytest.raises(lmc.UsageError, match="share their memory, and step 2"):
        rows.update()
    # Equal in the rows that follow.
    head = a.copy()
    head[20:] += 1
    publisher.publish({"embed": a, "head": head}, step=3)
    assert rows.update() == 3
    with pytest.raises(lmc.UsageError, match="overlap in memory"):
        lmc.sync.Follower(publisher.store, {"embed": w, "head": w[1:]}).load()


def test_a_whole_model_of_arrays_gets_new_ones(publisher):
    follower = lmc.sync.Follower(publisher.store, framework="np")
    follower.update()
    published = publisher.published | {"new": weights(5000)}
    publisher.publish(published, step=2)
    assert follower.update() == 2 and equal(follower.tensors, published)
    # An array that got other memory.
    new = follower.tensors["new"]
    new.resize(0, refcheck=False)
    with pytest.raises(lmc.UsageError, match=r"tensor 'new' was F32 of shape \[5000\]"):
        follower.update()
    new.resize(5000, refcheck=False)
    assert follower.load() == 2 and equal(follower.tensors, published)
