"""The section on stores of docs/benchmarks.md."""

from statistics import median

from markdown import number, percent, table


def bytes_table(measured: dict) -> str:
    """The size of the whole run, by program."""
    sizes = dict(measured["bytes"])
    for name, store in measured["stores"].items():
        sizes[f"`lmc snapshot`, {name}"] = sum(r["new_size"] for r in store["snapshots"])
    raw = sizes["raw"]
    rows = [[name, f"{n:,}", f"{n / measured['files'] / 1e6:.2f}", percent(n / raw)] for name, n in sizes.items()]
    return table(["", "bytes", "MB a snapshot", "of raw"], rows)


def snapshot_table(store: dict) -> str:
    rows = []
    for r in store["snapshots"]:
        rows.append([
            str(r["step"]),
            f"{r['new_size']:,}",
            percent(r["new_size"] / r["raw_size"]),
            str(r["chain"]),
            percent(r["read_size"] / r["raw_size"]),
            f"{r['save']:.3f} ({number(r['save_of_cp'])})",
            f"{r['restore']:.3f} ({number(r['restore_of_cp'])})",
        ])  # fmt: skip
    headings = ["step", "stored", "of raw", "chain", "read to restore, of raw", "save, s", "restore, s"]
    return table(headings, rows)


def time_table(measured: dict) -> str:
    """Medians, and the most memory of any one process."""
    rows = []
    for name, store in measured["stores"].items():
        row = [name]
        for what in ("save", "restore"):
            row += [
                f"{median(r[what] for r in store['snapshots']):.3f}",
                number(median(r[f"{what}_of_cp"] for r in store["snapshots"])),
                f"{max(r[f'{what}_memory'] for r in store['snapshots']) / 2**20:.0f}",
            ]
        rows.append(row)
    headings = ["", "save, s", "× `cp && sync`", "peak MiB", "restore, s", "× `cp && sync`", "peak MiB"]
    return table(headings, rows)


def chain_table(store: dict) -> str:
    by_chain: dict[int, list[dict]] = {}
    for r in store["snapshots"]:
        by_chain.setdefault(r["chain"], []).append(r)
    rows = []
    for chain, found in sorted(by_chain.items()):
        seconds, over = (median(r[k] for r in found) for k in ("restore", "restore_of_cp"))
        read = median(r["read_size"] / r["raw_size"] for r in found)
        rows.append([str(chain), str(len(found)), percent(read), f"{seconds:.3f}", number(over)])
    return table(["chain", "snapshots", "read, of raw", "restore, s", "× `cp && sync`"], rows, left=0)


def section(measured: dict) -> str:
    first, last = measured["steps"]
    local = measured["stores"]["directory"]
    return f"""## A run in a store

{measured["files"]} snapshots of a training run, steps {first} to {last}, each saved by a separate process with
the default options and {measured["threads"]} threads, in turns with `cp F G && sync G`. All were restored
and compared. A bucket, if measured, is on a server on the same machine. With a cache (`--cache`), the
newest snapshot need not be decoded to save the next one.

{bytes_table(measured)}
{time_table(measured)}
### By chain length

The chain length is the number of block sets that are decoded in sequence for a tensor, at most over the tensors of a
snapshot.

{chain_table(local)}
### Snapshot by snapshot

In a directory. In brackets: the ratio to `cp && sync` in the same turn.

{snapshot_table(local)}
"""
