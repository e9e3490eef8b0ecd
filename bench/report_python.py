"""The section on the Python package of docs/benchmarks.md."""

from typing import Any

from markdown import number, table
from origin import sentence


def tables_of(measured: dict[str, Any]) -> str:
    """Speeds relative to the library, and many small tensors relative to one large tensor."""
    speeds = [[r["what"], number(r["gb_per_s"]), f"{r['of_library']:.3f}"] for r in measured["memory"]]
    small = [
        [r["what"], f"{1e3 * r['many']:.1f}", f"{1e3 * r['one']:.1f}", number(r["ratio"])] for r in measured["small"]
    ]
    many = f"{measured['tensors']:,} tensors, ms"
    return (
        table(["", "GB/s", "× the library"], speeds) + "\n" + table(["", many, "one tensor, ms", "many ÷ one"], small)
    )


def section(measured: dict[str, Any]) -> str:
    threads = "one thread" if measured["threads"] == 1 else f"{measured['threads']} threads"
    return f"""## From Python

{measured["file"]}, its {measured["dtype"]} elements repeated to {measured["raw_size"]:,} bytes, {threads}. Medians of
{measured["rounds"]} rounds, in which every way took its turn beside `lmc bench` of the same file. `compress` and
`decompress` return new memory each time (a call before the measured ones makes a virtual machine allocate it);
everything else reuses its buffers, as `lmc bench` does. The second table has the same elements in many tensors
(of {measured["tensor_size"]:,} bytes as bf16; with numpy of twice as many, as fp32) and in one tensor, saved to memory
and loaded from a file. {sentence(measured)}

{tables_of(measured)}
"""
