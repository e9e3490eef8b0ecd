#!/usr/bin/env python3
"""Weights that are published and followed in memory, beside memcpy and other protocols.

Usage: bench/follow.py [--size MB] [--shares S,S] [--rounds N] [--behind K] [--row N] [--store FOLDER]... [OLD NEW]

Makes normally distributed bf16 weights of that size, and changes shares of their elements by one bit in the last place,
as a step of training does to a few per cent of them; or takes two safetensors files of a real run. Prints a table with
the bytes of each protocol in per cent of raw, and the speeds of publishing, staging and committing, and of applying the
other protocols, as multiples of the speed of copying the weights (one thread, medians of the rounds, all in one
process). A number above 1 is faster than the copy. `lmc` is level `fast`, with a store in a directory, and verifies
fetched data; the other protocols verify nothing.

A second follower gets K versions at once (--behind), each of which changed that share of made-up weights: the size is
that of all, *made* the publishing of one. A third one follows N versions in a row (--row), of which every 16th is also
stored whole: the size is what it fetches of one on average, and in brackets what is stored. With several --store, each
is measured, such as a folder on a disk and one in memory. Takes some 6.5 times the memory of the weights, and 0.8 times
for a store on a file system in memory.
"""

import argparse
import contextlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import lmc.sync
import ml_dtypes
import numpy as np
import zipnn
import zstandard
from markdown import number, table
from safetensors.numpy import load_file

Array = np.ndarray
Weights = dict[str, Array]
Row = dict[str, Any]
SHARES = (0.002, 0.01, 0.018, 0.045)
# Elements of a tensor, as in the matrices of a model of a few billion parameters.
TENSOR = 4096 * 4096


def made(megabytes: int) -> Weights:
    rng = np.random.default_rng(1)
    sizes = [TENSOR] * (megabytes * 500_000 // TENSOR) + [megabytes * 500_000 % TENSOR]
    weights = (rng.standard_normal(n, np.float32) * np.float32(0.02) for n in sizes if n)
    return {f"layers.{i}.weight": w.astype(ml_dtypes.bfloat16) for i, w in enumerate(weights)}


def change(weights: Weights, share: float, seed: int) -> None:
    """Flips a bit of some elements."""
    rng = np.random.default_rng(seed)
    for w in weights.values():
        elements = bits(w)
        elements[rng.random(elements.size, np.float32) < share] ^= 1


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

    def median(self, what: str) -> float | None:
        return statistics.median(self.of[what]) if what in self.of else None


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


def size_of(objects: set[Path]) -> int:
    return sum(f.stat().st_size for f in objects)


def objects_of(folder: Path) -> set[Path]:
    return {f for f in folder.rglob("*") if f.is_file()}


def by_lmc(old: Weights, versions: Iterable[Weights], mine: Weights, folder: Path, times: Times, name: str) -> Row:
    """Publishes versions, and follows from the old one to the last of them: bytes of the data, and of all objects."""
    shutil.rmtree(folder, ignore_errors=True)
    publisher = lmc.sync.Publisher(folder, threads=1)
    publisher.publish(old, step=0)
    new_size = 0
    with lmc.sync.Follower(folder, mine, threads=1) as follower:
        follower.load()
        before = objects_of(folder)
        for step, version in enumerate(versions, 1):
            published = times.take(f"{name} made", lambda v=version, s=step: publisher.publish(v, step=s))
            new_size += published.new_size
        update = times.take(f"{name} staged", follower.stage)
        times.take(f"{name} applied", follower.commit, update)
        objects = size_of(objects_of(folder) - before)
    assert same(mine, version), name
    shutil.rmtree(folder)
    return {"protocol": name, "size": new_size, "objects": objects}


def in_a_row(old: Weights, versions: Iterable[Weights], mine: Weights, folder: Path, times: Times, name: str) -> Row:
    """Publishes versions, and follows to each: what is fetched of one, and written for it, on average."""
    publisher = lmc.sync.Publisher(folder, threads=1)
    publisher.publish(old, step=0)
    count, fetched = 0, 0
    with lmc.sync.Follower(folder, mine, threads=1) as follower:
        follower.load()
        before = objects_of(folder)
        for step, version in enumerate(versions, 1):
            times.take(f"{name} made", lambda v=version, s=step: publisher.publish(v, step=s))
            update = times.take(f"{name} staged", follower.stage)
            times.take(f"{name} applied", follower.commit, update)
            assert same(mine, version), name
            count, fetched = step, fetched + update.fetched_size
        written = size_of(objects_of(folder) - before)
    shutil.rmtree(folder)
    return {"protocol": name, "size": fetched // count, "objects": written // count}


def name_of(store: Path, stores: list[Path], what: str = "") -> str:
    """The name of the rows of `lmc` with a store."""
    return (f"lmc, {file_system(store)}" if len(stores) > 1 else "lmc") + what


def file_system(folder: Path) -> str:
    """Its type."""
    command = ["df", "--output=fstype", str(folder)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]


def steps(old: Weights, now: Weights, share: float, count: int) -> Iterator[Weights]:
    """Versions, each of which changes a share of the one before, in the same memory."""
    overwrite(now, old)
    for seed in range(count):
        change(now, share, 10 + seed)
        yield now


def measure(old: Weights, new: Weights, share: float | None, args: argparse.Namespace, stores: list[Path]) -> Row:
    """All protocols, in turns. `share`: how much was changed, if the weights are made up: then `new` is written to."""
    times, rows = Times(), dict[str, Row]()
    # The weights of all receivers.
    to = copied(old)
    differing = sum(int(np.count_nonzero(bits(a) != bits(new[n]))) for n, a in old.items())
    for _ in range(args.rounds):
        times.take("copy", overwrite, to, new)
        for store in stores:
            name = name_of(store, stores)
            rows[name] = by_lmc(old, [new], to, store / "store", times, name)
        for protocol in PROTOCOLS:
            parts = times.take(f"{protocol.name} made", make, protocol, old, new)
            size = sum(len(p) for of_tensor in parts.values() for p in of_tensor)
            rows[protocol.name] = {"protocol": protocol.name, "size": size}
            overwrite(to, old)
            times.take(f"{protocol.name} applied", apply, protocol, parts, to)
            assert same(to, new), protocol.name
            del parts
    # At the end, because the new weights become others.
    for _ in range(args.rounds if share is not None and args.behind > 1 else 0):
        for store in stores:
            name = name_of(store, stores, f", {args.behind} versions at once")
            versions = steps(old, new, share, args.behind)
            rows[name] = by_lmc(old, versions, to, store / "store", times, name)
    for store in stores if share is not None and args.row > 1 else ():
        name = name_of(store, stores, f", {args.row} versions in a row")
        rows[name] = in_a_row(old, steps(old, new, share, args.row), to, store / "store", times, name)
    for name, row in rows.items():
        row |= {what: times.median(f"{name} {what}") for what in ("made", "staged", "applied")}
    return {
        "changed": differing / sum(a.size for a in old.values()),
        "raw_size": sum(a.nbytes for a in old.values()),
        "copy": times.median("copy"),
        "rows": list(rows.values()),
    }


def speed_text(copy: float, seconds: float | None) -> str:
    """In multiples of the copy."""
    return "" if seconds is None else number(copy / seconds)


def rows_of(measured: dict[str, Any]) -> list[list[str]]:
    """The protocols at one share of changes."""
    rows, raw = [], measured["raw_size"]
    for i, r in enumerate(measured["rows"]):
        size = f"{100 * r['size'] / raw:.3f} %"
        if "objects" in r:
            size += f" ({100 * r['objects'] / raw:.3f})"
        speeds = [speed_text(measured["copy"], r[what]) for what in ("made", "staged", "applied")]
        changed = f"{100 * measured['changed']:.2f} %" if i == 0 else ""
        rows.append([changed, f"**{r['protocol']}**" if "objects" in r else r["protocol"], size, *speeds])
    return rows


def table_of(case: dict[str, Any]) -> str:
    rows = [row for measured in case["measured"] for row in rows_of(measured)]
    return table(["changed", "protocol", "size (all objects)", "made", "staged", "applied"], rows, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=200, metavar="MB", help="millions of bytes of the weights")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--behind", type=int, default=10, metavar="K", help="(default: %(default)s; 1 for none)")
    parser.add_argument("--row", type=int, default=32, metavar="N", help="(default: %(default)s; 1 for none)")
    parser.add_argument("--store", type=Path, action="append", help="where to make stores (default: a new folder)")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.files and len(args.files) != 2:
        parser.error("give two files, or none")
    with contextlib.ExitStack() as stack:
        parents = args.store or [None]
        stores = [Path(stack.enter_context(tempfile.TemporaryDirectory(dir=parent))) for parent in parents]
        if len({file_system(store) for store in stores}) < len(stores):
            parser.error("--store: two folders are on one kind of file system, which names their rows")
        case: Row = {"measured": []}
        if args.files:
            old, new = (load_file(f) for f in args.files)
            case["measured"].append(measure(old, new, None, args, stores))
        else:
            old = made(args.size)
            new = copied(old)
            for share in map(float, args.shares.split(",")):
                overwrite(new, old)
                change(new, share, 2)
                case["measured"].append(measure(old, new, share, args, stores))
    print(table_of(case))


if __name__ == "__main__":
    main()
