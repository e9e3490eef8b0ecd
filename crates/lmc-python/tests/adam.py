"""The states of a small training with AdamW, as PyTorch computes them, with random gradients."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

F = np.float32


def states(steps: int, shapes: tuple[tuple[int, int], ...] = ((320, 256),)) -> Iterator[dict[str, Any]]:
    """Yield a state after each step: weights, their copies of 32 bits, and both moments."""
    random, size, decay, b1, b2 = np.random.default_rng(1), 3e-4, 0.1, 0.9, 0.95
    weights = [(0.02 * random.standard_normal(shape)).astype(F) for shape in shapes]
    moments = [(np.zeros(shape, F), np.zeros(shape, F)) for shape in shapes]
    for step in range(1, steps + 1):
        rate, root = F(size / (1 - b1**step)), F(np.sqrt(1 - b2**step))
        for w, (m, v) in zip(weights, moments, strict=True):
            columns = np.array([0.1, 1, 5])[np.arange(w.shape[1]) % 3]
            g = (1e-3 * random.standard_normal(w.shape) * columns).astype(F)
            w *= F(1 - size * decay)
            m += (g - m) * F(1 - b1)
            v *= F(b2)
            v += F(1 - b2) * g * g
            w -= rate * (m / (np.sqrt(v) / root + F(1e-8)))
        yield {
            f"{kind}.layers.{i}": array
            for i, (w, (m, v)) in enumerate(zip(weights, moments, strict=True))
            for kind, array in [
                ("exp_avg", m.copy()),
                ("exp_avg_sq", v.copy()),
                ("master", w.copy()),
                ("model", w.astype(ml_dtypes.bfloat16)),
            ]
        }
