"""Writes docs/benchmarks.md and the README's tables, from bench/results/*.json alone."""

import json
import re
import textwrap
from pathlib import Path

from markdown import number, table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
# Uses, in the order of the tables.
ALONE = "a model alone"
FAMILY = "a model and its fine-tunes"
WEIGHTS = "one step of weights"
STATE = "one step of a whole state"
DIRECTORY = "a directory in several precisions"
# Columns of the README's tables, each with the rows of which the smallest counts.
COLUMNS = {
    "**lmc**": ("lmc default", "lmc snapshot"),
    "zstd": ("zstd -3", "zstd --patch-from"),
    "ZipNN": ("ZipNN",),
    "OpenZL": ("OpenZL",),
    "pcodec": ("pcodec",),
    "z4ai": ("z4ai",),
}


def cell(row: dict, way: str) -> str:
    """A speed as a ratio to a copy, and in GB/s."""
    return f"{number(row[way]['of_memcpy'])} ({number(row[way]['gb_per_s'])})" if way in row else ""


def bytes_of(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:.1f} MB"


def smallest(case: dict, names: tuple[str, ...]) -> dict | None:
    return min((r for r in case["results"] if r["codec"] in names), key=lambda r: r["size"], default=None)


def size_table(results: dict) -> str:
    rows = []
    for case in results["cases"]:
        found = [smallest(case, names) for names in COLUMNS.values()]
        sizes = ["–" if r is None else f"{100 * r['ratio']:.1f}" for r in found]
        rows.append([f"{case['use']}: {case['what']}", bytes_of(case["raw_size"]), *sizes])
    return table(["size, % of raw", "raw", *COLUMNS], rows)


def speed_table(results: dict) -> str:
    rows = []
    for case in results["cases"]:
        found = [smallest(case, names) for names in COLUMNS.values()]
        for way in ("compress", "decompress"):
            speeds = ["–" if r is None else cell(r, way) for r in found]
            if any("(" in s for s in speeds):
                rows.append([f"{case['use']}: {case['what']}", way, *speeds])
    return table(["× memcpy (GB/s)", "", *COLUMNS], rows, left=2)


def readme(results: dict) -> str:
    o = results["origin"]
    where = f"""One thread, in memory, {o["cpu"]} with {o["isas"][-1].upper()}, commit {o["commit"]}, {o["date"]}, by
`bench/run`: all codecs in turns in one run. `lmc` is level `default`; zstd the smallest of `-3`, `-3` of byte planes
and, given a base, `--patch-from`; the others get the exclusive or with the base, pcodec the difference.
[`docs/benchmarks.md`](docs/benchmarks.md) says what was measured, and has all levels. lmz was not run: no registry
has it."""
    text = textwrap.fill(" ".join(where.split()), 120, break_on_hyphens=False)
    return f"{size_table(results)}\n{speed_table(results)}\n{text}\n"


def machine(results: dict) -> str:
    """One table of everything that was measured on a machine."""
    rows = []
    for case in results["cases"]:
        title = f"{case['use']}: {case['what']}, {bytes_of(case['raw_size'])}"
        for i, r in enumerate(sorted(case["results"], key=lambda r: not r["codec"].startswith("lmc"))):
            name = f"**{r['codec']}**" if r["codec"].startswith("lmc") else r["codec"]
            speeds = (cell(r, way) for way in ("compress", "decompress"))
            rows.append([title if i == 0 else "", name, f"{100 * r['ratio']:.2f}", *speeds])
    headings = ["", "codec", "% of raw", "compress, × memcpy (GB/s)", "decompress"]
    return table(headings, rows, left=2)


def memory(kib: str | None) -> str:
    """`32768K` or `24684092 kB` in a unit that is easier to read."""
    found = int(re.sub(r"\D", "", kib or "0"))
    return f"{found / 2**20:.0f} GiB" if found >= 2**20 else f"{found / 2**10:.0f} MiB"


def section(results: dict) -> str:
    o = results["origin"]
    known = [f"{o['cores']} cores"]
    known += [f"level 3 cache of {memory(o['l3_cache'])}", f"{memory(o['memory'])} of memory"] if "memory" in o else []
    about = f"""{", ".join(known)}, {o["isas"][-1]}; lmc {o["lmc"]}, commit {o["commit"]}, {o["date"]}.
{results.get("note", "")}"""
    text = textwrap.fill(" ".join(about.split()), 120, break_on_hyphens=False)
    return f"## {o['cpu']}\n\n{text}\n\n{machine(results)}"


PAGE = """# Benchmarks

<!-- Written by bench/run from bench/results/*.json. Do not edit: edit bench/report.py. -->

`bench/run` measures all of this in one run, on whatever machine it is; [`bench/README.md`](../bench/README.md)
describes the method. A speed is that of one thread, in memory, without files: the median over the rounds of its ratio
to a copy of the same bytes in the same round, and in brackets GB of uncompressed data a second (10^9 bytes). All codecs
take turns. `lmc` hashes its input and checks what it restores; the others do neither.

What is measured, by use:

* **A model alone**: all-MiniLM-L6-v2, 22.7 million parameters, as published (fp32) and cast to bf16. The large model
  has 1.0 billion parameters in the shapes of a Llama: each element is drawn, with replacement, from those of the matrix
  of the same purpose in MiniLM, and scaled as initialisation scales with the width. It is there for the speeds.
* **A model and its fine-tunes**: MiniLM in bf16, and three fine-tunes of it, 32 steps of contrastive learning at 2e-5
  on docstrings (`bench/finetune.py`), each given the model. Speeds are those of one fine-tune. Deltas grow with the
  training: [the study](study.md) has them over up to 512 steps.
* **One step**: the bf16 weights of step 32 of such a fine-tuning given those of step 31, and the whole state: these
  weights, fp32 masters and both moments of AdamW. Embeddings of words that do not occur have moments of zero. The step
  of pre-training is that of the cuts in `testdata`, steps 300 and 301 of a small GPT at 9.4e-5, too small for speeds.
* **A directory in several precisions**: MiniLM in fp32, bf16, fp16, fp8 (e4m3) and int8: each file by itself, and all
  in one snapshot of a store. Sizes alone.

zstd is level 3, of the data or of their byte planes, whichever is smaller. ZipNN 0.5.4, OpenZL 0.3.0 (exponents to FSE,
planes of fp32 to its generic graph), pcodec 1.1.0 (bf16 as integers) and z4ai 0.2.0 get the elements of each dtype by
themselves. Given a base, zstd, ZipNN and OpenZL get the exclusive or, pcodec the difference as integers. lmz was not
run: no registry has it.

"""


def write() -> None:
    """The page, a section for each machine, and the README's tables."""
    first, *others = (
        json.loads(f.read_text())
        for f in sorted(RESULTS.glob("*.json"), key=lambda f: (f.stem != "readme", f.stem))
        if f.stem != "study"
    )
    (ROOT / "docs" / "benchmarks.md").write_text(PAGE + "\n".join(map(section, (first, *others))))
    path = ROOT / "README.md"
    block = f"<!-- bench:begin -->\n{readme(first)}<!-- bench:end -->"
    text, count = re.subn(r"<!-- bench:begin -->.*?<!-- bench:end -->", lambda _: block, path.read_text(), flags=re.S)
    if count != 1:
        raise SystemExit(f"{path} has no place for the tables (<!-- bench:begin --> … <!-- bench:end -->)")
    path.write_text(text)


if __name__ == "__main__":
    write()
