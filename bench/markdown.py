"""Tables and numbers as the pages have them."""

import json
from typing import Any


def table(headings: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    marks = ["---"] * left + ["--:"] * (len(headings) - left)
    return "".join("| " + " | ".join(row) + " |\n" for row in [headings, marks, *rows])


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def show(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Prints rows of the same fields, as a table or as JSON."""
    if as_json:
        print(json.dumps(rows))
        return
    cells = [[number(v) if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    print(table(list(rows[0]), cells))
