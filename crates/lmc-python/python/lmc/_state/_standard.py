"""Values of Python's library in a state: how each is described, and built."""

import json
import re
from collections import deque
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from enum import Enum
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any, Final

_PATHS: Final = {"PosixPath": Path, "PurePosixPath": PurePosixPath}
_TIMES: Final[dict[str, Any]] = {"datetime": datetime, "date": date, "time": time}
_NAMES: Final[dict[Any, str]] = {PosixPath: "PosixPath", PurePosixPath: "PurePosixPath"} | {
    of: name for name, of in _TIMES.items()
}
KINDS: Final = {"set", "frozenset", "deque", "range", "slice", "timedelta", "timezone", *_NAMES.values()}
_DAY: Final = timedelta(1)
# What makes a value of a base of its type.
_EXACT: Final[dict[type, Any]] = {str: str.__str__, int: int.__index__, float: float.__float__}


def encode(encoder: Any, value: Any, where: str, name: str, depth: int) -> dict[str, Any] | None:
    """Describes a value, if a state can have it."""
    kind = type(value)
    if kind is set or kind is frozenset:
        # In an order that does not depend on hashes.
        return {kind.__name__: sorted(encoder.keys(value, where, depth), key=json.dumps)}
    if kind is deque:
        return {"deque": encoder.encode(list(value), where, name, depth), "maxlen": value.maxlen}
    if kind is range or kind is slice:
        return {kind.__name__: encoder.encode([value.start, value.stop, value.step], where, name, depth)}
    if kind is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    if kind is timezone:
        return {"timezone": encode(encoder, value.utcoffset(None), where, name, depth)}
    if kind is PosixPath or kind is PurePosixPath:
        return {_NAMES[kind]: str(value)}
    if kind in _NAMES and type(getattr(value, "tzinfo", None)) in (type(None), timezone):
        return {_NAMES[kind]: value.isoformat()}
    return None


def by_value(value: Any) -> tuple[Any, str] | None:
    """What is saved of a value that only the code of its type can make, and what that is."""
    if isinstance(value, Enum):
        return value.value, "its value"
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(value), "a tuple"
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "state_dict"):
        return {field.name: getattr(value, field.name) for field in fields(value)}, "a dict of its fields"
    for of, exact in _EXACT.items():
        if isinstance(value, of):
            return exact(value), of.__name__
    return None


def decode(decoder: Any, kind: str, value: dict[str, Any], into: Any, where: str, depth: int) -> Any:
    """Builds a value of a kind from its description; `None` if that is invalid."""
    match kind, value[kind]:
        case "set" | "frozenset", list(items):
            keys = decoder.keys(items, where, depth)
            return set(keys) if kind == "set" else frozenset(keys)
        case "deque", list(items):
            most = value.get("maxlen")
            if most is None or (type(most) is int and len(items) <= most < 1 << 63):
                theirs = list(into) if isinstance(into, deque) else None
                return deque(decoder.decode(items, theirs, where, depth), most)
        case "range" | "slice", [_, _, _] as found:
            parts = decoder.decode(found, None, where, depth)
            if kind == "slice":
                return slice(*parts)
            if all(type(part) is int for part in parts) and parts[2]:
                return range(*parts)
        case "timedelta", [int(days), int(seconds), int(micros)]:
            if abs(days) < 10**9 and 0 <= seconds < 86_400 and 0 <= micros < 10**6:
                return timedelta(days, seconds, micros)
        case "timezone", {"timedelta": _} as offset:
            found = decode(decoder, "timedelta", offset, None, where, depth)
            if found is not None and abs(found) < _DAY:
                return timezone(found)
        case "PosixPath" | "PurePosixPath", str(text):
            return _PATHS[kind](text)
        case "datetime" | "date" | "time", str(text) if re.fullmatch("[-+:.T0-9]{1,50}", text):
            try:
                return _TIMES[kind].fromisoformat(text)
            except ValueError:
                return None
    return None
