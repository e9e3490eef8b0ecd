"""Pairs of files, an old one and a new one: steps of training runs, made-up changes, models that are not related."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import inputs
import numpy as np
import tensors
from inputs import DATA, ROOT
from tensors import Tensor

# Files of a run: the text before "step" is its name.
SNAPSHOT = re.compile(r"(?P<run>.*?)step(?P<step>\d+)(\.weights)?\.safetensors")
RUNS = {"": "training", "finetune-": "fine-tuning", "large-": "training, a larger model"}
FRACTIONS = [0.001, 0.01, 0.05, 0.2]


@dataclass
class Pair:
    """A file and its base."""

    name: str
    old: Path
    new: Path
    what: str
    # "training", "fine-tuning", …, "made up" or "unrelated".
    kind: str
    dtype: str = ""

    def changed(self) -> float:
        """The share of elements in both files whose bits differ."""
        before = {t.name: t for t in tensors.read(self.old)}
        differ = total = 0
        for t in tensors.read(self.new):
            b = before.get(t.name)
            if b is not None and (b.dtype, b.shape) == (t.dtype, t.shape):
                bits = f"u{t.data.itemsize}"
                differ += int(np.count_nonzero(t.data.view(bits) != b.data.view(bits)))
                total += t.data.size
        return differ / total if total else 1.0


def snapshots() -> dict[str, list[Path]]:
    """The snapshots in the folders of BENCH_DATA: the runs in the order above, each in the order of its steps."""
    runs: dict[str, list[tuple[int, Path]]] = {}
    for path in inputs.bench_data():
        if (match := SNAPSHOT.fullmatch(path.name)) and match["run"] in RUNS:
            runs.setdefault(match["run"], []).append((int(match["step"]), path))
    return {run: [path for _, path in sorted(runs[run])] for run in RUNS if run in runs}


def of_run(kind: str, files: list[Path]) -> list[Pair]:
    """Each snapshot against the one before: as a whole where both hold the same kinds of tensors, and kind by kind."""
    pairs = []
    parts = []
    for file in files:
        name = file.name.removesuffix(".safetensors")
        found = inputs.parts_of_state(file, DATA, name)
        parts.append({i.name.rsplit(" ", 1)[1]: i for i in found})
    for i in range(1, len(files)):
        old, new = files[i - 1 : i + 1]
        steps = " → ".join(re.sub(r"^.*(step\d+).*$", r"\1", f.name) for f in (old, new))
        run = "" if kind == "training" else f"{kind}: "
        if parts[i - 1].keys() == parts[i].keys() and len(parts[i]) != 1:
            pairs.append(Pair(f"{run}{steps}", old, new, "the whole state", kind))
        for part, after in parts[i].items():
            if before := parts[i - 1].get(part):
                dtype = "BF16" if part == "model" else "F32"
                pairs.append(Pair(f"{run}{steps} {part}", before.path, after.path, after.what, kind, dtype))
    return pairs


def moved(source: list[Tensor], dtype: str, fraction: float, seed: int) -> list[Tensor]:
    """A fraction of the elements of a dtype, drawn at random, moved by one to three representable values."""
    rng = np.random.Generator(np.random.PCG64(seed))
    out = []
    for t in source:
        if t.dtype != dtype:
            out.append(t)
            continue
        bits = t.data.view(f"<u{t.data.itemsize}").copy()
        magnitude = bits & ((1 << (8 * t.data.itemsize - 1)) - 1)
        largest = {"BF16": 0x7F7F, "F32": 0x7F7F_FFFF}[dtype]
        # No sign and no infinity is crossed, so that a step of the bits is a step of the value.
        chosen = (rng.random(bits.size) < fraction) & (magnitude > 3) & (magnitude < largest - 3)
        steps = rng.integers(1, 4, bits.size) * rng.choice([-1, 1], bits.size)
        bits[chosen] = (bits[chosen].astype(np.int64) + steps[chosen]).astype(bits.dtype)
        out.append(Tensor(t.name, t.dtype, t.shape, bits))
    return out


def shuffled(source: list[Tensor]) -> list[Tensor]:
    """The elements of each tensor in another order."""
    rng = np.random.Generator(np.random.PCG64(2))
    return [Tensor(t.name, t.dtype, t.shape, rng.permutation(t.data)) for t in source]


def drawn(source: list[Tensor]) -> list[Tensor]:
    """Normal deviates with each bf16 tensor's mean and deviation, as from another seed."""
    rng = np.random.Generator(np.random.PCG64(3))
    out = []
    for t in source:
        data = t.data
        if t.dtype == "BF16":
            values = tensors.from_bf16(data)
            data = tensors.to_bf16(rng.normal(values.mean(), values.std() + 1e-9, data.size).astype("<f4"))
        out.append(Tensor(t.name, t.dtype, t.shape, data))
    return out


def made_up(quick: bool) -> list[Pair]:
    """Random changes of a real model, and unrelated models of the same shapes."""
    source_path = ROOT / "testdata" / "minilm-f32.safetensors" if quick else inputs.minilm()
    label = "quick" if quick else "minilm"
    source = {"F32": tensors.read(source_path)}
    source["BF16"] = inputs.cast(source["F32"], inputs.to_bf16)
    paths = {"F32": source_path, "BF16": DATA / f"{label}-bf16.safetensors"}
    if not paths["BF16"].exists():
        tensors.write(paths["BF16"], source["BF16"])

    def made(file: str, make: Callable[[], list[Tensor]]) -> Path:
        path = DATA / f"{label}-{file}.safetensors"
        if not path.exists():
            part = path.with_suffix(".part")
            tensors.write(part, make())
            part.rename(path)
        return path

    pairs = []
    for dtype, name in (("BF16", "bf16"), ("F32", "fp32")):
        for i, fraction in enumerate(FRACTIONS):
            new = made(f"{name}-moved-{fraction:g}", lambda d=dtype, f=fraction, i=i: moved(source[d], d, f, 10 + i))
            what = f"{100 * fraction:g} % of the elements, at random, moved by up to 3 representable values"
            pairs.append(Pair(f"minilm {name}, {100 * fraction:g} %", paths[dtype], new, what, "made up", dtype))
    for name, what, make in (
        ("shuffled", "the same model, each tensor's elements in another order", shuffled),
        ("drawn", "normal deviates in the shapes of the model", drawn),
    ):
        old = made(f"bf16-{name}", lambda m=make: m(source["BF16"]))
        new = paths["BF16"]
        pairs.append(Pair(f"minilm bf16, base {name}", old, new, f"the base is {what}", "unrelated", "BF16"))
    return pairs


def prepare(quick: bool) -> list[Pair]:
    """Makes the missing files, and lists all pairs."""
    DATA.mkdir(parents=True, exist_ok=True)
    cuts = [ROOT / "testdata" / f"gpt-step{n}-state.safetensors" for n in (300, 310)]
    what = "cuts that ship with the repository (testdata/README.md)"
    pairs = [Pair("testdata step300 → step310", *cuts, what, "cut")]
    for run, files in snapshots().items():
        pairs += of_run(RUNS[run], files)
    pairs += made_up(quick)
    return [p for p in pairs if not quick or p.new.stat().st_size < 5_000_000]


if __name__ == "__main__":
    for p in prepare(quick="--quick" in sys.argv):
        print(f"{p.name:45} {100 * p.changed():6.2f} %  {p.what}")
