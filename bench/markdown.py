"""Tables and numbers as the pages have them."""


def table(headings: list[str], rows: list[list[str]], left: int = 1) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    marks = ["---"] * left + ["--:"] * (len(headings) - left)
    return "".join("| " + " | ".join(row) + " |\n" for row in [headings, marks, *rows])


def number(value: float) -> str:
    """Three significant digits, no exponent."""
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}" if value >= 0.01 else f"{value:.4f}"


def percent(value: float) -> str:
    return f"{100 * value:.2f} %"
