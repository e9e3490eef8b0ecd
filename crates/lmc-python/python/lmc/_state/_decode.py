"""A nested state from tensors and their description. See `_encode`."""

import re
import reprlib
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn, Protocol

from lmc._errors import DamagedError, NotFoundError, UnsupportedError, UsageError
from lmc._lmc import Tensor as Entry
from lmc._state import _standard
from lmc._state._encode import FACTORIES, MAPPINGS, MAX_DEPTH, library, place, type_name

# The library whose values are described by each kind.
_LIBRARIES: Final = dict.fromkeys(("tensor", "torch.Size", "torch.dtype", "torch.device"), "torch") | dict.fromkeys(
    ("numpy", "ndarray"), "numpy"
)
_KNOWN: Final = MAPPINGS.keys() | _LIBRARIES.keys() | set("int float complex tuple bytes bytearray".split())
# Kinds of keys of mappings, and of elements of sets, beside those that JSON has, and tuples.
_KEYS: Final = _standard.KINDS - {"set", "deque"} | set(
    "int float complex numpy torch.Size torch.dtype torch.device".split()
)
_ALIKE: Final = 16


class Bytes(Protocol):
    """A file that is read at offsets."""

    def read_range_into(self, offset: int, out: Any, /) -> int:
        """Fills a buffer."""

    def read_ranges_into(self, wanted: Iterable[tuple[int, Any]], /) -> int:
        """Fills buffers that do not share memory, given with their offsets."""


class Decoder:
    """Builds values from descriptions. Their tensors have no values until `fill`.

    `dropped` says why tensors may lack, if they may.
    """

    def __init__(self, file: Bytes, entries: dict[str, Entry], device: Any, dropped: str | None = None) -> None:
        self._file = file
        self._entries = entries
        self._dropped = dropped
        self.device = device
        """Where new tensors of torch go."""
        # Destinations of reads, by name: memory of tensors or arrays, in the file's dtype and shape.
        self._wanted: dict[str, tuple[Entry, Any]] = {}
        self.made: dict[tuple[Any, ...], Any] = {}
        """Values by what tells them apart, so that those of the same memory are one."""
        self.then: list[Callable[[], object]] = []
        """What is to be done after reading, such as copies."""
        # What takes its state in the end.
        self._loads: list[Callable[[], object]] = []

    def entry(self, name: Any, where: str) -> Entry:
        """The tensor of the file that a description names.

        Raises `NotFoundError` if there is none since it was dropped, and `DamagedError` if there is none.
        """
        found = self._entries.get(name) if isinstance(name, str) else None
        if found is None and self._dropped is not None:
            raise NotFoundError(f"{where}: {self._dropped}")
        return found or wrong(where, f"its tensor {reprlib.repr(name)} is not in the file")

    def wanted(self, entry: Entry) -> Any:
        """The memory that a tensor of the file will be read into, if there is one already."""
        return self._wanted.get(entry.name, (entry, None))[1]

    def want(self, entry: Entry, memory: Any) -> None:
        """Lets a tensor of the file be read into the contiguous memory of a tensor or an array."""
        self._wanted[entry.name] = entry, memory

    def fill(self) -> None:
        """Reads the values of all tensors, and loads them into modules and optimizers."""
        here, elsewhere = self._part()
        self._file.read_ranges_into((entry.offset, _of(value).memory(value)) for entry, value in here)
        if elsewhere:
            _of(elsewhere[0][1]).read(self._file, elsewhere)
        for done in self.then + self._loads:
            done()

    def _part(self) -> tuple[list[tuple[Entry, Any]], list[tuple[Entry, Any]]]:
        """What is to be read into main memory, and to devices.

        Of values of `into` that overlap, all but one are filled by a copy: threads must not write to the same memory.
        """
        places = [(_of(value).address(value), entry, value) for entry, value in self._wanted.values()]
        elsewhere = [(entry, value) for start, entry, value in places if start is None]
        here, copies, end = list[tuple[Entry, Any]](), list[Callable[[], object]](), 0
        for start, entry, value in sorted((p for p in places if p[0] is not None), key=lambda p: p[0]):
            if entry.nbytes and start < end:
                value, copy = _of(value).apart(value)
                copies.append(copy)
            elif entry.nbytes:
                end = start + entry.nbytes
            here.append((entry, value))
        # Before other copies, whose sources they may fill.
        self.then[:0] = copies
        return here, elsewhere

    def decode(self, value: Any, into: Any = None, where: str = "state", depth: int = 0) -> Any:
        """Builds the value described by `value`. Tensors of `into` at the same place are filled instead of new ones.

        Raises `DamagedError`, or `UnsupportedError` for a type that this version does not know.
        """
        if hasattr(into, "load_state_dict") and hasattr(into, "state_dict"):
            return self._load(value, into, where, depth)
        if value is None or isinstance(value, bool | str | int | float):
            return value
        if depth > MAX_DEPTH:
            wrong(where, "too many containers are in each other")
        if isinstance(value, list):
            return self._list(value, into, where, depth)
        kind = next(iter(value), None)
        match kind, value:
            case "int", {"int": str(text)} if re.fullmatch("-?0x[0-9a-f]+", text):
                return int(text, 16)
            case "float", {"float": text}:
                return struct.unpack(">d", unhex(text, 8, where))[0]
            case "complex", {"complex": text}:
                return complex(*struct.unpack(">dd", unhex(text, 16, where)))
            case "tuple", {"tuple": list(items)}:
                return tuple(self._list(items, into, where, depth))
            case (("dict" | "OrderedDict" | "Counter" | "defaultdict"), _):
                return self._mapping(value, kind, into, where, depth)
            case (("bytes" | "bytearray"), _):
                entry = self.entry(value[kind], where)
                if entry.dtype != "U8" or len(entry.shape) != 1:
                    wrong(where, f"{kind} are saved as U8 of one dimension, not {entry.dtype} of {list(entry.shape)}")
                data = bytearray(entry.nbytes)
                self._file.read_range_into(entry.offset, data)
                return bytes(data) if kind == "bytes" else data
        if kind in _standard.KINDS:
            made = _standard.decode(self, kind, value, into, where, depth)
            return wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}") if made is None else made
        if kind in _LIBRARIES:
            return _library(_LIBRARIES[kind], where).decode(self, kind, value, into, where)
        if kind in _KNOWN:
            wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}")
        raise UnsupportedError(f"{where} is of the type {reprlib.repr(kind)}, which needs a newer lmc")

    def _load(self, value: Any, into: Any, where: str, depth: int) -> Any:
        """Lets a module, an optimizer or the like load a state: the memory of its tensors is filled."""
        theirs = into.state_dict()
        found = self.decode(value, theirs, where, depth)
        # (Optimizers have no moments before their first step.)
        if callable(getattr(into, "named_parameters", None)):
            if not isinstance(found, Mapping):
                raise UsageError(f"into has at {where} a {type_name(type(into))}, but the state none of a module")
            lacks, more = theirs.keys() - found.keys(), found.keys() - theirs.keys()
            if lacks or more:
                differ = " and ".join(
                    f"{what} {reprlib.repr(sorted(map(str, names)))}"
                    for what, names in (("lacks its", lacks), ("has also", more))
                    if names
                )
                raise UsageError(f"into has at {where} a {type_name(type(into))}, but the state there {differ}")
        self._loads.append(lambda: into.load_state_dict(found))
        return into

    def _list(self, items: list[Any], into: Any, where: str, depth: int) -> list[Any]:
        theirs = into if isinstance(into, list | tuple) and len(into) == len(items) else [None] * len(items)
        pairs = enumerate(zip(items, theirs, strict=True))
        return [self.decode(item, its, f"{where}[{i}]", depth + 1) for i, (item, its) in pairs]

    def _mapping(self, value: dict[str, Any], kind: str, into: Any, where: str, depth: int) -> dict[Any, Any]:
        items = value[kind]
        if isinstance(items, dict):
            pairs = list(items.items())
        elif isinstance(items, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in items):
            keys = self.keys([key for key, _ in items], where, depth)
            pairs = list(zip(keys, (item for _, item in items), strict=True))
        else:
            wrong(where, f"a {kind} needs keys and values")
        made = MAPPINGS[kind]()
        theirs = into if isinstance(into, Mapping) else {}
        for key, item in pairs:
            made[key] = self.decode(item, theirs.get(key), place(where, key), depth + 1)
        if isinstance(made, defaultdict) and (factory := value.get("default_factory")) is not None:
            made.default_factory = FACTORIES.get(factory) if isinstance(factory, str) else None
            if made.default_factory is None:
                wrong(where, f"there is no default_factory {reprlib.repr(factory)}")
        if "_metadata" in value and kind == "OrderedDict":
            made._metadata = self.decode(value["_metadata"], None, f"{where}._metadata", depth + 1)  # type: ignore[attr-defined]
        return made

    def keys(self, keys: list[Any], where: str, depth: int) -> list[Any]:
        """The keys of a mapping, or the elements of a set."""
        made = [self._key(key, where, depth) for key in keys]
        # Hashes of numbers are known to everybody, and a mapping is slow if many keys have one. (As texts, whose
        # hashes are not.)
        try:
            alike = Counter(str(hash(key)) for key in made)
        except TypeError:
            wrong(where, "it has a key that is none")
        if max(alike.values(), default=0) > _ALIKE:
            wrong(where, f"more than {_ALIKE} of its keys have one hash")
        return made

    def _key(self, key: Any, where: str, depth: int) -> Any:
        match key:
            case None | bool() | str() | int() | float():
                return key
            case {"tuple": list(parts)} if depth < MAX_DEPTH:
                return tuple(self._key(part, where, depth + 1) for part in parts)
            case dict() if next(iter(key), None) in _KEYS and depth < MAX_DEPTH:
                return self.decode(key, None, where, depth + 1)
        wrong(where, "it has a key that is none")


def _library(name: str, where: str) -> Any:
    """The module that knows the values of a library, which must be installed."""
    try:
        return library(name)
    except ModuleNotFoundError as e:
        if e.name != name:
            raise
        raise UnsupportedError(f"{where} is a value of {name}, which is not installed: pip install {name}") from e


def _of(value: Any) -> Any:
    """The module that knows a tensor or an array."""
    return library("numpy" if hasattr(value, "__array_interface__") else "torch")


def unhex(text: Any, size: int, where: str) -> bytes:
    """Bytes in hexadecimal digits."""
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text):
        wrong(where, f"a number is {size} bytes in hexadecimal digits")
    return bytes.fromhex(text)


def wrong(where: str, why: str) -> NoReturn:
    """Raises `DamagedError`."""
    raise DamagedError(f"{where}: the state is invalid: {why}")
