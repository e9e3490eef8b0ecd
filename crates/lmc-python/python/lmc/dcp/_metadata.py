"""The metadata of a checkpoint as JSON, a file of its snapshot: docs/python.md defines it."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NoReturn

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

import lmc

#: The file's name.
NAME = ".metadata.json"
#: The most bytes that it may have.
MAX_LEN = 1 << 28

_FORMAT = "lmc-dcp"
_VERSION = 1
#: The most dimensions of a tensor, as in torch.
_DIMENSIONS = 64
#: The most bytes of a tensor.
_BYTES = 2**63 - 1
# Older versions of torch have no strides.
_HAS_STRIDES = "strides" in {field.name for field in fields(TensorProperties)}

#: The file of a snapshot, and the tensor in it, that hold a chunk or a value.
Place = tuple[str, str]


def chunk_name(fqn: str, chunk: ChunkStorageMetadata, size: Sequence[int]) -> str:
    """The name of the tensor that holds a chunk: the whole tensor's, and the chunk's place unless it is all of it.

    Names stay the same while the sharding does.
    """
    if chunk.sizes == size:
        return fqn
    return f"{fqn}[{','.join(f'{o}+{n}' for o, n in zip(chunk.offsets, chunk.sizes, strict=True))}]"


def encode(metadata: Metadata, files: Mapping[MetadataIndex, str]) -> bytes:
    """The metadata of chunks and values that are in `files`.

    Raises `lmc.UsageError` for what a planner added that is not known, `lmc.LimitError` when it becomes too large.
    """
    numbers = {name: i for i, name in enumerate(dict.fromkeys(files.values()))}

    def number(fqn: str, offsets: Sequence[int] | None = None) -> int:
        file = files.get(MetadataIndex(fqn, offsets))
        if file is None:
            what = "it" if offsets is None else f"its chunk at {list(offsets)}"
            raise lmc.UsageError(f"{fqn!r}: the metadata name {what}, which no rank wrote")
        return numbers[file]

    entries: dict[str, dict[str, Any]] = {}
    for fqn, entry in metadata.state_dict_metadata.items():
        if type(fqn) is not str:
            raise lmc.UsageError(f"{reprlib.repr(fqn)}: the names of a state must be text, not {type(fqn).__name__}")
        if isinstance(entry, BytesStorageMetadata):
            entries[fqn] = {"bytes": number(fqn)}
            continue
        properties = entry.properties
        described: dict[str, Any] = {"dtype": str(properties.dtype).removeprefix("torch."), "size": list(entry.size)}
        if properties.requires_grad:
            described["requires_grad"] = True
        if (strides := getattr(properties, "strides", None)) is not None:
            described["strides"] = list(strides)
        described["chunks"] = [[list(c.offsets), list(c.sizes), number(fqn, c.offsets)] for c in entry.chunks]
        entries[fqn] = described
    document = {"format": _FORMAT, "version": _VERSION, "files": list(numbers), "entries": entries}
    if metadata.planner_data is not None:
        document["paths"] = _paths(metadata.planner_data)
    data = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    if len(data) > MAX_LEN:
        raise lmc.LimitError(
            f"the metadata of the checkpoint have {len(data)} bytes, more than {MAX_LEN}: save fewer chunks"
        )
    return data


def _paths(planner_data: Any) -> dict[str, list[str | int]]:
    """The way to each value in the nested state, as PyTorch's planner records it."""
    known = isinstance(planner_data, Mapping) and all(type(fqn) is str for fqn in planner_data)
    if not known or not all(isinstance(p, tuple) and _is_path(p) for p in planner_data.values()):
        raise lmc.UsageError(
            f"the planner adds {reprlib.repr(planner_data)} to the metadata: lmc.dcp saves only what PyTorch's adds, "
            "the names and paths of values"
        )
    return {fqn: list(path) for fqn, path in planner_data.items()}


def _is_path(path: Sequence[Any]) -> bool:
    return all(type(part) in (str, int) for part in path)


def decode(data: bytes, where: str) -> Metadata:
    """The metadata that a snapshot has, which are not trusted; `where` names their file in errors.

    Their `storage_data` is a dict of `MetadataIndex` and `Place`. Raises `lmc.DamagedError`, or `lmc.UnsupportedError`
    for those of a newer version.
    """
    try:
        document = json.loads(data, object_pairs_hook=_distinct, parse_constant=_refuse)
    except (ValueError, RecursionError) as e:
        raise lmc.DamagedError(f"{where}: is no JSON that lmc reads: {str(e) or type(e).__name__}") from e
    return _Decoder(where).metadata(document)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a field twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


class _Decoder:
    def __init__(self, where: str) -> None:
        self._where = where
        self._files: list[str] = []
        self._places: dict[MetadataIndex, Place] = {}
        self._taken: set[Place] = set()

    def metadata(self, document: Any) -> Metadata:
        self._check(type(document) is dict and document.get("format") == _FORMAT, "is no metadata of lmc.dcp")
        version = document.get("version")
        self._check(type(version) is int, "has no version")
        if version != _VERSION:
            raise lmc.UnsupportedError(f"{self._where}: has version {version}, but this lmc knows only {_VERSION}")
        self._fields(document, "the document", {"format", "version", "files", "entries"}, frozenset({"paths"}))
        files = document["files"]
        names = type(files) is list and all(type(name) is str for name in files) and len(set(files)) == len(files)
        self._check(names, "files are no list of different names")
        self._files = files
        self._check(type(document["entries"]) is dict, "entries are no object")
        entries = {fqn: self._entry(fqn, entry) for fqn, entry in document["entries"].items()}
        paths = None
        if "paths" in document:
            self._check(type(document["paths"]) is dict, "paths are no object")
            for fqn, path in document["paths"].items():
                is_path = type(path) is list and path and _is_path(path)
                self._check(is_path, f"the path of {reprlib.repr(fqn)} is no list of names and numbers")
            paths = {fqn: tuple(path) for fqn, path in document["paths"].items()}
        return Metadata(entries, planner_data=paths, storage_data=self._places)

    def _entry(self, fqn: str, entry: Any) -> BytesStorageMetadata | TensorStorageMetadata:
        what = reprlib.repr(fqn)
        self._check(type(entry) is dict, f"{what} is no object")
        if "bytes" in entry:
            self._fields(entry, what, {"bytes"})
            self._put(MetadataIndex(fqn), entry["bytes"], fqn, what)
            return BytesStorageMetadata()
        self._fields(entry, what, {"dtype", "size", "chunks"}, frozenset({"requires_grad", "strides"}))
        name = entry["dtype"]
        dtype = getattr(torch, name, None) if type(name) is str else None
        if not isinstance(dtype, torch.dtype):
            raise lmc.UnsupportedError(
                f"{self._where}: {what}: torch {torch.__version__} has no dtype {reprlib.repr(name)}"
            )
        size = self._numbers(entry["size"], f"the size of {what}")
        self._check(math.prod(size, start=dtype.itemsize) <= _BYTES, f"{what} has more than {_BYTES} bytes")
        self._check(type(entry["chunks"]) is list, f"the chunks of {what} are no list")
        properties = TensorProperties(dtype=dtype, requires_grad=self._grad(entry, what))
        if "strides" in entry:
            strides = self._numbers(entry["strides"], f"the strides of {what}")
            self._check(len(strides) == len(size), f"{what} has {len(strides)} strides and {len(size)} dimensions")
            if _HAS_STRIDES:
                properties.strides = tuple(strides)
        chunks = [self._chunk(fqn, size, c, f"chunk {i} of {what}") for i, c in enumerate(entry["chunks"])]
        return TensorStorageMetadata(properties, size, chunks)

    def _grad(self, entry: dict[str, Any], what: str) -> bool:
        grad = entry.get("requires_grad", False)
        self._check(type(grad) is bool, f"requires_grad of {what} is neither true nor false")
        return bool(grad)

    def _chunk(self, fqn: str, size: torch.Size, chunk: Any, what: str) -> ChunkStorageMetadata:
        self._check(type(chunk) is list and len(chunk) == 3, f"{what} is not offsets, sizes and the number of a file")
        offsets, sizes = (self._numbers(part, f"a part of {what}") for part in chunk[:2])
        inside = len(offsets) == len(sizes) == len(size)
        inside = inside and all(o + n <= end for o, n, end in zip(offsets, sizes, size, strict=True))
        self._check(inside, f"{what} is not inside of the tensor's size {list(size)}")
        found = ChunkStorageMetadata(offsets, sizes)
        self._put(MetadataIndex(fqn, offsets), chunk[2], chunk_name(fqn, found, size), what)
        return found

    def _put(self, index: MetadataIndex, number: Any, name: str, what: str) -> None:
        known = type(number) is int and 0 <= number < len(self._files)
        self._check(known, f"{what} is in the file {reprlib.repr(number)}, and there are {len(self._files)}")
        place = self._files[number], name
        self._check(index not in self._places and place not in self._taken, f"{what} is there twice")
        self._places[index] = place
        self._taken.add(place)

    def _numbers(self, value: Any, what: str) -> torch.Size:
        numbers = type(value) is list and len(value) <= _DIMENSIONS and all(type(n) is int for n in value)
        self._check(
            numbers and all(0 <= n <= _BYTES for n in value), f"{what} is no list of at most {_DIMENSIONS} sizes"
        )
        return torch.Size(value)

    def _fields(self, of: dict[str, Any], what: str, required: set[str], others: frozenset[str] = frozenset()) -> None:
        for name in sorted(required - of.keys()):
            self._check(False, f"{what} has no {name}")
        for name in of.keys() - required - others:
            self._check(False, f"{what} has a field {reprlib.repr(name)}, which is not known")

    def _check(self, fine: Any, why: str) -> None:
        if not fine:
            raise lmc.DamagedError(f"{self._where}: {why}")
