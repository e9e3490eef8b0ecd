"""Writes docs/benchmarks.md, and the README's uses and table, from bench/results/*.json alone."""

import functools
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
    "**lmc**": ("lmc default", "lmc snapshot", "lmc --base"),
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


def found(results: dict, use: str, what: str = "", codec: str = "**lmc**") -> dict:
    """The row of a codec in the first case of a use whose name begins so."""
    case = next(c for c in results["cases"] if c["use"] == use and c["what"].startswith(what))
    return smallest(case, COLUMNS[codec])


def per_cent(results: dict, use: str, what: str = "", codec: str = "**lmc**") -> str:
    return f"{100 * found(results, use, what, codec)['ratio']:.1f} %"


def uses(results: dict) -> str:
    """The README's list of uses, each with its figures."""
    large = found(results, ALONE, "bf16, large")
    speeds = [number(large[way]["gb_per_s"]) for way in ("compress", "decompress") if way in large]
    core = "one core compresses {} GB/s and restores {} GB/s".format(*speeds) if speeds else "any core restores it"
    alone, weights, state = (functools.partial(per_cent, results, use) for use in (ALONE, WEIGHTS, STATE))
    items = [
        f"""**A model on a disk or in a bucket.** bf16 weights take {alone("bf16, large")} of their size, fp32 weights
{alone("fp32")}; {core}.""",
        f"""**A family of models.** A model and three fine-tunes of it take {per_cent(results, FAMILY)} of their size,
one model in five precisions {per_cent(results, DIRECTORY)}.""",
        f"""**A training run.** A store keeps every checkpoint. A whole state of AdamW (weights, masters, moments) takes
{state("pre-training")} of its size one step on, [61 to 63 % nine steps on](docs/design/9-optimizer.md).""",
        f"""**Weights on their way to inference.** One step of bf16 weights takes {weights("fine-tuning")} of its size
in fine-tuning, {weights("pre-training")} in pre-training, and is applied in place.""",
    ]
    return "".join(f"{filled(item, '* ', '  ')}\n" for item in items)


def filled(text: str, first: str = "", others: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()), 120, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


def origins(results: dict) -> list[dict]:
    """Where the figures come from that were measured again, in the order of their marks."""
    found = {json.dumps(origin_of(case)): origin_of(case) for case in results["cases"] if "origin" in case}
    return list(found.values())


def origin_of(case: dict) -> dict:
    """What the page says of it."""
    o = case["origin"]
    speeds = f"on {o['cpu']} with {o['isas'][-1].upper()}" if "compress" in case["results"][0] else "sizes alone"
    return {"where": speeds, "commit": o["commit"], "date": o["date"]}


def title(case: dict, results: dict) -> str:
    mark = f" {MARKS[origins(results).index(origin_of(case))]}" if "origin" in case else ""
    return f"{case['use']}: {case['what']}{mark}"


def note(results: dict) -> str:
    """The origins that differ from that of the record."""
    named = zip(MARKS, origins(results), strict=False)
    return "".join(f" {mark} {o['where']}, commit {o['commit']}, {o['date']}." for mark, o in named)


def use_table(results: dict) -> str:
    """Sizes of all codecs, and the speeds of lmc."""
    rows = []
    for case in results["cases"]:
        rows_of = [smallest(case, names) for names in COLUMNS.values()]
        sizes = ["–" if r is None else f"{100 * r['ratio']:.1f}" for r in rows_of]
        ways = [rows_of[0].get(way) for way in ("compress", "decompress")]
        speeds = " / ".join(number(w["gb_per_s"]) for w in ways) if all(ways) else "–"
        rows.append([title(case, results), bytes_of(case["raw_size"]), sizes[0], speeds, *sizes[1:]])
    first, *others = COLUMNS
    return table(["% of raw", "raw", first, "lmc, GB/s", *others], rows)


def readme(results: dict) -> str:
    o = results["origin"]
    where = f"""GB/s: compressing / restoring, one thread, in memory, on {o["cpu"]} with {o["isas"][-1].upper()}, commit
{o["commit"]}, {o["date"]}, by `bench/run`. `lmc` is level `default`; zstd the smallest of `-3`, `-3` of byte planes
and, given a base, `--patch-from`; the others get the exclusive or with the base, pcodec the difference. The
large model has 1.03 billion parameters, drawn from those of MiniLM and scaled as initialisation scales.
[`docs/benchmarks.md`](docs/benchmarks.md) says what was measured, and has all levels and the speeds of all. lmz was not
run: no registry has it.{note(results)}"""
    return f"{use_table(results)}\n{filled(where)}\n"


def machine(results: dict) -> str:
    """One table of everything that was measured on a machine."""
    rows = []
    for case in results["cases"]:
        what = f"{title(case, results)}, {bytes_of(case['raw_size'])}"
        for i, r in enumerate(sorted(case["results"], key=lambda r: not r["codec"].startswith("lmc"))):
            name = f"**{r['codec']}**" if r["codec"].startswith("lmc") else r["codec"]
            speeds = (cell(r, way) for way in ("compress", "decompress"))
            rows.append([what if i == 0 else "", name, f"{100 * r['ratio']:.2f}", *speeds])
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
{results.get("note", "")}{note(results)}"""
    return f"## {o['cpu']}\n\n{filled(about)}\n\n{machine(results)}"


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
* **A directory in several precisions**: MiniLM in fp32, bf16, fp16, fp8 (e4m3) and int8: each file by itself, all in
  one snapshot of a store, and each but the first given the first. Sizes alone.

zstd is level 3, of the data or of their byte planes, whichever is smaller. ZipNN 0.5.4, OpenZL 0.3.0 (exponents to FSE,
planes of fp32 to its generic graph), pcodec 1.1.0 (bf16 as integers) and z4ai 0.2.0 get the elements of each dtype by
themselves. Given a base, zstd, ZipNN and OpenZL get the exclusive or, pcodec the difference as integers. lmz was not
run: no registry has it.

"""


def levels(results: dict) -> str:
    """The levels on the large model, for the book."""
    case = next(c for c in results["cases"] if c["what"] == "bf16, large")
    rows = []
    for r in case["results"]:
        if r["codec"].startswith("lmc"):
            name = f"`{r['codec'].removeprefix('lmc ')}`"
            rows.append([name, f"{100 * r['ratio']:.2f} %", cell(r, "compress"), cell(r, "decompress")])
    o = results["origin"]
    size = bytes_of(case["raw_size"])
    where = f"A bf16 model of {size}, one thread, {o['cpu']}, {o['isas'][-1]}, commit {o['commit']}."
    headings = ["level", "size", "compresses, × memcpy (GB/s)", "restores"]
    return f"{table(headings, rows)}\n{filled(where)}\n"


def pages() -> dict[Path, str]:
    """What the results make of docs/benchmarks.md, a section for each machine, and of the blocks of other pages."""
    first, *others = (
        json.loads(f.read_text())
        for f in sorted(RESULTS.glob("*.json"), key=lambda f: (f.stem != "readme", f.stem))
        if f.stem != "study"
    )
    page = PAGE + "\n".join(map(section, (first, *others)))
    book = ROOT / "docs" / "book" / "numbers.md"
    return {
        ROOT / "docs" / "benchmarks.md": page,
        ROOT / "README.md": with_blocks(ROOT / "README.md", uses=uses(first), bench=readme(first)),
        book: with_blocks(book, levels=levels(first)),
    }


def with_blocks(path: Path, **blocks: str) -> str:
    """The text of a page with what stands between its marks `NAME:begin` and `NAME:end` replaced."""
    text = path.read_text()
    for name, content in blocks.items():
        block = f"<!-- {name}:begin -->\n{content}<!-- {name}:end -->"
        text, count = re.subn(f"<!-- {name}:begin -->.*?<!-- {name}:end -->", lambda _, b=block: b, text, flags=re.S)
        if count != 1:
            raise SystemExit(f"{path} has no place for <!-- {name}:begin --> … <!-- {name}:end -->")
    return text


def write() -> None:
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    write()
