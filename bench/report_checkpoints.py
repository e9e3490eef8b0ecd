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
moments of AdamW), eleven steps after the
state that was saved before it, from memory to the disk and back into existing tensors, with
{measured["threads"]} threads. Medians of {measured["rounds"]} rounds, in
which every way took its turn in a process of its own, and restored the state to the bit. *Blocked* is the time
for which a training loop would wait;
the memory is that taken besides the state. lmc keeps the last state in memory as the base of the next, which
is not counted: it was
taken with the first save. {sentence(measured)}

{table_of(measured)}
"""
