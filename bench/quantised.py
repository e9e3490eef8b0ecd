#!/usr/bin/env python3
"""Sizes of GGUF files with quantised tensors, beside zstd.

Usage: bench/quantised.py FILE.safetensors LMC...

Quantises the matrices of FILE to each of several types, writes a GGUF file of them, compresses it with each program LMC
and with zstd, restores and compares it, and prints bytes and megabytes of raw per second of processor time, the better
of three runs with one thread. Q4_K and Q6_K are quantised by their definitions, with scales from the extremes; the
others by the `gguf` package. It needs gguf, safetensors, NumPy and zstandard.
"""

import argparse
import filecmp
import resource
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy as np
import zstandard
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file


def f16(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float16).view(np.uint8).reshape(*values.shape[:-1], -1)


def q4_k(weights: np.ndarray) -> np.ndarray:
    """256 elements: scale of scales, scale of minima, eight of both with six bits, nibbles."""
    parts = weights.reshape(-1, 8, 32)
    least = np.minimum(parts.min(2), 0)
    scale, least = (parts.max(2) - least) / 15, -least
    d, dmin = scale.max(1, keepdims=True) / 63, least.max(1, keepdims=True) / 63
    codes = [np.round(v / np.maximum(of, 1e-12)).clip(0, 63).astype(np.uint8) for v, of in ((scale, d), (least, dmin))]
    steps = np.maximum(d * codes[0], 1e-12)[..., None]
    q = np.round((parts + (dmin * codes[1])[..., None]) / steps).clip(0, 15).astype(np.uint8)
    (s, m), packed = codes, np.zeros((len(parts), 12), np.uint8)
    packed[:, :4], packed[:, 4:8] = s[:, :4] | (s[:, 4:] >> 4 << 6), m[:, :4] | (m[:, 4:] >> 4 << 6)
    packed[:, 8:] = (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4
    nibbles = (q[:, ::2] | q[:, 1::2] << 4).reshape(len(parts), -1)
    return np.concatenate([f16(d), f16(dmin), packed, nibbles], axis=1)


def q6_k(weights: np.ndarray) -> np.ndarray:
    """256 elements: low nibbles, high pairs of bits, sixteen scales of eight bits, a scale of these."""
    parts = weights.reshape(-1, 16, 16)
    extreme = np.take_along_axis(parts, np.abs(parts).argmax(2)[..., None], 2)[..., 0] / -32
    d = np.abs(extreme).max(1, keepdims=True) / 127
    scales = np.round(extreme / np.maximum(d, 1e-12)).clip(-128, 127).astype(np.int8)
    steps = (d * scales)[..., None]
    q = np.round(parts / np.where(steps == 0, 1, steps)).clip(-32, 31).astype(np.int8) + 32
    q = q.astype(np.uint8).reshape(-1, 2, 4, 32)
    low = (q[:, :, :2] & 15) | (q[:, :, 2:] & 15) << 4
    high = q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6
    n = len(q)
    return np.concatenate([low.reshape(n, -1), high.reshape(n, -1), scales.view(np.uint8), f16(d)], axis=1)


PACKAGE = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q8_0, Type.MXFP4, Type.TQ2_0]
TYPES = {t: lambda w, t=t: gguf.quants.quantize(w, t) for t in PACKAGE} | {Type.Q4_K: q4_k, Type.Q6_K: q6_k}


def write(path: Path, weights: dict[str, np.ndarray], kind: Type) -> None:
    writer = gguf.GGUFWriter(path, "bert")
    for name, w in weights.items():
        data = TYPES[kind](w).reshape(w.shape[0], -1)
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def seconds(command: list[str | Path]) -> float:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("lmc", type=Path, nargs="+")
    args = parser.parse_args()
    matrices = {n: w.astype(np.float32) for n, w in load_file(args.file).items() if w.ndim == 2 and w.size % 256 == 0}
    weights = {n: w.reshape(-1, 256) if w.shape[1] % 256 else w for n, w in matrices.items()}
    with tempfile.TemporaryDirectory() as folder:
        raw, compressed, restored = (Path(folder, name) for name in ("raw.gguf", "compressed", "restored"))
        for kind in TYPES:
            write(raw, weights, kind)
            data = raw.read_bytes()
            row = [f"{len(zstandard.compress(data, level)):>11,}" for level in (3, 19)]
            for lmc in args.lmc:
                for level in ("default", "max"):
                    pack = [lmc, "compress", "-q", "-f", "-T1", "--level", level, raw, "-o", compressed]
                    unpack = [lmc, "decompress", "-q", "-f", "-T1", compressed, "-o", restored]
                    speeds = [len(data) / 1e6 / seconds(command) for command in (pack, unpack)]
                    if not filecmp.cmp(raw, restored, shallow=False):
                        raise SystemExit(f"{kind.name} was restored to other bytes")
                    row.append(f"{compressed.stat().st_size:>11,} {speeds[0]:4.0f} {speeds[1]:5.0f}")
            print(f"{kind.name:6} {len(data):>11,}", *row, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
