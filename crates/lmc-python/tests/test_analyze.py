"""Studies: the dict of `lmc.analyze` equals the output of the command."""

import itertools
import json
import math
import subprocess
import sys

import adam
import figures
import lmc
import numpy as np
import pytest
from conftest import weights

TENSORS = 1 << 17


def save(path, step):
    """A checkpoint of some kinds of tensors, some steps into a run."""
    w = weights(TENSORS)
    moved = (w + np.float32(step) * weights(TENSORS, seed=1) / 1000).astype(np.float32)
    tensors = [
        ("layers.0.weight", "F32", (256, 512), moved),
        ("norm.weight", "F32", (64,), np.ones(64, np.float32)),
        ("exp_avg.layers.0.weight", "F32", (256, 512), moved * np.float32(step + 1)),
        ("copy", "F32", (256, 512), moved),
    ]
    path.write_bytes(lmc.decompress(lmc.compress_tensors(tensors)))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Paths of a run's checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    return [save(folder / f"step{step}.safetensors", step) for step in (10, 20, 30)]


def command(*args):
    """The output of the command, and its messages."""
    args = [sys.executable, "-m", "lmc", "analyze", *map(str, args)]
    done = subprocess.run(args, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.decode()


def test_one_checkpoint(run):
    found = lmc.analyze(run[0])
    assert found == command(run[0], "--json")[0]
    assert found["checkpoints"][0]["all"]["tensors"] == 4
    by_name = {t["name"]: t for t in found["tensors"]}
    # In the order of the file, which is that of their names.
    assert by_name["layers.0.weight"]["duplicate_of"] == list(by_name).index("copy") == 0
    assert by_name["exp_avg.layers.0.weight"]["kind"] == "exp_avg"


def test_a_sequence(run):
    options = ["--json", "--level", "fast", "--distances", "20"]
    found = lmc.analyze(run, level="fast", distances=[20], threads=1)
    assert found == command(*run, *options)[0]
    assert [c["step"] for c in found["checkpoints"]] == [10, 20, 30]
    assert [(d["from"], d["to"], d["steps"]) for d in found["deltas"]] == [(0, 1, 10), (1, 2, 10), (0, 2, 20)]
    assert found["level"] == "fast"
    assert lmc.analyze(tuple(run), distances=(0,)) == command(*run, "--json", "--distances", "0")[0]


def test_courses(tmp_path):
    """Norms, ratios, angles and changed shares of every kind of float, beside those that NumPy computes."""
    rng = np.random.default_rng(5)
    dtypes = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    versions, paths, now = {}, [], {}
    for step in range(1, 7):
        tensors = []
        for dtype, numpy in dtypes.items():
            # More than a block, in rows of a tensor that is not square; what is not finite comes and goes.
            w = now.get(dtype, rng.normal(size=700_000) * 0.02)
            now[dtype] = w = w + 1e-3 * rng.normal(size=w.size) * (rng.random(w.size) < 0.3) + 1e-4 * step
            array = w.astype(np.float32).view(np.uint32) >> 16 if dtype == "BF16" else w
            array = array.astype(numpy)
            if dtype == "BF16":
                array[step::100_000] = 0x7F80
            else:
                array[step::100_000] = np.nan
            name = f"model.layers.{len(tensors)}.weight"
            tensors.append((name, dtype, (700, 1000), array))
            versions.setdefault(name, []).append(figures.Held(name, dtype, (700, 1000), array.tobytes()))
        paths.append(tmp_path / f"step{step}.safetensors")
        paths[-1].write_bytes(lmc.decompress(lmc.compress_tensors(tensors)))
    found = lmc.analyze(paths, distances=[0])
    assert len(found["tensors"]) == len(found["layers"]) == len(dtypes)
    for t in found["tensors"]:
        held = versions[t["name"]]
        for name, values in figures.course(held).items():
            # What cannot be computed is None there, and no number in a comparison with a tolerance.
            numbers, expected = ([math.nan if x is None else x for x in of] for of in (t["course"][name], values))
            assert numbers == pytest.approx(expected, rel=2e-5, nan_ok=True), (t["name"], name)
        changed = [float((a.bits != b.bits).mean()) for a, b in itertools.pairwise(held)]
        assert t["course"]["changed"] == pytest.approx(changed, rel=2e-5)
        layer = next(layer for layer in found["layers"] if layer["name"] in t["name"])
        assert {k: v for k, v in layer.items() if k != "name"} == t["course"]
    assert 0.1 < found["kinds"][0]["cosine"][-1] < 1


def test_steps_of_adam(tmp_path):
    """How much of a step its moments explain, and how much is gradient, beside what NumPy computes."""
    shapes = ((320, 256), (900, 1024), (256, 1024), (7, 3))
    found_states = list(adam.states(6, shapes))
    for step in (1, 2, 3, 6):
        kept = found_states[step - 1]
        names = {"BF16": "<u2", "F32": "<f4"}
        tensors = [
            (name, dtype, array.shape, array.view(names[dtype]))
            for name, array in kept.items()
            for dtype in [{2: "BF16", 4: "F32"}[array.itemsize]]
        ]
        (tmp_path / f"step{step}.safetensors").write_bytes(lmc.decompress(lmc.compress_tensors(tensors)))
    paths = sorted(tmp_path.iterdir())
    found = lmc.analyze(paths, distances=[0])

    def quotients(state, name):
        m, v = (state[f"{kind}.{name}"].astype(np.float64).ravel() for kind in ("exp_avg", "exp_avg_sq"))
        return m / (np.sqrt(v) + 1e-8)

    def cosine(a, b):
        return float((a @ b) ** 2 / ((a @ a) * (b @ b)))

    for pair, (before, after) in zip(found["pairs"], [(1, 2), (2, 3), (3, 6)], strict=True):
        old, new = found_states[before - 1], found_states[after - 1]
        names = [f"layers.{i}" for i in range(len(shapes))]
        pieces = [(name, at) for name in names for at in range(0, new[f"master.{name}"].size, 1 << 16)]
        total = sum(new[f"master.{name}"].size for name in names)
        every, seen, chosen = -(-total // (1 << 20)), 0, []
        for name, at in pieces:
            of = [
                (new[f"master.{name}"].astype(np.float64) - old[f"master.{name}"]).ravel(),
                quotients(old, name),
                quotients(new, name),
            ]
            if sum(c[0].size for c in chosen) * every <= seen:
                chosen.append([x[at : at + (1 << 16)] for x in of])
            seen += min(1 << 16, of[0].size - at)
        moved, known, told = (np.concatenate(each) for each in zip(*chosen, strict=True))
        assert every == 2 and total / 3 < pair["adam"]["elements"] == moved.size < total
        assert pair["adam"]["explained"] == pytest.approx(cosine(moved, told), abs=2e-6)
        if after - before == 1:
            assert pair["adam"]["explained"] > 0.99
            assert pair["adam"]["gradient"] == pytest.approx(1 - cosine(moved, known), abs=2e-6)
            assert 0.01 < pair["adam"]["gradient"] < 0.99
        else:
            assert pair["adam"]["explained"] < 0.9 and pair["adam"]["gradient"] is None


def test_a_store(run, tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for i, path in enumerate(run):
        store.save_files({"model.safetensors": path}, step=10 * (i + 1))
    expected, _ = command(tmp_path / "store", "--json")
    assert [c["step"] for c in expected["checkpoints"]] == [10, 20, 30]
    assert lmc.analyze(store) == expected
    assert lmc.analyze(str(tmp_path / "store")) == expected
    assert lmc.analyze(store, every=2) == command(tmp_path / "store", "--json", "--every", "2")[0] != expected


def test_zstd_is_an_engine(run):
    engines = lmc.analyze(run[:2], engines=["all"])["engines"]
    names = ["zstd 1", "zstd 3", "zstd 19"]
    assert [e["name"] for e in engines["engines"]] == ["lmc default"] * 2 + [name for name in names for _ in range(4)]
    assert all(0 < e["size"] < e["raw_size"] for e in engines["engines"] if e["order"] == "grouped")
    assert [d["deltas"] for d in engines["distances"]] == [1]
    with pytest.raises(lmc.UsageError, match='unknown engine "lz4": use all, or some of zstd-1'):
        lmc.analyze(run[0], engines=["zstd-1", "lz4"])


def test_warnings(run):
    with pytest.warns(UserWarning, match="--distances 7: no pair of checkpoints"):
        found = lmc.analyze(run[:2], distances=[7])
    expected, said = command(*run[:2], "--json", "--distances", "7")
    assert found == expected
    assert "--distances 7: no pair" in said


def test_errors(run, tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        lmc.analyze([run[0], tmp_path / "step20.safetensors"])
    assert missing.value.filename == str(tmp_path / "step20.safetensors")
    (tmp_path / "text").write_text("no tensors")
    (tmp_path / "cut.lmc").write_bytes(lmc.compress(run[0].read_bytes())[:-1000])
    (tmp_path / "empty").mkdir()
    (tmp_path / "delta.lmc").write_bytes(lmc.compress(run[1].read_bytes(), base=run[0].read_bytes()))
    lmc.Store.create(tmp_path / "unused")
    store = lmc.Store.create(tmp_path / "store")
    store.save_files({"model.safetensors": run[0]}, step=1)
    export = [sys.executable, "-m", "lmc", "snapshot", "export", "-q", tmp_path / "store", tmp_path / "run.tar"]
    subprocess.run(export, check=True, timeout=120)
    lmc.Store.create(tmp_path / "damaged").save_files({"model.safetensors": run[0]}, step=1)
    [data] = [path for path in (tmp_path / "damaged" / "data").rglob("*") if path.is_file()]
    data.chmod(0o600)
    data.write_bytes(bytes(data.stat().st_size))
    for given, options, error, text in [
        ([], {}, lmc.UsageError, "no checkpoints"),
        ([run[1], run[0]], {}, lmc.UsageError, "named before"),
        (tmp_path / "text", {}, lmc.UsageError, "no tensors"),
        (tmp_path / "empty", {}, lmc.UsageError, "no files with tensors"),
        (tmp_path / "delta.lmc", {}, lmc.UsageError, "is a delta"),
        (tmp_path / "unused", {}, lmc.UsageError, "has no snapshots"),
        (lmc.Store(tmp_path / "unused"), {}, lmc.UsageError, "has no snapshots"),
        (tmp_path / "run.tar", {}, lmc.UsageError, "lmc snapshot copy"),
        (lmc.Store(tmp_path / "run.tar"), {}, lmc.UsageError, "lmc snapshot copy"),
        (tmp_path / "damaged", {}, lmc.DamagedError, "damaged, step 1"),
        (tmp_path / "cut.lmc", {}, lmc.DamagedError, r"cut\.lmc"),
        (run[0], {"every": 2}, lmc.UsageError, "--every"),
        (run[0], {"every": 0}, lmc.UsageError, "every=0"),
        (run[0], {"distances": [1 << 64]}, lmc.UsageError, "distances="),
        (run[0], {"level": "none"}, lmc.UsageError, "level"),
        (run[0], {"engines": ["zip"]}, lmc.UsageError, 'unknown engine "zip"'),
        ("s3://", {}, lmc.UsageError, "names no bucket"),
        (7, {}, TypeError, "checkpoints must be"),
        (b"raw", {}, TypeError, "checkpoints must be"),
        ([run[0], 7], {}, TypeError, "each of checkpoints"),
    ]:
        with pytest.raises(error, match=text):
            lmc.analyze(given, **options)
