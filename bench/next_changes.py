#!/usr/bin/env python3
"""Which 16-bit weights change in the next step, given the state of the optimizer before it?

    bench/next_changes.py OLD NEW

Two whole states of one step of Adam in safetensors files: BF16 weights, and under `master.`, `exp_avg.` and
`exp_avg_sq.` their copies and moments in F32. A weight is predicted to change with the probability |u| / ulp(w), at
most 1: its update u by the moments before the step, over the distance of 16-bit values there. The rate is the one
that fits the changes of the copies. Other rankings stand beside it. Prints a table for docs/study.md.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {"BF16": "<u2", "F32": "<f4"}


def tensors(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    for name, t in header.items():
        if t["dtype"] in TYPES:
            begin, end = (8 + size + at for at in t["data_offsets"])
            yield name, np.frombuffer(data[begin:end], TYPES[t["dtype"]])


def state(path):
    """For each parameter its weights, copies and moments."""
    kinds = {"model": {}, "master": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for name, t in tensors(path):
        kind, _, rest = name.partition(".")
        of, key = (kinds[kind], rest) if kind in kinds else (kinds["model"], name)
        of[key] = t
    names = [name for name in kinds["model"] if all(name in of for of in kinds.values())]
    return {name: [of[name] for of in kinds.values()] for name in names}


def area(score, changed):
    """The chance that a weight that changed has the higher score of it and one that did not; ties count half."""
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n = changed.sum()
    return (rank[changed].sum() - n * (n + 1) / 2) / (n * (changed.size - n))


def found(score, changed):
    """The part of those that changed among as many of the highest scores."""
    n = int(changed.sum())
    return changed[np.argpartition(-score, n - 1)[:n]].mean()


def main(old, new):
    old, new = state(old), state(new)
    names = [n for n in new if n in old]
    if not names:
        sys.exit("no parameter has weights, copies and both moments in both files")

    def all_of(of, kind):
        return np.concatenate([of[n][kind].ravel() for n in names])

    copy, mean, square = (all_of(old, kind).astype(np.float64) for kind in (1, 2, 3))
    changed = all_of(old, 0) != all_of(new, 0)
    after = all_of(new, 2) / (np.sqrt(all_of(new, 3).astype(np.float64)) + 1e-8)
    moved = all_of(new, 1).astype(np.float64) - copy
    rate = -(moved @ after) / (after @ after)
    update = rate * np.abs(mean) / (np.sqrt(square) + 1e-8)
    ulp = np.exp2(np.floor(np.log2(np.maximum(np.abs(copy), 2.0**-126))) - 7)
    # Where the copy lies between two 16-bit values, and which way it goes: the distance to the next rounding.
    weight = (all_of(old, 0).astype("<u4") << 16).view("<f4").astype(np.float64)
    left = ulp / 2 - (copy - weight) * -np.sign(mean)
    rankings = {
        "|u| / ulp(w)": update / ulp,
        "|u| over the distance to the next rounding": update / np.maximum(left, ulp * 1e-6),
        "|m| / √v alone": update,
        "1 / ulp(w) alone": 1 / ulp,
        "√v alone": np.sqrt(square),
    }
    n = changed.size
    print(f"{n:,} weights, {changed.sum():,} changed ({100 * changed.mean():.2f} %), fitted rate {rate:.3e}; ", end="")
    print(f"predicted {100 * np.minimum(update / ulp, 1).mean():.2f} %, with updates as large as the rate ", end="")
    print(f"{100 * np.minimum(rate / ulp, 1).mean():.2f} %\n")
    print("| ranked by | area under the curve | of those that change, found |\n| --- | --: | --: |")
    for name, score in rankings.items():
        print(f"| {name} | {area(score, changed):.3f} | {100 * found(score, changed):.1f} % |")
    print("\n| predicted | weights | mean prediction | changed |\n| --- | --: | --: | --: |")
    chance = np.minimum(update / ulp, 1)
    for low, high in [(0, 0.01), (0.01, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1), (1, 2)]:
        some = (chance >= low) & (chance < high)
        if some.any():
            shown = "1" if low == 1 else f"{low}–{high}"
            predicted, seen = 100 * chance[some].mean(), 100 * changed[some].mean()
            print(f"| {shown} | {some.sum():,} | {predicted:.1f} % | {seen:.1f} % |")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
