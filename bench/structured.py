#!/usr/bin/env python3
"""Sizes of tensors whose values are not noise: dequantised, pruned, repeated, computed.

Usage: bench/structured.py LMC [--level LEVEL] [--seed S] [--rows R] [--cols C] [FILE...]

Makes a safetensors file of each tensor, compresses it with the program LMC, restores it, and prints its size in parts
of raw beside the sizes of zstd 3 (1 for `fast`), as is and grouped (byte planes of the tensor). With FILEs, compares
these files instead, as they are, with the zstd level that corresponds to the level of lmc: 3, and 19 at `max`. The exit
status is 1 if a file is more than 1 % (and 0.1 % of raw) larger than the smaller zstd's, or above its own bar.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import zstandard
from tensors import Tensor, restored_size, write

DTYPES = {"float32": "F32", "bfloat16": "BF16", "bool": "BOOL", "int64": "I64", "int8": "I8", "uint8": "U8"}

# In parts of raw. Entropies of order 0 of tensors pruned with +0: .389, .340, .090; with -0, as weight * mask gives:
# .420, .393, .125.
BARS = {
    "prune50-bf16": 0.400,
    "prune24-bf16": 0.350,
    "ternary-bf16": 0.095,
    "prune50-minus0-bf16": 0.433,
    "prune24-minus0-bf16": 0.403,
    "ternary-minus0-bf16": 0.130,
}

# The values of the 4-bit NormalFloat type (Dettmers et al. 2023).
NF4 = np.array(
    [
        -1,
        -0.6962,
        -0.5251,
        -0.3949,
        -0.2844,
        -0.1848,
        -0.0911,
        0,
        0.0796,
        0.1609,
        0.2461,
        0.3379,
        0.4407,
        0.5626,
        0.7230,
        1,
    ],
    np.float32,
)


def bf16(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16)


def fp8(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def arrays(seed: int, rows: int, cols: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    w = (random.standard_normal((rows, cols)) * 0.02).astype(np.float32)
    row_scale = np.abs(w).max(1, keepdims=True) / 127
    by_row = np.round(w / row_scale)
    scale = np.abs(w).max() / 127
    groups = w.reshape(rows, cols // 64, 64)
    scale4 = np.abs(groups).max(2, keepdims=True) / 7
    q4 = np.round(groups / scale4)
    scale_nf4 = np.abs(groups).max(2, keepdims=True)
    nearest = np.abs((groups / scale_nf4)[..., None] - NF4).argmin(-1)
    blocks = w[: rows // 128 * 128, : cols // 128 * 128].reshape(rows // 128, 128, cols // 128, 128)
    scale_block = np.abs(blocks).max((1, 3), keepdims=True) / 448
    of_blocks = (fp8(blocks / scale_block) * scale_block).reshape(rows // 128 * 128, cols // 128 * 128)
    half, large = random.random((rows, cols)) < 0.5, np.abs(w) > 0.015
    fours = np.abs(w.reshape(-1, 4))
    kept = np.zeros_like(fours)
    np.put_along_axis(kept, fours.argsort(1)[:, 2:], 1, 1)
    kept = kept.reshape(rows, cols)
    ternary = np.sign(w) * np.float32(0.031)
    angle = np.arange(rows, dtype=np.float32)[:, None] / 10000 ** (np.arange(0, cols, 2, dtype=np.float32) / cols)
    padded = w.copy()
    padded[3 * rows // 4 :] = padded[3 * rows // 4 :].mean(0)
    nibbles = q4.reshape(-1, 2).astype(np.int16) + 8
    zero = np.float32(0)
    return {
        "int8-row-in-fp32": by_row * row_scale,
        "int8-row-in-bf16": bf16(by_row * row_scale),
        "int8-tensor-in-fp32": np.round(w / scale) * scale,
        "int4-g64-in-bf16": bf16((q4 * scale4).reshape(rows, cols)),
        "int4-g64-in-fp32": (q4 * scale4).reshape(rows, cols),
        "nf4-g64-in-bf16": bf16((NF4[nearest] * scale_nf4).reshape(rows, cols)),
        "fp8-block-in-bf16": bf16(of_blocks),
        "fp8-in-bf16": bf16(fp8(w)),
        "fp16-in-fp32": w.astype(np.float16).astype(np.float32),
        "bf16-in-fp32": bf16(w).astype(np.float32),
        "prune50-bf16": bf16(np.where(half, w, zero)),
        "prune50-minus0-bf16": bf16(w * half),
        "prune24-bf16": bf16(np.where(kept > 0, w, zero)),
        "prune24-minus0-bf16": bf16(w * kept),
        "ternary-bf16": bf16(np.where(large, ternary, zero)),
        "ternary-minus0-bf16": bf16(ternary * large),
        "sinusoid-fp32": np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32),
        "rows-repeated-bf16": bf16(w[np.arange(rows) % (rows // 8)]),
        "padded-vocab-bf16": bf16(padded),
        "tril-bool": np.tril(np.ones((rows, rows), np.bool_)),
        "arange-i64": np.arange(rows * cols // 8, dtype=np.int64),
        "ids-i64": random.integers(0, 32000, rows * cols // 8, dtype=np.int64),
        "int8": by_row.astype(np.int8),
        "int4-packed": (nibbles[:, 0] * 16 + nibbles[:, 1]).astype(np.uint8),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmc", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--level", default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--cols", type=int, default=1024)
    arguments = parser.parse_intermixed_args()
    level = {"fast": 1, "default": 3, "max": 19 if arguments.files else 3}[arguments.level]
    zstd = zstandard.ZstdCompressor(level)
    worse = count = 0
    print(f"| | lmc {arguments.level} | zstd -{level} | grouped | bar | |\n|---|--:|--:|--:|--:|---|")

    def row(name: str, raw: Path, planes: bytes | None, folder: Path) -> bool:
        data = raw.read_bytes()
        ours = restored_size(arguments.lmc, ["--level", arguments.level], raw, folder) / len(data)
        plain = len(zstd.compress(data)) / len(data)
        grouped = len(zstd.compress(planes)) / len(data) if planes is not None else plain
        bar = min(BARS.get(name, 9), 1.01 * min(plain, grouped) + 0.001)
        larger = "**larger**" if ours > bar else ""
        print(f"| {name} | {ours:.4f} | {plain:.4f} | {grouped:.4f} | {bar:.4f} | {larger} |", flush=True)
        return ours > bar

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in arguments.files:
            worse, count = worse + row(file.name, file, None, folder), count + 1
        if not arguments.files:
            for title, array in arrays(arguments.seed, arguments.rows, arguments.cols).items():
                raw, width = folder / "raw.safetensors", array.dtype.itemsize
                flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                write(raw, [Tensor("w", DTYPES[array.dtype.name], list(array.shape), flat)])
                planes = np.ascontiguousarray(flat.reshape(-1, width).T).tobytes()
                worse, count = worse + row(title, raw, planes, folder), count + 1
    print(f"\n{worse} of {count} above their bars")
    sys.exit(worse > 0)


main()
