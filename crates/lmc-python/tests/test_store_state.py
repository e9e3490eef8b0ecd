"""Store.save and Store.load: states, here of numpy; test_torch_store.py has those of torch."""

import json
import subprocess
import sys
from collections import OrderedDict

import lmc
import ml_dtypes
import numpy as np
import pytest
from bucket import bucket
from conftest import weights

STATE = "state.safetensors"


def same(a, b):
    """Whether two states are equal, in types, order and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def state(step=0):
    w = weights(1 << 17) * np.float32(1 + step / 1000)
    shared = np.arange(5)
    return {
        "w": w.reshape(256, 512),
        "moments": [w[:1000] * 2, (w[:3].astype(ml_dtypes.bfloat16), {1: np.float64(0.1), "1": np.int8(-5)})],
        "big endian": np.arange(6, dtype=">i4").reshape(2, 3),
        "columns": w.reshape(256, 512)[:, ::7],
        "f8": np.arange(4).astype(ml_dtypes.float8_e4m3fn),
        "scalar": ml_dtypes.bfloat16(1.5),
        "shared": (shared, shared, np.arange(5)),
        "empty": np.zeros((0, 3), np.int16),
        "rest": OrderedDict(step=step, note="text", raw=b"bytes\0", more=bytearray(b"more"), none=None, big=10**30),
    }


@pytest.fixture
def store(tmp_path):
    return lmc.Store.create(tmp_path / "store")


def test_states_that_were_dropped(store, tmp_path):
    def training(step):
        w = weights(1 << 17) * np.float32(1 + step / 1000)
        return {"model": {"w": w}, "optimizer": {"state": [{"step": 1, "exp_avg": w / 2}], "lr": 0.1}}

    for step in (1, 2):
        store.save(training(step), step=step)
    assert store.prune(keep_last=1, drop_state=True).reduced == [1]
    with pytest.raises(lmc.NotFoundError, match=r"state\['optimizer'\].*step 1 has only weights.*open_snapshot\(1\)"):
        store.load(1)
    assert same(store.load(2), training(2))
    assert store.open_snapshot(1).keys() == ["model.w"]


def test_there_and_back(store, tmp_path):
    for step in (1, 2):
        saved = store.save(state(step), step=step, metadata={"loss": 2.31}, tag=f"t{step}")
        assert (saved.step, saved.metadata) == (step, {"loss": 2.31})
    assert saved.new_size < 0.6 * store.find(1).new_size
    for at, step in ((None, 2), ("latest", 2), (1, 1), ("t1", 1), (saved, 2), (saved.id, 2)):
        assert same(store.load(at), state(step))
    found = store.load()
    assert found["shared"][0] is found["shared"][1] is not found["shared"][2]
    assert [f.name for f in store.open_snapshot().files] == [STATE]
    assert store.open_snapshot().read("moments.0") == state(2)["moments"][0].tobytes()
    # The file of a snapshot is one that other stores take.
    other = lmc.Store.create(tmp_path / "other")
    other.save_files([*store.restore(tmp_path / "back", 1), tmp_path / "store" / "lmc-store.json"])
    assert same(other.load(), state(1))


ALONE = [None, 3, "text", b"bytes", [], {}, np.arange(3), np.float32(1), {"model.safetensors": "a path", "b": ["b"]}]


@pytest.mark.parametrize("value", ALONE)
def test_alone(store, value):
    store.save(value)
    assert same(store.load(), value)


def test_into(store):
    given = state(3)
    store.save(given)
    into = state(1)
    into["w"] = np.zeros((256, 512), np.float32)
    into["columns"] = np.zeros((512, 256), np.float32).T[:, :74]
    into["big endian"] = np.zeros((2, 3), ">i4")
    into["moments"] = (np.zeros(2000, np.float32)[::2], [np.zeros(3, ml_dtypes.bfloat16), {}])
    into["shared"] = (np.zeros(5, int), np.zeros(5, int), None)
    into["more"] = 1
    found = store.load(into=into)
    assert same(found, given)
    for key in ("w", "columns", "big endian", "f8", "empty"):
        assert found[key] is into[key]
    assert found["moments"][0] is into["moments"][0] and found["moments"][1][0] is into["moments"][1][0]
    assert all(found["shared"][i] is into["shared"][i] for i in (0, 1)) and found["shared"][2] is not None


def test_into_shared_memory(store):
    a = np.arange(20)
    store.save({"a": a, "b": a[5:], "c": a[10:15].copy()})
    whole = np.zeros(20, int)
    store.load(into={"a": whole, "b": whole[5:], "c": whole[10:15]})
    assert same(whole, a)


def read_only():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros(4, np.float32), r"an array of float32 and shape \[4\], but the state one of float32 and shape \[3\]"),
        (np.zeros(3), "an array of float64"),
        (np.zeros(3, ">f4"), "an array of >f4"),
        (np.float32(3), "a numpy.float32, but the state an array of numpy"),
        (read_only(), "an array that is read-only"),
    ],
)
def test_into_what_does_not_fit(store, wrong, said):
    store.save({"a": weights(3), "b": [weights(3)]})
    fits = np.zeros(3, np.float32)
    with pytest.raises(lmc.UsageError, match=r"into has at state\['b'\]\[0\] " + said):
        store.load(into={"a": fits, "b": [wrong]})
    assert not fits.any()


class Counter:
    """What loads a state by itself."""

    def __init__(self):
        self.count, self.array = 0, np.zeros(3)

    def state_dict(self):
        return {"count": self.count, "array": self.array}

    def load_state_dict(self, state):
        assert state["array"] is self.array
        self.count = state["count"]


def test_into_what_loads_a_state(store):
    counter, other = Counter(), Counter()
    counter.count, counter.array = 7, np.arange(3.0)
    store.save([counter.state_dict(), 5])
    with pytest.raises(lmc.UsageError, match=r"state\[0\] is of type .*Counter, .*: save its `state_dict\(\)`"):
        store.save([counter])
    assert store.load(into=[other, 0]) == [other, 5]
    assert other.count == 7 and same(other.array, counter.array)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({lmc}, "key of type module"),
        (lmc, "is of type module"),
        (np.array([lmc]), "numpy's dtype object"),
        (np.ma.masked_array([1]), "MaskedArray"),
        ({b"a": 1}, "key of type bytes"),
        (np.longdouble(1), "float128" if np.longdouble(1).nbytes == 16 else "longdouble"),
    ],
)
def test_what_a_state_cannot_have_is_refused_before_anything_is_stored(store, tmp_path, wrong, said):
    before = sorted((tmp_path / "store").rglob("*"))
    with pytest.raises(lmc.UsageError, match=rf"state\['a'\]\[1\].*{said}"):
        store.save({"a": [np.zeros(100_000), wrong]})
    with pytest.raises(lmc.UsageError):
        store.save([len])
    assert sorted((tmp_path / "store").rglob("*")) == before


def test_other_snapshots(store, tmp_path):
    store.save_files({"w": b"weights"}, step=1)
    with pytest.raises(lmc.NotFoundError, match=f"the snapshot of step 1 has no {STATE}.*Store.restore"):
        store.load()
    with pytest.raises(lmc.NotFoundError):
        store.load(2)
    store.save_files({STATE: [("w", "U8", (1,), b"w")]}, step=2)
    with pytest.raises(lmc.UsageError, match=f"{STATE} of the snapshot of step 2 holds tensors but no state"):
        store.load()
    store.save_files({STATE: b"no tensors"}, step=3)
    with pytest.raises(lmc.UnsupportedError, match="is not a safetensors file"):
        store.load()
    # Beside other files, whose tensors may have the same names.
    tensors = [("a", "I64", (2,), np.arange(5, 7))]
    shards = [store.save_shard({"a.safetensors": tensors, "log": b"log"}, step=4).shard]
    store.save({"a": np.arange(2)}, step=5)
    path = store.restore(tmp_path / "back", 5)[0]
    shards.append(store.save_shard({STATE: path}, step=4).shard)
    store.publish(4, shards)
    assert same(store.load(4), {"a": np.arange(2)})


DAMAGED = {
    "no JSON": "{",
    "no version": '{"state": 1}',
    "too deep": '{"version":1,"state":' + "[" * 1_000_000,
    "a tensor that is not there": {"ndarray": "v", "dtype": "<f4"},
    "another dtype": {"ndarray": "w", "dtype": "<i4"},
    "of two dtypes": [{"ndarray": "w", "dtype": "<f4"}, {"ndarray": "w", "dtype": "bfloat16"}],
    "an array of objects": {"ndarray": "w", "dtype": "|O"},
    "a scalar of another length": {"numpy": "<f4", "value": "00"},
    "bytes of floats": {"bytes": "w"},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_descriptions(store, case):
    description = DAMAGED[case]
    text = description if isinstance(description, str) else json.dumps({"version": 1, "state": description})
    store.save_files({STATE: ([("w", "F32", (4,), weights(4))], {"lmc.state": text})})
    into = [np.zeros(4, np.float32)] * 2
    with pytest.raises(lmc.DamagedError, match="invalid") as raised:
        store.load(into=into)
    assert len(str(raised.value)) < 1000 and not into[0].any()


def test_damaged_data(store, tmp_path):
    store.save(state(1), step=1)
    store.save(state(2), step=2, anchor_every=1)
    newest = max((tmp_path / "store" / "data").rglob("*"), key=lambda path: (path.is_file(), path.stat().st_mtime_ns))
    data = newest.read_bytes()
    newest.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    with pytest.raises(lmc.DamagedError):
        store.load()
    newest.unlink()
    with pytest.warns(UserWarning, match="step 2 is damaged, and step 1 is taken instead"):
        assert same(store.load(), state(1))
    with pytest.raises(lmc.DamagedError):
        store.load(strict=True)


def test_from_a_bucket(store, tmp_path, monkeypatch):
    for step in (1, 2):
        store.save(state(step), step=step)
    with bucket(tmp_path, monkeypatch):
        assert same(lmc.Store("s3://bucket/store").load(1, into=state(5)), state(1))
        with pytest.raises(lmc.NotFoundError):
            lmc.Store("s3://bucket/store").load(3)


def test_arrays_that_are_resized(store):
    """Tables of embeddings with more rows, or fewer: a delta is that of the elements that changed."""
    rng = np.random.default_rng(0)
    table = (rng.standard_normal((10_016, 512)) * 0.02).astype(np.float32)
    for step, (rows, edge) in enumerate([(10_000, 8190), (10_016, 8206), (10_016, 8206), (9_000, 8000), (9_000, 8200)]):
        table.reshape(-1)[rng.choice(table.size, table.size // 100, replace=False)] *= np.float32(1.001)
        # The last one of 2^22 elements and a few more or less: one chunk, or two.
        half = table[:rows].astype(ml_dtypes.bfloat16)
        given = {"w": table[:rows], "half": half, "edge": table[:edge] + 1, "step": step}
        saved = store.save(given, step=step)
        assert step == 0 or saved.new_size < 0.03 * saved.raw_size
        assert same(store.load(), given)


def test_without_torch(tmp_path):
    """A state of numpy needs no torch; one of torch says so."""
    program = """if True:
        import sys
        sys.modules["torch"] = None
        import lmc, numpy as np
        store = lmc.Store.create(sys.argv[1])
        store.save({"w": np.arange(5), "step": 1})
        assert store.load(into={"w": np.zeros(5, int)})["w"].tolist() == [0, 1, 2, 3, 4]
        text = '{"version":1,"state":{"dict":{"w":{"tensor":"w"}}}}'
        store.save_files({"state.safetensors": ([("w", "U8", (1,), b"w")], {"lmc.state": text})})
        try:
            store.load()
        except lmc.UnsupportedError as e:
            print(e)
    """
    command = [sys.executable, "-c", program, str(tmp_path / "s")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "state['w'] is a value of torch, which is not installed: pip install torch\n"
