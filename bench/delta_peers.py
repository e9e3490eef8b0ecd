#!/usr/bin/env python3
"""Deltas by lmc compared with those by codecs for model files that are Python packages: ZipNN, z4ai and OpenZL.

    bench/run delta-peers OLD.safetensors NEW.safetensors [OLD NEW …]

Like bench/peers.py: one thread, in memory, in turns, verified. A pair is measured by the most common dtype of the
tensors that both files have; the elements of that dtype are joined, and cut to --size bytes. They are never repeated,
because z4ai would find the repetition.

* ZipNN's own delta mode, and ZipNN on the exclusive or: the same bytes, but the mode copies more.
* z4ai: the exclusive or, its own transforms, zstd and rANS.
* OpenZL on the byte planes of the exclusive or, each to its generic graph. It has no deltas of its own.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

warnings.filterwarnings("ignore", category=FutureWarning)

import numpy as np  # noqa: E402
import openzl.ext as zl  # noqa: E402
import peers  # noqa: E402
import tensors  # noqa: E402
import z4ai  # noqa: E402
import zipnn  # noqa: E402

Z4AI_DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}


class ZipNN:
    """ZipNN in its own delta mode."""

    name = "ZipNN"

    def __init__(self, dtype: str, base: np.ndarray):
        settings = {"input_format": "byte", "bytearray_dtype": peers.ZIPNN_DTYPES[dtype], "threads": 1}
        self.codec = zipnn.ZipNN(**settings, delta_compressed_type="byte")
        self.base = base.tobytes()
        self.scratch = bytearray()

    def prepare(self, raw: np.ndarray) -> None:
        """Renews the input, which compression may destroy."""
        self.scratch[:] = memoryview(raw)

    def compress(self, _raw: np.ndarray) -> bytes:
        return self.codec.compress(self.scratch, delta_second_data=self.base)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.frombuffer(self.codec.decompress(packed, delta_second_data=self.base), dtype=np.uint8)


class Xor:
    """A codec of bench/peers.py on the exclusive or, which is part of the time."""

    def __init__(self, codec, base: np.ndarray):
        self.name = f"XOR, {codec.name}"
        self.codec = codec
        self.base = base
        self.buffer = np.empty_like(base)

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew: compression destroys only a buffer that it makes itself."""

    def compress(self, raw: np.ndarray) -> bytes:
        np.bitwise_xor(raw, self.base, out=self.buffer)
        self.codec.prepare(self.buffer)
        return self.codec.compress(self.buffer)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.bitwise_xor(self.codec.decompress(packed), self.base, out=self.buffer)


class Z4ai:
    """z4ai's deltas of buffers."""

    name = "z4ai"

    def __init__(self, dtype: str, base: np.ndarray):
        self.dtype = Z4AI_DTYPES.get(dtype)
        self.base = base.tobytes()

    def prepare(self, raw: np.ndarray) -> None:
        """z4ai takes bytes objects only without copying; making one is not timed."""
        self.raw = raw.tobytes()

    def compress(self, _raw: np.ndarray) -> bytes:
        return z4ai.compress_delta(self.raw, self.base, dtype=self.dtype, threads=1)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.frombuffer(z4ai.decompress_delta(packed, self.base), dtype=np.uint8)


class Planes(peers.OpenZLGeneric):
    """OpenZL: byte planes of numbers, each to the graph for bytes of any kind."""

    name = "OpenZL planes"

    def __init__(self, dtype: str):
        super().__init__()
        self.element = peers.NUMERIC[dtype]
        planes = zl.nodes.TransposeSplit()(self.compressor, zl.graphs.Compress()(self.compressor))
        self.compressor.select_starting_graph(planes)

    def compress(self, raw: np.ndarray) -> bytes:
        self.packer.ref_compressor(self.compressor)
        return self.packer.compress([zl.Input(zl.Type.Numeric, raw.view(self.element))])


def codecs(dtype: str, base: np.ndarray) -> list:
    """The codecs with settings for a dtype and a base."""
    zipnns = [ZipNN(dtype, base), Xor(peers.ZipNN(dtype), base)] if dtype in peers.ZIPNN_DTYPES else []
    planes = Planes(dtype) if dtype in peers.NUMERIC else peers.OpenZLGeneric()
    return [*zipnns, Z4ai(dtype, base), Xor(planes, base)]


def shared(old: Path, new: Path) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], int]:
    """For each dtype the elements of the tensors that both files have, joined, new and old; bytes of other tensors."""
    before = {t.name: t for t in tensors.read(old)}
    found: dict[str, list] = {}
    others = 0
    for t in tensors.read(new):
        b = before.get(t.name)
        if b is None or (b.dtype, b.shape) != (t.dtype, t.shape):
            others += t.data.nbytes
        else:
            found.setdefault(t.dtype, []).append((t.data.view(np.uint8), b.data.view(np.uint8)))
    joined = {d: tuple(np.concatenate(side) for side in zip(*pairs, strict=True)) for d, pairs in found.items()}
    return joined, others


def measure(old: Path, new: Path, size: int, rounds: int, lmc: str, seconds: float, folder: Path) -> dict:
    """Runs the rounds on one pair."""
    floats = {d: pair for d, pair in shared(old, new)[0].items() if d in peers.NUMERIC}
    if not floats:
        sys.exit(f"{new} and {old} have no tensors of {', '.join(peers.NUMERIC)} in common")
    dtype, (raw, base) = max(floats.items(), key=lambda item: item[1][0].nbytes)
    length = min(size or raw.nbytes, raw.nbytes) // 8 * 8
    raw, base = raw[:length].copy(), base[:length].copy()
    files = [folder / "delta-peers.old", folder / "delta-peers.new"]
    base.tofile(files[0])
    raw.tofile(files[1])
    command = [lmc, "bench", "--json", "--peers", "none", "--threads", "1", "--seconds", str(seconds)]
    command += ["--dtype", dtype, "--base", *map(str, files)]
    results = peers.in_turns(raw, codecs(dtype, base), command, rounds)
    for file in files:
        file.unlink()
    return {"file": new.name, "base": old.name, "dtype": dtype, "raw_size": length, "rounds": rounds, **results}


def sizes(old: Path, new: Path) -> dict[str, int]:
    """Size of a file given the other, by each package: every dtype's elements by themselves, by the package's best way.
    The rest is free: headers are nearly alike. Tensors without a counterpart count as stored."""
    found, others = shared(old, new)
    total = dict.fromkeys(("ZipNN", "z4ai", "OpenZL"), others)
    for dtype, (raw, base) in found.items():
        best = dict.fromkeys(total, raw.nbytes)
        for codec in codecs(dtype, base):
            row = peers.Row(codec.name)
            peers.one_round(raw, codec, row)
            family = next(f for f in total if f in codec.name)
            best[family] = min(best[family], row.size)
        for family, size in best.items():
            total[family] += size
    # z4ai also has deltas of whole files, tensor by tensor.
    raw, base = new.read_bytes(), old.read_bytes()
    packed = z4ai.model_delta.compress(raw, base, threads=1)
    if z4ai.model_delta.decompress(packed, base) != raw:
        sys.exit(f"z4ai did not restore {new}")
    total["z4ai"] = min(total["z4ai"], len(packed))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, help="pairs: an old file and a new one")
    parser.add_argument("--lmc", default="target/release/lmc", help="the program; default %(default)s")
    parser.add_argument("--size", type=int, default=0, help="bytes to cut the elements to; 0: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contender of lmc bench, a round")
    parser.add_argument("--sizes", action="store_true", help="only sizes, of whole files with all their dtypes")
    parser.add_argument("--folder", type=Path, default=Path("target/bench"), help="for temporary files")
    parser.add_argument("--json", type=Path, help="write the results, a list in the order of the pairs, to this file")
    args = parser.parse_args()
    if len(args.files) % 2:
        parser.error("files come in pairs, an old one and a new one")
    args.folder.mkdir(parents=True, exist_ok=True)
    out = []
    for old, new in zip(args.files[::2], args.files[1::2], strict=True):
        if args.sizes:
            out.append(sizes(old, new))
            print(old.name, new.name, out[-1])
            continue
        out.append(measure(old, new, args.size, args.rounds, args.lmc, args.seconds, args.folder))
        print(peers.markdown(out[-1]))
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
