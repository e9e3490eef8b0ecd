#!/usr/bin/env python3
"""How many bf16 weights a step of Adam changes: predicted from the state before it, and measured.

    bench/density.py step300.safetensors step301.safetensors [--lr 9.45e-5] [--eps 1e-8]

Both are states with tensors model.NAME (bf16), master.NAME, exp_avg.NAME and exp_avg_sq.NAME, such as those of
bench/study.py. An element is rounded to another value with the probability |u| / ulp(w), at most 1, where u is its
update and ulp(w) the distance of bf16 values around it. For the update there are

* a bound, the learning rate: Adam's |m / (sqrt(v) + eps)| hardly exceeds 1 in a steady run;
* an estimate from the moments of the earlier state, lr * |m| / (sqrt(v) + eps): the next gradient changes them little.

Without --lr, the learning rate is fitted to the changes of the masters. Weight decay is left out. The prediction is for
one step only: over several, updates of changing signs cancel.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tensors

KINDS = ("model", "master", "exp_avg", "exp_avg_sq")
State = dict[str, dict[str, np.ndarray]]


def state(path: Path) -> State:
    """Elements by kind and name: those of bf16 as integers, others as numbers."""
    found: State = {kind: {} for kind in KINDS}
    for t in tensors.read(path):
        kind, _, name = t.name.partition(".")
        if kind in found and t.dtype == ("BF16" if kind == "model" else "F32"):
            found[kind][name] = t.data
    return found


def direction(of: State, name: str, eps: float) -> np.ndarray:
    """Adam's update over the learning rate."""
    return of["exp_avg"][name] / (np.sqrt(of["exp_avg_sq"][name]) + np.float32(eps))


def fitted(old: State, new: State, names: list[str], eps: float) -> float:
    """The learning rate that explains the masters best."""
    moved = along = 0.0
    for name in names:
        d = direction(new, name, eps).astype(np.float64)
        moved -= float(np.dot((new["master"][name] - old["master"][name]).astype(np.float64), d))
        along += float(np.dot(d, d))
    return moved / along


def ulp(weights: np.ndarray) -> np.ndarray:
    """The distance of bf16 values around numbers."""
    exponents = np.floor(np.log2(np.maximum(np.abs(weights), np.float32(2.0**-126))))
    return np.exp2(exponents - 7)


def densities(old: State, new: State, name: str, lr: float, eps: float) -> tuple[float, float, float]:
    """The share of a tensor's elements that changed: measured, predicted from the moments, and its bound."""
    step = ulp(old["master"][name])
    measured = np.mean(old["model"][name] != new["model"][name])
    predicted = np.mean(np.minimum(1, lr * np.abs(direction(old, name, eps)) / step))
    return float(measured), float(predicted), float(np.mean(np.minimum(1, lr / step)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--eps", type=float, default=1e-8)
    args = parser.parse_args()
    old, new = state(args.old), state(args.new)
    everywhere = [set(of[kind]) for of in (old, new) for kind in KINDS]
    names = sorted(set.intersection(*everywhere))
    if not names:
        parser.error("no tensor has bf16 weights, masters and both moments in both states")
    lr = args.lr if args.lr is not None else fitted(old, new, names, args.eps)
    print(f"learning rate {lr:.4g}{'' if args.lr is not None else ', fitted'}\n")
    print("| tensor | elements | changed | from the moments | at most |\n| --- | --: | --: | --: | --: |")
    sums, elements = np.zeros(3), 0
    for name in names:
        found, n = np.array(densities(old, new, name, lr, args.eps)), old["master"][name].size
        sums, elements = sums + found * n, elements + n
        print(f"| {name} | {n} | " + " | ".join(f"{100 * x:.2f} %" for x in found) + " |")
    print(f"| all | {elements} | " + " | ".join(f"{100 * x:.2f} %" for x in sums / elements) + " |")


if __name__ == "__main__":
    main()
