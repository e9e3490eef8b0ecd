"""`lmc.decode` in a process that flushes subnormal numbers to 0, as `torch.set_flush_denormal` lets it."""

from pathlib import Path

import torch
from lmc import decode

FORMAT1 = Path(__file__).parents[3] / "testdata" / "format1"


def test_subnormal_numbers_are_not_flushed() -> None:
    """Grids and steps of optimizers are computed as the page says, whatever the processor does with floats."""
    names = ("optimizer-special", "scaled-bf16", "grid-subnormal", "grid-offsets-subnormal", "grid-subnormal-bf16")
    assert torch.set_flush_denormal(True)
    try:
        assert torch.tensor([1e-40]) * 1 == 0
        for name in names:
            bases = [base.read_bytes() for base in FORMAT1.glob(f"{name}.base*")]
            raw = decode.decode((FORMAT1 / f"{name}.lmc").read_bytes(), bases)
            assert raw == (FORMAT1 / f"{name}.raw").read_bytes(), name
    finally:
        torch.set_flush_denormal(False)
