"""The section on checkpoints from Python of docs/benchmarks.md."""

from typing import Any

from markdown import number, percent, table
from origin import sentence


def table_of(measured: dict[str, Any]) -> str:
    """Medians, and their ratios to PyTorch's own way."""
    ways = measured["ways"]
    plain = ways["`dcp.save`"]
    rows = []
    for name, r in ways.items():
        row = [name, f"{r['bytes']:,.0f}", percent(r["bytes"] / measured["raw"])]
        for key in ("blocked", "saved", "loaded"):
            row += [f"{r[key]:.3f}", number(r[key] / plain[key])]
        row += [f"{r[key] / 2**20:.0f}" for key in ("save_memory", "load_memory")]
        rows.append(row)
    headings = [
        "",
        "bytes",
        "of raw",
        "blocked, s",
        "× dcp",
        "on disk, s",
        "× dcp",
        "load, s",
        "× dcp",
        "save MiB",
        "load MiB",
    ]
    return table(headings, rows)


def section(measured: dict[str, Any]) -> str:
    return f"""## Checkpoints from Python

A training state of {measured["raw"]:,} bytes in {measured["tensors"]:,} tensors (bf16 weights, fp32 masters, both
moments of AdamW), eleven steps after the previously saved state, goes from memory to the disk and back into existing
tensors, with {measured["threads"]} threads. Medians of {measured["rounds"]} rounds, in which every way took its turn in
a separate process, and restored the state bit for bit. *Blocked* is the time for which a training loop would wait. The
memory excludes the state. It also excludes the last state, which lmc keeps in memory as the base of the next one since
the first save. {sentence(measured)}

{table_of(measured)}
"""
