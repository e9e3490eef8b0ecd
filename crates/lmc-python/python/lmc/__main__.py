"""The `lmc` command: `python -m lmc` is the same."""

import sys

from lmc._lmc import run_command


def main() -> int:
    """Runs the command with the arguments of the process; returns its exit code."""
    if sys.argv[1:2] == ["unpack"]:
        # Checkpoints of PyTorch are read with PyTorch.
        try:
            from lmc.dcp._unpack import main as unpack
        except ModuleNotFoundError as e:
            print(f"lmc: unpack needs the Python package {e.name}: pip install 'lmc-codec[torch]'", file=sys.stderr)
            return 1
        return unpack(sys.argv[2:])
    return run_command(["lmc", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
