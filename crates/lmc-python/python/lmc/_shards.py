"""Models of several files: those that a directory has, or that an index names."""

import json
import os
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar

from lmc._errors import DamagedError, MissingFileError, NotFoundError, UsageError
from lmc._lmc import File

T = TypeVar("T")

SUFFIX: Final = ".lmc"
_WEIGHTS: Final = ".safetensors"
_INDEX: Final = ".safetensors.index."
_JSON: Final = ".json"
#: The largest index, in bytes.
_MAX_INDEX: Final = 100_000_000


def load_all(path: Any, load: Callable[[Any], dict[str, T]]) -> dict[str, T]:
    """The tensors of a file, or of all files of a model, by name. `load` gets those of one file.

    Raises `NotFoundError` for a directory without a model, `UsageError` for one with several, `MissingFileError` when a
    file that an index names is missing, and `DamagedError` when an index and its files contradict each other.
    """
    if not isinstance(path, str | os.PathLike):
        return load(path)
    index = os.fsdecode(path)
    if os.path.isdir(index):
        index = _model_in(index)
    elif not _is_index(index):
        return load(path)
    index = in_place(index)
    if not _is_index(index):
        return load(index)
    names = _weight_map(index)
    tensors, files = dict[str, T](), dict[str, str]()
    for file in sorted(set(names.values())):
        shard = load(_shard(index, file))
        if twice := next((name for name in shard if name in tensors), None):
            raise DamagedError(f"{index}: {files[twice]} and {file} both have the tensor {twice!r}")
        tensors |= shard
        files |= dict.fromkeys(shard, file)
    for name, file in names.items():
        if files.get(name) != file:
            raise DamagedError(f"{index}: {file} has no tensor {name!r}, which the index says it has: fetch both again")
    return tensors


def in_place(path: str) -> str:
    """Where a file is: under its name, or as the compressed form that took its place."""
    return path + SUFFIX if not os.path.exists(path) and os.path.isfile(path + SUFFIX) else path


def _model_in(directory: str) -> str:
    """The index, or the only file, of the model in a directory."""
    there = {name.removesuffix(SUFFIX) for name in os.listdir(directory) if not name.startswith(".")}
    indexes = {name for name in there if _is_index(name)}
    shards = {file for name in indexes for file in _weight_map(in_place(os.path.join(directory, name))).values()}
    models = sorted(indexes | {name for name in there if name.endswith(_WEIGHTS)} - shards)
    if not models:
        what = f"*{_WEIGHTS}, *{_WEIGHTS}{SUFFIX}, or *{_INDEX}json"
        raise NotFoundError(f"{directory} has no model, that is, none of {what}")
    if len(models) > 1:
        raise UsageError(f"{directory} has several models, {' and '.join(models)}: name one of these files")
    return os.path.join(directory, models[0])


def _is_index(path: str) -> bool:
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
