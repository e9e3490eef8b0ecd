#!/usr/bin/env python3
"""lmc beside zstd, ZipNN, OpenZL and pcodec, and given a base also z4ai.

    bench/run peers FILE[:BASE] …

One thread, in memory, whole safetensors files. A round copies the data, runs each Python package, and runs `lmc-bench`,
which has zstd and another copy; each ratio to a copy is that of one round, and medians over the rounds are shown. Every
round trip is verified.

A package gets the elements of each dtype by themselves, with its best settings for that dtype, and the rest of the file
counts as stored. With a base it gets the exclusive or with the base (pcodec: the difference of the elements as
integers), which is made in the measured time. The packages return fresh memory from every call. So that their page
faults do not count against them, the allocator is set to keep freed memory. ZipNN overwrites its input: it gets a new
copy each time, and the copying is not timed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

warnings.filterwarnings("ignore", category=FutureWarning)

import delta_peers  # noqa: E402
import numpy as np  # noqa: E402
import openzl.ext as zl  # noqa: E402
import origin  # noqa: E402
import pcodec  # noqa: E402
import tensors  # noqa: E402
import zipnn  # noqa: E402
from markdown import number, table  # noqa: E402

ZIPNN_DTYPES = {
    "BF16": "bfloat16",
    "F16": "float16",
    "F32": "float32",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}
FLOAT_NODES = {
    "BF16": zl.nodes.BFloat16Deconstruct,
    "F16": zl.nodes.Float16Deconstruct,
    "F32": zl.nodes.Float32Deconstruct,
}


class ZipNN:
    """ZipNN on the bytes of one float dtype."""

    def __init__(self, dtype: str):
        self.codec = zipnn.ZipNN(input_format="byte", bytearray_dtype=ZIPNN_DTYPES[dtype], threads=1)
        self.scratch = bytearray()

    def prepare(self, raw: np.ndarray) -> None:
        """Renews the input, which compression destroys."""
        self.scratch = bytearray(memoryview(raw))

    def compress(self, _raw: np.ndarray) -> bytes:
        return self.codec.compress(self.scratch)

    def decompress(self, packed: bytes) -> np.ndarray:
        self.scratch = bytearray()
        return np.frombuffer(self.codec.decompress(packed), dtype=np.uint8)


class OpenZL:
    """A graph of OpenZL, which has no ready-made one for weights.

    Floats: exponents to FSE, apart from sign and fraction. These are stored, or of fp32 cut into byte planes. Planes
    and other dtypes go to the generic graph, as do the byte planes of an exclusive or (`planes`).
    """

    def __init__(self, dtype: str, planes: bool = False):
        self.compressor = zl.Compressor()
        self.compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        generic = zl.graphs.Compress()
        width = np.dtype(tensors.NUMPY.get(dtype, "u1")).itemsize
        self.element = np.dtype(f"u{width}")
        self.kind = zl.Type.Numeric if width > 1 and (planes or dtype in FLOAT_NODES) else zl.Type.Serial
        if self.kind == zl.Type.Serial:
            start = generic(self.compressor)
        elif planes:
            start = zl.nodes.TransposeSplit()(self.compressor, generic(self.compressor))
        else:
            rest = zl.nodes.TransposeSplit()(self.compressor, generic) if dtype == "F32" else zl.graphs.Store()
            start = FLOAT_NODES[dtype]()(self.compressor, rest, zl.graphs.Fse())
        self.compressor.select_starting_graph(start)
        self.packer = zl.CCtx()
        self.unpacker = zl.DCtx()

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew."""

    def compress(self, raw: np.ndarray) -> bytes:
        self.packer.ref_compressor(self.compressor)
        elements = raw.view(self.element) if self.kind == zl.Type.Numeric else raw
        return self.packer.compress([zl.Input(self.kind, elements)])

    def decompress(self, packed: bytes) -> np.ndarray:
        return self.unpacker.decompress(packed)[0].content.as_nparray().view(np.uint8)


class Pcodec:
    """pcodec at its default level. bf16, which it lacks, is given as integers; so is the difference from a base."""

    def __init__(self, dtype: str, integers: bool = False):
        element = np.dtype(tensors.NUMPY.get(dtype, "u1"))
        self.element = np.dtype(f"i{element.itemsize}") if integers else element
        self.config = pcodec.ChunkConfig(enable_8_bit=element.itemsize == 1)

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew."""

    def compress(self, raw: np.ndarray) -> bytes:
        return pcodec.standalone.simple_compress(raw.view(self.element), self.config)

    def decompress(self, packed: bytes) -> np.ndarray:
        return pcodec.standalone.simple_decompress(packed).view(np.uint8)


# OpenZL takes some 300 MB at once.
PIECE = 1 << 28


@dataclass
class Stream:
    """Bytes of one dtype of a file, those of the base, and the codec that gets them; `None` if they are stored."""

    raw: np.ndarray
    base: np.ndarray | None
    codec: object | None


@dataclass
class Row:
    """One contender; lists have one value a round."""

    codec: str
    size: int = 0
    compress: list[float] = field(default_factory=list)
    decompress: list[float] = field(default_factory=list)
    compress_of_copy: list[float] = field(default_factory=list)
    decompress_of_copy: list[float] = field(default_factory=list)

    def summary(self, raw_size: int) -> dict:
        row: dict = {"codec": self.codec, "size": self.size, "ratio": self.size / raw_size}
        for way in ("compress", "decompress"):
            medians = (statistics.median(getattr(self, way + of)) for of in ("", "_of_copy"))
            row[way] = dict(zip(("gb_per_s", "of_memcpy"), medians, strict=True))
        return row


def makers(with_base: bool) -> dict[str, Callable[[str], object | None]]:
    """The packages: a codec for the elements of a dtype, or for the change of a base."""
    alone = {
        "ZipNN": lambda dtype: ZipNN(dtype) if dtype in ZIPNN_DTYPES else None,
        "OpenZL": OpenZL,
        "pcodec": lambda dtype: Pcodec(dtype) if dtype != "opaque" else None,
    }
    if not with_base:
        return alone
    return {
        "ZipNN": lambda dtype: delta_peers.Xor(ZipNN(dtype)) if dtype in ZIPNN_DTYPES else None,
        "OpenZL": lambda dtype: delta_peers.Xor(OpenZL(dtype, planes=True)) if dtype != "opaque" else None,
        "pcodec": lambda dtype: (
            delta_peers.Difference(Pcodec(dtype, integers=True), dtype) if dtype != "opaque" else None
        ),
        "z4ai": lambda dtype: delta_peers.Z4ai(dtype) if dtype != "opaque" else None,
    }


def streams(given: dict[str, tuple[np.ndarray, np.ndarray | None]], make: Callable) -> list[Stream]:
    """What a package gets: pieces of the bytes of each dtype."""
    found = []
    for dtype, (raw, base) in given.items():
        codec = make(dtype)
        for at in range(0, len(raw), PIECE):
            of_base = None if base is None else base[at : at + PIECE]
            found.append(Stream(raw[at : at + PIECE], of_base, codec))
    return found


def timed(f, *args):
    start = time.perf_counter()
    out = f(*args)
    return time.perf_counter() - start, out


def one_round(name: str, streams: list[Stream]) -> tuple[int, float, float]:
    """Bytes, seconds of compressing and of decompressing."""
    size, times = 0, [0.0, 0.0]
    for s in streams:
        if s.codec is None:
            size += s.raw.nbytes
            continue
        # Each codec of a change keeps the base that it was given last.
        if s.base is not None:
            s.codec.given(s.base)
        s.codec.prepare(s.raw)
        pack, packed = timed(s.codec.compress, s.raw)
        unpack, out = timed(s.codec.decompress, packed)
        if not np.array_equal(out, s.raw):
            sys.exit(f"{name} did not restore the data")
        size += len(packed)
        times[0] += pack
        times[1] += unpack
    return size, *times


def copy(raw: np.ndarray) -> float:
    """Bytes of a copy a second, into memory that was touched before."""
    target = np.empty_like(raw)
    target[:: 1 << 10] = 1
    return raw.nbytes / timed(np.copyto, target, raw)[0]


def lmc_round(command: list[str], rows: dict[str, Row]) -> None:
    """One run of `lmc-bench`: levels of lmc, given the base if there is one, and the smaller of the ways of zstd."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(done.stdout)["files"][0]
    found: dict[str, dict] = {}
    for r in sorted(measured["results"], key=lambda r: -r["ratio"]):
        if r["codec"] == "lmc":
            if r["given"] == ("base" if measured["base"] else "nothing"):
                found[f"lmc {r['level']}"] = r
        else:
            found["zstd --patch-from" if r["given"] == "prefix" else f"zstd -{r['level']}"] = r
    for name, r in found.items():
        row = rows.setdefault(name, Row(name))
        row.size = r["size"]
        for way in ("compress", "decompress"):
            getattr(row, way).append(r[way]["gb_per_s"])
            getattr(row, way + "_of_copy").append(r[way]["of_memcpy"])


def measure(path: Path, base: Path | None, rounds: int, seconds: float, lmc: str, isa: str) -> dict:
    """All contenders on one file, in turns."""
    command = [origin.beside(lmc), "--isa", isa, "--seconds", str(seconds)]
    command += ["--peers", "zstd-3,zstd-patch" if base else "zstd-3", *(["--base", str(base)] if base else [])]
    given = tensors.streams(path) if base is None else delta_peers.shared(base, path)
    packages = {name: streams(given, make) for name, make in makers(base is not None).items()}
    raw_size = path.stat().st_size
    rows: dict[str, Row] = {}
    copies = []
    for _ in range(rounds):
        lmc_round([*command, str(path)], rows)
        largest = max((raw for raw, _ in given.values()), key=len)
        copies.append(copy(largest[:PIECE]))
        for name, parts in packages.items():
            size, *times = one_round(name, parts)
            row = rows.setdefault(name, Row(name))
            row.size = size
            for way, took in zip(("compress", "decompress"), times, strict=True):
                getattr(row, way).append(raw_size / 1e9 / took)
                getattr(row, way + "_of_copy").append(raw_size / took / copies[-1])
    results = [row.summary(raw_size) for row in rows.values()]
    copied = statistics.median(copies) / 1e9
    return {"raw_size": raw_size, "rounds": rounds, "copy_gb_per_s": copied, "results": results}


def sizes(path: Path) -> dict[str, int]:
    """Size of a file by each package."""
    given = tensors.streams(path)
    return {name: one_round(name, streams(given, make))[0] for name, make in makers(False).items()}


def rows_of(case: dict) -> list[list[str]]:
    """A row of text for each codec, lmc first."""
    found = sorted(case["results"], key=lambda r: not r["codec"].startswith("lmc"))
    out = []
    for r in found:
        speeds = [r.get(way) for way in ("compress", "decompress")]
        cells = ["" if s is None else f"{number(s['gb_per_s'])} ({number(s['of_memcpy'])})" for s in speeds]
        name = f"**{r['codec']}**" if r["codec"].startswith("lmc") else r["codec"]
        out.append([name, f"{100 * r['ratio']:.2f} %", *cells])
    return out


HEADINGS = ["codec", "size", "compress, GB/s (× memcpy)", "decompress"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE[:BASE]")
    parser.add_argument("--lmc", required=True, help="the program; lmc-bench lies beside it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of lmc-bench, a round; 0: once")
    parser.add_argument("--isa", help="of lmc; by default the fastest of this machine")
    args = parser.parse_args()
    isa = args.isa or fastest(args.lmc)
    for file in args.files:
        path, _, base = file.partition(":")
        case = measure(Path(path), Path(base) if base else None, args.rounds, args.seconds, args.lmc, isa)
        print(f"{file}: {case['raw_size']:,} bytes, a copy at {case['copy_gb_per_s']:.2f} GB/s\n")
        print(table(HEADINGS, rows_of(case)))


def fastest(lmc: str) -> str:
    """The fastest instruction set of this machine."""
    return origin.machine(lmc)["isas"][-1]


if __name__ == "__main__":
    main()
