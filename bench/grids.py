#!/usr/bin/env python3
"""Sizes of weights that were quantised, and dequantised again to bf16, fp16 or fp32.

Usage: bench/grids.py LMC [--level LEVEL] [--seed S] [--rows R] [--cols C]

Makes a safetensors file of each kind by the formulas of the libraries that write them, compresses it with the program
LMC, restores it, and prints its size in parts of raw beside zstd's at level 19, as it is and grouped (byte planes), and
what its grid takes: the entropy of order 0 of the levels, and 24 bits for each scale and offset. The exit status is 1
if a file is more than 2 % larger than its grid.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import zstandard
from tensors import Tensor, restored_size, write

DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmc", type=Path)
    parser.add_argument("--level", default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--cols", type=int, default=1024)
    arguments = parser.parse_args()
    zstd, worse = zstandard.ZstdCompressor(19), 0
    print(f"| | lmc {arguments.level} | grid | zstd -19 | grouped | |\n|---|--:|--:|--:|--:|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        raw = folder / "raw.safetensors"
        for title, grid in grids(arguments.seed, arguments.rows, arguments.cols).items():
            flat = np.ascontiguousarray(grid.values).reshape(-1).view(np.uint8)
            write(raw, [Tensor("w", DTYPES[grid.values.dtype.name], list(grid.values.shape), flat)])
            options = ["--level", arguments.level]
            ours = restored_size(arguments.lmc, options, raw, folder) / flat.size
            planes = np.ascontiguousarray(flat.reshape(-1, grid.values.itemsize).T).tobytes()
            plain, grouped = (len(zstd.compress(data)) / flat.size for data in (raw.read_bytes(), planes))
            bound = grid.bound() / flat.size
            # Damaged elements take additional space.
            larger = ours > bound * (1.3 if "damaged" in title else 1.02)
            worse += larger
            mark = "**larger**" if larger else ""
            print(f"| {title} | {ours:.4f} | {bound:.4f} | {plain:.4f} | {grouped:.4f} | {mark} |", flush=True)
    sys.exit(worse > 0)


main()
