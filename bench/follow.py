#!/usr/bin/env python3
"""Weights that are published and followed in memory, beside memcpy and other protocols.

Usage: bench/follow.py [--size MB] [--rounds N] [OLD NEW]

Makes normally distributed bf16 weights of that size, and changes shares of their elements by one bit in the last place,
as a step of training does to a few per cent of them; or takes two safetensors files of a real run. Prints a table with
the bytes of each protocol in per cent of raw, and the speeds of publishing, staging and committing, and of applying the
other protocols, as multiples of the speed of copying the weights (one thread, medians of the rounds, all in one
process). A number above 1 is faster than the copy. `lmc` is level `fast`, with a store in a directory, and verifies
fetched data; the other protocols verify nothing.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lmc.sync
import ml_dtypes
import numpy as np
import zipnn
import zstandard
from safetensors.numpy import load_file

Array = np.ndarray
Weights = dict[str, Array]
SHARES = (0.002, 0.01, 0.018, 0.045)
# Elements of a tensor, as in the matrices of a model of a few billion parameters.
TENSOR = 4096 * 4096


def made(megabytes: int) -> Weights:
    rng = np.random.default_rng(1)
    sizes = [TENSOR] * (megabytes * 500_000 // TENSOR) + [megabytes * 500_000 % TENSOR]
    weights = (rng.standard_normal(n, np.float32) * np.float32(0.02) for n in sizes if n)
    return {f"layers.{i}.weight": w.astype(ml_dtypes.bfloat16) for i, w in enumerate(weights)}


def changed(weights: Weights, share: float) -> Weights:
    rng = np.random.default_rng(2)
    new = {}
    for name, w in weights.items():
        bits = w.view(np.uint16).copy()
        at = rng.random(bits.size, np.float32) < share
        bits[at] ^= 1
        new[name] = bits.view(w.dtype)
    return new


def bits(array: Array) -> Array:
    return array.reshape(-1).view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[array.itemsize])


ZSTD, UNZSTD = zstandard.ZstdCompressor(1), zstandard.ZstdDecompressor()


def zstd(*parts: Array) -> list[bytes]:
    return [ZSTD.compress(np.ascontiguousarray(p)) for p in parts]


def unzstd(part: bytes, dtype: type) -> Array:
    return np.frombuffer(UNZSTD.decompress(part), dtype)


class Protocol:
    """How changes of a tensor are sent."""

    name = ""

    def make(self, old: Array, new: Array) -> list[bytes]:
        raise NotImplementedError

    def apply(self, parts: list[bytes], out: Array) -> None:
        raise NotImplementedError


class Xor(Protocol):
    """Exclusive or, zstd -1."""

    name = "XOR, zstd -1"

    def make(self, old: Array, new: Array) -> list[bytes]:
        return zstd(old ^ new)

    def apply(self, parts: list[bytes], out: Array) -> None:
        np.bitwise_xor(out, unzstd(parts[0], out.dtype), out=out)


class Overwrite(Protocol):
    """Indices of 32 bits and new values, zstd -1."""

    name = "indices and values, zstd -1"

    def make(self, old: Array, new: Array) -> list[bytes]:
        at = np.flatnonzero(old != new).astype(np.uint32)
        return zstd(at, new[at])

    def apply(self, parts: list[bytes], out: Array) -> None:
        out[unzstd(parts[0], np.uint32)] = unzstd(parts[1], out.dtype)


class Gaps(Protocol):
    """Distances of 16 bits between changed elements, with a list of larger ones, and new values, zstd -1."""

    name = "gaps and values, zstd -1"

    def make(self, old: Array, new: Array) -> list[bytes]:
        at = np.flatnonzero(old != new)
        gaps = np.diff(at, prepend=0)
        wide = gaps > 0xFFFF
        return zstd(np.where(wide, 0, gaps).astype(np.uint16), new[at], np.flatnonzero(wide), gaps[wide])

    def apply(self, parts: list[bytes], out: Array) -> None:
        gaps = unzstd(parts[0], np.uint16).astype(np.int64)
        gaps[unzstd(parts[2], np.int64)] = unzstd(parts[3], np.int64)
        out[np.cumsum(gaps)] = unzstd(parts[1], out.dtype)


class ZipNN(Protocol):
    """The exclusive or, by ZipNN."""

    name = "XOR, ZipNN"

    def __init__(self) -> None:
        self.codec = zipnn.ZipNN(bytearray_dtype="bfloat16", threads=1)

    def make(self, old: Array, new: Array) -> list[bytes]:
        return [bytes(self.codec.compress(bytearray((old ^ new).tobytes())))]

    def apply(self, parts: list[bytes], out: Array) -> None:
        np.bitwise_xor(out, np.frombuffer(bytes(self.codec.decompress(parts[0])), out.dtype), out=out)


PROTOCOLS: tuple[Protocol, ...] = (Xor(), Overwrite(), Gaps(), ZipNN())


class Times:
    """Seconds of each piece of work, in every round."""

    def __init__(self) -> None:
        self.of: dict[str, list[float]] = {}

    def take(self, what: str, f: Callable[..., object], *args: object) -> object:
        start = time.perf_counter()
        done = f(*args)
        self.of.setdefault(what, []).append(time.perf_counter() - start)
        return done

    def speed(self, what: str) -> str:
        """In multiples of the copy."""
        if what not in self.of:
            return ""
        return f"{statistics.median(self.of['copy']) / statistics.median(self.of[what]):.2f}"


def copied(old: Weights) -> Weights:
    return {name: a.copy() for name, a in old.items()}


def overwrite(to: Weights, new: Weights) -> None:
    for name, a in new.items():
        np.copyto(to[name], a)


def make(protocol: Protocol, old: Weights, new: Weights) -> dict[str, list[bytes]]:
    return {name: protocol.make(bits(a), bits(new[name])) for name, a in old.items()}


def apply(protocol: Protocol, parts: dict[str, list[bytes]], to: Weights) -> None:
    for name, of_tensor in parts.items():
        protocol.apply(of_tensor, bits(to[name]))


def same(a: Weights, b: Weights) -> bool:
    return all(np.array_equal(bits(a[name]), bits(b[name])) for name in b)


def by_lmc(old: Weights, new: Weights, folder: Path, times: Times) -> tuple[int, int]:
    """Bytes of the data, and of all objects of the version."""
    shutil.rmtree(folder, ignore_errors=True)
    publisher = lmc.sync.Publisher(folder, threads=1)
    publisher.publish(old, step=0)
    mine = {name: np.empty_like(a) for name, a in old.items()}
    with lmc.sync.Follower(folder, mine, threads=1) as follower:
        follower.load()
        before = {f for f in folder.rglob("*") if f.is_file()}
        published = times.take("lmc made", lambda: publisher.publish(new, step=1))
        objects = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and f not in before)
        update = times.take("lmc staged", follower.stage)
        times.take("lmc applied", follower.commit, update)
    assert same(mine, new)
    return published.new_size, objects


def measure(old: Weights, new: Weights, rounds: int, folder: Path) -> list[tuple[str, ...]]:
    raw = sum(a.nbytes for a in old.values())
    times, sizes = Times(), dict[str, int]()
    copy = copied(old)
    for _ in range(rounds):
        times.take("copy", overwrite, copy, new)
        sizes["lmc"], sizes["lmc, all objects"] = by_lmc(old, new, folder, times)
        for protocol in PROTOCOLS:
            parts = times.take(f"{protocol.name} made", make, protocol, old, new)
            sizes[protocol.name] = sum(len(p) for of_tensor in parts.values() for p in of_tensor)
            to = copied(old)
            times.take(f"{protocol.name} applied", apply, protocol, parts, to)
            assert same(to, new), protocol.name
    differing = sum(int(np.count_nonzero(bits(a) != bits(new[n]))) for n, a in old.items())
    share = f"{100 * differing / sum(a.size for a in old.values()):.2f} %"
    speeds = [" made", " staged", " applied"]
    return [
        (share, name, f"{100 * size / raw:.3f} %", *(times.speed(name + what) for what in speeds))
        for name, size in sizes.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200, metavar="MB", help="millions of bytes of the weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    args = parser.parse_args()
    print("| changed | protocol | size | made | staged | applied |\n|--:|---|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as temporary:
        if args.files:
            pairs = [tuple(load_file(f) for f in args.files)]
        else:
            old = made(args.size)
            pairs = ((old, changed(old, share)) for share in SHARES)
        for before, after in pairs:
            for row in measure(before, after, args.rounds, Path(temporary) / "store"):
                print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
