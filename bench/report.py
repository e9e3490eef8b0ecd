"""docs/benchmarks.md and the README's table, from the results alone."""

import re
import textwrap
from pathlib import Path

import bars
import report_checkpoints
import report_cores
import report_deltas
import report_follow
import report_python
import report_store
from bars import find
from markdown import LEVELS, number, peers_table, percent, smallest_in_bold, table


def levels_of(results: dict) -> list[str]:
    """The levels that were measured."""
    return [level for level in LEVELS if any(r["level"] == level for r in results["speed"][0]["files"][0]["results"])]


def codec_name(row: dict) -> str:
    return f"{row['codec']} {row['level']}".strip()


def kibibytes(text: str | None) -> str:
    """`32768K` or `24684092 kB` in a unit that is easier to read."""
    if not text:
        return "unknown"
    kib = int(re.sub(r"\D", "", text))
    return f"{kib / 2**20:.1f} GiB" if kib >= 2**20 else f"{kib / 2**10:g} MiB"


def machine_table(m: dict, suffix: str) -> str:
    command = " ".join(["bench/run", *(["--machine", suffix[1:]] if suffix else [])])
    rows = [
        ["processor", m["cpu"]],
        ["cores, level 3 cache, memory", f"{m['cores']}, {kibibytes(m['l3_cache'])}, {kibibytes(m['memory'])}"],
        ["instruction sets of `lmc`", ", ".join(m["isas"])],
        ["huge pages", f"`{m['huge_pages']}`"],
        ["kernel", m["kernel"]],
        ["file system", m["folder"][0]],
        ["load when it began", m["load"]],
        ["`lmc`", f"{m['lmc']}, commit {m['commit'] or 'unknown'}, {m['profile']} build"],
        *([f"`lmc` for {step}", f"commit {commit or 'unknown'}"] for step, commit in m.get("later", {}).items()),
        ["compiler, Python, zstd program", f"{m['rustc']}; {m['python']}; {m['zstd_program']}"],
        ["date", m["date"]],
        ["command", f"`BENCH_DATA=DIR {command}`" if m["bench_data"] else f"`{command}`"],
    ]
    return table(["", ""], rows, left=2)


def bar_tables(results: dict) -> str:
    out = []
    for title, group in bars.GROUPS:
        rows = []
        for b in group(results):
            digits = 1 if b.unit == "MiB" else 3 if b.unit == "×" else 2
            sign = "≥" if b.more else "≤"
            rows.append([
                b.what,
                "—" if b.measured is None else f"{b.measured:.{digits}f} {b.unit}",
                f"{sign} {b.must:g}",
                "" if b.aim is None else f"{sign} {b.aim:g}",
                b.verdict(),
            ])  # fmt: skip
        if rows:
            out.append(f"### {title}\n\n" + table(["", "measured", "must", "aim", ""], rows))
    return "\n".join(out)


def speed_table(measured: dict) -> str:
    """Everything that `lmc bench` measured on one data set."""
    rows = []
    for m in measured["memcpy"]:
        speed = number(m["gb_per_s"])
        rows.append(["memcpy", "", str(m["threads"]), "", speed, "1", speed, "1", f"{100 * m['spread']:.0f} %"])
    for r in measured["results"]:
        name = codec_name(r) + (" *" if r["sampled"] else "")
        how = r["isa"] or ("grouped" if r["grouped"] else "as is")
        spread = max(r["compress"]["spread"], r["decompress"]["spread"])
        row = [name, how, str(r["threads"]), percent(r["ratio"])]
        for way in ("compress", "decompress"):
            row += [number(r[way]["gb_per_s"]), number(r[way]["of_memcpy"])]
        rows.append([*row, f"{100 * spread:.0f} %"])
    headings = ["", "", "threads", "of raw", "in GB/s", "× memcpy", "out GB/s", "× memcpy", "±"]
    return f"{measured['file']}\n\n" + table(headings, rows, left=2)


def buffers_table(results: dict) -> str:
    """The best ISA on 90 MB and 1 GB."""
    best = results["machine"]["isas"][-1]
    rows = []
    for dtype, i in (("bf16", 0), ("fp32", 1)):
        for run in (results["speed"][i], results["buffers"][i]):
            measured = run["files"][0]
            for level in levels_of(results):
                for threads in (1, 2):
                    r = bars.lmc_row(run, level, best, threads)
                    row = [dtype, f"{measured['raw_size'] / 1e6:,.0f} MB", level, str(threads)]
                    for way in ("compress", "decompress"):
                        row += [number(r[way]["gb_per_s"]), number(r[way]["of_memcpy"])]
                    rows.append(row)
    return table(["", "", "level", "threads", "in GB/s", "× memcpy", "out GB/s", "× memcpy"], rows, left=3)


def process_table(measured: dict) -> str:
    rows = []
    for what, r in measured["results"].items():
        rows.append([
            f"`{what}`",
            number(r["seconds"]),
            number(r["of_cp"]),
            number(r["gb_per_s"]),
            f"{r['output']:,}",
            f"{r['peak_memory'] / 2**20:.0f}",
        ])  # fmt: skip
    headings = ["", "seconds", "× `cp && sync`", "GB/s", "bytes written", "peak memory, MiB"]
    title = f"{measured['file']}, {measured['raw_size']:,} bytes, median of {measured['rounds']} rounds\n\n"
    return title + table(headings, rows)


def breakdown_table(results: dict) -> str:
    files = [(d, r["files"][0]["breakdown"]) for d, r in zip(("bf16", "fp32"), results["breakdown"], strict=True)]
    out = []
    steps = [[s["what"], s["step"]] for s in files[0][1]["steps"]]
    for _, b in files:
        for row, step in zip(steps, b["steps"], strict=True):
            row.append(number(step["gb_per_s"]))
    rows = [[f"{name.replace('_', ' ')}: {what}", *speeds] for what, name, *speeds in steps]
    out.append(table(["GB/s of raw data, one thread", "bf16", "fp32"], rows))
    levels = levels_of(results)
    built = [[f"one table, `{level}`", *(number(b["table_us"][level]) for _, b in files)] for level in levels]
    out.append(table(["µs", "bf16", "fp32"], built))
    shares = zip(*(b["shares"] for _, b in files), strict=True)
    rows = [[each[0]["what"], *(f"{100 * s['share']:.1f} %" for s in each)] for each in shares]
    out.append(table(["share of the time", "bf16", "fp32"], rows))
    return "\n".join(out)


def small_table(results: dict) -> str:
    rows = []
    for i, title in enumerate(["10,000 tensors of 4 KiB", "one tensor with the same elements"]):
        for level in levels_of(results):
            found = [find(run["files"][i]["results"], codec="lmc", level=level) for run in results["small"]]
            speeds = [sorted(r[way]["gb_per_s"] for r in found)[len(found) // 2] for way in ("compress", "decompress")]
            rows.append([title, level, f"{found[0]['size']:,}", *map(number, speeds)])
    return table(["", "level", "bytes", "in GB/s", "out GB/s"], rows, left=2)


def size_table(results: dict) -> str:
    """Sizes of every input; the smallest in bold, unless it is from a sample."""
    levels = levels_of(results)
    headings = ["", "bytes", *(f"lmc {level}" for level in levels), "ZipNN", "OpenZL"]
    headings += ["zstd -1", "zstd -19", "gzip", "bzip2"]
    rows = []
    for s in results["sizes"]:
        cells = [find(s["results"], codec="lmc", level=level)["ratio"] for level in levels]
        cells += [s["packages"][p] / s["raw_size"] for p in ("ZipNN", "OpenZL")]
        samples = [False] * len(cells)
        for codec, level in (("zstd", "1"), ("zstd", "19"), ("gzip", "6"), ("bzip2", "9")):
            both = [r for r in s["results"] if r["codec"] == codec and r["level"] == level]
            cells.append(min(r["ratio"] for r in both))
            samples.append(both[0]["sampled"])
        rows.append([s["name"], f"{s['raw_size']:,}", *smallest_in_bold(cells, samples)])
    whats = "".join(f"* {s['name']}: {s['what']}\n" for s in results["sizes"])
    return table(headings, rows) + "\n" + whats


def notes(suffix: str) -> str:
    """Notes written by hand: bench/notes.md, if it exists."""
    path = Path(__file__).parent / f"notes{suffix}.md"
    return "\n" + path.read_text().strip() + "\n" if path.exists() else ""


def profiles(suffix: str) -> str:
    """The results of bench/profiles/run, on the machine of the main page."""
    return "" if suffix else (Path(__file__).parent / "profiles" / "notes.md").read_text().strip() + "\n\n"


def page(results: dict, suffix: str) -> str:
    """The page of one machine; `suffix` is empty for that of the README, and `-NAME` for others."""
    other = "\nA different machine from that of [`benchmarks.md`](benchmarks.md).\n" if suffix else ""
    folder = "bench/results" + suffix.replace("-", "/", 1)
    quick = "\n**A quick run: these numbers only show that the tool works.**\n" if results["machine"]["quick"] else ""
    speed = "\n".join(speed_table(r["files"][0]) for r in results["speed"])
    peers = "\n".join(peers_table(m, m["dtype"]) for m in results["peers"]["memory"])
    processes = "\n".join(map(process_table, results["process"]))
    # Measured separately: it needs the snapshots of a run.
    stores = report_store.section(results["store"]) if "store" in results else ""
    checkpoints = report_checkpoints.section(results["checkpoints"]) if "checkpoints" in results else ""
    python = report_python.section(results["python"]) if "python" in results else ""
    cores = report_cores.section(results["cores"]) if "cores" in results else ""
    followed = report_follow.section(results["follow"]) if "follow" in results else ""
    return f"""# Benchmarks

<!-- Written by bench/run from {folder}/*.json. Do not edit: edit bench/report.py or bench/notes{suffix}.md. -->
{quick}{other}
{machine_table(results["machine"], suffix)}
Speeds count uncompressed bytes: 1 GB is 10^9 bytes. *In* is compression, *out* decompression. One thread unless stated
otherwise. In every row `lmc` hashes its input, and checks the hashes when it restores.
[`bench/README.md`](../bench/README.md) describes the method.

![Speed relative to memcpy against size, for every codec](benchmarks{suffix}.svg)

## Targets

*Must* is required, *aim* is desired. Ratios to memcpy are the worse of 90 MB and 1 GB.

{bar_tables(results)}{notes(suffix)}
## Beside general-purpose codecs

*Grouped*: the first bytes of all elements, then the second bytes, and so on; the time includes grouping. `*`: measured
on a sample, spread evenly over the data. ±: distance between the quartiles of the time, in per cent of the median.

{speed}
## Large buffers

{buffers_table(results)}
## Beside ZipNN and OpenZL

One thread, in turns, on the same bytes. Ratios are medians of the ratios within a round. The allocator keeps freed
memory, so page faults do not count against the Python packages.

{peers}
{report_deltas.section(results)}
{cores}{stores}{followed}{checkpoints}{python}## Whole processes

Durable: the output of every command is synced to the disk. Warm page cache, {results["process"][0]["threads"]} threads.

{processes}
## Many small tensors

{small_table(results)}
{profiles(suffix)}## Where the time goes

{breakdown_table(results)}
## Sizes

Per cent of raw, whole files. General-purpose codecs: the smaller of as is and grouped. ZipNN, OpenZL: the elements of
each dtype separately, with the package's best settings for them. `*`: a sample. Bold: the smallest, samples excluded.

{size_table(results)}"""


def smallest(rows: list[dict], count: int) -> list[dict]:
    """The rows of the smallest sizes, smallest first."""
    return sorted(rows, key=lambda r: r["ratio"])[:count]


def readme_table(results: dict) -> str:
    """Size and speed of bf16 and fp32 beside the smallest peers and zstd, and of a delta beside the smallest peers."""
    best = results["machine"]["isas"][-1]
    rows = []
    for measured, run in zip(results["peers"]["memory"], results["speed"], strict=True):
        dtype = {"BF16": "bf16", "F32": "fp32"}[measured["dtype"]]
        for level in levels_of(results):
            r = find(measured["results"], codec=f"lmc {level} {best}")
            rows.append([dtype, f"**lmc** `{level}`", r])
        peers = [r for r in measured["results"] if not r["codec"].startswith("lmc ")]
        rows += [[dtype, r["codec"], r] for r in smallest(peers, 2)]
        general = run["files"][0]["results"]
        rows.append([dtype, "zstd -3, grouped", find(general, codec="zstd", level="3", grouped=True)])
    cells = [
        [dtype, name, f"{100 * r['ratio']:.1f} %"]
        + [f"{number(r[w]['gb_per_s'])} ({number(r[w]['of_memcpy'])})" for w in ("compress", "decompress")]
        for dtype, name, r in rows
    ]
    step = results["deltas"]["peers"][0]
    ours = find(step["results"], codec=f"lmc default {best}")
    peers = [r for r in step["results"] if not r["codec"].startswith("lmc ")]
    for name, r in [("**lmc** `default`", ours), *((r["codec"], r) for r in smallest(peers, 2))]:
        # Without the ratio to memcpy, whose data were in the caches.
        speeds = [number(r[w]["gb_per_s"]) for w in ("compress", "decompress")]
        cells.append(["bf16, one step later", name, f"{100 * r['ratio']:.1f} %", *speeds])
    m = results["machine"]
    headings = ["weights", "codec", "size", "compress GB/s (× memcpy)", "decompress GB/s (× memcpy)"]
    commit = m["commit"] or "unknown"
    of_deltas = m.get("later", {}).get("deltas", commit)
    if of_deltas != commit:
        commit += f", for deltas {of_deltas}"
    where = f"""One thread, in memory, a model of 22.7 million parameters; deltas of {step["raw_size"] / 1e6:.1f} MB of
weights, one step of training apart. {m["cpu"]}, commit {commit}, made by `bench/run`."""
    return table(headings, cells, left=2) + "\n" + textwrap.fill(" ".join(where.split()), 120) + "\n"


def update_readme(results: dict, readme: Path) -> None:
    """Replaces the text between the README's two markers."""
    text = readme.read_text()
    block = f"<!-- bench:begin -->\n{readme_table(results)}<!-- bench:end -->"
    new, count = re.subn(r"<!-- bench:begin -->.*?<!-- bench:end -->", lambda _: block, text, flags=re.S)
    if count != 1:
        raise SystemExit(f"{readme} has no place for the table (<!-- bench:begin --> … <!-- bench:end -->)")
    readme.write_text(new)
