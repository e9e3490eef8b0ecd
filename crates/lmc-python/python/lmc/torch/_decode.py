"""A nested state from tensors and their description. See `_encode`."""

import re
import reprlib
import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import torch
from torch import Tensor

from lmc._errors import DamagedError, UnsupportedError, UsageError
from lmc._lmc import Tensor as Entry
from lmc.torch._dtypes import torch_type
from lmc.torch._encode import MAPPINGS, MAX_DEPTH, NUMPY, PAIRS, place
from lmc.torch._file import TensorFile
from lmc.torch._memory import empty, written

_DTYPES: Final = {name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)}
_KNOWN: Final = MAPPINGS.keys() | set(
    "int float complex tuple tensor bytes bytearray torch.Size torch.dtype torch.device numpy ndarray".split()
)
_ALIKE: Final = 16
_PAIRED: Final = {str(dtype).removeprefix("torch."): (dtype, parts) for dtype, parts in PAIRS.items()}


class Decoder:
    """Builds values from descriptions. Their tensors have no values until `fill`."""

    def __init__(self, file: TensorFile, device: torch.device) -> None:
        self._file = file
        self._device = device
        # Destinations of reads: memory of tensors by name, in the file's dtype and shape.
        self._wanted: dict[str, tuple[Entry, Tensor]] = {}
        self._made: dict[tuple[Any, ...], Any] = {}
        # Copies to make after reading.
        self._copies: list[tuple[Tensor, Tensor]] = []
        # Big-endian arrays.
        self._swapped: list[Any] = []

    def fill(self) -> None:
        """Reads the values of all tensors."""
        self._part()
        self._file.read(self._wanted.values())
        for source, target in self._copies:
            target.copy_(source)
        for array in self._swapped:
            array.byteswap(inplace=True)

    def _part(self) -> None:
        """Of overlapping tensors of `into`, all but one are filled by a copy: threads must not write to the same
        memory."""
        end, overlapping = 0, []
        for name, (entry, tensor) in sorted(self._wanted.items(), key=lambda wanted: wanted[1][1].data_ptr()):
            if tensor.device.type != "cpu" or not tensor.nbytes:
                continue
            if tensor.data_ptr() < end:
                fresh = empty(tuple(tensor.shape), tensor.dtype)
                self._wanted[name] = entry, fresh
                overlapping.append((fresh, tensor))
            else:
                end = tensor.data_ptr() + tensor.nbytes
        # Sources of other copies first.
        self._copies[:0] = overlapping

    def decode(self, value: Any, into: Any = None, where: str = "state", depth: int = 0) -> Any:
        """Builds the value described by `value`. Tensors of `into` at the same place are filled instead of new ones.

        Raises `DamagedError`, or `UnsupportedError` for a type that this version does not know.
        """
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if depth > MAX_DEPTH:
            _wrong(where, "too many containers are in each other")
        if isinstance(value, list):
            return self._list(value, into, where, depth)
        kind = next(iter(value), None)
        match kind, value:
            case "int", {"int": str(text)} if re.fullmatch("-?0x[0-9a-f]+", text):
                return int(text, 16)
            case "float", {"float": text}:
                return struct.unpack(">d", _unhex(text, 8, where))[0]
            case "complex", {"complex": text}:
                return complex(*struct.unpack(">dd", _unhex(text, 16, where)))
            case "tuple", {"tuple": list(items)}:
                return tuple(self._list(items, into, where, depth))
            case (("dict" | "OrderedDict" | "Counter"), _):
                return self._mapping(value, kind, into, where, depth)
            case "tensor", _:
                return self._tensor(value, into, where)
            case (("bytes" | "bytearray"), _):
                entry = self._entry(value[kind], where)
                if entry.dtype != "U8" or len(entry.shape) != 1:
                    _wrong(where, f"{kind} are saved as U8 of one dimension, not {entry.dtype} of {list(entry.shape)}")
                data = self._file.read_bytes(entry)
                return data if kind == "bytes" else bytearray(data)
            case "torch.Size", {"torch.Size": list(sizes)} if all(type(n) is int and abs(n) < 1 << 63 for n in sizes):
                return torch.Size(sizes)
            case "torch.dtype", {"torch.dtype": str(text)} if text in _DTYPES:
                return _DTYPES[text]
            case "torch.device", {"torch.device": str(text)}:
                return _device(text, where)
            case "numpy", {"numpy": str(dtype), "value": text} if dtype in NUMPY:
                import numpy

                of = numpy.dtype(dtype)
                return numpy.frombuffer(_unhex(text, of.itemsize, where), of)[0]
            case "ndarray", {"dtype": str(dtype)} if dtype.replace(">", "<") in NUMPY:
                return self._ndarray(value["ndarray"], dtype, where)
        if kind in _KNOWN:
            _wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}")
        raise UnsupportedError(f"{where} is of the type {reprlib.repr(kind)}, which needs a newer lmc")

    def _list(self, items: list[Any], into: Any, where: str, depth: int) -> list[Any]:
        theirs = into if isinstance(into, list | tuple) and len(into) == len(items) else [None] * len(items)
        pairs = enumerate(zip(items, theirs, strict=True))
        return [self.decode(item, its, f"{where}[{i}]", depth + 1) for i, (item, its) in pairs]

    def _mapping(self, value: dict[str, Any], kind: str, into: Any, where: str, depth: int) -> dict[Any, Any]:
        items = value[kind]
        if isinstance(items, dict):
            pairs = list(items.items())
        elif isinstance(items, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in items):
            pairs = [(self._key(key, where, depth), item) for key, item in items]
            # Hashes of numbers are known to everybody, and a mapping is slow if many keys have one. (As texts, whose
            # hashes are not.)
            if max(Counter(str(hash(key)) for key, _ in pairs).values(), default=0) > _ALIKE:
                _wrong(where, f"more than {_ALIKE} of its keys have one hash")
        else:
            _wrong(where, f"a {kind} needs keys and values")
        made = MAPPINGS[kind]()
        theirs = into if isinstance(into, Mapping) else {}
        for key, item in pairs:
            made[key] = self.decode(item, theirs.get(key), place(where, key), depth + 1)
        if "_metadata" in value and kind == "OrderedDict":
            made._metadata = self.decode(value["_metadata"], None, f"{where}._metadata", depth + 1)  # type: ignore[attr-defined]
        return made

    def _key(self, key: Any, where: str, depth: int) -> Any:
        match key:
            case None | bool() | str() | int() | float():
                return key
            case {"int": _} | {"float": _}:
                return self.decode(key, None, where)
            case {"tuple": list(parts)} if depth < MAX_DEPTH:
                return tuple(self._key(part, where, depth + 1) for part in parts)
        _wrong(where, "it has a key that is none")

    def _entry(self, name: Any, where: str) -> Entry:
        entry = self._file.entries().get(name) if isinstance(name, str) else None
        return entry or _wrong(where, f"its tensor {reprlib.repr(name)} is not in the file")

    def _tensor(self, value: dict[str, Any], into: Any, where: str) -> Tensor:
        name = value["tensor"]
        entry = self._entry(name, where)
        dtype, shape = torch_type(entry.name, entry.dtype, entry.shape)
        if "dtype" in value:
            paired = _PAIRED.get(str(value["dtype"]))
            if paired is None or dtype != paired[1] or shape[-1:] != (2,):
                _wrong(
                    where, f"{entry.dtype} of shape {list(entry.shape)} does not hold {reprlib.repr(value['dtype'])}"
                )
            dtype, shape = paired[0], shape[:-1]
        if isinstance(into, Tensor):
            return self._into(into, entry, dtype, shape, where)
        parameter, grad = value.get("parameter") is True, value.get("requires_grad") is True
        if grad and not (dtype.is_floating_point or dtype.is_complex):
            _wrong(where, f"a tensor of {dtype} has no gradient")
        known = (name, dtype, parameter, grad)
        if known not in self._made:
            tensor = self._memory(entry, dtype, shape)
            if parameter:
                tensor = torch.nn.Parameter(tensor, requires_grad=grad)
            elif grad:
                tensor = tensor.detach().requires_grad_()
            self._made[known] = tensor
        made: Tensor = self._made[known]
        return made

    def _memory(self, entry: Entry, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """The tensor that is read, or is to be read, from an entry of the file."""
        if entry.name not in self._wanted:
            self._wanted[entry.name] = entry, empty(shape, dtype, self._device)
        tensor = self._wanted[entry.name][1]
        if tensor.dtype != dtype or tuple(tensor.shape) != shape:
            _wrong(entry.name, "it is said to be of two types")
        return tensor

    def _into(self, into: Tensor, entry: Entry, dtype: torch.dtype, shape: tuple[int, ...], where: str) -> Tensor:
        if into.dtype != dtype or tuple(into.shape) != shape or into.layout != torch.strided:
            raise UsageError(
                f"into has at {where} a tensor of {into.dtype} and shape {list(into.shape)}, "
                f"but the file one of {dtype} and shape {list(shape)}"
            )
        if into.is_meta:
            raise UsageError(f"into has at {where} a tensor on meta, where tensors have no values")
        target = into.detach()
        if entry.name not in self._wanted and target.is_contiguous() and not (target.is_conj() or target.is_neg()):
            self._wanted[entry.name] = entry, target
            written(into)
        else:
            source = self._memory(entry, dtype, shape)
            if source.data_ptr() != target.data_ptr() or source.device != target.device:
                self._copies.append((source, target))
        return into

    def _ndarray(self, name: Any, dtype: str, where: str) -> Any:
        entry, little = self._entry(name, where), dtype.replace(">", "<")
        if entry.dtype != NUMPY[little]:
            _wrong(where, f"{entry.dtype} is not an array of {dtype!r}")
        if (name, dtype) not in self._made:
            if name in self._wanted:
                _wrong(where, "its memory is a tensor's, too")
            flat = empty((entry.nbytes,), torch.uint8)
            array = flat.numpy().view(little).reshape(entry.shape)
            self._wanted[name] = entry, flat
            self._made[name, dtype] = array.view(dtype)
            if dtype != little:
                self._swapped.append(array)
        return self._made[name, dtype]


def _device(text: str, where: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError:
        _wrong(where, f"torch has no device {reprlib.repr(text)}")


def _unhex(text: Any, size: int, where: str) -> bytes:
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text):
        _wrong(where, f"a number is {size} bytes in hexadecimal digits")
    return bytes.fromhex(text)


def _wrong(where: str, why: str) -> NoReturn:
    raise DamagedError(f"{where}: the state is invalid: {why}")
