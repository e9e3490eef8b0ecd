"""Checks of options that several functions take."""

from lmc._errors import UsageError
from lmc._lmc import LEVELS


def check_level(level: str) -> None:
    """Raises `UsageError` for a level that there is not."""
    if level not in LEVELS:
        raise UsageError(f"level={level!r}: must be one of {', '.join(LEVELS)}")


def check_threads(threads: int | None) -> None:
    """Raises `UsageError` for a negative number of threads."""
    if threads is not None and threads < 0:
        raise UsageError(f"threads must be a number, or None for one per core, not {threads}")
