"""Checks of options that several functions take."""

from lmc._errors import UsageError
from lmc._lmc import FORMATS, LEVELS


def check_level(level: str) -> None:
    """Raises `UsageError` for a level that there is not."""
    if level not in LEVELS:
        raise UsageError(f"level={level!r}: must be one of {', '.join(LEVELS)}")


def check_format(format: str | None) -> None:
    """Raises `UsageError` for a version of the format that there is not."""
    if not isinstance(format, str | None):
        raise TypeError(f"format must be a str or None, not {type(format).__name__}")
    if format is not None and format not in FORMATS:
        raise UsageError(f"format={format!r}: must be one of {', '.join(FORMATS)}")


def check_threads(threads: int | None) -> None:
    """Raises `UsageError` for a negative number of threads."""
    if threads is not None and threads < 0:
        raise UsageError(f"threads must be a number, or None for one per core, not {threads}")
