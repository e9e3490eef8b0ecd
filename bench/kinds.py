#!/usr/bin/env python3
"""Speeds on tensors of many kinds, beside that on weights in bf16: no kind may be a slow case.

    bench/run kinds [--json FILE] [KIND …]

Each kind is a file of some 8 MB. In each round one process, `lmc-bench`, measures the weights and all kinds at level
`default` with one thread, in memory. Shown are the medians over the rounds of the speeds, in parts of that of copying
the same bytes, and of that on the weights, `dense`, in the same round. A kind that is compressed at less than half of
the speed on the weights breaks the rule, unless it is on a grid, or zstd has taken it, as it takes text. The exit
status is 1 if one does.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import inputs
import ml_dtypes
import numpy as np
import origin
import sizes
import tensors
from markdown import number, table
from tensors import Tensor

ROWS, COLS, SEED = 4096, 1024, 1
# In parts of the speed on the weights.
LEAST = 0.5
# Methods that take their time, because they save much.
SEARCHED = ("zstd", "grid")
DENSE = "dense"

BF16 = ml_dtypes.bfloat16
DTYPES = sizes.DTYPES | {"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int8": "I8", "uint8": "U8"}
GRIDS = ("int8-row-in-bf16", "int4-g64-in-bf16", "nf4-g64-in-bf16", "fp8-block-in-bf16", "q4_k-in-fp16")


def flat_shard(w: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Layers in one tensor: matrices, and vectors of norms, many of whose elements are equal."""
    parts = []
    for layer in np.split(w, 16):
        parts += [layer.reshape(-1), np.ones(COLS, BF16), (1 + random.standard_normal(COLS) * 0.01).astype(BF16)]
    return np.concatenate(parts)


def arrays() -> Iterator[tuple[str, np.ndarray]]:
    """All kinds, the weights first. Weights have rows of different scales."""
    random = np.random.default_rng(SEED)
    shape = (ROWS, COLS)
    scales = np.exp(random.standard_normal((ROWS, 1)) * 0.4) * 0.02
    w = (random.standard_normal(shape) * scales).astype(np.float32)
    yield DENSE, w.astype(BF16)
    yield "weights-fp32", w
    yield "weights-fp16", w.astype(np.float16)
    yield "weights-e4m3", (w * 100).astype(ml_dtypes.float8_e4m3fn)
    yield "weights-e5m2", (w * 100).astype(ml_dtypes.float8_e5m2)
    yield "weights-int8", np.round(w / np.abs(w).max(1, keepdims=True) * 127).astype(np.int8)
    yield "flat-with-norms-bf16", flat_shard(w.astype(BF16), random)
    yield "second-moments-fp32", np.square(w) * np.float32(0.01)
    for name, value in (("zeros", 0.0), ("ones", 1.0)):
        for short, dtype in (("bf16", BF16), ("fp32", np.float32)):
            yield f"{name}-{short}", np.full(shape, value, dtype)
    yield "zeros-int64", np.zeros(ROWS * COLS // 4, np.int64)
    yield "signs-bf16", np.where(w < 0, -1, 1).astype(BF16)
    yield "signs-int8", np.where(w < 0, -1, 1).astype(np.int8)
    yield "mask-of-noise-bool", w < 0.01
    yield "causal-bf16", np.where(np.tri(2 * COLS, dtype=bool), 0, -np.inf).astype(BF16)
    yield "causal-fp32", np.where(np.tri(2 * COLS, dtype=bool), 0, -np.inf).astype(np.float32)
    for share in (100, 1000):
        yield f"one-in-{share}-bf16", np.where(random.random(shape) < 1 / share, w, 0).astype(BF16)
    yield "levels-int8", random.integers(-2, 2, shape, dtype=np.int8)
    yield (
        "int4-packed-uint8",
        random.binomial(15, 0.5, shape).astype(np.uint8) * 16 + random.binomial(15, 0.5, shape).astype(np.uint8),
    )
    yield "zipf-ids-int64", (random.zipf(1.2, ROWS * COLS // 4) % 32000).astype(np.int64)
    yield from sizes.structured(ROWS, COLS).items()
    found = sizes.grids(SEED, ROWS, COLS)
    yield from ((name, found[name].values) for name in GRIDS)


def text() -> np.ndarray:
    """Sources of NumPy."""
    files = sorted(Path(np.__file__).parent.rglob("*.py"))
    return np.frombuffer(b"".join(f.read_bytes() for f in files), np.uint8)


def files() -> list[Path]:
    """A file for each kind, made once."""
    folder = inputs.DATA / "kinds"
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            dtype = DTYPES[array.dtype.name]
            tensors.write(folder / f"{name}.safetensors", [Tensor("w", dtype, list(array.shape), flat)])
        text().tofile(folder / "text")
        (folder / "done").touch()
    return sorted(f for f in folder.iterdir() if f.name != "done")


def method(lmc: str, file: Path) -> str:
    """How a file's largest segment is predicted, or else coded."""
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "packed.lmc"
        subprocess.run([lmc, "-q", "compress", file, "-o", packed], check=True)
        listed = subprocess.run([lmc, "list", "--json", packed], check=True, capture_output=True, text=True)
    largest = max(json.loads(listed.stdout)["segments"], key=lambda s: s["raw_size"])
    return largest["predictor"] or largest["coder"]


def one_round(lmc_bench: str, paths: list[Path]) -> dict[str, dict]:
    """The results of each file by its name; the name of the weights is DENSE."""
    command = [lmc_bench, "--peers", "none", "--levels", "default", "--seconds", "0.1", *map(str, paths)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {Path(f["file"]).stem: f["results"][0] for f in json.loads(done.stdout)["files"]}


def measure(lmc: str, paths: list[Path], rounds: int) -> list[dict]:
    """A row for each kind, the slowest first."""
    measured = [one_round(origin.beside(lmc), paths) for _ in range(rounds)]
    rows = []
    for path in paths:
        kind, first = path.stem, measured[0][path.stem]
        row = {"kind": kind, "raw_size": first["raw_size"], "ratio": first["ratio"]}
        for way in ("compress", "decompress"):
            of_dense = (r[kind][way]["gb_per_s"] / r[DENSE][way]["gb_per_s"] for r in measured)
            row[way] = {
                "gb_per_s": statistics.median(r[kind][way]["gb_per_s"] for r in measured),
                "of_memcpy": statistics.median(r[kind][way]["of_memcpy"] for r in measured),
                "of_dense": statistics.median(of_dense),
            }
        row["method"] = method(lmc, path)
        row["slow"] = row["compress"]["of_dense"] < LEAST and not row["method"].startswith(SEARCHED)
        rows.append(row)
    return sorted(rows, key=lambda row: row["compress"]["of_dense"])


def markdown(rows: list[dict]) -> str:
    cells = [
        [row["kind"], f"{100 * row['ratio']:.2f}"]
        + [number(row[way][of]) for way in ("compress", "decompress") for of in ("of_memcpy", "of_dense")]
        + [row["method"], "**slow**" if row["slow"] else ""]
        for row in rows
    ]
    ways = [f"{way}, × {of}" for way in ("in", "out") for of in ("memcpy", "dense")]
    return table(["kind", "size, %", *ways, "method", ""], cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help="all by default")
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also writes the results to a file")
    args = parser.parse_args()
    paths = [f for f in files() if not args.kinds or f.stem in (DENSE, *args.kinds)]
    rows = measure(args.lmc, paths, args.rounds)
    print(markdown(rows))
    if args.json:
        found = {"origin": origin.origin(origin.machine(args.lmc)), "rounds": args.rounds, "kinds": rows}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(int(any(row["slow"] for row in rows)))


if __name__ == "__main__":
    main()
