#!/usr/bin/env python3
"""How fast `lmc analyze` studies a run: whole states of AdamW, made from those of a real training.

    bench/run analyze STATE [--checkpoints N] [--size BYTES] [--exact]

STATE is a safetensors file of BF16 weights, with F32 copies and both moments under `master.`, `exp_avg.` and
`exp_avg_sq.`, such as `examples/pretrain.py --export` writes. Its tensors are repeated until a checkpoint has about
`--size` bytes; each copy is permuted in whole rows, so that none equals another. From one checkpoint to the next each
element makes a step of AdamW, with gradients whose deviation is the root of its second moment: weights and moments
move as in training. Prints processor time, bytes a second of one core (all bytes of the run over the processor time),
and the peak of memory.
"""

import argparse
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np
from process import run

BETAS, RATE, DECAY = (0.9, 0.95), 3e-4, 0.1


def load(path: Path) -> dict[str, list[np.ndarray]]:
    """The copies and both moments of each parameter."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    kinds: dict[str, dict[str, np.ndarray]] = {"master": {}, "exp_avg": {}, "exp_avg_sq": {}}
    for name, t in header.items():
        kind, _, rest = name.partition(".")
        if kind in kinds:
            begin, end = (8 + size + at for at in t["data_offsets"])
            kinds[kind][rest] = np.frombuffer(data[begin:end], "<f4").reshape(t["shape"])
    return {name: [of[name] for of in kinds.values()] for name in kinds["master"]}


def save(path: Path, parameters: dict[str, list[np.ndarray]]) -> None:
    tensors = []
    for name, (w, m, v) in parameters.items():
        bits = w.view("<u4")
        half = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        for prefix, dtype, array in [("exp_avg", "F32", m), ("exp_avg_sq", "F32", v), ("master", "F32", w)]:
            tensors.append((f"{prefix}.{name}", dtype, array))
        tensors.append((f"model.{name}", "BF16", half))
    header, at = {}, 0
    tensors.sort(key=lambda t: t[0])
    for name, dtype, array in tensors:
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, array in tensors:
            file.write(array.tobytes())


def step(rng: np.random.Generator, parameters: dict[str, list[np.ndarray]]) -> None:
    """A step of AdamW, in place, some hundred steps into a run: corrections of bias have faded."""
    for w, m, v in parameters.values():
        g = rng.standard_normal(w.shape, np.float32) * np.sqrt(v)
        m += (g - m) * np.float32(1 - BETAS[0])
        v *= np.float32(BETAS[1])
        v += np.float32(1 - BETAS[1]) * g * g
        w *= np.float32(1 - RATE * DECAY)
        w -= np.float32(RATE) * m / (np.sqrt(v) + np.float32(1e-8))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("state", type=Path)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--checkpoints", type=int, default=10)
    parser.add_argument("--size", type=int, default=220_000_000, help="about how many bytes one has")
    parser.add_argument("--exact", action="store_true", help="compress all blocks")
    parser.add_argument("--dir", type=Path, help="for the checkpoints, kept there; by default a temporary directory")
    args = parser.parse_args()
    rng = np.random.default_rng(1)
    found = load(args.state) or sys.exit(f"{args.state} has no parameters with copies and both moments")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.dir or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"step{i}.safetensors" for i in range(1, args.checkpoints + 1)]
        if not paths[-1].exists():
            parameters = {}
            for i in range(max(1, args.size // (14 * sum(of[0].size for of in found.values())))):
                for name, of in found.items():
                    order = rng.permutation(len(of[0]))
                    parameters[f"copy{i}.{name}"] = [array[order].copy() for array in of]
            for path in paths:
                step(rng, parameters)
                save(path, parameters)
        size = sum(path.stat().st_size for path in paths)
        page = folder / "page.html"
        options = ["--exact"] if args.exact else []
        took = run([args.lmc, "analyze", "-q", "-T", "1", *options, "--force", "--html", str(page), *map(str, paths)])
        speed = f"{took.cpu:.1f} s of processor time, {size / took.cpu / 1e9:.3f} GB/s a core"
        room = f"{took.peak / 2**20:.0f} MiB of memory, a page of {os.path.getsize(page) / 1e6:.1f} MB"
        print(f"{len(paths)} checkpoints, {size / 1e9:.2f} GB: {speed}, {room}")


if __name__ == "__main__":
    main()
