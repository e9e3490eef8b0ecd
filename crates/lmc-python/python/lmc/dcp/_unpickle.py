"""Unpickles the `.metadata` of a checkpoint without executing anything that it names.

A pickle can call anything that it names. Here it may name only the parts of metadata: for each class and function it
gets a stand-in, which creates instances from checked arguments, and cannot be changed. The result is then checked,
field by field, before it is used. A pickle may also be made to use up time, memory or the stack, by which names it
does not matter: `check_pickle` bounds these before the first object is made. Only what PyTorch needs to load or unpack
a checkpoint is read in this way: of other checkpoints `lmc` reads the places of chunks, without unpickling
(`Storage.chunks_of`).
"""

from __future__ import annotations

import collections
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, BinaryIO, Literal, TypeAlias, TypeGuard

import torch
from torch.distributed._shard.sharded_tensor import metadata as old
from torch.distributed.checkpoint import filesystem as stored
from torch.distributed.checkpoint import metadata as new
from torch.distributed.checkpoint.metadata import Metadata

import lmc
from lmc._lmc import check_pickle

Trust: TypeAlias = bool | Iterable[str]
"""Further names that a pickle may contain, such as `"module.name"`; `True` for any, as in PyTorch."""

#: The most bytes of metadata: several times the size for a million chunks.
LARGEST = 1 << 30

_SHOWN = 100
# The most dimensions of a tensor in PyTorch.
_DIMENSIONS = 64
# The most chunks of a tensor whose offsets have the hash of another one's, as hardly any do; and limits of a place.
_ALIKE = 4
_TRANSFORMS = 16
_LONGEST = 1 << 16


def trusted(trust: Trust) -> frozenset[str] | Literal[True]:
    """Converts the argument `trust`.

    Raises `lmc.UsageError` unless it is a list of names.
    """
    if trust is True:
        return True
    names = () if trust is False else trust
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise lmc.UsageError(f"trust={trust!r}: must be a list of names such as 'module.name', or True for all")
    found = frozenset(names)
    for name in found:
        if not isinstance(name, str) or not all(name.rpartition(".")[::2]):
            raise lmc.UsageError(f"trust names {name!r}: must be a module and a name in it, as in 'module.name'")
    return found


def load(stream: BinaryIO, path: str, trust: frozenset[str] | Literal[True]) -> Metadata:
    """Reads metadata from a file, which errors call `path`.

    Raises `lmc.FormatError` if they are damaged, or contain a name that is neither part of metadata nor trusted.
    """
    try:
        found = pickle.load(stream) if trust is True else _restricted(stream, trust)
    except lmc.FormatError as e:
        raise type(e)(f"{path}: {e}") from e
    except (OSError, MemoryError):
        raise
    except Exception as e:  # a damaged pickle can raise any
        raise lmc.FormatError(f"{path} cannot be read: {type(e).__name__}: {e}") from e
    if not isinstance(found, Metadata):
        raise lmc.FormatError(f"{path} is not what torch.distributed.checkpoint writes")
    try:
        _check(found)
    except lmc.FormatError as e:
        raise lmc.FormatError(f"{path}: {e}") from e
    return found


def _restricted(stream: BinaryIO, trust: frozenset[str]) -> object:
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise lmc.FormatError(f"has more than {LARGEST} bytes, too many for a checkpoint's metadata")
    check_pickle(data)
    return _Unpickler(data, trust).load()


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, trust: frozenset[str]) -> None:
        super().__init__(io.BytesIO(data))
        self._trust = trust
        self._known = {**_KNOWN, (new.__name__, "MetadataIndex"): _indices()}

    def find_class(self, module: str, name: str, /) -> Any:
        known = self._known.get((module, name))
        if known is not None:
            return known
        full = f"{module}.{name}"
        if full in self._trust:
            return super().find_class(module, name)
        # Hostile names may be long, and contain unprintable characters.
        shown = ascii(full)[1:-1]
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        raise lmc.FormatError(
            f"names {shown}, which is not part of a checkpoint's metadata: it may be hostile; "
            f"trust=[{shown!r}] reads it, if you know who wrote it"
        )


def _fixed(*_: object) -> None:
    raise lmc.FormatError("changes an object that is not part of it: it may be hostile")


class _Sealed(type):
    """The metaclass of stand-ins: a pickle may call them, but not change them."""

    __setattr__ = _fixed
    __delattr__ = _fixed


def _stand_in(make: Callable[..., object]) -> type:
    """The stand-in for a class or function: `make` is called with the arguments."""

    def new(cls: type, *arguments: Any) -> Any:
        return make(*arguments)

    # A pickle would also call a class's `__setstate__`, with a state of its choice.
    return _Sealed("StandIn", (), {"__slots__": (), "__new__": new, "__setstate__": staticmethod(_fixed)})


def _blank(cls: type) -> Callable[[], object]:
    """Creates an instance without values, which the pickle sets afterwards."""
    return lambda: object.__new__(cls)


class _Encoding:
    """A member of an enumeration. The real one is shared by the process, and a pickle could change it."""

    __slots__ = ("member",)

    def __init__(self, member: object) -> None:
        self.member = member

    __setstate__ = _fixed


def _encoding(enumeration: Any) -> Callable[[object], object]:
    by_value = {member.value: member for member in enumeration}
    return lambda value: _Encoding(by_value[value])


def _member(enumerations: dict[type, Any]) -> Callable[[object, object], object]:
    """`getattr` of enumerations alone: Python 3.11.0 to 3.11.3 pickle members by their names."""

    def member(of: object, name: object) -> object:
        enumeration = enumerations.get(of) if isinstance(of, type) else None
        if enumeration is None or not isinstance(name, str) or name not in enumeration.__members__:
            raise lmc.FormatError("takes an attribute of what is no enumeration of metadata: it may be hostile")
        return _Encoding(enumeration[name])

    return member


def _properties(real: Any) -> Callable[[], object]:
    """Creates properties of a tensor, replacing an `_Encoding` by the member that was pickled."""

    def setstate(self: Any, state: tuple[Any, ...]) -> None:
        real.__setstate__(self, tuple(e.member if isinstance(e, _Encoding) else e for e in state))
        self.__class__ = real

    return _blank(type("Properties", (real,), {"__setstate__": setstate}))


def _indices() -> type:
    """The stand-in for `MetadataIndex` of one pickle: they are keys of a table, which is slow if many have one hash.

    Hashes of numbers, and so of offsets, are known to everybody.
    """
    # By tensor and hash, as text, the first of the offsets; and how many others had the hash of one.
    firsts = collections.defaultdict[str, dict[str, object]](dict)
    alike = collections.Counter[str]()

    def setstate(self: Any, state: Any) -> None:
        if not isinstance(state, dict) or not state.keys() <= {"fqn", "offset", "index"}:
            raise lmc.FormatError("has an index that is not structured as PyTorch's")
        fqn, offset, index = state.get("fqn"), state.get("offset"), state.get("index")
        if not isinstance(fqn, str) or not isinstance(offset, _OFFSET) or not isinstance(index, _INDEX):
            raise lmc.FormatError("has an index that is not structured as PyTorch's")
        if firsts[fqn].setdefault(str(hash(offset)), offset) != offset:
            alike[fqn] += 1
        if alike[fqn] > _ALIKE:
            raise lmc.FormatError(f"has chunks of {fqn!r:.100} whose offsets have one hash: it may be hostile")
        for name, value in state.items():
            object.__setattr__(self, sys.intern(name), value)
        object.__setattr__(self, "__class__", new.MetadataIndex)

    return _stand_in(_blank(type("Index", (new.MetadataIndex,), {"__setstate__": setstate})))


def _size(numbers: object) -> torch.Size:
    if not isinstance(numbers, tuple | list) or len(numbers) > _DIMENSIONS:
        kind = type(numbers).__name__
        raise lmc.FormatError(f"has a size made from {kind}, or of more than {_DIMENSIONS} dimensions")
    return torch.Size(numbers)


_LAYOUTS = {str(value): value for value in vars(torch).values() if isinstance(value, torch.layout)}


def _layout(name: str) -> torch.layout:
    return _LAYOUTS[name]


def _ordered(*items: object) -> object:
    # Items follow separately; Python 2 gave a list of pairs.
    if items:
        raise lmc.FormatError("has an ordered dictionary that no Python 3 wrote")
    return collections.OrderedDict()


def _set(kind: type) -> Callable[..., object]:
    return lambda items=(): kind(items if isinstance(items, list | tuple | set | frozenset) else ())


def _bytearray(value: object = b"", *encoding: str) -> bytearray:
    # Not from a number, which would be a length to allocate.
    return bytearray(value if isinstance(value, bytes) else b"")


def _path(kind: type) -> Callable[..., object]:
    return lambda *parts: kind(*(part for part in parts if isinstance(part, str)))


def _known() -> dict[tuple[str, str], object]:
    """The stand-in for a module and a name."""
    dtypes = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    makers: dict[tuple[str, str], Callable[..., object]] = {
        ("torch", "Size"): _size,
        ("torch.serialization", "_get_layout"): _layout,
        (new.__name__, "TensorProperties"): _properties(new.TensorProperties),
        (new.__name__, "_MEM_FORMAT_ENCODING"): _encoding(new._MEM_FORMAT_ENCODING),
        # Former locations in PyTorch.
        (old.__name__, "TensorProperties"): _properties(old.TensorProperties),
        (old.__name__, "MEM_FORMAT_ENCODING"): _encoding(old.MEM_FORMAT_ENCODING),
        (stored.__name__, "_StorageInfo"): _blank(stored._StorageInfo),
        ("collections", "OrderedDict"): _ordered,
        ("builtins", "set"): _set(set),
        ("builtins", "frozenset"): _set(frozenset),
        ("builtins", "slice"): slice,
        ("builtins", "complex"): complex,
        ("builtins", "bytearray"): _bytearray,
    }
    for cls in (
        new.BytesStorageMetadata,
        new.ChunkStorageMetadata,
        new.Metadata,
        new.StorageMeta,
        new.TensorStorageMetadata,
    ):
        makers[new.__name__, cls.__name__] = _blank(cls)
    # The path class may be that of another operating system.
    for module in ("pathlib", "pathlib._local"):
        makers[module, "PosixPath"] = _path(PosixPath)
        makers[module, "PurePosixPath"] = _path(PurePosixPath)
        makers[module, "WindowsPath"] = makers[module, "PureWindowsPath"] = _path(PureWindowsPath)
    made: dict[tuple[str, str], type] = {key: _stand_in(make) for key, make in makers.items()}
    enumerations = {
        made[new.__name__, "_MEM_FORMAT_ENCODING"]: new._MEM_FORMAT_ENCODING,
        made[old.__name__, "MEM_FORMAT_ENCODING"]: old.MEM_FORMAT_ENCODING,
    }
    made["builtins", "getattr"] = _stand_in(_member(enumerations))
    return {**made, **{("torch", name): dtype for name, dtype in dtypes.items()}}


_KNOWN = _known()


def _has(value: Any, cls: type, **fields: type | tuple[type, ...]) -> bool:
    return isinstance(value, cls) and all(isinstance(getattr(value, n, ...), kind) for n, kind in fields.items())


def _check(metadata: Metadata) -> None:
    """Fails unless metadata have the structure that PyTorch writes."""
    entries, places = getattr(metadata, "state_dict_metadata", None), metadata.storage_data
    if not isinstance(entries, dict) or not isinstance(places, dict | None):
        raise lmc.FormatError("is not structured as PyTorch's: the table of what was saved is missing or invalid")
    # One list of chunks for many entries would be read for each of them.
    lists = set[int]()
    for fqn, entry in entries.items():
        known = isinstance(entry, new.BytesStorageMetadata) or (_is_tensor(entry) and id(entry.chunks) not in lists)
        if not isinstance(fqn, str) or not known:
            raise lmc.FormatError(f"its entry for {fqn!r:.200} is not structured as PyTorch's")
        if isinstance(entry, new.TensorStorageMetadata):
            lists.add(id(entry.chunks))
    checked = set[str]()
    for index, place in (places or {}).items():
        if not _has(index, new.MetadataIndex, fqn=str, offset=_OFFSET, index=_INDEX):
            raise lmc.FormatError("its table of storage locations is not structured as PyTorch's")
        if index.fqn not in entries:
            raise lmc.FormatError(f"it has a location for {index.fqn!r}, but no entry")
        # Other storages of PyTorch have other records, which this package does not read.
        if isinstance(place, stored._StorageInfo):
            _check_place(index.fqn, place, checked)


_OFFSET = (torch.Size, type(None))
_INDEX = (int, type(None))
_PROPERTIES = (new.TensorProperties, old.TensorProperties)


def _is_tensor(entry: object) -> TypeGuard[new.TensorStorageMetadata]:
    return (
        isinstance(entry, new.TensorStorageMetadata)
        and _has(entry, new.TensorStorageMetadata, properties=_PROPERTIES, size=torch.Size, chunks=list)
        and isinstance(getattr(entry.properties, "dtype", None), torch.dtype)
        and all(_has(c, new.ChunkStorageMetadata, offsets=torch.Size, sizes=torch.Size) for c in entry.chunks)
    )


def _check_place(fqn: str, place: stored._StorageInfo, checked: set[str]) -> None:
    """Fails unless a place is in a file of the checkpoint; `checked` are the names of files that passed."""
    descriptors = place.transform_descriptors
    if (
        not _has(place, stored._StorageInfo, relative_path=str, offset=int, length=int)
        or not isinstance(descriptors, list | tuple | None)
        or len(descriptors or ()) > _TRANSFORMS
        or not all(isinstance(d, str) and len(d) <= _LONGEST for d in descriptors or ())
    ):
        raise lmc.FormatError(f"the location of {fqn!r:.200} is not structured as PyTorch's")
    name = place.relative_path
    if name in checked:
        return
    # Also paths of Windows: the next reader may run there.
    windows = PureWindowsPath(name)
    if not name or "\0" in name or "://" in name or name[0] in "/\\" or windows.drive or ".." in windows.parts:
        raise lmc.FormatError(
            f"says that {fqn!r:.200} is in {name!r:.200}, which is not a file of the checkpoint: it may be hostile"
        )
    checked.add(name)
