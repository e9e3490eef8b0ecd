"""A nested state as tensors and a description in JSON.

Numbers, strings, booleans, `None` and lists map to themselves in JSON. Any other value is an object whose first key
names its type.
"""

import math
import reprlib
import struct
import sys
from collections import Counter, OrderedDict
from typing import Any, Final

import torch
from torch import Tensor

from lmc._errors import UsageError
from lmc.torch._save import Given, given

# Limit on nesting; deeper containers are a mistake, or contain themselves.
MAX_DEPTH: Final = 100
# Integers up to this magnitude are exact for every JSON reader.
MAX_INT: Final = 1 << 53
# Complex dtypes that safetensors lacks are saved as pairs of these.
PAIRS: Final = {torch.complex128: torch.float64, torch.complex32: torch.float16}
MAPPINGS: Final[dict[str, type[dict[Any, Any]]]] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter}
# Dtypes of numpy arrays and scalars, little-endian, with the dtype in the file.
NUMPY: Final = {
    "|b1": "BOOL",
    "|u1": "U8",
    "|i1": "I8",
    "<u2": "U16",
    "<i2": "I16",
    "<u4": "U32",
    "<i4": "I32",
    "<u8": "U64",
    "<i8": "I64",
    "<f2": "F16",
    "<f4": "F32",
    "<f8": "F64",
    "<c8": "C64",
}

_ADVICE: Final = "convert it, or leave it out"
_TYPES: Final = {mapping: name for name, mapping in MAPPINGS.items()}


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
        if kind is Tensor or kind is torch.nn.Parameter:
            return self._tensor(value, where, name)
        if kind is bytes or kind is bytearray:
            name = self._unique(name)
            self.tensors.append((name, "U8", (len(value),), value))
            return {kind.__name__: name}
        if kind is torch.Size:
            return {"torch.Size": list(value)}
        if kind is torch.dtype:
            return {"torch.dtype": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {"torch.device": str(value)}
        numpy = sys.modules.get("numpy")
        if numpy is not None and (kind is numpy.ndarray or isinstance(value, numpy.generic)):
            return self._numpy(value, where, name)
        raise UsageError(f"{where} is of type {_type_name(kind)}, which a state cannot have: {_ADVICE}")

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

    def _tensor(self, value: Tensor, where: str, name: str) -> dict[str, Any]:
        if value.is_nested:
            raise UsageError(f"{where} is a nested tensor, which has no shape: save what `.unbind()` gives")
        if value.layout != torch.strided or value.is_quantized:
            raise UsageError(f"{where} is a tensor of {value.dtype} and {value.layout}: only dense ones can be saved")
        described: dict[str, Any] = {}
        tensor = value.detach()
        # Memory that was saved before, possibly through another object.
        same: tuple[Any, ...] = (id(value),)
        if tensor.numel() and tensor.device.type != "meta":
            same = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            same += (tensor.is_conj(), tensor.is_neg())
        if same not in self._saved:
            self._saved[same] = name = self._unique(name)
            self._alive.append(value)
            if tensor.dtype in PAIRS:
                tensor = torch.view_as_real(tensor.resolve_conj())
            self.tensors.append(given(name, tensor.contiguous(), where))
        described["tensor"] = self._saved[same]
        if value.dtype in PAIRS:
            described["dtype"] = str(value.dtype).removeprefix("torch.")
        if value.requires_grad:
            described["requires_grad"] = True
        if type(value) is torch.nn.Parameter:
            described["parameter"] = True
        return described

    def _numpy(self, value: Any, where: str, name: str) -> dict[str, Any]:
        little = value.dtype.newbyteorder("<")
        if little.str not in NUMPY:
            raise UsageError(f"{where} is of numpy's dtype {value.dtype}, which a state cannot have: {_ADVICE}")
        # Also for scalars, which have no byte order.
        in_file = value.astype(little, order="C", copy=False)
        if in_file.ndim == 0 and type(value).__name__ != "ndarray":
            return {"numpy": little.str, "value": in_file.tobytes().hex()}
        same = (id(value),)
        if same not in self._saved:
            self._saved[same] = name = self._unique(name)
            self._alive.append(value)
            self.tensors.append((name, NUMPY[little.str], value.shape, in_file))
        return {"ndarray": self._saved[same], "dtype": value.dtype.str}

    def _unique(self, name: str) -> str:
        """A name that no other tensor has."""
        name = name or "value"
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}~{number}"
        self._names.add(unique)
        return unique


def _key(key: Any, where: str) -> Any:
    kind = type(key)
    if kind is tuple:
        return {"tuple": [_key(part, where) for part in key]}
    if key is None or kind in (bool, str, int, float):
        return Encoder().encode(key)
    raise UsageError(f"{where} has a key of type {_type_name(kind)}, which a state cannot have: {reprlib.repr(key)}")


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


def _type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
