"""A nested state as tensors and a description in JSON.

Numbers, strings, booleans, `None` and lists map to themselves in JSON. Any other value is an object whose first key
names its type.
"""

import math
import reprlib
import struct
from collections import Counter, OrderedDict
from importlib import import_module
from typing import Any, Final

from lmc._errors import UsageError
from lmc._safetensors import Given

# Limit on nesting; deeper containers are a mistake, or contain themselves.
MAX_DEPTH: Final = 100
# Integers up to this magnitude are exact for every JSON reader.
MAX_INT: Final = 1 << 53
MAPPINGS: Final[dict[str, type[dict[Any, Any]]]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}

_ADVICE: Final = "convert it, or leave it out"
_TYPES: Final = {mapping: name for name, mapping in MAPPINGS.items()}
_PACKAGES: Final = {"torch": "torch", "numpy": "numpy", "ml_dtypes": "numpy"}


class Encoder:
    """Describes values, and collects their tensors."""

    def __init__(self) -> None:
        self.tensors: list[Given] = []
        self._names: set[str] = {"__metadata__"}
        # The name that memory was saved under.
        self._saved: dict[tuple[Any, ...], str] = {}
        # Keeps objects alive whose identities are in `_saved`.
        self._alive: list[Any] = []

    def encode(self, value: Any, where: str = "state", name: str = "", depth: int = 0) -> Any:
        """Describes a value. `where` is its Python expression, for errors, and `name` the prefix of its tensors' names.

        Raises `UsageError` when its type is not supported.
        """
        kind = type(value)
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:
            return value if abs(value) <= MAX_INT else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if kind is complex:
            return {"complex": struct.pack(">dd", value.real, value.imag).hex()}
        if kind is list or kind is tuple:
            depth = _deeper(depth, where)
            items = [self.encode(item, f"{where}[{i}]", _join(name, i), depth) for i, item in enumerate(value)]
            return items if kind is list else {"tuple": items}
        if kind in _TYPES:
            return self._mapping(value, _TYPES[kind], where, name, depth)
        if kind is bytes or kind is bytearray:
            name = self._unique(name)
            self.tensors.append((name, "U8", (len(value),), value))
            return {kind.__name__: name}
        package = _PACKAGES.get(kind.__module__.partition(".")[0])
        if package and (described := library(package).encode(self, value, where, name)) is not None:
            return described
        advice = "save its `state_dict()`" if hasattr(value, "state_dict") else _ADVICE
        raise UsageError(f"{where} is of type {type_name(kind)}, which a state cannot have: {advice}")

    def once(self, same: tuple[Any, ...], value: Any, name: str) -> tuple[str, bool]:
        """The name of the tensor that has the memory `same`, and whether it is to be added to `tensors`, since no value
        before had that memory."""
        if is_new := same not in self._saved:
            self._saved[same] = self._unique(name)
            self._alive.append(value)
        return self._saved[same], is_new

    def _mapping(self, value: dict[Any, Any], kind: str, where: str, name: str, depth: int) -> dict[str, Any]:
        depth = _deeper(depth, where)
        items = [
            (_key(key, where), self.encode(item, place(where, key), _join(name, key), depth))
            for key, item in value.items()
        ]
        plain = all(type(key) is str for key, _ in items)
        described: dict[str, Any] = {kind: dict(items) if plain else [list(pair) for pair in items]}
        attributes = getattr(value, "__dict__", {})
        if attributes.keys() - ({"_metadata"} if kind == "OrderedDict" else set()):
            raise UsageError(f"{where}: a state cannot have the attributes of this {kind}: {sorted(attributes)}")
        if attributes:
            # Versions of modules, which `state_dict()` adds and `load_state_dict()` reads.
            versions = attributes["_metadata"]
            described["_metadata"] = self.encode(versions, f"{where}._metadata", _join(name, "_metadata"), depth)
        return described

    def _unique(self, name: str) -> str:
        """A name that no other tensor has."""
        name = name or "value"
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}~{number}"
        self._names.add(unique)
        return unique


def library(name: str) -> Any:
    """The module that knows the values of torch or of numpy. It is imported for these only: states of others do not
    need them."""
    return import_module({"torch": "lmc.torch._values", "numpy": "lmc._state._numpy"}[name])


def _key(key: Any, where: str) -> Any:
    kind = type(key)
    if kind is tuple:
        return {"tuple": [_key(part, where) for part in key]}
    if key is None or kind in (bool, str, int, float):
        return Encoder().encode(key)
    raise UsageError(f"{where} has a key of type {type_name(kind)}, which a state cannot have: {reprlib.repr(key)}")


def _deeper(depth: int, where: str) -> int:
    if depth >= MAX_DEPTH:
        raise UsageError(f"more than {MAX_DEPTH} containers are in each other, or one in itself: {where[:200]}...")
    return depth + 1


def _join(name: str, key: Any) -> str:
    # Names of tensors must be UTF-8, so other keys are escaped.
    part = (key if type(key) is str else _shown(key)).encode("utf-8", "backslashreplace").decode()
    return f"{name}.{part}" if name else part


def place(where: str, key: Any) -> str:
    """The Python expression for an item of a mapping."""
    return f"{where}[{_shown(key)}]"


def _shown(key: Any) -> str:
    try:
        return reprlib.repr(key)
    except ValueError:
        # Python refuses to format thousands of digits.
        return hex(key)[:20] + "..." if type(key) is int else f"a {type(key).__name__}"


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
