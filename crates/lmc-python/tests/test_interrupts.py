"""Ctrl-C while a store is verified, copied or read, and while parts of a file are read: the work ends."""

import io
import os
import signal
import threading

import lmc
import numpy as np
import pytest
from bucket import bucket
from conftest import weights

SNAPSHOTS = 40
# For work that no interrupt ends: the test then goes on, and fails.
PATIENCE = 10


class Interrupt:
    """Interrupts the main thread at its `n`th call, and returns when that is handled. Counts the calls."""

    def __init__(self, n=1):
        self.n, self.calls, self.lock, self.handled = n, 0, threading.Lock(), threading.Event()

    def __call__(self):
        with self.lock:
            self.calls += 1
            if self.calls != self.n:
                return
        os.kill(os.getpid(), signal.SIGALRM)
        self.handled.wait(PATIENCE)

    def handle(self, *_):
        self.handled.set()
        raise KeyboardInterrupt


@pytest.fixture
def interrupt():
    interrupt = Interrupt()
    before = signal.signal(signal.SIGALRM, interrupt.handle)
    yield interrupt
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The directory of a store whose snapshots share nothing."""
    folder = tmp_path_factory.mktemp("saved") / "store"
    store = lmc.Store.create(folder)
    for step in range(SNAPSHOTS):
        store.save_files({"w": weights(1000, seed=step)}, step=step, anchor_every=1)
    return folder


@pytest.fixture
def served(saved, monkeypatch, interrupt):
    """That store in a bucket; an interrupt comes with the first request for data."""

    def before(key):
        if key.startswith("data/"):
            interrupt()

    with bucket(saved, monkeypatch, before):
        yield lmc.Store("s3://bucket/")


def test_verifying_ends(served, interrupt):
    with pytest.raises(KeyboardInterrupt):
        served.verify(deep=True, threads=1)
    assert interrupt.calls < SNAPSHOTS / 2
    assert served.verify(deep=True).problems == []


def test_a_copy_ends_and_goes_on_later(served, interrupt, tmp_path):
    copy = lmc.Store.create(tmp_path / "copy", run=served.run)
    with pytest.raises(KeyboardInterrupt):
        copy.copy_from(served)
    assert copy.snapshots() == []
    assert not any(path.is_file() for path in (tmp_path / "copy" / "data").rglob("*"))
    assert len(copy.copy_from(served).snapshots) == SNAPSHOTS


def test_a_copy_that_is_interrupted_before_its_last_snapshot_appears(served, interrupt, tmp_path):
    interrupt.n = SNAPSHOTS
    copy = lmc.Store.create(tmp_path / "copy", run=served.run)
    with pytest.raises(KeyboardInterrupt):
        copy.copy_from(served)
    assert [s.step for s in copy.snapshots()] == list(range(SNAPSHOTS - 1))


def test_reading_tensors_of_a_snapshot_ends(tmp_path, monkeypatch, interrupt):
    store = lmc.Store.create(tmp_path / "store")
    tensors = [(f"{i:02}", "U8", (1 << 20,), np.full(1 << 20, i, np.uint8)) for i in range(SNAPSHOTS)]
    shards = [store.save_shard({f"{t[0]}.safetensors": [t]}, step=1, anchor_every=1).shard for t in tensors]
    store.publish(1, shards)
    with bucket(tmp_path / "store", monkeypatch, lambda key: key.startswith("data/") and interrupt()):
        reader = lmc.Store("s3://bucket/").open_snapshot(threads=1)
        outs = {name: bytearray(1 << 20) for name in reader.keys()}
        with pytest.raises(KeyboardInterrupt):
            reader.read_many_into(outs.items())
        assert interrupt.calls < SNAPSHOTS / 2
        reader.read_many_into(outs.items())
    assert all(out == bytes([int(name)]) * (1 << 20) for name, out in outs.items())


class Counted(io.BytesIO):
    """Interrupts when another thread than the main one reads it, which would see a signal itself."""

    interrupt = staticmethod(lambda: None)

    def read(self, size=-1):
        if threading.current_thread() is not threading.main_thread():
            self.interrupt()
        return super().read(size)


@pytest.mark.parametrize("plain", [False, True])
def test_reading_a_file_ends(interrupt, plain):
    size = 256 << 20 if plain else 32 << 20
    raw = bytes(size)
    memory = Counted(raw if plain else lmc.compress(raw))
    with lmc.open(memory, threads=2, plain=plain) as f:
        out = bytearray(size)
        memory.interrupt = interrupt
        with pytest.raises(KeyboardInterrupt):
            f.read_range_into(0, out)
        assert interrupt.calls < (4 if plain else 16)
        del memory.interrupt
        assert f.read_range_into(0, out) == size
