"""Leaves out each condition that `lmc.decode` checks, one at a time: then a broken vector must get through.

    python mutants.py [DECODER.py]

A condition is an argument of `must` or `must_be` (each side of `and`, and of a chain of comparisons), or an end of the
range of a field. Without it, at least one file of testdata/format1/bad.json must be accepted or end in another
exception than FormatError and LimitError, such as IndexError, or not end in ten seconds: else no vector needs the
condition. Prints those that none needs, and the numbers.
"""

import ast
import contextlib
import json
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]
LIMIT = 1 << 25  # raw bytes, more than any vector has
RANGES = {"uint": 2, "u8": 1, "varint": 1}  # where the arguments of a range begin
TRUE, LEAST, MOST = (ast.parse(text, mode="eval").body for text in ("True", "0", "2**64 - 1"))


def without(node: ast.expr) -> Iterator[ast.expr]:
    """Return a condition without each of its parts; one that has no parts is true."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for i, part in enumerate(node.values):
            for other in without(part):
                yield ast.BoolOp(ast.And(), [*node.values[:i], other, *node.values[i + 1 :]])
    elif isinstance(node, ast.Compare) and len(node.ops) > 1:
        ends = [node.left, *node.comparators]
        for i in range(len(node.ops)):
            halves = [(ends[j], node.ops[j], ends[j + 1]) for j in range(len(node.ops)) if j != i]
            yield ast.BoolOp(ast.And(), [*(ast.Compare(a, [op], [b]) for a, op, b in halves), TRUE])
    else:
        yield ast.BoolOp(ast.Or(), [node, TRUE])  # it may have a value that is used later


def mutants(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.Call]]:
    """Return each check of the format, and what takes its place; not those of the program's limits and arguments."""
    functions = [node for node in tree.body if getattr(node, "name", "") != "main"]
    for call in (node for function in functions for node in ast.walk(function) if isinstance(node, ast.Call)):
        if any(isinstance(x, ast.Name) and x.id == "LimitError" for x in call.args):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name == "must":
            for condition in without(call.args[0]):
                yield call, ast.Call(call.func, [condition, *call.args[1:]], call.keywords)
        elif name == "must_be":
            yield call, ast.Call(ast.Name("repr", ast.Load()), [ast.Tuple(call.args, ast.Load())], [])
        elif name == "one_of":
            yield call, ast.Call(ast.Attribute(call.func.value, "u8", ast.Load()), call.args[:1], [])
        elif name in RANGES:
            for i, widest in enumerate((LEAST, MOST), RANGES[name]):
                if len(call.args) > i and ast.unparse(call.args[i]) not in (ast.unparse(widest), "NO_MASK"):
                    yield call, ast.Call(call.func, [*call.args[:i], widest, *call.args[i + 1 :]], call.keywords)


def module(tree: ast.Module) -> ModuleType:
    """Run a module."""
    made = sys.modules["mutant"] = ModuleType("mutant")
    exec(compile(ast.fix_missing_locations(tree), "mutant.py", "exec"), made.__dict__)
    return made


def lines(error: BaseException | None) -> Iterator[int]:
    """Return the lines of the decoder that an error came through."""
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        yield from (frame.lineno for frame in frames if frame.filename == "mutant.py" and frame.lineno is not None)
        error = error.__context__


def too_long(*_: object) -> None:
    """End a decoder that does not end."""
    raise TimeoutError


def refuses(decoder: ModuleType, file: bytes, bases: list[bytes]) -> BaseException | None:
    """Return the error by which a decoder refuses a file properly, or None."""
    signal.alarm(10)
    try:
        decoder.decode(file, bases, LIMIT)
    except (decoder.FormatError, decoder.LimitError) as error:
        return error
    except Exception:
        return None
    finally:
        signal.alarm(0)
    return None


def unneeded(path: Path) -> tuple[list[str], int]:
    """Return the checks of a decoder that no broken vector needs, and the number of all checks."""
    tree = ast.parse(source := path.read_text("utf-8"))
    vectors, through = {}, {}
    original = module(deepcopy(tree))
    for entry in json.loads((ROOT / "testdata" / "format1" / "bad.json").read_bytes()):
        vectors[entry["name"]] = vector = bytes.fromhex(entry["file"]), [bytes.fromhex(x) for x in entry["bases"]]
        error = refuses(original, *vector)
        assert error is not None or "optional" in entry, entry["name"]
        through[entry["name"]] = {*lines(error)}
    found, checks = [], list(mutants(tree))
    for call, other in checks:
        spot = range(call.lineno, (call.end_lineno or 0) + 1)
        old = dict(call.__dict__)
        call.__dict__.update(other.__dict__)
        decoder = module(deepcopy(tree))
        call.__dict__.update(old)
        # Only those that are refused there can get through.
        if all(refuses(decoder, *vectors[name]) for name in vectors if not through[name].isdisjoint(spot)):
            found.append(f"{path.name}:{call.lineno}: {ast.get_source_segment(source, call)} -> {ast.unparse(other)}")
    return found, len(checks)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    signal.signal(signal.SIGALRM, too_long)
    _path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "crates" / "lmc-python" / "python" / "lmc" / "decode.py"
    with contextlib.suppress(BrokenPipeError):
        _found, _count = unneeded(_path)
        print(*_found, f"{_count - len(_found)} of {_count} checks are needed by a vector", sep="\n")
