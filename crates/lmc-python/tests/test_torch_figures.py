"""Every figure of `analyze`, `diff` and `list`, for a pair of checkpoints of each layout, beside one that is computed
from their tensors alone (`figures.py`).
"""

from __future__ import annotations

import json
import math
import re
import struct
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import lmc
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from figures import Compared, Held
from safetensors.torch import save_file

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip

Tensors = dict[str, torch.Tensor]
#: Steps in names; one apart, so that the step may be one of Adam.
STEPS = (100, 101)


def held(name: str | None, t: torch.Tensor) -> Held:
    data = bytes(t.contiguous().flatten().view(torch.uint8).tolist())
    return Held(name, NAMES[t.dtype], tuple(t.shape), data)


def states() -> tuple[Tensors, Tensors]:
    """Two states one step of Adam apart, with a tensor of each kind, and each way in which one can differ."""
    draw = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    mean, square, copy = normal(90, 100) * 1e-3, (normal(90, 100) * 1e-3) ** 2 + 1e-9, normal(90, 100) * 0.02
    old: Tensors = {
        "layers.0.weight": copy.bfloat16(),
        "master.layers.0.weight": copy,
        "exp_avg.layers.0.weight": mean,
        "exp_avg_sq.layers.0.weight": square,
        "embed.weight": normal(64, 50).half(),
        "still.weight": normal(33, 7),
        "still.norm": torch.ones(33),
        "moved.norm": normal(33),
        "copy": torch.arange(500, dtype=torch.int32).reshape(20, 25) * 40,
        "copy.again": torch.arange(500, dtype=torch.int32).reshape(20, 25) * 40,
        "counter": torch.tensor(STEPS[0]),
        "mask": torch.arange(70) % 3 == 0,
        "bytes": torch.arange(300, dtype=torch.int64).remainder(251).to(torch.uint8),
        "small": torch.arange(-40, 40, dtype=torch.int8),
        "short": torch.arange(-300, 300, 3, dtype=torch.int16),
        "double": normal(40).double(),
        "rows": normal(30, 20),
        "flat": normal(600),
        "wide": normal(50, 8).bfloat16().float(),
        "empty": torch.zeros(0, 4),
        "special": torch.tensor([0.0, -0.0, float("inf"), float("nan"), 1e-40, -1e-40, 1.0, 2.0]),
        "gone": normal(11),
    }
    new = {name: t.clone() for name, t in old.items() if name != "gone"}
    gradient = normal(90, 100) * 1e-3
    new["exp_avg.layers.0.weight"] = 0.9 * mean + 0.1 * gradient
    new["exp_avg_sq.layers.0.weight"] = 0.95 * square + 0.05 * gradient**2
    step = new["exp_avg.layers.0.weight"] / (new["exp_avg_sq.layers.0.weight"].sqrt() + 1e-8)
    new["master.layers.0.weight"] = copy - 1e-5 * step
    new["layers.0.weight"] = new["master.layers.0.weight"].bfloat16()
    new["embed.weight"].view(torch.int16)[::3] += 5
    new["moved.norm"] *= 1.01
    new["counter"] += 1
    new["mask"] = ~new["mask"]
    new["bytes"][::7] += 3
    new["small"] += 1
    new["short"][::2] -= 9
    new["double"] *= 1 + 1e-12
    new["rows"] = torch.cat([new["rows"] * 1.001, normal(5, 20)])
    new["flat"] = new["flat"].reshape(20, 30)
    new["wide"] = new["wide"].bfloat16()
    new["special"] = -new["special"]
    new["added"] = normal(13)
    return old, new


def of_numpy(tensors: Tensors) -> Tensors:
    """Those whose types numpy has."""
    return {name: t for name, t in tensors.items() if t.dtype != torch.bfloat16}


def safetensors(folder: Path, tensors: Tensors) -> list[Path]:
    save_file(tensors, folder / "model.safetensors")
    return [folder / "model.safetensors"]


def sharded(folder: Path, tensors: Tensors) -> list[Path]:
    parts: list[Tensors] = [{}, {}]
    for i, name in enumerate(sorted(tensors)):
        parts[i % 2][name] = tensors[name]
    files = [folder / f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    for part, file in zip(parts, files, strict=True):
        save_file(part, file)
    places = {name: file.name for part, file in zip(parts, files, strict=True) for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return files


def pt(folder: Path, tensors: Tensors) -> list[Path]:
    torch.save(tensors, folder / "model.pt")
    return [folder / "model.pt"]


def legacy(folder: Path, tensors: Tensors) -> list[Path]:
    torch.save(tensors, folder / "model.pt", _use_new_zipfile_serialization=False)
    return [folder / "model.pt"]


def distcp(folder: Path, tensors: Tensors) -> list[Path]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(tensors, checkpoint_id=folder, no_dist=True)
    # Of an earlier save by more ranks.
    (folder / "__7_0.distcp").write_bytes((folder / "__0_0.distcp").read_bytes())
    return [folder / "__0_0.distcp"]


def npz(folder: Path, tensors: Tensors) -> list[Path]:
    np.savez(folder / "model.npz", **{name: t.numpy() for name, t in of_numpy(tensors).items()})
    return [folder / "model.npz"]


def npy(folder: Path, tensors: Tensors) -> list[Path]:
    np.save(folder / "model.npy", tensors["embed.weight"].numpy())
    return [folder / "model.npy"]


def gguf(folder: Path, tensors: Tensors) -> list[Path]:
    """As `ggml/docs/gguf.md` describes it."""
    types = {torch.float32: 0, torch.float16: 1, torch.int8: 24, torch.int16: 25, torch.int32: 26, torch.int64: 27,
             torch.float64: 28, torch.bfloat16: 30}  # fmt: skip
    some = {name: t for name, t in tensors.items() if t.dtype in types and t.numel()}
    head, data = b"GGUF" + struct.pack("<IQQ", 3, len(some), 0), b""
    for name, t in some.items():
        head += struct.pack("<Q", len(name)) + name.encode()
        head += struct.pack(f"<I{t.dim()}QIQ", t.dim(), *reversed(t.shape), types[t.dtype], len(data))
        data += held(name, t).data
        data += bytes(-len(data) % 32)
    (folder / "model.gguf").write_bytes(head + bytes(-len(head) % 32) + data)
    return [folder / "model.gguf"]


def onnx(folder: Path, tensors: Tensors) -> list[Path]:
    """As `onnx/onnx.proto` describes it."""
    types = {torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7,
             torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.bfloat16: 16}  # fmt: skip

    def varint(n: int) -> bytes:
        return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])

    def field(number: int, value: bytes | int) -> bytes:
        if isinstance(value, int):
            return varint(number << 3) + varint(value)
        return varint(number << 3 | 2) + varint(len(value)) + value

    graph = b""
    for name, t in tensors.items():
        dims = b"".join(field(1, n) for n in t.shape)
        graph += field(5, dims + field(2, types[t.dtype]) + field(8, name.encode()) + field(9, held(name, t).data))
    (folder / "model.onnx").write_bytes(field(1, 8) + field(7, graph + field(2, b"graph")) + field(8, field(2, 17)))
    return [folder / "model.onnx"]


LAYOUTS: dict[str, Callable[[Path, Tensors], list[Path]]] = {
    f.__name__: f for f in (safetensors, sharded, pt, legacy, distcp, npz, npy, gguf, onnx)
}
#: Layouts in which lmc finds the names of tensors; those of the others are given.
FORMATS = {"sharded": "safetensors", "pt": "torch", "legacy": "torch"}


def command(*args: object) -> str:
    done = subprocess.run([sys.executable, "-m", "lmc", *map(str, args)], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Pair:
    """Two checkpoints of a layout."""

    def __init__(self, folder: Path, layout: str) -> None:
        self.layout = layout
        self.folders = [folder / f"step{step}" for step in STEPS]
        self.states = states()
        self.files = []
        for at, tensors in zip(self.folders, self.states, strict=True):
            at.mkdir()
            self.files.append(LAYOUTS[layout](at, tensors))
        if layout == "npy":
            self.states = tuple({"": tensors["embed.weight"]} for tensors in self.states)
        self.raw = [[raw(file) for file in files] for files in self.files]
        #: The files without lmc, in directories that have nothing but them and the metadata that names their tensors.
        self.copies = [[folder / f"plain{at}" / file.name for file in files] for at, files in enumerate(self.files)]
        #: What `lmc list --json` says of each file, compressed by itself.
        self.listed = []
        for at, (copies, contents) in enumerate(zip(self.copies, self.raw, strict=True)):
            copies[0].parent.mkdir()
            if (metadata := self.folders[at] / ".metadata").exists():
                (copies[0].parent / ".metadata").write_bytes(metadata.read_bytes())
            listed = []
            for i, (copy, content) in enumerate(zip(copies, contents, strict=True)):
                copy.write_bytes(content)
                path = folder / f"{at}-{i}.lmc"
                command("compress", "-q", copy, "-o", path)
                listed.append(json.loads(command("list", "--json", path)) | {"path": path})
            self.listed.append(listed)
        self.held = [self.tensors(at) for at in range(2)]
        self.opaque = [self.no_tensors(at) for at in range(2)]

    def tensors(self, at: int) -> list[Held]:
        """The tensors of a checkpoint in the order of its files; each is where it is said to be."""
        found = []
        for listed, content in zip(self.listed[at], self.raw[at], strict=True):
            for s in (s for s in listed["segments"] if s["name"] is not None):
                t = held(s["name"], self.states[at][s["name"]])
                assert (s["dtype"], tuple(s["shape"])) == (t.dtype, t.shape), s
                assert content[s["offset"] : s["offset"] + s["raw_size"]] == t.data, s
                found.append(t)
        return found

    def no_tensors(self, at: int) -> list[Held]:
        found = []
        for listed, content in zip(self.listed[at], self.raw[at], strict=True):
            for s in (s for s in listed["segments"] if s["name"] is None):
                assert (s["dtype"], s["shape"]) == (None, None)
                found.append(Held(None, "opaque", (), content[s["offset"] : s["offset"] + s["raw_size"]]))
        return found

    @property
    def compared(self) -> list[Compared]:
        return figures.pairs(*self.held)


def raw(file: Path) -> bytes:
    """The bytes that figures are of: of a `.lmc` file those that were compressed."""
    if file.suffix != ".lmc":
        return file.read_bytes()
    beside = [path for path in sorted(file.parent.glob("*.lmc")) if path != file]
    bases = [path.read_bytes() for path in beside]
    return lmc.decompress(file.read_bytes(), base=bases or None)


@pytest.fixture(scope="module", params=LAYOUTS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def study(pair: Pair) -> dict[str, Any]:
    return json.loads(command("analyze", "--json", *pair.folders))


def close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Whether figures are as expected; those of `found` have six decimals, and may be more."""
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=2e-6, rel=1e-9), (name, found)


def with_size(found: dict[str, Any], size: int) -> dict[str, Any]:
    """Figures with those that follow from the size by lmc."""
    bits = 8 * size / found["elements"] if found["elements"] else 0.0
    return found | {"lmc_size": size, "lmc_bits": bits}


def grouped(of: list[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups = defaultdict(list)
    for t in of:
        groups[key(t)].append(t)
    return groups


def test_list(pair: Pair) -> None:
    for at in range(2):
        names = [s["name"] for listed in pair.listed[at] for s in listed["segments"] if s["name"] is not None]
        expected = {name for name, t in pair.states[at].items() if pair.layout != "npz" or t.dtype != torch.bfloat16}
        if pair.layout == "gguf":
            expected = {n for n in expected if pair.states[at][n].dtype not in (torch.bool, torch.uint8)} - {"empty"}
        assert len(names) == len(set(names)) and set(names) == expected
        for listed, content in zip(pair.listed[at], pair.raw[at], strict=True):
            assert listed["layout"] == FORMATS.get(pair.layout, pair.layout)
            assert listed["raw_size"] == len(content) == sum(s["raw_size"] for s in listed["segments"])
            compressed = listed["path"].stat().st_size
            assert listed["compressed_size"] == compressed
            assert listed["ratio"] == compressed / len(content)
            # All that is in the file is accounted for.
            of_segments = sum(s["compressed_size"] for s in listed["segments"])
            assert compressed == of_segments + listed["container_size"]
            end = 0
            for s in listed["segments"]:
                assert s["offset"] == end
                end += s["raw_size"]
                assert s["ratio"] == (s["compressed_size"] / s["raw_size"] if s["raw_size"] else None)


def test_checkpoints(pair: Pair, study: dict[str, Any]) -> None:
    assert len(study["checkpoints"]) == 2 and study["steps_from"] == "names"
    for at, found in enumerate(study["checkpoints"]):
        assert (found["name"], found["step"]) == (str(pair.folders[at]), STEPS[at])
        assert found["files"] == [file.name for file in pair.files[at]]
        assert set(found["formats"]) == {FORMATS.get(pair.layout, pair.layout)}
        everything = pair.held[at] + pair.opaque[at]
        compressed = sum(listed["path"].stat().st_size for listed in pair.listed[at])
        segments = [s for listed in pair.listed[at] for s in listed["segments"]]
        # In the order of `everything`.
        segments.sort(key=lambda s: s["name"] is None)
        size = {id(t): s["compressed_size"] for t, s in zip(everything, segments, strict=True)}
        close(found["all"], with_size(figures.figures(everything), compressed))
        for groups, key in (("kinds", lambda t: t.kind), ("dtypes", lambda t: t.dtype)):
            parts = grouped(everything, key)
            assert {g["name"] for g in found[groups]} == set(parts)
            for g in found[groups]:
                part = parts[g["name"]]
                close(g, with_size(figures.figures(part), sum(size[id(t)] for t in part)))


def test_tensors(pair: Pair, study: dict[str, Any]) -> None:
    tensors, compared = pair.held[1], pair.compared
    assert study["tensors_left_out"] == 0 and len(study["tensors"]) == len(tensors)
    sizes = [s for listed in pair.listed[1] for s in listed["segments"] if s["name"] is not None]
    first: dict[tuple[str, bytes], int] = {}
    for i, (found, t, c, s) in enumerate(zip(study["tensors"], tensors, compared, sizes, strict=True)):
        named = (found["name"], found["kind"], found["dtype"], found["shape"])
        assert named == (t.name, t.kind, t.dtype, list(t.shape))
        close(found, with_size(figures.figures([t]), s["compressed_size"]))
        values = len(np.unique(t.bits)) if t.width <= 2 else None
        assert found["distinct_values"] == values, found
        assert found["fits"] == figures.fits(t), found
        earlier = first.setdefault((t.dtype, t.data), i) if t.data else i
        assert found["duplicate_of"] == (earlier if earlier != i else None), found
        if c.state not in ("same", "changed") or not t.data:
            assert found["change"] is None, found
            continue
        own, change = figures.changes([c]), found["change"]
        assert (change["pairs"], change["unchanged_pairs"]) == (1, int(c.is_same))
        assert (change["compared"], change["changed"]) == (own["compared"], own["changed"])
        assert change["distances"] == own["distances"], found
        assert change["flips"] == figures.flips([c], t.width)
        assert change["raw_size"] == len(t.data)
        assert found["course"]["changed"] == [pytest.approx(own["changed"] / own["compared"], rel=1e-5)]
        expected = figures.course([c.old, c.new])
        for name, values in expected.items():
            # What cannot be computed is None there, and no number in a comparison with a tolerance.
            numbers, wanted = ([math.nan if x is None else x for x in of] for of in (found["course"][name], values))
            assert numbers == pytest.approx(wanted, rel=1e-5, abs=1e-30, nan_ok=True), (t.name, name)


def group_changes(compared: list[Compared]) -> dict[str, Any]:
    new = [c.new for c in compared]
    return figures.changes(compared) | {
        "tensors": len(new),
        "unchanged_tensors": sum(c.is_same for c in compared),
        "raw_size": sum(len(t.data) for t in new),
    }


def test_changes(pair: Pair, study: dict[str, Any]) -> None:
    [found], compared = study["pairs"], pair.compared
    assert (found["from"], found["to"], found["steps"]) == (0, 1, 1)
    gone = [t.name for t in pair.held[0] if t.name not in {t.name for t in pair.held[1]}]
    added = [c.new.name for c in compared if c.old is None]
    assert (found["missing_tensors"], found["missing_names"]) == (len(gone), gone)
    assert (found["new_tensors"], found["new_names"]) == (len(added), added)
    groups = {(g["kind"], g["dtype"]): g for g in found["groups"]}
    parts = grouped(compared, lambda c: (c.new.kind, c.new.dtype))
    assert set(groups) == set(parts) | ({("other", "opaque")} if pair.opaque[1] else set())
    for key, part in parts.items():
        close(groups[key], group_changes(part))
        if groups[key]["compared"]:
            assert groups[key]["flips"] == figures.flips(part, part[0].new.width)
    # Sums over all groups.
    for name in ("tensors", "unchanged_tensors", "compared", "changed"):
        assert found["all"][name] == sum(g[name] for g in groups.values()), name
    assert found["all"]["largest_distance"] == max(g["largest_distance"] for g in groups.values())
    sizes = [sum(len(content) for content in pair.raw[1]), sum(of["path"].stat().st_size for of in pair.listed[1])]
    assert [found["all"]["raw_size"], found["all"]["lmc_size"]] == sizes
    assert study["changes"] == found["groups"], "of all pairs, of which there is one"


def test_deltas(pair: Pair, study: dict[str, Any], tmp_path: Path) -> None:
    [found], [distance] = study["deltas"], study["distances"]
    assert (found["from"], found["to"], found["steps"], distance["steps"], distance["deltas"]) == (0, 1, 1, 1, 1)
    for name in ("raw_size", "delta_size", "groups", "floats"):
        assert found[name] == distance[name]
    # What the command writes; the base's name is in the delta.
    made = 0
    for i, new in enumerate(pair.copies[1]):
        # The file of the same name comes first.
        bases = sorted(pair.copies[0], key=lambda base: base.name != new.name)
        named = [arg for base in bases for arg in ("--base", base)]
        command("compress", "-q", *named, new, "-o", tmp_path / f"{i}.delta")
        made += (tmp_path / f"{i}.delta").stat().st_size
    assert found["delta_size"] == made == study["pairs"][0]["all"]["delta_size"]
    raw_size, entropy_size = figures.difference_entropy(pair.compared)
    floats = found["floats"]
    assert floats["raw_size"] == raw_size and abs(floats["entropy_size"] - entropy_size) <= 1
    groups = {(g["kind"], g["dtype"]): g for g in found["groups"]}
    of_tensors = sum(t["change"]["delta_size"] for t in study["tensors"] if t["change"])
    assert 0 < floats["delta_size"] <= sum(g["delta_size"] for g in groups.values()) < made
    assert of_tensors <= sum(g["delta_size"] for key, g in groups.items() if key[0] != "other")
    for group in study["pairs"][0]["groups"]:
        assert groups[group["kind"], group["dtype"]]["delta_size"] == group["delta_size"]


def test_magnitudes(pair: Pair, study: dict[str, Any]) -> None:
    found = {(m["kind"], m["dtype"]): dict(enumerate(m["counts"], m["lowest"])) for m in study["magnitudes"]}
    assert {key: {e: n for e, n in counts.items() if n} for key, counts in found.items()} == figures.magnitudes(
        pair.held[1]
    )


def test_diff(pair: Pair, study: dict[str, Any]) -> None:
    if pair.layout == "distcp":
        diff = [sys.executable, "-m", "lmc", "diff", *pair.folders]
        done = subprocess.run(diff, capture_output=True, timeout=120, check=False)
        assert done.returncode == 1 and b"is a directory" in done.stderr
        return
    of = [files[0] if len(files) == 1 else files[0].parent / "model.safetensors.index.json" for files in pair.files]
    found = json.loads(command("diff", "--json", *of))
    tensors = [s for s in found["segments"] if s["name"] is not None]
    states: dict[str, int] = defaultdict(int)
    for s, c, t in zip(tensors, pair.compared, study["tensors"], strict=True):
        states[c.state] += 1
        own = figures.changes([c])
        named = (s["name"], s["dtype"], s["shape"], s["raw_size"])
        assert named == (c.new.name, c.new.dtype, list(c.new.shape), t["raw_size"])
        assert (s["state"], s["old"] and s["old"]["name"]) == (c.state, c.old and c.old.name), s
        assert (s["elements"], s["compared"], s["changed"]) == (t["elements"], own["compared"], own["changed"]), s
        check_distance(s["distance"], own)
        for size in ("delta", "alone"):
            bits = 8 * s[f"{size}_size"] / s["elements"] if s["elements"] else None
            assert s[f"{size}_bits"] == pytest.approx(bits) if bits is not None else s[f"{size}_bits"] is None
        # What did not change, and is predicted, takes next to nothing, whatever it shares a block with.
        if c.state == "same" and s["predictor"] and not s["from_itself"]:
            assert s["delta_size"] <= 16 + s["raw_size"] // 50, s
        if len(pair.files[1]) == 1 and t["change"]:
            assert t["change"]["delta_size"] == s["delta_size"]
    gone = [t for t in pair.held[0] if t.name not in {t.name for t in pair.held[1]}]
    assert [(m["name"], m["raw_size"]) for m in found["missing"]] == [(t.name, len(t.data)) for t in gone]
    total, every = found["total"], figures.changes(pair.compared)
    assert total["states"] == dict(states) | ({"missing": len(gone)} if gone else {})
    assert total["elements"] == sum(t.bits.size for t in pair.held[1])
    assert (total["compared"], total["changed"]) == (every["compared"], every["changed"])
    assert total["raw_size"] == study["deltas"][0]["raw_size"]
    assert total["alone_size"] == study["checkpoints"][1]["all"]["lmc_size"]
    if len(pair.files[0]) == 1:
        assert total["delta_size"] == study["deltas"][0]["delta_size"]
    parts = grouped(pair.compared, lambda c: c.new.dtype)
    assert {d["dtype"] for d in total["dtypes"]} == set(parts)
    for d in total["dtypes"]:
        own = figures.changes(parts[d["dtype"]])
        assert (d["compared"], d["changed"]) == (own["compared"], own["changed"])
        assert d["raw_size"] == sum(len(c.new.data) for c in parts[d["dtype"]])
        assert d["delta_size"] == sum(s["delta_size"] for s in tensors if s["dtype"] == d["dtype"])
        check_distance(d["distance"], own)


def check_distance(found: dict[str, Any] | None, own: dict[str, Any]) -> None:
    if not own["distances"]:
        assert found is None
        return
    assert found is not None and (found["log2"], found["max"]) == (own["distances"], own["largest_distance"])
    for name, share in (("median", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert found[name] == figures.quantile(own["distances"], share)


def percent(part: float, whole: float) -> str:
    """As pages show it."""
    p = 100 * part / whole
    digits = 4 if p < 0.01 else 2 if p < 1 else 1
    return "0 %" if p == 0 else "100 %" if p == 100 else f"{min(p, 99.99):.{2 if p >= 99.95 else digits}f} %"


def test_pages(pair: Pair, study: dict[str, Any]) -> None:
    """The page shows the figures of the JSON, and says what they are of."""
    page = command("analyze", *pair.folders, "--html", "-")
    embedded = re.search(r'<script type="application/json" id=study>(.*?)</script>', page)
    assert embedded and json.loads(embedded[1]) == study
    last, change = study["checkpoints"][1]["all"], study["changes"]
    tensors = [g for g in change if g["kind"] != "other"]
    cards = dict(reversed(c) for c in re.findall(r"<div><b>(.*?)</b><span>(.*?)</span></div>", page))
    of_itself = next(text for text in cards if text.startswith("of that by itself"))
    assert cards[of_itself] == percent(last["lmc_size"], last["raw_size"])
    assert f"{last['tensors']} tensors in the last checkpoint" in " ".join(cards) or last["tensors"] == 1
    changed, compared = (sum(g[name] for g in tensors) for name in ("changed", "compared"))
    assert cards["of elements change from checkpoint to checkpoint"] == percent(changed, compared)
    rows = re.findall(r"<tr><td class=l>(.*?)(?=<tr>|</tbody>)", page)
    cells = [re.sub(r"<td[^>]*>", "|", re.sub(r"(?<=\d),(?=\d{3})", "", row)).split("|") for row in rows]
    for g in study["checkpoints"][1]["kinds"] + [last | {"name": "all"}]:
        row = next(c for c in cells if c[0] == g["name"] and len(c) == 12)
        numbers = [str(g[name]) for name in ("tensors", "elements", "raw_size", "lmc_size")]
        assert row[1:5] == numbers and row[6:10] == [
            f"{g[name]:.3f}" for name in ("sign_entropy", "exponent_entropy", "mantissa_entropy", "lmc_bits")
        ], row
    for g in change:
        row = next(c for c in cells if c[:2] == [g["kind"], g["dtype"]])
        names = ("compared", "changed", "largest_distance", "delta_size", "lmc_size")
        assert [row[i] for i in (2, 3, 5, 6, 7)] == [str(g[name]) for name in names], row


def test_many_steps_of_distributed_checkpoints(tmp_path: Path) -> None:
    """Each step counts by itself, in a directory as in a store."""
    import lmc.dcp

    run, w = tmp_path / "run", torch.randn(40, 50, generator=torch.Generator().manual_seed(1))
    for step in (8, 9, 10):
        w = w.clone()
        w.view(torch.int32)[: 10 * (step - 7)] += 1
        for writer in (dcp.FileSystemWriter(run / f"step-{step}"), lmc.dcp.Writer(tmp_path / "store", step=step)):
            dcp.save({"w": w, "still": torch.ones(9)}, storage_writer=writer, no_dist=True)
    found = json.loads(command("analyze", "--json", run))
    assert [(c["step"], c["name"]) for c in found["checkpoints"]] == [(n, str(run / f"step-{n}")) for n in (8, 9, 10)]
    assert found == lmc.analyze(run)
    for studied in (found, lmc.analyze(tmp_path / "store")):
        assert [c["step"] for c in studied["checkpoints"]] == [8, 9, 10]
        assert [c["all"]["tensors"] for c in studied["checkpoints"]] == [2, 2, 2]
        assert [p["all"]["unchanged_tensors"] for p in studied["pairs"]] == [1, 1]
        [changed] = [t["course"]["changed"] for t in studied["tensors"] if t["name"] == "w"]
        assert changed == [0.5, 0.75]
    one = json.loads(command("analyze", "--json", run / "step-10"))
    assert [c["all"]["tensors"] for c in one["checkpoints"]] == [2]
    assert one["checkpoints"][0]["all"]["raw_size"] == found["checkpoints"][2]["all"]["raw_size"]
