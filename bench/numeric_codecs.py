#!/usr/bin/env python3
"""Sizes of BF16 weights by codecs of numbers: pcodec, PFOR, and zstd in byte planes.

    bench/numeric_codecs.py OLD NEW        needs numpy, pcodec and zstandard from PyPI

The BF16 tensors of two safetensors files, all of them as one array: by themselves, and the differences of their places
among the BF16 values, zigzagged, as lmc's deltas have them. PFOR is computed, not run: blocks of 128 numbers, each
with the width that is best for it, the rest as exceptions of 16 bits and a place of 7, and 13 bits of head. Prints a
table for docs/study.md.
"""

import sys

import numpy as np
import zstandard
from next_changes import tensors
from pcodec import ChunkConfig, standalone

BLOCK = 128


def pfor(x):
    x = np.concatenate([x, np.zeros(-len(x) % BLOCK, x.dtype)]).reshape(-1, BLOCK).astype(np.uint32)
    x -= x.min(axis=1, keepdims=True)
    bits = np.ceil(np.log2(x + 1.0)).astype(int)
    costs = [BLOCK * width + 23 * (bits > width).sum(axis=1) for width in range(17)]
    return int((np.min(costs, axis=0) + 16 + 13).sum() / 8)


def sizes(x):
    zstd = zstandard.ZstdCompressor(level=3)
    planes = x.view(np.uint8).reshape(-1, 2).T.tobytes()
    return {
        "pcodec 8": len(standalone.simple_compress(x, ChunkConfig(compression_level=8))),
        "pcodec 12": len(standalone.simple_compress(x, ChunkConfig(compression_level=12))),
        "PFOR": pfor(x),
        "zstd 3, in planes": len(zstd.compress(planes)),
    }


def main(old, new):
    old, new = ({n: t for n, t in tensors(path) if t.dtype == "<u2"} for path in (old, new))
    old, new = (np.concatenate([of[n] for n in new]) for of in (old, new))

    def ordered(x):
        return np.where(x >> 15, 0xFFFF - x, x | 0x8000).astype(np.int32)

    d = ordered(new) - ordered(old)
    # The sign behind the others: exponents of both signs are near each other.
    alone, delta = sizes(new << 1 | new >> 15), sizes(np.where(d < 0, -2 * d - 1, 2 * d).astype(np.uint16))
    print(f"{2 * new.size:,} bytes\n\n|  | alone | Δ 1 |\n| --- | --: | --: |")
    for name, size in alone.items():
        print(f"| {name} | {50 * size / new.size:.2f} | {50 * delta[name] / new.size:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
