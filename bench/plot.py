"""docs/benchmarks.svg: speed relative to memcpy against size, one thread, bf16."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter  # noqa: E402

COLORS = {
    "lmc": "#c1272d",
    "ZipNN": "#0a7c59",
    "OpenZL": "#2e7d9a",
    "zstd": "#5b4a9e",
    "lz4": "#8a6d1d",
    "gzip": "#7a5c46",
    "bzip2": "#8a4f7d",
    "brotli": "#9a6a2e",
    "xz": "#5a6b7b",
    "snappy": "#4f6d3a",
}
LABEL_HEIGHT = 0.036  # of the axes' height


def points(results: dict, way: str) -> list[tuple[str, str, float, float]]:
    """Family, label, size in per cent, speed relative to memcpy; bf16, one thread."""
    found = []
    for r in results["speed"][0]["files"][0]["results"]:
        if r["threads"] != 1:
            continue
        label = f"{r['codec']} {r['level']}".strip()
        label += f", {r['isa']}" if r["isa"] else " (g)" if r["grouped"] else ""
        found.append((r["codec"], label, 100 * r["ratio"], r[way]["of_memcpy"]))
    for r in results["peers"]["memory"][0]["results"]:
        family = r["codec"].split()[0]
        if family != "lmc":
            found.append((family, r["codec"], 100 * r["ratio"], r[way]["of_memcpy"]))
    return found


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones (ascending), at least `gap` apart, within bounds where they fit."""
    places = list(wanted)
    for _ in range(500):
        moved = False
        for i in range(len(places) - 1):
            short = gap - (places[i + 1] - places[i])
            if short > 1e-6:
                places[i] -= short / 2
                places[i + 1] += short / 2
                moved = True
        shift_up = max(0.0, low - places[0])
        shift_down = max(0.0, places[-1] - high)
        places = [p + shift_up - shift_down for p in places]
        if not moved:
            break
    return places


def columns(found: list, gap: float) -> list[list]:
    """The points in groups, with at least `gap` in size from one to the next: a column of labels each."""
    groups: list[list] = []
    for p in sorted(found, key=lambda p: p[2]):
        if groups and p[2] - groups[-1][-1][2] < gap:
            groups[-1].append(p)
        else:
            groups.append([p])
    return groups


def panel(axes, found: list, title: str, limits: tuple[float, float], sizes: tuple[float, float]) -> None:
    """Points, and labels beside them, moved apart where they would cover each other: lmc's on the left, others' on the
    right."""
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    axes.set_xlim(*sizes)
    axes.set_title(title, fontsize=13, loc="left")
    axes.set_xlabel("size, % of raw (smaller is better)")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.grid(True, which="major", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.axhline(1.0, color="#888888", linewidth=1, linestyle="--")
    to_axes = axes.transScale + axes.transLimits
    span = sizes[1] - sizes[0]
    ours = [p for p in found if p[0] == "lmc"]
    groups = [(ours, True)] + [(g, False) for g in columns([p for p in found if p[0] != "lmc"], span * 0.055)]
    for group, on_left in groups:
        group.sort(key=lambda p: p[3])
        wanted = [to_axes.transform((p[2], p[3]))[1] for p in group]
        places = spread(wanted, LABEL_HEIGHT, 0.02, 0.98)
        edge = min(p[2] for p in group) if on_left else max(p[2] for p in group)
        beside = (edge - sizes[0]) / span + (-0.03 if on_left else 0.022)
        for (family, label, x, y), place in zip(group, places, strict=True):
            color = COLORS[family]
            axes.plot(x, y, "o", color=color, markersize=8 if on_left else 6, zorder=3)
            axes.annotate(
                label,
                xy=(x, y),
                xytext=(beside, place),
                textcoords="axes fraction",
                fontsize=9,
                color=color,
                fontweight="bold" if on_left else "normal",
                horizontalalignment="right" if on_left else "left",
                verticalalignment="center",
                zorder=2,
                bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"},
                arrowprops={
                    "arrowstyle": "-",
                    "color": color,
                    "linewidth": 0.6,
                    "shrinkA": 0,
                    "shrinkB": 4,
                    "relpos": (1.0 if on_left else 0.0, 0.5),
                },
            )


def draw(results: dict, path: Path) -> None:
    """Writes the figure; the format is that of the path's suffix."""
    plt.rcParams["svg.fonttype"] = "none"
    plt.rcParams["svg.hashsalt"] = "lmc"
    plt.rcParams["font.family"] = "DejaVu Sans"
    figure, both = plt.subplots(1, 2, figsize=(20, 9.5), sharey=True)
    found = {way: points(results, way) for way in ("compress", "decompress")}
    speeds = [p[3] for way in found.values() for p in way]
    sizes = [p[2] for p in found["compress"]]
    limits = (min(speeds) * 0.6, max([1.0, *speeds]) * 1.8)
    width = max(sizes) - min(sizes)
    room = (min(sizes) - 0.38 * width, max(sizes) + 0.17 * width + 3)
    for axes, (way, title) in zip(both, [("compress", "Compression"), ("decompress", "Decompression")], strict=True):
        panel(axes, found[way], title, limits, room)
    both[0].set_ylabel("speed, × memcpy (log scale; dashed: memcpy)")
    machine = results["machine"]
    size = results["speed"][0]["files"][0]["raw_size"]
    note = f"bf16 weights of minilm, {size / 1e6:.0f} MB in memory, one thread; {machine['cpu']}; {machine['date']}"
    figure.text(0.01, 0.01, note + ". (g): byte-grouped, which counts in the time.", fontsize=9, color="#555555")
    figure.tight_layout(rect=(0, 0.025, 1, 1))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
