"""The header of a safetensors file: what it holds, and where.

A file is refused for what safetensors refuses it: bytes that belong to no tensor, or to two, could mean something else
to another reader.
"""

import json
import reprlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn, TypeGuard

from lmc._errors import DamagedError, UnsupportedError

_MAX_HEADER: Final = 100_000_000
_METADATA: Final = "__metadata__"
_BITS: Final = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


class Entry(NamedTuple):
    """A tensor of a file: `offset` and `nbytes` say where in the file it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Header(NamedTuple):
    """Tensors in the order of their bytes, by name."""

    tensors: dict[str, Entry]
    metadata: dict[str, str] | None


def read(of: str, size: int, read_range: Callable[[int, int], bytes]) -> Header:
    """Reads the header of the file `of`, which has `size` bytes.

    Raises `UnsupportedError` when it is no safetensors file, `DamagedError` when it is a wrong one.
    """
    length = int.from_bytes(read_range(0, 8), "little") if size >= 8 else _MAX_HEADER + 1
    if length > _MAX_HEADER or read_range(8, min(1, size - 8, length)) != b"{":
        raise UnsupportedError(f"{of}: is no safetensors file; lmc.open reads any")

    def wrong(why: str) -> NoReturn:
        raise DamagedError(f"{of}: the header of the safetensors file is wrong: {why}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen = dict(pairs)
        if len(seen) < len(pairs):
            wrong("a name is there twice")
        return seen

    if length > size - 8:
        wrong(f"it says that it has {length} bytes, and the file has {size}: it was cut off")
    try:
        fields = json.loads(read_range(8, length).decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as e:
        if isinstance(e, DamagedError):
            raise
        wrong(str(e))
    metadata = fields.pop(_METADATA, None)
    if metadata is not None and not _is_text(metadata):
        wrong(f"{_METADATA} is no object of strings")
    start = 8 + length
    entries = [
        _entry(name, field, start) or wrong(f"tensor {reprlib.repr(name)}: {reprlib.repr(field)}")
        for name, field in fields.items()
    ]
    entries.sort(key=lambda e: (e.offset, e.nbytes))
    end = start
    for entry in entries:
        if entry.offset != end:
            wrong(f"tensor {reprlib.repr(entry.name)} begins at byte {entry.offset} of the file and not at {end}")
        end += entry.nbytes
    if end != size:
        wrong(f"the tensors end at byte {end}, and the file has {size}")
    return Header({entry.name: entry for entry in entries}, metadata)


def _entry(name: str, field: object, start: int) -> Entry | None:
    """A tensor as the header says it, or `None` if that makes no sense."""
    if not isinstance(field, dict):
        return None
    dtype, shape, offsets = field.get("dtype"), field.get("shape"), field.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS or not _are_sizes(shape) or not _are_sizes(offsets):
        return None
    bits = _BITS[dtype]
    for n in shape:
        bits *= n
        if bits >= 1 << 64:
            return None
    if len(offsets) != 2 or (offsets[1] - offsets[0]) * 8 != bits:
        return None
    return Entry(name, dtype, tuple(shape), start + offsets[0], offsets[1] - offsets[0])


def _are_sizes(field: Any) -> TypeGuard[list[int]]:
    return isinstance(field, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in field)


def _is_text(field: Any) -> TypeGuard[dict[str, str]]:
    return isinstance(field, dict) and all(isinstance(value, str) for value in field.values())
