"""The targets of the codec, and whether they were reached."""

from collections.abc import Callable
from dataclasses import dataclass

# The paper's 16 threads, 2.78 and 3.76 GiB/s, in GB/s.
PAPER = {"compress": 2.78 * 1.073741824, "decompress": 3.76 * 1.073741824}


@dataclass
class Bar:
    """A bar: `must` is required, `aim` desired. `more`: larger values are better."""

    what: str
    measured: float | None
    must: float
    aim: float | None
    unit: str
    more: bool

    def reaches(self, limit: float | None) -> bool:
        if self.measured is None or limit is None:
            return False
        return self.measured >= limit if self.more else self.measured <= limit

    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        if not self.reaches(self.must):
            return "**missed**"
        return "met, and the aim" if self.reaches(self.aim) else "met"


def find(rows: list[dict], **wanted) -> dict:
    """The row with these values."""
    return next(r for r in rows if all(r.get(k) == v for k, v in wanted.items()))


def lmc_row(run: dict, level: str, isa: str, threads: int = 1) -> dict:
    return find(run["files"][0]["results"], codec="lmc", level=level, isa=isa, threads=threads)


def speed_bars(results: dict) -> list[Bar]:
    """Bars of speed in memory."""
    best = results["machine"]["isas"][-1]
    bars: list[Bar] = []
    sets = {"bf16": 0, "fp32": 1}

    def of_memcpy(dtype: str, level: str, way: str) -> float:
        """The worse of 90 MB and 1 GB."""
        runs = [results["speed"][sets[dtype]], results["buffers"][sets[dtype]]]
        return min(lmc_row(r, level, best)[way]["of_memcpy"] for r in runs)

    def of_zipnn(dtype: str, level: str, way: str, isa: str = best) -> float:
        return find(results["peers"]["memory"][sets[dtype]]["results"], codec=f"lmc {level} {isa}")[way]["of_zipnn"]

    def add(what: str, measured: float, must: float, aim: float | None, unit: str, more: bool = True) -> None:
        bars.append(Bar(what, measured, must, aim, unit, more))

    worst = min(("fast", "default"), key=lambda level: of_memcpy("bf16", level, "decompress"))
    add(f"bf16 decompress ({worst}, the slower level)", of_memcpy("bf16", worst, "decompress"), 0.50, 0.65, "× memcpy")
    add(f"bf16 decompress ({worst})", of_zipnn("bf16", worst, "decompress"), 4, None, "× ZipNN")
    for level, memcpy, aim, zipnn in [("fast", 0.28, 0.40, 4), ("default", 0.20, 0.30, 3)]:
        add(f"bf16 compress, `{level}`", of_memcpy("bf16", level, "compress"), memcpy, aim, "× memcpy")
        add(f"bf16 compress, `{level}`", of_zipnn("bf16", level, "compress"), zipnn, None, "× ZipNN")
    for level in ("fast", "default"):
        add(f"fp32 decompress, `{level}`", of_memcpy("fp32", level, "decompress"), 0.55, 0.70, "× memcpy")
        add(f"fp32 compress, `{level}`", of_memcpy("fp32", level, "compress"), 0.35, 0.50, "× memcpy")
    for isa, must, aim in [("avx2", 2, 3), ("portable", 0.8, 1)]:
        if isa in results["machine"]["isas"]:
            slower = min(of_zipnn("bf16", level, "decompress", isa) for level in ("fast", "default"))
            add(f"bf16 decompress, {isa} (the slower level)", slower, must, aim, "× ZipNN")
    for way in ("compress", "decompress"):
        for level in ("fast", "default"):
            one, two = (lmc_row(results["speed"][0], level, best, t)[way]["gb_per_s"] for t in (1, 2))
            add(f"bf16 {way}, `{level}`, two threads over one", two / one, 1.8, 1.95, "×")
    for way in ("compress", "decompress"):
        slower = min(lmc_row(results["speed"][0], level, best)[way]["gb_per_s"] for level in ("fast", "default"))
        add(f"bf16 {way}, one core, against 16 cores of the paper", slower / PAPER[way], 1, None, "×")
    built = [us for run in results["breakdown"] for us in run["files"][0]["breakdown"]["table_us"].values()]
    bars.append(Bar("building a table, the slowest kind", max(built), 15, None, "µs", False))
    return bars


def small_bars(results: dict) -> list[Bar]:
    """10,000 small tensors against one large one."""
    bars = []
    for way in ("compress", "decompress"):
        ratios = []
        for run in results["small"]:
            small, one = (find(f["results"], codec="lmc", level="default")[way]["gb_per_s"] for f in run["files"])
            ratios.append(small / one)
        ratios.sort()
        bars.append(
            Bar(f"{way} 10,000 tensors of 4 KiB, over one of 40 MB", ratios[len(ratios) // 2], 0.9, None, "×", True)
        )
    small, one = (find(f["results"], codec="lmc", level="default")["size"] for f in results["small"][0]["files"])
    bars.append(Bar("size of the 10,000, over the one", small / one, 1.01, None, "×", False))
    return bars


def process_bars(results: dict) -> list[Bar]:
    """Whole processes."""
    bars = []
    for run in results["process"]:
        for what in ("lmc compress", "lmc decompress"):
            name = f"`{what}` {run['file']}, durable, 2 threads"
            bars.append(Bar(name, run["results"][what]["of_cp"], 1.1, 0.8, "× time of `cp && sync`", False))
    peak = max(r["peak_memory"] for run in results["process"] for w, r in run["results"].items() if w.startswith("lmc"))
    bars.append(Bar("peak memory of the program", peak / 2**20, 512, 128, "MiB", False))
    return bars


def size_bars(results: dict) -> list[Bar]:
    """Sizes in per cent of raw, level default, whole files."""
    wanted = [
        ("minilm as bf16", "minilm bf16", 66.5, 66.2),
        ("minilm fp32", "minilm fp32", 81.9, 81.5),
        ("step00310, bf16 weights alone", "step00310 model", 65.0, 64.6),
        ("step00310, master weights alone", "step00310 master", 82.6, 82.3),
        ("step00310, exp_avg alone", "step00310 exp_avg", 83.5, 82.5),
        ("step00310, exp_avg_sq alone", "step00310 exp_avg_sq", 80.8, 79.5),
        ("step00310, whole state", "step00310", 80.0, 79.0),
    ]
    bars = []
    for what, name, must, aim in wanted:
        entry = next((s for s in results["sizes"] if s["name"] == name), None)
        measured = entry and 100 * find(entry["results"], codec="lmc", level="default")["ratio"]
        bars.append(Bar(f"size of {what}", measured, must, aim, "%", False))
    return bars


def delta_row(measured: dict, level: str = "default", given: str = "base", threads: int = 1) -> dict:
    """A row of `lmc` in a measurement by `lmc bench --base` with one instruction set."""
    return find(measured["results"], codec="lmc", level=level, given=given, threads=threads)


# In a delta below this size tables and heads are a notable share; H includes none.
LARGE_DELTA = 16_000_000


def delta_bars(results: dict) -> list[Bar]:
    """Deltas: sizes in per cent of raw, level default; speeds."""
    deltas = results["deltas"]
    sizes = {s["name"]: s for s in deltas["sizes"]}
    bars = []

    def worst(values: list[float], pick=max) -> float | None:
        return pick(values) if values else None

    for what, name, must, aim in [
        ("bf16 weights, 1 step apart", "step00300 → step00301 model", 7.9, 7.6),
        ("bf16 weights, 9 steps apart", "step00301 → step00310 model", 21.3, 20.7),
        ("bf16 weights, 40 steps apart", "step00310 → step00350 model", 30.5, 29.8),
        ("the whole state, 1 step apart", "step00300 → step00301", 57, 55),
        ("the whole state, 9 steps apart", "step00301 → step00310", 64, 62),
    ]:
        measured = 100 * delta_row(sizes[name])["ratio"] if name in sizes else None
        bars.append(Bar(f"size of {what}", measured, must, aim, "%", False))
    tuned = [s for s in sizes.values() if s["kind"] == "fine-tuning" and s["name"].endswith(" model")]
    measured = worst([100 * delta_row(s)["ratio"] for s in tuned if s["changed"] < 0.02])
    bars.append(Bar("size of bf16 weights, 98 % or more unchanged", measured, 0.80, 0.74, "%", False))

    large = [s for s in sizes.values() if s["kind"] != "unrelated" and s["raw_size"] >= LARGE_DELTA]
    for what, chosen in [
        ("5 % or more changed", [s for s in large if s["changed"] > 0.049]),
        ("less than 5 % changed", [s for s in large if s["changed"] <= 0.049]),
    ]:
        measured = worst([over for s in chosen if (over := delta_row(s)["of_entropy"]) is not None])
        bars.append(Bar(f"size over H, deltas of 16 MB or more, {what}", measured, 1.05, 1.02, "×", False))
    unrelated = [s for s in sizes.values() if s["kind"] == "unrelated"]
    measured = worst([delta_row(s)["ratio"] / delta_row(s, given="nothing")["ratio"] for s in unrelated])
    bars.append(Bar("size given an unrelated model, over no base", measured, 1.001, None, "×", False))

    runs = [m for m in deltas["speed"] + deltas["buffers"] if m["kind"] == "training" and m["dtype"] == "BF16"]
    for way, must, aim in [("decompress", 0.22, 0.30), ("compress", 0.15, 0.25)]:
        for level in ("fast", "default"):
            measured = worst([delta_row(m, level)[way]["of_memcpy"] for m in runs], min)
            bars.append(Bar(f"bf16 delta {way}, `{level}`", measured, must, aim, "× memcpy", True))
    return bars


def python_bars(results: dict) -> list[Bar]:
    """Bars of the Python package."""
    bars: list[Bar] = []
    if checkpoints := results.get("checkpoints"):
        ways = checkpoints["ways"]
        plain = ways["`dcp.save`"]
        others = min(r["bytes"] for name, r in ways.items() if "lmc" not in name)
        for name in ("`dcp.save`, lmc, no base", "`dcp.save`, lmc"):
            bars.append(Bar(f"{name}: bytes", ways[name]["bytes"] / others, 1, None, "× the smallest other", False))
            for what, key in [("blocked", "blocked"), ("load", "loaded")]:
                bars.append(Bar(f"{name}: {what}", ways[name][key] / plain[key], 1.1, None, "× `dcp`", False))
    if python := results.get("python"):
        for row in python["memory"]:
            if "_into" in row["what"]:
                bars.append(Bar(row["what"], row["of_library"], 0.95, None, "× the library", True))
        for row in python["small"]:
            what = f"{row['what']}, {python['tensors']:,} tensors over one"
            bars.append(Bar(what, row["ratio"], 2, None, "× time", False))
    return bars


GROUPS: list[tuple[str, Callable[[dict], list[Bar]]]] = [
    ("Speed in memory", speed_bars),
    ("Many small tensors", small_bars),
    ("Whole processes", process_bars),
    ("Size", size_bars),
    ("Deltas", delta_bars),
    ("From Python", python_bars),
]
