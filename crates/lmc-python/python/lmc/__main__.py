"""The `lmc` command: `python -m lmc` is the same."""

import sys
from collections.abc import Sequence

from lmc import UsageError
from lmc._lmc import is_url, run_command

# Options that may come before the command.
_MESSAGES = {"-q", "--quiet", "-v", "--verbose", "--no-progress"}


def main() -> int:
    """Runs the command with the arguments of the process; returns its exit code."""
    first = next((i for i, a in enumerate(sys.argv) if i > 0 and a not in _MESSAGES), len(sys.argv))
    arguments = sys.argv[1:first] + sys.argv[first + 1 :]
    if sys.argv[first : first + 1] == ["unpack"] and _takes_pytorch(arguments):
        try:
            from lmc.dcp._unpack import main as unpack
        except ModuleNotFoundError as e:
            print(f"lmc: unpack needs the Python package {e.name}: install lmc with its extra torch", file=sys.stderr)
            return 1
        return unpack(arguments)
    return run_command(["lmc", *sys.argv[1:]])


def _takes_pytorch(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `unpack` ask for something that the program cannot do: to read a URL, to write a
    checkpoint of PyTorch, or to unpickle names."""
    if any(a == "--trust" or a.startswith(("--trust=", "--to=dcp")) for a in arguments):
        return True
    before = ("", *arguments)
    pairs = list(zip(before, arguments, strict=False))
    values = ("-o", "--output", "--prefix")
    named = [a for option, a in pairs if option not in values and a[:1] != "-"]
    return ("--to", "dcp") in pairs or any(_is_url(name) for name in named)


def _is_url(name: str) -> bool:
    try:
        return is_url(name)
    except UsageError:  # the program refuses it, too
        return False


if __name__ == "__main__":
    sys.exit(main())
