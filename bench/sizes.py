#!/usr/bin/env python3
"""Sizes of tensors whose values are not noise: bench/sizes.py LMC KIND [--level LEVEL] [FILE …]

    structured   pruned, repeated and computed tensors
    grids        weights that were quantised, and dequantised again to bf16, fp16 or fp32, by the formulas of the
                 libraries that write them
    quantised    GGUF files with quantised tensors: the matrices of FILE, a safetensors file
    layouts      the tensors of FILE, and of a second FILE as its base, as .pt, .distcp, .npz and safetensors
    files        FILEs, as they are

Compresses each with the program LMC, restores it, and prints its size in parts of raw beside zstd's, as it is and
grouped (byte planes), at the level that corresponds to that of lmc: 1, 3 and 19. The exit status is 1 if a file is more
than 1 % (and 0.1 % of raw) larger than the smaller zstd's, or above its own bound: a bar, or 2 % (and 0.1 % of raw)
more than what a grid takes, which is the entropy of order 0 of the levels, and 24 bits for each scale and offset.
"""

import argparse
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import zstandard
from tensors import Tensor, restored_size, write

ROWS, COLS, SEED = 2048, 1024, 1
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "bool": "BOOL", "int64": "I64"}

# In parts of raw. Entropies of order 0 of tensors pruned with +0: .389, .340, .090; with -0, as weight * mask gives:
# .420, .393, .125.
BARS = {
    "prune50-bf16": 0.400,
    "prune24-bf16": 0.350,
    "ternary-bf16": 0.095,
    "prune50-minus0-bf16": 0.433,
    "prune24-minus0-bf16": 0.403,
    "ternary-minus0-bf16": 0.130,
}


@dataclass
class Case:
    """A file, the width of its elements if they can be grouped, and the size that it may have, in parts of raw."""

    name: str
    file: Path
    width: int = 1
    bound: float | None = None
    base: Path | None = None


def of_array(name: str, array: np.ndarray, folder: Path, bound: float | None = None) -> Case:
    """A safetensors file of one tensor."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    write(folder / "raw.safetensors", [Tensor("w", DTYPES[array.dtype.name], list(array.shape), flat)])
    return Case(name, folder / "raw.safetensors", array.dtype.itemsize, bound)


def structured(rows: int, cols: int) -> dict[str, np.ndarray]:
    """Pruned, repeated and computed tensors."""
    random = np.random.default_rng(SEED)
    bf16 = ml_dtypes.bfloat16
    w = (random.standard_normal((rows, cols)) * 0.02).astype(np.float32)
    half, large = random.random((rows, cols)) < 0.5, np.abs(w) > 0.015
    kept = np.zeros((rows * cols // 4, 4), np.bool_)
    np.put_along_axis(kept, np.abs(w.reshape(-1, 4)).argsort(1)[:, 2:], True, 1)
    kept = kept.reshape(rows, cols)
    ternary = np.sign(w) * np.float32(0.031)
    angle = np.arange(rows, dtype=np.float32)[:, None] / 10000 ** (np.arange(0, cols, 2, dtype=np.float32) / cols)
    padded = w.copy()
    padded[3 * rows // 4 :] = padded[3 * rows // 4 :].mean(0)
    zero = np.float32(0)
    return {
        "prune50-bf16": np.where(half, w, zero).astype(bf16),
        "prune50-minus0-bf16": (w * half).astype(bf16),
        "prune24-bf16": np.where(kept, w, zero).astype(bf16),
        "prune24-minus0-bf16": (w * kept).astype(bf16),
        "ternary-bf16": np.where(large, ternary, zero).astype(bf16),
        "ternary-minus0-bf16": (ternary * large).astype(bf16),
        "fp16-in-fp32": w.astype(np.float16).astype(np.float32),
        "bf16-in-fp32": w.astype(bf16).astype(np.float32),
        "sinusoid-fp32": np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32),
        "rows-repeated-bf16": w[np.arange(rows) % (rows // 8)].astype(bf16),
        "padded-vocab-bf16": padded.astype(bf16),
        "tril-bool": np.tril(np.ones((rows, rows), np.bool_)),
        "arange-i64": np.arange(rows * cols // 8, dtype=np.int64),
        "ids-i64": random.integers(0, 32000, rows * cols // 8, dtype=np.int64),
    }


# The 4-bit NormalFloat of bitsandbytes (csrc/kernels.cu, dDequantizeNF4).
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334]
    + [-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    + [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    np.float32,
)
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


@dataclass
class Grid:
    values: np.ndarray
    # The level of each element, and the number of scales.
    levels: np.ndarray
    scales: int

    def as_type(self, dtype: type) -> "Grid":
        return Grid(self.values.astype(dtype), self.levels, self.scales)

    def damaged(self, random: np.random.Generator, share: float) -> "Grid":
        """Replaces some elements by their values before quantisation, which are on no grid."""
        hit = random.random(self.values.shape) < share
        wide = self.values.astype(np.float32)
        noise = wide * (1 + random.standard_normal(wide.shape).astype(np.float32) * 0.02)
        return Grid(np.where(hit, noise, wide).astype(self.values.dtype), self.levels, self.scales)

    def bound(self) -> float:
        """Bytes of levels and scales."""
        # -0 is a level, too.
        counts = np.unique(self.levels.astype(np.float32).view(np.uint32), return_counts=True)[1]
        bits = -(counts * np.log2(counts / self.levels.size)).sum()
        return (bits + 24 * self.scales) / 8


def e4m3(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def affine(w: np.ndarray, scale: np.ndarray, offset: np.ndarray, top: int, zero: int = 0) -> Grid:
    """Integers 0 … top, less a zero point, times a scale, plus an offset: each step is rounded to binary32."""
    with np.errstate(divide="ignore", invalid="ignore"):
        q = np.clip(np.nan_to_num(np.round((w - offset) / scale) + zero), 0, top) - zero
    q = q.astype(np.float32)
    values = (scale * q + offset).astype(np.float32).reshape(-1, w.shape[1] * w.shape[2])
    return Grid(values, q.reshape(-1), scale.size + offset.size)


def k_scales(scales: np.ndarray, length: int, top: int) -> np.ndarray:
    """Scales of groups of `length` elements, as in ggml's K-quants: integers to `top` times an fp16 of 256 elements."""
    groups = scales.reshape(-1, 256 // length)
    whole = (groups.max(1, keepdims=True) / np.float32(top)).astype(np.float16).astype(np.float32)
    return (np.round(groups / whole).clip(0, top) * whole).astype(np.float32).reshape(scales.shape)


def k_terms(w: np.ndarray, top: int, of_scales: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and offset of each group of a K-quant with offsets; these are 0 or negative."""
    least, most = np.minimum(w.min(2, keepdims=True), 0), w.max(2, keepdims=True)
    length = w.shape[2]
    return k_scales((most - least) / np.float32(top), length, of_scales), -k_scales(-least, length, of_scales)


def e2m1(x: np.ndarray) -> np.ndarray:
    return np.copysign(E2M1[np.abs(np.abs(x)[..., None] - E2M1).argmin(-1)], x)


def grids(seed: int, rows: int, cols: int) -> dict[str, Grid]:
    random = np.random.default_rng(seed)
    w = (random.standard_normal((rows, cols)) * 0.02).astype(np.float32)
    bf16, f16, f32 = ml_dtypes.bfloat16, np.float16, np.float32

    def grouped(length: int) -> np.ndarray:
        return w.reshape(rows, cols // length, length)

    def grid(levels: np.ndarray, scales: np.ndarray) -> Grid:
        return Grid((levels * scales).astype(f32).reshape(rows, cols), levels.reshape(-1), scales.size)

    # Absolute maxima: torch.ao and bitsandbytes by row; compressed-tensors by group.
    int8_scale = np.abs(w).max(1, keepdims=True) / f32(127)
    int8 = grid(np.round(w / int8_scale), int8_scale)
    whole_scale = np.abs(w).max(keepdims=True) / f32(127)
    int4_scale = np.abs(grouped(64)).max(2, keepdims=True) / f32(7)
    int4 = grid(np.round(grouped(64) / int4_scale), int4_scale)
    # bitsandbytes: the absolute maximum of 64 elements times a level.
    nf4_scale = np.abs(grouped(64)).max(2, keepdims=True)
    nf4 = grid(NF4[np.abs((grouped(64) / nf4_scale)[..., None] - NF4).argmin(-1)], nf4_scale)
    # DeepSeek-V3, inference/kernel.py: blocks of 128 x 128.
    blocks = w.reshape(rows // 128, 128, cols // 128, 128)
    fp8_scale = np.abs(blocks).max((1, 3), keepdims=True) / f32(448)
    fp8_levels = e4m3(blocks / fp8_scale)
    fp8_values = (fp8_levels * fp8_scale).reshape(rows, cols)
    fp8 = Grid(fp8_values, fp8_levels.reshape(-1), fp8_scale.size)
    # compressed-tensors, strategy "channel".
    channel_scale = np.abs(w).max(1, keepdims=True) / f32(448)
    # AutoAWQ, dequantize_gemm: (q - zero) * scale, all of fp16.
    low, high = grouped(128).min(2, keepdims=True), grouped(128).max(2, keepdims=True)
    awq_scale = ((high - low) / 15).astype(f16).astype(f32)
    zero = np.clip(-np.round(low / awq_scale), 0, 15)
    awq_levels = np.clip(np.round(grouped(128) / awq_scale) + zero, 0, 15) - zero
    awq = grid(awq_levels, awq_scale)
    awq = Grid(awq.values.astype(f16), awq.levels, awq.scales)
    # ggml, quantize_row_q4_0: the value of the largest magnitude over -8, in fp16.
    of_32 = grouped(32)
    largest = np.take_along_axis(of_32, np.abs(of_32).argmax(2, keepdims=True), 2)
    q4_0_scale = (largest / -8).astype(f16).astype(f32)
    q4_0 = grid(np.clip(np.floor(of_32 / q4_0_scale + 8.5), 0, 15) - 8, q4_0_scale)
    # OCP microscaling formats: a power of two for 32 elements; NVFP4: e4m3 times fp32 for 16.
    mx_scale = np.exp2(np.floor(np.log2(np.abs(of_32).max(2, keepdims=True))) - 2).astype(f32)
    mxfp4 = grid(e2m1(np.clip(of_32 / mx_scale, -6, 6)), mx_scale)
    all_scale = np.abs(w).max() / f32(6 * 448)
    nv_scale = e4m3(np.abs(grouped(16)).max(2, keepdims=True) / 6 / all_scale) * all_scale
    nvfp4 = grid(e2m1(np.clip(grouped(16) / nv_scale, -6, 6)), nv_scale)
    q5_0_scale = (largest / -16).astype(f16).astype(f32)
    q5_0 = grid(np.clip(np.floor(of_32 / q5_0_scale + 16.5), 0, 31) - 16, q5_0_scale)
    # ggml, dequantize_row_q4_1: d * q + m, both of fp16.
    least, most = of_32.min(2, keepdims=True), of_32.max(2, keepdims=True)
    q4_1_scale, q4_1_offset = ((most - least) / 15).astype(f16).astype(f32), least.astype(f16).astype(f32)
    q4_1 = affine(of_32, q4_1_scale, q4_1_offset, 15)
    # ggml, dequantize_row_q4_K: scales and offsets of groups are 6 bits (Q2_K: 4) times fp16 of 256 elements.
    q4_k, q5_k = (affine(of_32, *k_terms(of_32, top, 63), top) for top in (15, 31))
    q2_k = affine(grouped(16), *k_terms(grouped(16), 3, 15), 3)
    q6_k_scale = k_scales(np.abs(grouped(16)).max(2, keepdims=True) / f32(31), 16, 127)
    q6_k = grid(np.clip(np.round(grouped(16) / q6_k_scale), -32, 31), q6_k_scale)
    # torch.ao, affine integers of 4 bits: (q - 8) * scale + zero point, both of bf16, in groups of 64.
    of_64 = grouped(64)
    least, most = of_64.min(2, keepdims=True), of_64.max(2, keepdims=True)
    ao_scale = ((most - least) / 15).astype(bf16).astype(f32)
    ao = affine(of_64, ao_scale, (least + ao_scale * 8).astype(bf16).astype(f32), 15, 8)
    # GPTQ: groups of 128 inputs, down the columns where a matrix is stored by input.
    down = w.reshape(rows // 128, 128, cols)
    down_scale = np.abs(down).max(1, keepdims=True) / f32(7)
    gptq = grid(np.round(down / down_scale), down_scale)
    return {
        "fp8-block-in-bf16": fp8.as_type(bf16),
        "fp8-channel-in-bf16": grid(e4m3(w / channel_scale), channel_scale).as_type(bf16),
        "fp8-block-in-fp32": fp8,
        "int8-row-in-bf16": int8.as_type(bf16),
        "int8-row-in-fp16": int8.as_type(f16),
        "int8-row-in-fp32": int8,
        "int8-tensor-in-fp32": grid(np.round(w / whole_scale), whole_scale),
        "int4-g64-in-bf16": int4.as_type(bf16),
        "int4-g64-in-fp32": int4,
        "nf4-g64-in-bf16": nf4.as_type(bf16),
        "awq-g128-in-fp16": awq,
        "awq-g128-in-bf16": awq.as_type(bf16),
        "q4_0-in-bf16": q4_0.as_type(bf16),
        "q4_0-in-fp16": q4_0.as_type(f16),
        "q5_0-in-bf16": q5_0.as_type(bf16),
        "q5_0-in-fp16": q5_0.as_type(f16),
        "gptq-g128-in-bf16": gptq.as_type(bf16),
        "q4_1-in-fp16": q4_1.as_type(f16),
        "q4_k-in-bf16": q4_k.as_type(bf16),
        "q4_k-in-fp16": q4_k.as_type(f16),
        "q4_k-in-fp32": q4_k,
        "q5_k-in-bf16": q5_k.as_type(bf16),
        "q5_k-in-fp16": q5_k.as_type(f16),
        "q5_k-in-fp32": q5_k,
        "q2_k-in-bf16": q2_k.as_type(bf16),
        "q6_k-in-bf16": q6_k.as_type(bf16),
        "q6_k-in-fp16": q6_k.as_type(f16),
        "q6_k-in-fp32": q6_k,
        "affine-int4-g64-in-bf16": ao.as_type(bf16),
        "affine-int4-g64-in-fp32": ao,
        "mxfp4-in-bf16": mxfp4.as_type(bf16),
        "nvfp4-in-bf16": nvfp4.as_type(bf16),
        "int4-g64-in-bf16, 5 % damaged": int4.as_type(bf16).damaged(random, 0.05),
        "fp8-block-in-bf16, 5 % damaged": fp8.as_type(bf16).damaged(random, 0.05),
    }


def on_grids(folder: Path) -> Iterator[Case]:
    """Files of all grids; damaged elements take additional space."""
    for name, grid in grids(SEED, ROWS, COLS).items():
        bound = grid.bound() / grid.values.nbytes * (1.3 if "damaged" in name else 1.02) + 0.001
        yield of_array(name, grid.values, folder, bound)


def half(values: np.ndarray) -> np.ndarray:
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
    return np.concatenate([half(d), half(dmin), packed, nibbles], axis=1)


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
    return np.concatenate([low.reshape(n, -1), high.reshape(n, -1), scales.view(np.uint8), half(d)], axis=1)


def quantised(folder: Path, source: Path) -> Iterator[Case]:
    """GGUF files of the matrices of a file. Q4_K and Q6_K are quantised by their definitions, with scales from the
    extremes, the others by the package gguf."""
    import gguf
    from gguf import GGMLQuantizationType as Type
    from safetensors.numpy import load_file

    matrices = {n: w.astype(np.float32) for n, w in load_file(source).items() if w.ndim == 2 and w.size % 256 == 0}
    weights = {n: w.reshape(-1, 256) if w.shape[1] % 256 else w for n, w in matrices.items()}
    by_package = (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q8_0, Type.MXFP4, Type.TQ2_0)
    for kind in (*by_package, Type.Q4_K, Type.Q6_K):
        quantise = {Type.Q4_K: q4_k, Type.Q6_K: q6_k}.get(kind, lambda w, kind=kind: gguf.quants.quantize(w, kind))
        writer = gguf.GGUFWriter(folder / "raw.gguf", "bert")
        for name, w in weights.items():
            writer.add_tensor(name, quantise(w).reshape(w.shape[0], -1), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        yield Case(kind.name, folder / "raw.gguf")


def layouts(folder: Path, sources: list[Path]) -> Iterator[Case]:
    """The tensors of a file in the formats that training writes; the last source is also given the one before."""
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file, save_file
    from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat

    def distributed(tensors: dict[str, torch.Tensor], path: Path, form: SerializationFormat) -> None:
        # It writes to a directory, and names the file itself.
        dcp.save(tensors, storage_writer=FileSystemWriter(path.parent, serialization_format=form), no_dist=True)
        (path.parent / "__0_0.distcp").rename(path)

    def in_numpy(tensors: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
        return {name: t.numpy() for name, t in tensors.items() if t.dtype != torch.bfloat16}

    warnings.simplefilter("ignore")
    formats = {
        "safetensors": save_file,
        ".pt": torch.save,
        ".distcp": lambda t, p: distributed(t, p, SerializationFormat.TORCH_SAVE),
        ".distcp of safetensors": lambda t, p: distributed(t, p, SerializationFormat.SAFETENSORS),
        ".npz, without bf16": lambda t, p: np.savez(p.open("wb"), **in_numpy(t)),
    }
    for number, (name, save) in enumerate(formats.items()):
        files = []
        for source in sources:
            file = folder / f"{number}-{source.stem}" / "state"
            file.parent.mkdir()
            save(load_file(source), file)
            files.append(file)
        yield Case(name, files[-1])
        if len(files) > 1:
            yield Case(f"{name}, given the other", files[-1], base=files[-2])


def cases(kind: str, folder: Path, files: list[Path]) -> Iterator[Case]:
    match kind:
        case "structured":
            yield from (of_array(name, a, folder, BARS.get(name)) for name, a in structured(ROWS, COLS).items())
        case "grids":
            yield from on_grids(folder)
        case "quantised":
            yield from quantised(folder, files[0])
        case "layouts":
            yield from layouts(folder, files)
        case _:
            yield from (Case(f.name, f) for f in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmc", type=Path)
    parser.add_argument("kind", choices=["structured", "grids", "quantised", "layouts", "files"])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--level", default="default")
    args = parser.parse_intermixed_args()
    if not args.files and args.kind in ("quantised", "layouts", "files"):
        parser.error(f"{args.kind} needs a file")
    zstd_level = {"fast": 1, "default": 3, "max": 19}[args.level]
    zstd = zstandard.ZstdCompressor(zstd_level)
    above = 0
    print(f"| | lmc {args.level} | zstd -{zstd_level} | grouped | bound | |\n|---|--:|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for case in cases(args.kind, folder, args.files):
            data = case.file.read_bytes()
            ours = restored_size(args.lmc, ["--level", args.level], case.file, folder, case.base) / len(data)
            plain = len(zstd.compress(data)) / len(data)
            elements = np.frombuffer(data, np.uint8)[len(data) % case.width :].reshape(-1, case.width)
            grouped = len(zstd.compress(elements.T.tobytes())) / len(data)
            bound = 1.01 * min(plain, grouped) + 0.001
            if case.bound is not None:
                bound = min(bound, case.bound)
            above += bool(ours > bound)
            mark = "**larger**" if ours > bound else ""
            print(f"| {case.name} | {ours:.4f} | {plain:.4f} | {grouped:.4f} | {bound:.4f} | {mark} |", flush=True)
    print(f"\n{above} above their bounds")
    sys.exit(int(above > 0))


if __name__ == "__main__":
    main()
