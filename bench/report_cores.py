"""The section on all cores of docs/benchmarks.md."""

import textwrap
from typing import Any

from bars import PAPER, find
from markdown import number, percent, table
from origin import sentence


def case_table(case: dict[str, Any]) -> str:
    """Speeds of each number of threads."""
    copies = {m["threads"]: m["gb_per_s"] for m in case["memcpy"]}
    rows = [["memcpy", str(t), "", number(speed), "1", number(speed), "1"] for t, speed in copies.items()]
    for r in case["results"]:
        row = [f"**lmc** `{r['level']}`", str(r["threads"]), percent(r["ratio"])]
        for way in ("compress", "decompress"):
            row += [number(r[way]["gb_per_s"]), number(r[way]["of_memcpy"])]
        rows.append(row)
    for r in case["zipnn"]:
        row = ["ZipNN", str(r["threads"]), percent(r["ratio"])]
        for way in ("compress", "decompress"):
            row += [number(r[way]), number(r[way] / copies[r["threads"]])]
        rows.append(row)
    given = f", given {case['given']}" if case["given"] else ""
    title = f"{case['file']}{given}, {case['raw_size'] / 1e9:.1f} GB, {case['machine']['isas'][-1]}\n\n"
    return title + table(["", "threads", "of raw", "in GB/s", "× memcpy", "out GB/s", "× memcpy"], rows)


def summary(case: dict[str, Any]) -> str:
    """Against the paper's machine, and the share of the memory's bandwidth."""
    threads = max(r["threads"] for r in case["results"])
    row = find(case["results"], level="fast", threads=threads)
    over = {way: row[way]["gb_per_s"] / PAPER[way] for way in ("compress", "decompress")}
    best = max(m["gb_per_s"] for m in case["memcpy"])
    share = (row["ratio"] + 1) * row["decompress"]["gb_per_s"] / (2 * best)
    times = [f"{'' if way == 'compress' else 'de'}compresses {over[way]:.1f}" for way in over]
    return (
        f"With {threads} cores, `fast` {' and '.join(times)} times as fast as the paper's 16 (2.78 and 3.76 GiB/s)."
        f" Decompressing uses {share:.2f} of the bandwidth of the fastest copy, if each decoded byte is moved once."
    )


def process_rows(measured: dict[str, Any]) -> str:
    rows = [
        [f"`{what}`", number(r["seconds"]), number(r["of_cp"]), number(r["gb_per_s"])]
        for what, r in measured["results"].items()
    ]
    title = f"{measured['raw_size']:,} bytes of random bf16 weights, {measured['threads']} threads, durable\n\n"
    return title + table(["", "seconds", "× `cp && sync`", "GB/s"], rows)


def section(measured: dict[str, Any]) -> str:
    cases = "\n".join(map(case_table, measured["cases"]))
    where = f"`bench/cores.py`, on another machine than the rest of this page. {sentence(measured)}"
    return f"""## All cores

{textwrap.fill(f"{where} {summary(measured['cases'][0])}", 120)}

{cases}
{process_rows(measured["process"]) if measured["process"] else ""}"""
