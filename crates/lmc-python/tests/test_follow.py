"""Directories that follow a store."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading

import lmc
import numpy as np
import pytest
from bucket import bucket
from conftest import weights


def save(store, step):
    w = weights(1 << 16) * np.float32(1 + step / 1_000_000)
    store.save_files({"model.safetensors": [("w", "F32", (256, 256), w)], "config": b"the same"}, step=step)
    return w


@pytest.fixture
def store(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    save(store, 1)
    return store


def read(directory):
    # The tensor is at the end of the file.
    return np.frombuffer((directory / "current" / "model.safetensors").read_bytes()[-(1 << 18) :], np.float32)


def test_versions_follow_each_other(store, tmp_path):
    directory = tmp_path / "m"
    with store.follow(directory) as follower:
        assert follower.current is None
        first = follower.update()
        assert (first.step, first.id) == (1, store.find().id)
        assert first.path == pathlib.Path(os.path.realpath(directory / "current"))
        assert follower.update() is None
        assert follower.stage() is None
        w = save(store, 2)
        staged = follower.stage()
        assert (staged.version.step, staged.base_step, staged.linked_size) == (2, 1, 8)
        assert (
            0 < staged.fetched_size < staged.written_size == os.path.getsize(staged.version.path / "model.safetensors")
        )
        assert follower.current.step == 1
        assert not np.array_equal(read(directory), w)
        assert follower.commit(staged).path == staged.version.path
        assert follower.current.step == 2
        assert np.array_equal(read(directory), w)
        assert repr(follower.current).startswith("Version(step=2, id=")
        assert "linked_size=8" in repr(staged)
    with pytest.raises(lmc.UsageError, match="is closed"):
        follower.update()
    # A follower that begins with the existing version.
    w = save(store, 3)
    with store.follow(str(directory), verify=True, threads=1) as follower:
        staged = follower.stage()
        assert (staged.base_step, staged.linked_size) == (2, 0)
        follower.commit(staged)
        assert np.array_equal(read(directory), w)
        # This version and the one before, each with its list of files.
        assert len(list((directory / "versions").iterdir())) == 4
        with pytest.raises(lmc.UsageError, match="is no version that was staged"):
            other = store.follow(tmp_path / "other")
            other.commit(staged)


def test_changed_files_are_restored(store, tmp_path):
    directory = tmp_path / "m"
    with store.follow(directory) as follower:
        assert follower.repair() == []
        version = follower.update()
        assert follower.repair() == []
        before = read(directory)
        with open(version.path / "model.safetensors", "r+b") as file:
            file.seek(-1000, os.SEEK_END)
            file.write(b"x" * 100)
        (version.path / "config").unlink()
        assert not np.array_equal(read(directory), before)
        assert sorted(follower.repair()) == ["config", "model.safetensors"]
        assert np.array_equal(read(directory), before)
        assert follower.repair() == []
        (version.path / "config").unlink()
        os.rename(tmp_path / "store" / "data", tmp_path / "data")
        with pytest.raises(lmc.DamagedError, match="config"):
            follower.repair()


def test_what_is_refused(store, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_bytes(b"all of it")
    with pytest.raises(lmc.UsageError, match='holds "thesis"'):
        store.follow(tmp_path / "mine")
    with pytest.raises(lmc.UsageError, match="is in the store"):
        store.follow(tmp_path / "store" / "m")
    with pytest.raises(TypeError):
        store.follow(3)
    save(store, 2)
    follower = store.follow(tmp_path / "m")
    with pytest.raises(lmc.ExistsError, match="another process follows"):
        store.follow(tmp_path / "m")
    follower.update()
    follower.close()
    follower.close()
    other = lmc.Store.create(tmp_path / "store2")
    w = save(other, 1)
    with other.follow(tmp_path / "m") as follower, pytest.raises(lmc.UsageError, match="has versions of run"):
        follower.update()
    with other.follow(tmp_path / "m", rewind=True) as follower:
        assert follower.update().step == 1
    assert np.array_equal(read(tmp_path / "m"), w)


def test_threads_and_forks(store, tmp_path):
    follower = store.follow(tmp_path / "m")
    problems, done = [], []

    def update():
        try:
            done.append(follower.update())
        except lmc.UsageError as e:
            problems.append(str(e))

    threads = [threading.Thread(target=update) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {p for p in problems} <= {"another thread uses the follower"}
    assert [v.step for v in done if v] == [1]
    program = """
import os, sys, lmc
store = lmc.Store(sys.argv[1])
follower = store.follow(sys.argv[2])
if os.fork() == 0:
    try:
        follower.update()
    except lmc.UsageError as e:
        assert "forked child" in str(e), e
        follower.close()
        del follower
        os._exit(0)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
assert follower.update() is None
"""
    follower.close()
    subprocess.run([sys.executable, "-c", program, tmp_path / "store", tmp_path / "m"], check=True, timeout=60)


@contextlib.contextmanager
def interrupting(store, tmp_path, monkeypatch):
    """The store in a bucket whose first data object comes only after Ctrl-C."""
    interrupted = threading.Event()

    def interrupt(*_):
        interrupted.set()
        raise KeyboardInterrupt

    def before(key):
        if key.startswith("store/data/") and not interrupted.is_set():
            os.kill(os.getpid(), signal.SIGALRM)
            interrupted.wait(10)
            interrupted.set()

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        with bucket(tmp_path, monkeypatch, before):
            yield lmc.Store("s3://bucket/store")
    finally:
        signal.signal(signal.SIGALRM, handler)


@pytest.mark.parametrize("work", ["update", "stage"])
def test_interrupts(store, work, tmp_path, monkeypatch):
    with interrupting(store, tmp_path, monkeypatch) as slow, slow.follow(tmp_path / "m") as follower:
        with pytest.raises(KeyboardInterrupt):
            getattr(follower, work)()
        assert follower.current is None
        assert os.listdir(tmp_path / "m" / "versions") == []
        assert follower.update().step == 1


def test_interrupts_of_a_repair(store, tmp_path, monkeypatch):
    with store.follow(tmp_path / "m") as follower:
        model = follower.update().path / "model.safetensors"
        model.write_bytes(b"damaged")
    with interrupting(store, tmp_path, monkeypatch) as slow, slow.follow(tmp_path / "m") as follower:
        with pytest.raises(KeyboardInterrupt):
            follower.repair()
        assert model.read_bytes() == b"damaged"
        assert follower.repair() == ["model.safetensors"]


def test_interrupts_of_tensors(store, tmp_path, monkeypatch):
    w = np.zeros((256, 256), np.float32)
    with interrupting(store, tmp_path, monkeypatch) as slow:
        follower = slow.follow_tensors([("w", "F32", w.shape, None)])
        with pytest.raises(KeyboardInterrupt):
            follower.load(slow.find(), [w])
        assert follower.current is None
        assert follower.load(slow.find(), [w]) > 0
        assert follower.current == (1, store.find().id)
        follower.close()
    with store.follow(tmp_path / "m") as directory:
        directory.update()
        assert np.array_equal(read(tmp_path / "m"), w.reshape(-1))
