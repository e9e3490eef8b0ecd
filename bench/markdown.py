"""Tables and numbers as docs/benchmarks.md has them."""

LEVELS = ["fast", "default", "max"]


def table(headings: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    marks = ["---"] * left + ["--:"] * (len(headings) - left)
    return "".join("| " + " | ".join(row) + " |\n" for row in [headings, marks, *rows])


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def smallest_in_bold(ratios: list[float], sampled: list[bool]) -> list[str]:
    """Per cent; `*` marks results of a sample, which are never in bold."""
    smallest = min(r for r, s in zip(ratios, sampled, strict=True) if not s)
    text = []
    for r, s in zip(ratios, sampled, strict=True):
        t = f"{100 * r:.2f}" if r >= 0.01 else f"{100 * r:.3f}"
        text.append(t + " *" if s else f"**{t}**" if r == smallest and smallest < 1 else t)
    return text


def peers_table(measured: dict, title: str) -> str:
    """A measurement by bench/peers.py or bench/delta_peers.py."""
    rows = []
    for r in measured["results"]:
        row = [r["codec"], percent(r["ratio"])]
        for way in ("compress", "decompress"):
            s = r[way]
            row += [number(s["gb_per_s"]), number(s["of_zipnn"]), number(s["of_memcpy"])]
        rows.append(row)
    headings = ["", "of raw", "in GB/s", "× ZipNN", "× memcpy", "out GB/s", "× ZipNN", "× memcpy"]
    return f"{title}, {measured['raw_size']:,} bytes, median of {measured['rounds']} rounds\n\n" + table(headings, rows)
