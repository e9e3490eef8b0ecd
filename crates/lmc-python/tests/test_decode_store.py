"""Stores that lmc wrote, read by a decoder that was written from `docs/store.md` without a look at lmc's code."""

import random
import shutil
from pathlib import Path

import lmc
import pytest
from adam import states
from decode_store import decode_store

TEST_DATA = Path(__file__).parents[3] / "testdata"
STATES = [TEST_DATA / f"gpt-step{step}-state.safetensors" for step in (300, 301, 310)]


def same(store, step, at=None):
    """Check that both decoders find the same files, and return them."""
    reader = store.open_snapshot(step)
    ours = {file.name: reader.read_file(file.name) for file in reader.files}
    assert decode_store(store.location, step if at is None else at) == ours
    return ours


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A store of three steps: tensors, text in a directory, a copy of a file, tags, and metadata of each kind."""
    store = lmc.Store.create(tmp_path_factory.mktemp("written") / "store")
    weights = bytearray(random.Random(0).randbytes(4 * 90_000))
    for step in range(3):
        wide, narrow = bytes(weights[:240_000]), bytes(weights[240_000:])
        state = [("w", "F32", (300, 200), wide), ("m", "BF16", (300, 200), narrow)]
        weights[:: 997 + step] = bytes(b ^ 1 for b in weights[:: 997 + step])
        inputs = {"state.safetensors": state, "sub/note.txt": b"note %d" % step, "again.safetensors": state}
        metadata = {"loss": 2.5 - step, "tokens": step << 40, "note": f"ä{step}"}
        store.save_files(inputs, step=step * 1000, metadata=metadata, tag=f"t{step}", base="previous")
    return store


def test_snapshots(written):
    for step in (0, 1000, 2000):
        same(written, step)
    assert same(written, 1000, at="t1")["sub/note.txt"] == b"note 1"
    assert decode_store(written.location) == decode_store(written.location, 2000)
    assert written.cost(2000).longest_chain == 3


def given(state):
    """The tensors of a state of arrays."""
    kinds = {"float32": "F32", "bfloat16": "BF16"}
    return [(name, kinds[array.dtype.name], array.shape, array.tobytes()) for name, array in state.items()]


def test_block_sets_with_several_bases(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for step, state in enumerate(list(states(8))[5:]):
        files = {"model.safetensors": [], "optimizer.safetensors": []}
        for tensor in given(state):
            files["model.safetensors" if tensor[0].startswith("model") else "optimizer.safetensors"].append(tensor)
        store.save_files(files, step=step)
        same(store, step)
    # Both moments of each step, the copies of the weights, and the weights that are rounded from these.
    assert store.cost(2).longest_chain == 10


@pytest.mark.long
def test_a_long_run_of_states(tmp_path):
    store, raw, stored, saved = lmc.Store.create(tmp_path / "store"), 0, 0, {}
    for step, state in enumerate(states(200)):
        snapshot = store.save_files({"state.safetensors": given(state)}, step=step)
        raw, stored = raw + snapshot.raw_size, stored + snapshot.new_size
        if step % 37 == 36 or step in (0, 15, 16, 199):
            saved[step] = {name: array.tobytes() for name, array in state.items()}
    # A state alone takes 72 %, and one of nine is stored so; a step takes 25 %, the averages of gradients.
    assert stored < 0.33 * raw
    for step, tensors in saved.items():
        reader = store.open_snapshot(step)
        assert {name: reader.read(name) for name in tensors} == tensors
    same(store, 199)
    assert not store.verify(deep=True).problems


def test_several_processes(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for step in range(3):
        # The second process has nothing new, so that it writes no data.
        parts = [STATES[step], STATES[0]]
        shards = [store.save_shard({f"rank-{i}": part}, step=step).shard for i, part in enumerate(parts)]
        store.publish(step, shards)
        same(store, step)


def test_pruned_and_collected(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    # The last one is a delta of a delta, both over several steps: keeping these for it would cost more than re-basing.
    for step, state in enumerate([STATES[0], STATES[2], STATES[1]]):
        store.save_files({"state.safetensors": state}, step=step, base="previous")
    assert store.prune(keep_last=1).rebased
    store.gc()
    same(store, 2)
    with pytest.raises(ValueError, match="pruned"):
        decode_store(store.location, 1)
    store.tag("best", 2)
    store.untag("best")
    with pytest.raises(ValueError, match="deleted"):
        decode_store(store.location, "best")


def test_damage(written, tmp_path):
    """A damaged object is an error, or changes nothing."""
    whole = {step: decode_store(written.location, step) for step in (0, 1000, 2000)}
    draw, refused = random.Random(1), 0
    for path in sorted(path for path in Path(written.location).rglob("*") if path.is_file()):
        place = path.relative_to(written.location)
        for kind in ("flip", "flip", "cut", "lose"):
            store = tmp_path / "store"
            shutil.copytree(written.location, store, copy_function=shutil.os.link)
            (store / place).unlink()
            data = bytearray(path.read_bytes())
            if kind == "flip" and data:
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            if kind != "lose":
                (store / place).write_bytes(data[: len(data) // 2] if kind == "cut" else data)
            for step, contents in whole.items():
                try:
                    assert decode_store(store, step) == contents, (place, kind, step)
                except ValueError:
                    refused += 1
            shutil.rmtree(store)
    assert refused > 50
