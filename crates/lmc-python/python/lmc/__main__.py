"""The `lmc` command: `python -m lmc` is the same."""

import sys

from lmc._lmc import run_command


def main() -> int:
    """Runs the command with the arguments of the process; returns its exit code."""
    return run_command(["lmc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
