#!/usr/bin/env python3
"""Writes a synthetic bf16 model of more than 100 million parameters: python3 bench/make_model.py OUT.safetensors

With `--width 2560 --layers 32` it has 2.7 billion, and 5.4 GB.

Nothing in it was trained. Names and shapes are those of a small decoder of the Llama kind; values are drawn so that
their exponents are spread as in trained weights: matrices are Gaussian or heavy-tailed, with scales of their own for
every row and column; norms lie close to one. It exists so that a file of a realistic size and tensor count can be
measured without downloading one. Sizes on it say little about real models.
"""

import argparse
from pathlib import Path

import numpy as np
import tensors

VOCABULARY = 32_000
WIDTH = 768
LAYERS = 12
SEED = 20_250_101
METADATA = {"synthetic": "made by bench/make_model.py; untrained"}


def matrix(rng: np.random.Generator, rows: int, columns: int, scale: float, freedom: float | None) -> np.ndarray:
    """Gaussian, or Student's t with some degrees of freedom; every row and column has its own scale."""
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    if freedom is not None:
        values /= np.sqrt(rng.standard_gamma(freedom / 2, (rows, columns), dtype=np.float32) * np.float32(2 / freedom))
    values *= np.exp(rng.normal(0.0, 0.25, (rows, 1))).astype(np.float32)
    values *= np.exp(rng.normal(0.0, 0.15, (1, columns))).astype(np.float32)
    values *= np.float32(scale)
    return values


def model(rng: np.random.Generator, width: int, layers: int):
    """Yields names and fp32 values."""
    # Eight thirds of the width, as in Llama.
    feed_forward = -(-width * 8 // (3 * 256)) * 256
    yield "model.embed_tokens.weight", matrix(rng, VOCABULARY, width, 0.04, None)
    for i in range(layers):
        layer = f"model.layers.{i}"
        depth = 1.0 + i / layers
        yield f"{layer}.input_layernorm.weight", rng.normal(0.4 * depth, 0.05, width).astype(np.float32)
        for part in "qkvo":
            yield f"{layer}.self_attn.{part}_proj.weight", matrix(rng, width, width, 0.03 * depth, 5.0)
        yield f"{layer}.post_attention_layernorm.weight", rng.normal(0.5 * depth, 0.05, width).astype(np.float32)
        yield f"{layer}.mlp.gate_proj.weight", matrix(rng, feed_forward, width, 0.025 * depth, None)
        yield f"{layer}.mlp.up_proj.weight", matrix(rng, feed_forward, width, 0.025 * depth, None)
        yield f"{layer}.mlp.down_proj.weight", matrix(rng, width, feed_forward, 0.02 * depth, 8.0)
    yield "model.norm.weight", rng.normal(2.0, 0.2, width).astype(np.float32)
    yield "lm_head.weight", matrix(rng, VOCABULARY, width, 0.03, None)


def make(path: Path, width: int = WIDTH, layers: int = LAYERS) -> int:
    """Writes the model; returns its number of parameters."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    out = [
        tensors.Tensor(name, "BF16", list(values.shape), tensors.to_bf16(values).ravel())
        for name, values in model(rng, width, layers)
    ]
    tensors.write(path, out, METADATA)
    return sum(t.data.size for t in out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--layers", type=int, default=LAYERS)
    args = parser.parse_args()
    print(f"{make(args.out, args.width, args.layers):,} parameters")
