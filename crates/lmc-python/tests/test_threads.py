"""Threads, processes that are forked and spawned, and interrupts."""

import concurrent.futures
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import lmc
import numpy as np
import pytest
from conftest import weights

# A child that hangs is the failure that these tests are for.
TIMEOUT = 60


def in_threads(n, work):
    """Runs `work(i)` in `n` threads at once, which all begin together."""
    barrier = threading.Barrier(n)

    def run(i):
        barrier.wait()
        return work(i)

    with concurrent.futures.ThreadPoolExecutor(n) as pool:
        return list(pool.map(run, range(n)))


@pytest.fixture(scope="module")
def arrays():
    return [weights(1 << 18, seed) for seed in range(8)]


def test_threads_share_codecs(arrays):
    compressor, decompressor = lmc.Compressor(dtype="F32", threads=2), lmc.Decompressor(threads=2)
    want = [lmc.compress(a, dtype="F32") for a in arrays]

    def work(i):
        for _ in range(5):
            assert compressor.compress(arrays[i]) == want[i]
            assert decompressor.decompress(want[i]) == arrays[i].tobytes()
            out = np.empty_like(arrays[i])
            decompressor.decompress_into(want[i], out)
            assert np.array_equal(out, arrays[i])

    in_threads(8, work)


def test_threads_share_a_file(arrays):
    file = lmc.compress_tensors([(str(i), "F32", a.shape, a) for i, a in enumerate(arrays)])
    with lmc.open(file, threads=2) as f:

        def work(i):
            for j in range(8):
                name = str((i + j) % 8)
                assert f.read(name) == arrays[int(name)].tobytes()
                assert f.read_rows(name, 77, 1000) == arrays[int(name)][77:1000].tobytes()

        in_threads(8, work)


def test_a_file_that_is_closed_while_others_read(arrays):
    file = lmc.compress(arrays[0], dtype="F32")
    for _ in range(20):
        f = lmc.open(file, threads=2)

        def work(i, f=f):
            if i == 0:
                f.close()
                return
            try:
                assert f.read("") == arrays[0].tobytes()
            except lmc.UsageError as e:
                assert "closed" in str(e)

        in_threads(4, work)


def test_threads_share_a_store(arrays, tmp_path):
    store = lmc.Store.create(tmp_path / "store")

    def work(i):
        store.save_files({"w": arrays[i]}, step=i)
        return store.open_snapshot(i).read_file("w") == arrays[i].tobytes()

    assert all(in_threads(8, work))


def test_a_buffer_that_changes_meanwhile():
    """Each compressed byte has one of the values that it had, and nothing breaks."""
    data = bytearray(8 << 20)
    stop = threading.Event()

    def change():
        n = 0
        while not stop.is_set():
            n = (n + 1) % 256
            data[:] = bytes([n]) * len(data)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(10):
            assert len(lmc.decompress(lmc.compress(data, threads=2))) == len(data)
            lmc.compress_tensors([("t", "F32", (len(data) // 4,), data)])
            lmc.estimate(data)
    finally:
        stop.set()
        thread.join()


def test_the_interpreter_is_let_go_of(raw):
    """While the codec works, another thread runs: if the GIL were held, it would never get its turn."""
    at_work, seen = threading.Event(), []

    def work():
        at_work.set()
        for _ in range(10_000):
            if seen:
                return
            lmc.compress(raw)
        seen.append("never")

    sys.setswitchinterval(1e6)  # no thread is forced to release the GIL
    try:
        thread = threading.Thread(target=work)
        thread.start()
        at_work.wait()
        seen.append("meanwhile")
        thread.join()
    finally:
        sys.setswitchinterval(0.005)
    assert seen == ["meanwhile"]


@pytest.fixture
def used(arrays, tmp_path):
    """Objects with threads that have been at work in this process."""
    a = arrays[0]
    file = lmc.compress(a, dtype="F32")
    (tmp_path / "file.lmc").write_bytes(file)
    (tmp_path / "base").write_bytes(a.tobytes())
    delta = lmc.compress(arrays[1], base=[tmp_path / "base"])
    used = {
        "compressor": lmc.Compressor(dtype="F32", threads=2),
        "decompressor": lmc.Decompressor(threads=2),
        "file": lmc.open(tmp_path / "file.lmc", threads=2),
        # Of memory: processes that share a descriptor share its position, too.
        "object": lmc.open(io.BytesIO(file), threads=2),
        "delta": lmc.open(delta, base=tmp_path / "base", threads=2),
        "store": lmc.Store.create(tmp_path / "store"),
    }
    used["store"].save_files({"w": a})
    used["snapshot"] = used["store"].open_snapshot(threads=2)
    use(used, arrays)
    return used


def use(used, arrays):
    raw, second = arrays[0].tobytes(), arrays[1].tobytes()
    file = used["compressor"].compress(raw)
    assert file == lmc.compress(raw, dtype="F32", threads=2)
    assert used["decompressor"].decompress(file) == raw
    assert used["file"].read("") == raw
    assert used["object"].read_range(5, 1 << 19) == raw[5 : 5 + (1 << 19)]
    assert used["delta"].read_range(0, len(second)) == second
    assert used["snapshot"].read_file("w") == raw
    assert used["store"].find().raw_size == len(raw)


def test_fork(used, arrays):
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=use, args=(used, arrays)) for _ in range(2)]
    [c.start() for c in children]
    use(used, arrays)
    [c.join(TIMEOUT) for c in children]
    try:
        assert [c.exitcode for c in children] == [0, 0]
    finally:
        [c.kill() for c in children]
    use(used, arrays)


def test_fork_while_threads_are_at_work(used, arrays):
    stop = threading.Event()

    def work():
        while not stop.is_set():
            use(used, arrays)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            child = multiprocessing.get_context("fork").Process(target=use, args=(used, arrays))
            child.start()
            child.join(TIMEOUT)
            code = child.exitcode
            child.kill()
            assert code == 0
    finally:
        stop.set()
        thread.join()


class Meeting(io.BytesIO):
    """A file object that can hold back who reads it."""

    def __init__(self, data):
        super().__init__(data)
        self.waiting, self.go = threading.Event(), threading.Event()
        self.go.set()

    def read(self, size=-1):
        self.waiting.set()
        self.go.wait()
        return super().read(size)


def in_a_child(work, *args):
    child = multiprocessing.get_context("fork").Process(target=work, args=args)
    child.start()
    child.join(TIMEOUT)
    code = child.exitcode
    child.kill()
    assert code == 0


def first_use_by_two(f, memory, want):
    memory.waiting.clear()
    memory.go.clear()
    found = []
    first = threading.Thread(target=lambda: found.append(f.read("")))
    first.start()
    memory.waiting.wait()
    sys.setswitchinterval(1e6)  # this thread goes on until it waits
    memory.go.set()
    found.append(f.read(""))
    first.join()
    assert found == [want, want]


def test_two_threads_of_a_child_begin_with_a_file(arrays):
    memory = Meeting(lmc.compress(arrays[0], dtype="F32"))
    with lmc.open(memory, threads=2) as f:
        in_a_child(first_use_by_two, f, memory, arrays[0].tobytes())


def test_fork_while_a_file_object_is_read(arrays):
    memory = Meeting(lmc.compress(arrays[0], dtype="F32"))
    with lmc.open(memory, threads=1) as f:
        base = lmc.Base(f, name="base")
        memory.waiting.clear()
        memory.go.clear()
        reader = threading.Thread(target=lambda: f.read(""))
        reader.start()
        memory.waiting.wait()

        def use_base():
            memory.go.set()
            lmc.compress(arrays[1], base=base)

        try:
            in_a_child(use_base)
        finally:
            memory.go.set()
            reader.join()


def test_closing_what_the_parent_opened(used):
    def close(used):
        used["file"].close()
        used.clear()

    child = multiprocessing.get_context("fork").Process(target=close, args=(used,))
    child.start()
    child.join(TIMEOUT)
    code = child.exitcode
    child.kill()
    assert code == 0


def spawned(data):
    return lmc.compress(data, dtype="F32", threads=2)


def test_spawn(arrays):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map_async(spawned, arrays[:2]).get(TIMEOUT)
    assert found == [lmc.compress(a, dtype="F32") for a in arrays[:2]]


INTERRUPTED = {
    # A sparse file that would take many minutes.
    "a file": "lmc.compress_file('huge', 'out')",
    "a stream": "lmc.compress_stream(Endless(), 'out')",
    "a save": "lmc.Store.create('store').save_files(['huge'])",
    "memory": "while True: lmc.compress(memory)",
    "a study": "lmc.analyze('huge')",
}

SCRIPT = """
import os, signal, sys
import lmc

class Endless:
    def __init__(self, start=b""):
        self.start = start
    def read(self, size):
        out, self.start = self.start or bytes(size), b""
        return out

memory = bytearray(os.urandom(32 << 20))
with open("huge", "wb") as f:
    f.truncate(1 << 40)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 1)
try:
    COMMAND
except KeyboardInterrupt:
    print("interrupted", sorted(os.listdir()))
"""


@pytest.mark.parametrize("what", INTERRUPTED)
def test_interrupts(what, tmp_path):
    script = SCRIPT.replace("COMMAND", INTERRUPTED[what])
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    left = ["huge", "store"] if what == "a save" else ["huge"]
    assert (done.stdout, done.returncode) == (f"interrupted {left}\n", 0), done.stderr


@pytest.mark.parametrize("size", [8 << 20, 16 << 20])  # on this thread, and on another one
def test_an_interrupt_at_the_end_leaves_no_file(size, tmp_path):
    class Last(io.BytesIO):
        """Interrupts when its last bytes are read, which other threads do."""

        come = False

        def read(self, n=-1):
            read = super().read(n)
            if self.tell() == size and not self.come:
                self.come = True
                os.kill(os.getpid(), signal.SIGALRM)
            return read

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            lmc.compress_tensors_file([("w", "U8", (size,), Last(bytes(size)))], tmp_path / "out", threads=2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert os.listdir(tmp_path) == []


def test_a_handler_that_returns_interrupts_nothing(raw):
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        data = raw * 8
        assert lmc.decompress(lmc.compress(data)) == data
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls


NO_THREADS = """
import lmc

open("raw", "wb").write(bytes(1000) * 100)
assert lmc.compress_file("raw", "raw.lmc", threads=1).raw_size == 100_000
print("done")
"""


def test_where_no_thread_can_be_started(tmp_path):
    # The stacks of threads do not fit into any memory.
    environment = os.environ | {"RUST_MIN_STACK": str(1 << 46)}
    done = subprocess.run(
        [sys.executable, "-c", NO_THREADS], cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=TIMEOUT, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


THREADS_END = """
import os, time
import lmc

def count():
    return len(os.listdir("/proc/self/task"))

raw = os.urandom(1 << 16) * 48
before = count()
compressor = lmc.Compressor(threads=4)
compressor.compress(raw)
assert count() >= before + 4
del compressor
with lmc.open(lmc.compress(raw), threads=4) as f:
    f.read_range(0, 10)
lmc.compress(raw, threads=3)
while count() > before:  # the system may take a moment
    time.sleep(0.01)
"""


def test_threads_end_with_their_object():
    # In a separate process, without other threads that begin or end.
    subprocess.run([sys.executable, "-c", THREADS_END], check=True, timeout=TIMEOUT)
