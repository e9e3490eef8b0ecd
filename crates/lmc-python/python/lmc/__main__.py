"""The `lmc` command: `python -m lmc` is the same."""

import sys
from collections.abc import Sequence
from pathlib import Path

from lmc._lmc import run_command


def main() -> int:
    """Runs the command with the arguments of the process; returns its exit code."""
    if sys.argv[1:2] == ["unpack"] and _is_checkpoint(sys.argv[2:]):
        # Checkpoints of PyTorch are read with PyTorch.
        try:
            from lmc.dcp._unpack import main as unpack
        except ModuleNotFoundError as e:
            print(f"lmc: unpack needs the Python package {e.name}: pip install 'lmc-codec[torch]'", file=sys.stderr)
            return 1
        return unpack(sys.argv[2:])
    return run_command(["lmc", *sys.argv[1:]])


def _is_checkpoint(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `unpack` name a directory or a URL; the program unpacks files."""
    options = ("-o", "--output", "--to", "--prefix", "--trust")
    before = ("", *arguments)
    named = [a for a, option in zip(arguments, before, strict=False) if option not in options and a[:1] != "-"]
    return any("://" in name or Path(name).is_dir() for name in named)


if __name__ == "__main__":
    sys.exit(main())
