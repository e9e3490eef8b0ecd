"""A nested state as tensors and a description in JSON.

Numbers, strings, booleans, `None` and lists map to themselves in JSON. Any other value is an object whose first key
names its type.
"""

import math
import reprlib
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from lmc._errors import UsageError
from lmc._safetensors import Given
from lmc._state import _standard
from lmc._state._standard import by_value

# Limit on nesting; deeper containers are a mistake, or contain themselves.
MAX_DEPTH: Final = 100
# Integers up to this magnitude are exact for every JSON reader.
MAX_INT: Final = 1 << 53
MAPPINGS: Final[dict[str, type[dict[Any, Any]]]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
    "defaultdict": defaultdict,
}
FACTORIES: Final = {of.__name__: of for of in (dict, list, set, tuple, int, float, complex, bool, str, bytes)}
"""What makes the values that a `defaultdict` lacks."""

_ADVICE: Final = "convert it, or leave it out"
# What a key by value may be.
_PLAIN: Final = {type(None), bool, int, float, str}
_TYPES: Final = {mapping: name for name, mapping in MAPPINGS.items()}
_PACKAGES: Final = {"torch": "torch", "numpy": "numpy", "ml_dtypes": "numpy"}


class Encoder:
    """Describes values, and collects their tensors; or only the `problems` that it would have with them."""

    def __init__(self, problems: list[UsageError] | None = None) -> None:
        self.tensors: list[Given] = []
        self.notes: dict[str, str] = {}
        """What will not be loaded as it was, by type."""
        self.problems = problems
        self._names: set[str] = {"__metadata__"}
        # The name that memory was saved under.
        self._saved: dict[tuple[Any, ...], str] = {}
        # Keeps objects alive whose identities are in `_saved`.
        self._alive: list[Any] = []

    def encode(self, value: Any, where: str = "state", name: str = "", depth: int = 0) -> Any:
        """Describes a value. `where` is its Python expression, for errors, and `name` the prefix of its tensors' names.

        Raises `UsageError` when its type is not supported, unless problems are collected.
        """
        try:
            return self._encode(value, where, name, depth)
        except UsageError as e:
            if self.problems is None:
                raise
            self.problems.append(e)

    def _encode(self, value: Any, where: str, name: str, depth: int) -> Any:
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
        if (described := _standard.encode(self, value, where, name, depth)) is not None:
            return described
        if (simple := by_value(value)) is not None:
            self._note(kind, where, simple[1])
            return self.encode(simple[0], where, name, _deeper(depth, where))
        advice = "save its `state_dict()`" if hasattr(value, "state_dict") else _ADVICE
        raise UsageError(f"{where} is of type {type_name(kind)}, which a state cannot have: {advice}")

    def once(self, same: tuple[Any, ...], value: Any, name: str) -> tuple[str, bool]:
        """The name of the tensor that has the memory `same`, and whether it is to be added to `tensors`, since no value
        before had that memory."""
        if is_new := same not in self._saved:
            self._saved[same] = self._unique(name)
            self._alive.append(value)
        return self._saved[same], is_new

    def keys(self, keys: Iterable[Any], where: str, depth: int) -> list[Any]:
        """Describes the keys of a mapping, or the elements of a set."""
        exact, described = [], []
        for key in keys:
            try:
                described.append(_key(key, where, depth))
            except UsageError:
                simple = by_value(key)
                if simple is None or type(simple[0]) not in _PLAIN:
                    raise
                self._note(type(key), f"a key of {where}", simple[1])
                key = simple[0]
                described.append(_key(key, where, depth))
            exact.append(key)
        if len(set(exact)) < len(exact):
            raise UsageError(f"{where} has keys that are equal by value, which a state cannot have: {_ADVICE}")
        return described

    def _note(self, kind: type, where: str, what: str) -> None:
        self.notes.setdefault(type_name(kind), f"{where} is of type {type_name(kind)}, and will be loaded as {what}")

    def _mapping(self, value: dict[Any, Any], kind: str, where: str, name: str, depth: int) -> dict[str, Any]:
        keys, depth = self.keys(value, where, depth), _deeper(depth, where)
        values = [self.encode(item, place(where, key), _join(name, key), depth) for key, item in value.items()]
        items = list(zip(keys, values, strict=True))
        plain = all(type(key) is str for key, _ in items)
        described: dict[str, Any] = {kind: dict(items) if plain else [list(pair) for pair in items]}
        attributes = getattr(value, "__dict__", {})
        if attributes.keys() - ({"_metadata"} if kind == "OrderedDict" else set()):
            raise UsageError(f"{where}: a state cannot have the attributes of this {kind}: {sorted(attributes)}")
        if attributes:
            # Versions of modules, which `state_dict()` adds and `load_state_dict()` reads.
            versions = attributes["_metadata"]
            described["_metadata"] = self.encode(versions, f"{where}._metadata", _join(name, "_metadata"), depth)
        if isinstance(value, defaultdict) and (factory := value.default_factory) is not None:
            described["default_factory"] = next((name for name, of in FACTORIES.items() if of is factory), None)
            if described["default_factory"] is None:
                self._note(defaultdict, where, "one without its default_factory")
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


def _key(key: Any, where: str, depth: int) -> Any:
    if type(key) is str:
        return key
    if type(key) is tuple:
        depth = _deeper(depth, where)
        return {"tuple": [_key(part, where, depth) for part in key]}
    alone = Encoder()
    try:
        described = alone.encode(key, where, depth=depth + 1)
    except UsageError:
        pass
    else:
        if not (alone.tensors or alone.notes):
            if isinstance(described, dict):
                _deeper(depth, where)
            return described
    raise UsageError(
        f"{where} has a key of type {type_name(type(key))}, which a state cannot have: {reprlib.repr(key)}"
    )


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
