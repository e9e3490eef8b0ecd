"""Models of several files: those that a directory has, or that an index names."""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final, Self

from lmc._errors import DamagedError, MissingFileError, NotFoundError, UsageError
from lmc._lmc import File

SUFFIX: Final = ".lmc"
_WEIGHTS: Final = ".safetensors"
_INDEX: Final = ".safetensors.index."
_JSON: Final = ".json"
#: The largest index, in bytes.
_MAX_INDEX: Final = 100_000_000
#: Files of a model that are open at the same time: each has threads of its own.
_MAX_OPEN: Final = 8


def model(path: Any) -> Any:
    """The file or the index that a path stands for, compressed or not: a directory stands for its one model.

    Raises `NotFoundError` for a directory without a model, and `UsageError` for one with several.
    """
    if not isinstance(path, str | os.PathLike):
        return path
    name = os.fsdecode(path)
    if os.path.isdir(name):
        return in_place(_model_in(name))
    return in_place(name) if is_index(name) else path


def bases(base: Any, file: str | None = None) -> Any:
    """The argument `base`, with the files of a model in place of its index or its directory.

    Of a model that has a file of the name of the `file` that is to be read, it is that one alone: usually it is the
    base of that file, and the others would be read in vain.
    """
    if isinstance(base, list | tuple):
        all_of = (bases(given, file) for given in base)
        return [one for found in all_of for one in (found if isinstance(found, list) else [found])]
    found = model(base)
    if not is_index(found):
        return found
    names = sorted(set(_weight_map(found).values()))
    return [_shard(found, name) for name in ([file] if file in names else names)]


class Shards:
    """The files that an index names, opened as one: the mixin of a `safe_open` that opens them one by one.

    Raises `MissingFileError` when a file is missing, and `DamagedError` when the index and its files contradict each
    other, as soon as that is noticed.
    """

    _one: Any
    """What opens one file."""

    def __init__(self, filename: Any, *args: Any, base: Any = None, **options: Any) -> None:
        self._index: str = model(filename)
        self._files = _weight_map(self._index)
        self._open_one: Callable[[str], Any] = lambda file: self._one(
            _shard(self._index, file), *args, base=bases(base, file), **options
        )
        self._opened = OrderedDict[str, Any]()
        self._lock = threading.Lock()
        self._is_closed = False
        for file in self._names()[:1]:
            self._shard(file)  # arguments are wrong for all of them

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def close(self) -> None:
        """Closes the files."""
        with self._lock:
            self._is_closed = True
            for opened in self._opened.values():
                opened.close()
            self._opened.clear()

    def keys(self) -> list[str]:
        """Names of the tensors, sorted."""
        self._check_open()
        return sorted(self._files)

    def offset_keys(self) -> list[str]:
        """Names of the tensors, in the order of the files and of each of them."""
        self._check_open()
        return [name for file in self._names() for name in self._shard(file).offset_keys()]

    def metadata(self) -> dict[str, str] | None:
        """What the files have as metadata, together."""
        self._check_open()
        found = [metadata for file in self._names() if (metadata := self._shard(file).metadata()) is not None]
        return {key: text for metadata in found for key, text in metadata.items()} if found else None

    def get_tensor(self, name: str) -> Any:
        """Reads a tensor. Raises `NotFoundError` when there is none with this name."""
        return self._read(name, "get_tensor")

    def get_slice(self, name: str) -> Any:
        """A tensor that is read by indexing. Raises what `get_tensor` does."""
        return self._read(name, "get_slice")

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, by name, in the order of `offset_keys`."""
        self._check_open()
        tensors, files = dict[str, Any](), dict[str, str]()
        for file in self._names():
            with self._open_one(file) as opened:
                shard = opened.get_tensors()
            if twice := next((name for name in shard if name in tensors), None):
                raise DamagedError(f"{self._index}: {files[twice]} and {file} both have the tensor {twice!r}")
            tensors |= shard
            files |= dict.fromkeys(shard, file)
        for name, file in self._files.items():
            if files.get(name) != file:
                raise self._lacks(file, name)
        return tensors

    def _names(self) -> list[str]:
        return sorted(set(self._files.values()))

    def _read(self, name: str, method: str) -> Any:
        self._check_open()
        if (file := self._files.get(name)) is None:
            raise NotFoundError(f"{self._index} has no tensor {name!r}")
        try:
            return getattr(self._shard(file), method)(name)
        except NotFoundError as e:
            raise self._lacks(file, name) from e

    def _shard(self, file: str) -> Any:
        with self._lock:
            if file not in self._opened:
                self._opened[file] = self._open_one(file)
            self._opened.move_to_end(file)
            if len(self._opened) > _MAX_OPEN:
                self._opened.popitem(last=False)  # whoever uses it keeps it open
            return self._opened[file]

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("the file is closed")

    def _lacks(self, file: str, name: str) -> DamagedError:
        return DamagedError(
            f"{self._index}: {file} has no tensor {name!r}, which the index says it has: fetch both again"
        )


def in_place(path: str) -> str:
    """Where a file is: under its name, or as the compressed form that took its place."""
    return path + SUFFIX if not os.path.exists(path) and os.path.isfile(path + SUFFIX) else path


def _model_in(directory: str) -> str:
    """The index, or the only file, of the model in a directory."""
    there = {name.removesuffix(SUFFIX) for name in os.listdir(directory) if not name.startswith(".")}
    indexes = {name for name in there if is_index(name)}
    shards = {file for name in indexes for file in _weight_map(in_place(os.path.join(directory, name))).values()}
    models = sorted(indexes | {name for name in there if name.endswith(_WEIGHTS)} - shards)
    if not models:
        what = f"*{_WEIGHTS}, *{_WEIGHTS}{SUFFIX}, or *{_INDEX}json"
        raise NotFoundError(f"{directory} has no model, that is, none of {what}")
    if len(models) > 1:
        raise UsageError(f"{directory} has several models, {' and '.join(models)}: name one of these files")
    return os.path.join(directory, models[0])


def is_index(path: Any) -> bool:
    """Whether a path, as `model` returns it, is that of an index."""
    if not isinstance(path, str):
        return False
    name = os.path.basename(path).removesuffix(SUFFIX)
    return _INDEX in name and name.endswith(_JSON)


def _weight_map(index: str) -> dict[str, str]:
    """The file of each tensor."""
    with File(index, plain=True, threads=1) as file:
        if file.size > _MAX_INDEX:
            raise DamagedError(f"{index} is no index of weights: it has more than {_MAX_INDEX} bytes")
        text = file.read_range(0, file.size)
    try:
        names = json.loads(text)["weight_map"]
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise DamagedError(f"{index} is no index of weights: {type(e).__name__}: {e}: fetch it again") from e
    if not isinstance(names, dict):
        raise DamagedError(f"{index} is no index of weights: its weight_map is no object: fetch it again")
    for file in names.values():
        if not isinstance(file, str) or not _is_below(file):
            raise DamagedError(
                f"{index}: its weight_map has {file!r}, which is not the name of a file in its directory"
            )
    return names


def _is_below(file: str) -> bool:
    path = PurePosixPath(file)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in file


def _shard(index: str, file: str) -> str:
    path = in_place(os.path.join(os.path.dirname(index), file))
    if not os.path.isfile(path):
        raise MissingFileError(f"{index} names {file}, and neither that nor {file}{SUFFIX} is beside it")
    return path
