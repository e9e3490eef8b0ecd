"""The section on weights that are followed in memory of docs/benchmarks.md."""

import textwrap
from typing import Any

from markdown import number, table
from origin import sentence


def speed(copy: float, seconds: float | None) -> str:
    """In multiples of the copy."""
    return "" if seconds is None else number(copy / seconds)


def rows_of(measured: dict[str, Any]) -> list[list[str]]:
    """The protocols at one share of changes."""
    rows, raw = [], measured["raw_size"]
    for i, r in enumerate(measured["rows"]):
        size = f"{100 * r['size'] / raw:.3f} %"
        if "objects" in r:
            size += f" ({100 * r['objects'] / raw:.3f})"
        speeds = [speed(measured["copy"], r[what]) for what in ("made", "staged", "applied")]
        changed = f"{100 * measured['changed']:.2f} %" if i == 0 else ""
        rows.append([changed, f"**{r['protocol']}**" if "objects" in r else r["protocol"], size, *speeds])
    return rows


def table_of(case: dict[str, Any]) -> str:
    rows = [row for measured in case["measured"] for row in rows_of(measured)]
    return table(["changed", "protocol", "size (all objects)", "made", "staged", "applied"], rows, left=2)


def text_of(case: dict[str, Any]) -> str:
    speeds = [m["raw_size"] / m["copy"] / 1e9 for m in case["measured"]]
    copies = "–".join(dict.fromkeys(f"{s:.1f}" for s in (min(speeds), max(speeds))))
    text = (
        f"{case['name'][0].upper()}{case['name'][1:]}: store on {' and '.join(case['stores'])}, medians of"
        f" {case['rounds']} rounds, a copy at {copies} GB/s, {case['isa']}. {sentence(case)}"
    )
    return textwrap.fill(text, 120) + "\n\n" + table_of(case)


def section(cases: list[dict[str, Any]]) -> str:
    parts = "\n".join(map(text_of, cases))
    return f"""## Weights that are followed in memory

`bench/follow.py`, one thread: a share of the elements changes, and a receiver gets to the new version. Speeds are in
multiples of a copy of the weights. *Made* is publishing, or making what is sent; *applied* is the commit, during which
an engine waits, or all that a receiver of another protocol does. `lmc` is level `fast`, verifies what it fetches, and
writes durably; the others do neither. In brackets: all objects of the version, documents included. A follower that gets
several versions at once stages and commits them as one; each changed that share, and the sizes are those of all. Of
versions in a row the sizes are averages: what a follower fetches of one, and in brackets what is stored. Every 16th is
stored as a delta and whole; where deltas are more than half as large as the whole, it is stored whole alone.

{parts}
"""
