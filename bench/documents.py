#!/usr/bin/env python3
"""Sizes of a version's objects beside its delta: the document that locates its block sets, and its record.

Usage: bench/documents.py LMC [--tensors N] [--elements N] [--few N]

Makes bf16 weights of N tensors, with 1,024 to 32,767 elements or the given number, and saves them with the program LMC
at level `fast`: as they are, twice with 1.8 % of the elements of every tensor changed, and twice with 1.8 % of the
elements of a few tensors changed. Prints the bytes of each version's objects beside those of one `.lmc` file with the
previous version as its base, and the sizes of other ways to store the documents.
"""

import argparse
import json
import struct
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import zstandard

SHARE = 0.018


def names(count: int) -> list[str]:
    """The names of the tensors of a mixture of experts."""
    parts = [f"{e}.{p}_proj" for e in range(256) for p in ("gate", "up", "down")]
    return [f"model.layers.{i // len(parts)}.mlp.experts.{parts[i % len(parts)]}.weight" for i in range(count)]


def write(path: Path, sizes: np.ndarray, bits: np.ndarray) -> None:
    header, at = {}, 0
    for name, size in zip(names(len(sizes)), sizes.tolist(), strict=True):
        header[name] = {"dtype": "BF16", "shape": [size], "data_offsets": [at, at + 2 * size]}
        at += 2 * size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        bits.tofile(f)


def changed(rng: np.random.Generator, bits: np.ndarray) -> np.ndarray:
    bits = bits.copy()
    for start in range(0, bits.size, 1 << 24):
        part = bits[start : start + (1 << 24)]
        part[rng.random(part.size, np.float32) < SHARE] ^= 1
    return bits


def versions(count: int, elements: int | None, few: int):
    """The indices of the changed elements, the sizes of the tensors, and their bits."""
    rng = np.random.default_rng(1)
    sizes = np.full(count, elements) if elements else rng.integers(1024, 32768, count)
    ends = np.cumsum(sizes)
    bits = np.empty(ends[-1], np.uint16)
    for start in range(0, bits.size, 1 << 24):
        part = rng.standard_normal(min(1 << 24, bits.size - start), np.float32) * np.float32(0.02)
        bits[start : start + part.size] = part.view(np.uint32) >> 16
    yield "all", sizes, bits
    for _ in range(2):
        bits = changed(rng, bits)
        yield "1.8 % of every tensor", sizes, bits
    for _ in range(2):
        bits = bits.copy()
        for t in rng.choice(count, few, replace=False):
            bits[ends[t] - sizes[t] : ends[t]] = changed(rng, bits[ends[t] - sizes[t] : ends[t]])
        yield f"1.8 % of {few} tensors", sizes, bits


def packed(document: dict, level: int) -> int:
    text = json.dumps(document, separators=(",", ":")).encode()
    return len(zstandard.ZstdCompressor(level).compress(text))


def sizes_of(store: Path) -> dict[str, int]:
    return {str(p.relative_to(store)): p.stat().st_size for p in store.rglob("*") if p.is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmc")
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--elements", type=int)
    parser.add_argument("--few", type=int, default=100)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        store, there = Path(scratch, "store"), dict[str, int]()
        old, new, delta = (Path(scratch, name) for name in ("old.safetensors", "model.safetensors", "delta.lmc"))
        segments = None
        for step, (what, sizes, bits) in enumerate(versions(args.tensors, args.elements, args.few)):
            write(new, sizes, bits)
            command = [args.lmc, "-q", "snapshot", "save", store, new, "--step", str(step), "--level", "fast"]
            subprocess.run([*command, "--base", "previous"], check=True)
            now = sizes_of(store)
            added = {k: n for k, n in now.items() if k not in there and k != "lmc-store.json"}
            data, document, record = (
                sum(n for k, n in added.items() if k.startswith(d)) for d in ("data", "shards", "snapshots")
            )
            line = f"{what}: {data:,} of data, {document:,} of document, {record:,} of record"
            if step:
                command = [args.lmc, "-q", "compress", "-f", "--level", "fast", "--base", old, new, "-o", delta]
                subprocess.run(command, check=True)
                one, every = delta.stat().st_size, data + document + record
                line += f"; {every / data:.3f} of the data, {every / one:.3f} of one file of {one:,}"
            print(line, flush=True)
            stored = next(store / k for k in added if k.startswith("shards"))
            text = stored.read_bytes()
            plain = zstandard.ZstdDecompressor().decompressobj().decompress(text) if stored.suffix == ".zst" else text
            shard = json.loads(plain)
            segments = shard["files"][0].get("segments", segments)
            # As if nothing were named.
            shard["files"][0].pop("segments_of", None)
            shard["files"][0]["segments"] = segments
            levels = ", ".join(f"zstd -{n} {packed(shard, n):,}" for n in (1, 3, 9))
            plain_size = len(json.dumps(shard, separators=(",", ":")))
            print(f"  with segments in it: {plain_size:,} of JSON, {levels}; {len(shard['sets']):,} sets")
            there = now
            new.replace(old)


if __name__ == "__main__":
    main()
