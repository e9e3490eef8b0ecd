#!/usr/bin/env python3
"""lmc compared with codecs for model files that are Python packages: ZipNN and OpenZL.

    bench/run peers                             the results in docs/benchmarks.md
    python3 bench/peers.py FILE.safetensors …   any file

One thread, in memory, everything in turns: one round runs numpy's copy, ZipNN, every OpenZL graph and `lmc bench` on
the same bytes, and each ratio is that of one round; medians over the rounds are shown. Every round trip is verified. A
file is measured by its most common dtype; the elements of that dtype are joined and repeated to --size bytes.

The packages return fresh memory from every call. So that their page faults do not count against them, the allocator is
set to keep freed memory. ZipNN overwrites its input; it gets a new copy each time, and the copying is not timed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

warnings.filterwarnings("ignore", category=FutureWarning)

import numpy as np  # noqa: E402
import openzl.ext as zl  # noqa: E402
import process  # noqa: E402
import tensors  # noqa: E402
import zipnn  # noqa: E402

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
NUMERIC = {"BF16": np.uint16, "F16": np.uint16, "F32": np.uint32}


class ZipNN:
    """ZipNN on the bytes of one float dtype."""

    name = "ZipNN"

    def __init__(self, dtype: str):
        self.codec = zipnn.ZipNN(input_format="byte", bytearray_dtype=ZIPNN_DTYPES[dtype], threads=1)
        self.scratch = bytearray()

    def prepare(self, raw: np.ndarray) -> None:
        """Renews the input, which compression destroys."""
        self.scratch[:] = memoryview(raw)

    def compress(self, _raw: np.ndarray) -> bytes:
        return self.codec.compress(self.scratch)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.frombuffer(self.codec.decompress(packed), dtype=np.uint8)


class OpenZLGeneric:
    """OpenZL's graph for bytes of any kind."""

    name = "OpenZL generic"

    def __init__(self):
        self.compressor = zl.Compressor()
        self.compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        self.compressor.select_starting_graph(zl.graphs.Compress()(self.compressor))
        self.packer = zl.CCtx()
        self.unpacker = zl.DCtx()

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew."""

    def compress(self, raw: np.ndarray) -> bytes:
        self.packer.ref_compressor(self.compressor)
        return self.packer.compress([zl.Input(zl.Type.Serial, raw)])

    def decompress(self, packed: bytes) -> np.ndarray:
        return self.unpacker.decompress(packed)[0].content.as_nparray().view(np.uint8)


class OpenZL:
    """OpenZL: exponents apart from sign and fraction, an entropy coder for the exponents.

    `fraction`: how sign and fraction are coded, "store", or "planes": byte planes, each to OpenZL's generic graph.
    """

    def __init__(self, dtype: str, coder: str, fraction: str = "store"):
        self.name = f"OpenZL {coder}" + (", planes" if fraction == "planes" else "")
        self.element = NUMERIC[dtype]
        self.compressor = zl.Compressor()
        self.compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        exponent = {"Huffman": zl.graphs.Huffman, "FSE": zl.graphs.Fse}[coder]()
        rest = zl.graphs.Store()
        if fraction == "planes":
            rest = zl.nodes.TransposeSplit()(self.compressor, zl.graphs.Compress())
        self.compressor.select_starting_graph(FLOAT_NODES[dtype]()(self.compressor, rest, exponent))
        self.packer = zl.CCtx()
        self.unpacker = zl.DCtx()

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew."""

    def compress(self, raw: np.ndarray) -> bytes:
        self.packer.ref_compressor(self.compressor)
        return self.packer.compress([zl.Input(zl.Type.Numeric, raw.view(self.element))])

    def decompress(self, packed: bytes) -> np.ndarray:
        return self.unpacker.decompress(packed)[0].content.as_nparray().view(np.uint8)


def codecs(dtype: str) -> list:
    """The codecs with settings for a dtype. Planes only help where the fraction has more than a byte."""
    found: list = [ZipNN(dtype)] if dtype in ZIPNN_DTYPES else []
    if dtype in FLOAT_NODES:
        found += [OpenZL(dtype, "Huffman"), OpenZL(dtype, "FSE")]
    else:
        found.append(OpenZLGeneric())
    if dtype == "F32":
        found.append(OpenZL(dtype, "FSE", "planes"))
    return found


@dataclass
class Row:
    """One contender of one data set; lists have one value a round."""

    name: str
    size: int = 0
    compress: list[float] = field(default_factory=list)
    decompress: list[float] = field(default_factory=list)


def timed(f, *args):
    start = time.perf_counter()
    out = f(*args)
    return time.perf_counter() - start, out


def one_round(raw: np.ndarray, codec, row: Row) -> None:
    codec.prepare(raw)
    pack, packed = timed(codec.compress, raw)
    unpack, out = timed(codec.decompress, packed)
    if not np.array_equal(out, raw):
        sys.exit(f"{codec.name} did not restore the data")
    row.size = len(packed)
    row.compress.append(raw.nbytes / 1e9 / pack)
    row.decompress.append(raw.nbytes / 1e9 / unpack)


def lmc_round(command: list[str], rows: dict[str, Row], copies: list[float]) -> None:
    """One run of `lmc bench`; of a delta, the rows that have the base count."""
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(done.stdout)["files"][0]
    copies.append(measured["memcpy"][0]["gb_per_s"])
    for r in measured["results"]:
        if r["given"] != ("base" if measured["bases"] else "nothing"):
            continue
        row = rows.setdefault(f"lmc {r['level']} {r['isa']}", Row(f"lmc {r['level']} {r['isa']}"))
        row.size = r["size"]
        row.compress.append(r["compress"]["gb_per_s"])
        row.decompress.append(r["decompress"]["gb_per_s"])


def ratio(rows: list[float], base: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(rows, base, strict=True))


def measure(path: Path, name: str, size: int, rounds: int, lmc: str, seconds: float, folder: Path) -> dict:
    """Runs the rounds on one file."""
    floats = {d: s for d, s in tensors.streams(path).items() if d in FLOAT_NODES}
    if not floats:
        sys.exit(f"{path} has no tensors of {', '.join(FLOAT_NODES)}")
    dtype, stream = max(floats.items(), key=lambda item: item[1].nbytes)
    width = np.dtype(tensors.NUMPY[dtype]).itemsize
    raw = tensors.repeated(stream.view(f"u{width}"), (size or stream.nbytes) // 8 * 8 // width).view(np.uint8)
    file = folder / "peers.raw"
    raw.tofile(file)
    command = [lmc, "bench", "--json", "--peers", "none", "--threads", "1", "--seconds", str(seconds)]
    results = in_turns(raw, codecs(dtype), [*command, "--dtype", dtype, str(file)], rounds)
    file.unlink()
    return {"file": name, "dtype": dtype, "raw_size": raw.nbytes, "rounds": rounds, **results}


def in_turns(raw: np.ndarray, peers: list, command: list[str], rounds: int) -> dict:
    """Runs numpy's copy, the codecs, and `lmc bench` on the same bytes, in rounds."""
    target = np.ones_like(raw)
    rows = {codec.name: Row(codec.name) for codec in peers}
    copies: list[float] = []
    lmc_copies: list[float] = []
    for _ in range(rounds):
        copies.append(raw.nbytes / 1e9 / timed(np.copyto, target, raw)[0])
        for codec in peers:
            one_round(raw, codec, rows[codec.name])
        lmc_round(command, rows, lmc_copies)
    results = []
    for row in rows.values():
        own_copies = lmc_copies if row.name.startswith("lmc ") else copies
        result = {"codec": row.name, "size": row.size, "ratio": row.size / raw.nbytes}
        for way in ("compress", "decompress"):
            speeds = getattr(row, way)
            result[way] = {
                "gb_per_s": statistics.median(speeds),
                "of_memcpy": ratio(speeds, own_copies),
                "of_zipnn": ratio(speeds, getattr(rows["ZipNN"], way)),
            }
        results.append(result)
    return {"numpy_copy_gb_per_s": statistics.median(copies), "results": results}


def sizes(path: Path) -> dict[str, int]:
    """Size of a file by each package: every dtype's elements by themselves, by the package's best codec for that dtype;
    dtypes without settings for ZipNN count as stored."""
    total: dict[str, int] = {}
    for dtype, stream in tensors.streams(path).items():
        best: dict[str, int] = {}
        for codec in codecs(dtype):
            row = Row(codec.name)
            one_round(stream, codec, row)
            family = codec.name.split()[0]
            best[family] = min(best.get(family, stream.nbytes), row.size)
        for family in ("ZipNN", "OpenZL"):
            total[family] = total.get(family, 0) + best.get(family, stream.nbytes)
    return total


def markdown(measured: dict) -> str:
    lines = [
        f"{measured['file']}: {measured['dtype']}, {measured['raw_size']:,} bytes, {measured['rounds']} rounds",
        "",
        "| codec | % of raw | in GB/s | × ZipNN | × memcpy | out GB/s | × ZipNN | × memcpy |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for r in measured["results"]:
        cells = [r["codec"], f"{100 * r['ratio']:.2f}"]
        for way in ("compress", "decompress"):
            s = r[way]
            cells += [f"{s['gb_per_s']:.2f}", f"{s['of_zipnn']:.1f}", f"{s['of_memcpy']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--lmc", default="target/release/lmc", help="the program; default %(default)s")
    parser.add_argument("--size", type=int, default=0, help="bytes to repeat the elements to; 0: as they are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of lmc bench, a round")
    parser.add_argument("--process-rounds", type=int, default=0, help="rounds that also compare whole processes")
    parser.add_argument("--sizes", action="store_true", help="only sizes, of whole files with all their dtypes")
    parser.add_argument("--folder", type=Path, default=Path("target/bench"), help="for temporary files")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    out: dict = {"memory": [], "process": [], "sizes": {}}
    for path in args.files:
        if args.sizes:
            out["sizes"][str(path)] = sizes(path)
            print(path.name, out["sizes"][str(path)])
            continue
        out["memory"].append(measure(path, path.name, args.size, args.rounds, args.lmc, args.seconds, args.folder))
        print(markdown(out["memory"][-1]))
        if args.process_rounds:
            out["process"].append(process.measure(path, path.name, args.process_rounds, args.lmc, args.folder))
            print(process.markdown(out["process"][-1]))
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
