"""Converting checkpoints to plain ones."""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import math
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

import lmc
from lmc.dcp._cover import check_cover, shown
from lmc.dcp._files import Files, chunk_at, tensor_name
from lmc.dcp._storage import METADATA, Storage, StorageOptions, settle, storage_of
from lmc.dcp._tensors import memory
from lmc.dcp._unpickle import Trust
from lmc.torch._dtypes import NAMES
from lmc.torch._memory import empty

#: The size limit of files of tensors, in bytes, unless a single tensor is larger; as in Hugging Face's libraries.
SHARD = 5 * 10**9
#: The data file of a plain checkpoint.
_DATA = "__0_0.distcp"


@dataclass(frozen=True)
class Unpacked:
    """The result of `unpack`."""

    files: list[str]
    #: Names of entries that are not tensors, which safetensors files cannot hold.
    left_out: list[str]


def unpack(
    checkpoint: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    to: Literal["dcp", "safetensors"] = "dcp",
    prefix: str = "",
    trust: Trust = (),
    storage_options: StorageOptions = None,
) -> Unpacked:
    """Writes a checkpoint of `lmc.dcp` as one that does not need lmc.

    Args:
        checkpoint: a directory, or a URL that fsspec knows, which is given `storage_options`.
        target: a directory, which must not exist yet or be empty.
        to: `"dcp"` for the output of PyTorch's own writer, with the same chunks; `"safetensors"` for whole tensors, in
            one file or, beyond 5 GB, in several with a `model.safetensors.index.json`.
        prefix: for safetensors, takes only names that begin with it, and strips it; usually `"model."`.
        trust: as for `lmc.dcp.Reader`.

    Raises:
        lmc.Error: the checkpoint is damaged or incomplete, or contains an untrusted name; the target holds files.
    """
    if to not in ("dcp", "safetensors"):
        raise lmc.UsageError(f"to={to!r}: must be 'dcp' or 'safetensors'")
    if prefix and to == "dcp":
        raise lmc.UsageError("prefix is only for to='safetensors': a plain checkpoint keeps all names")
    _, storage, path = storage_of(checkpoint, storage_options, trust)
    metadata = storage.read_metadata(os.fspath(path))
    folder = Path(target)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise lmc.ExistsError(f"{folder} holds files: unpack to a new directory")
    try:
        with _Chunks(storage, os.fspath(path), metadata) as chunks:
            return _to_dcp(chunks, folder) if to == "dcp" else _to_safetensors(chunks, folder, prefix)
    except BaseException:
        _remove_unfinished(folder, new)
        raise


def _remove_unfinished(folder: Path, new: bool) -> None:
    """Removes the output of an unpacking from a folder that was empty, and the folder if it was `new`."""
    with suppress(OSError):  # the error that stopped the unpacking is the one to report
        for pattern in (_DATA, METADATA + "*", "model*.safetensors*"):
            for path in folder.glob(pattern):
                path.unlink()
        if new:
            folder.rmdir()


class _Chunks:
    """The contents of a checkpoint, chunk by chunk."""

    def __init__(self, storage: Storage, checkpoint: str, metadata: Metadata) -> None:
        self.checkpoint = checkpoint
        self.metadata = metadata
        self._storage = storage
        # The data file that was read last.
        self._open: tuple[str, lmc.File] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> _Chunks:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _file(self, name: str) -> lmc.File:
        if self._open is None or self._open[0] != name:
            self._stack.close()
            files = self._stack.enter_context(Files(self._storage, self.checkpoint))
            self._open = name, files.reading(name)
        return self._open[1]

    def read(self, index: MetadataIndex) -> torch.Tensor | io.BytesIO:
        place = self._place(index)
        name = tensor_name(place)
        assert name is not None, "the chunk is one of `in_order`"
        file = self._file(place.relative_path)
        entry = self.metadata.state_dict_metadata[index.fqn]
        if isinstance(entry, BytesStorageMetadata):
            return io.BytesIO(file.read(name))
        sizes, dtype, nbytes = chunk_at(entry, index).sizes, entry.properties.dtype, file.tensor(name).nbytes
        # Checked before memory is allocated.
        if min(sizes, default=0) < 0 or math.prod(sizes) * dtype.itemsize != nbytes:
            raise lmc.FormatError(
                f"{index.fqn}: it has {nbytes} bytes in the data file, not those of {dtype} {list(sizes)}"
            )
        tensor = torch.empty(sizes, dtype=dtype, device="cpu")
        file.read_into(name, memory(tensor))
        return tensor

    def in_order(self, prefix: str = "") -> list[MetadataIndex]:
        """The chunks of entries whose names begin with `prefix`: one data file after the other, in the order of each.

        Raises `lmc.FormatError` unless each is stored somewhere, and those of a tensor make all of it.
        """
        found = []
        for fqn, entry in self.metadata.state_dict_metadata.items():
            if not fqn.startswith(prefix):
                continue
            if isinstance(entry, BytesStorageMetadata):
                found.append(self._stored(MetadataIndex(fqn), "it"))
                continue
            check_cover(fqn, entry)
            for i, chunk in enumerate(entry.chunks):
                index = MetadataIndex(fqn, chunk.offsets, i)
                # There is nothing to store of one without elements.
                if math.prod(chunk.sizes) or index in (self.metadata.storage_data or {}):
                    found.append(self._stored(index, f"its chunk {shown(chunk)}"))
        return sorted(found, key=lambda index: (self._place(index).relative_path, self._place(index).offset))

    def _stored(self, index: MetadataIndex, what: str) -> MetadataIndex:
        place = (self.metadata.storage_data or {}).get(index)
        if place is None:
            raise lmc.FormatError(f"{index.fqn}: nothing says where {what} is stored")
        if tensor_name(place) is None:
            raise lmc.UsageError(f"{self.checkpoint} was not written by lmc.dcp: it is already a plain checkpoint")
        return index

    def _place(self, index: MetadataIndex) -> _StorageInfo:
        return cast(_StorageInfo, self.metadata.storage_data[index])


def _to_dcp(chunks: _Chunks, folder: Path) -> Unpacked:
    places = {}
    with open(folder / _DATA, "wb") as out:
        for index in chunks.in_order():
            start = out.tell()
            data = chunks.read(index)
            if isinstance(data, io.BytesIO):
                out.write(data.getbuffer())
            else:
                torch.save(data, out)
            places[index] = _StorageInfo(_DATA, start, out.tell() - start)
        out.flush()
        os.fsync(out.fileno())
    plain = dataclasses.replace(chunks.metadata, storage_data=places)
    # Written last: it makes the checkpoint complete.
    _write(folder / METADATA, pickle.dumps(plain))
    return Unpacked([str(folder / _DATA), str(folder / METADATA)], [])


def _to_safetensors(chunks: _Chunks, folder: Path, prefix: str) -> Unpacked:
    from safetensors.torch import save_file

    entries = {n: e for n, e in chunks.metadata.state_dict_metadata.items() if n.startswith(prefix)}
    indexes = chunks.in_order(prefix)
    tensors: dict[str, TensorStorageMetadata] = {}
    left_out = []
    # In the order of their first chunks; tensors without elements may have none.
    for fqn in dict.fromkeys([*(index.fqn for index in indexes), *entries]):
        entry = entries[fqn]
        if isinstance(entry, TensorStorageMetadata):
            _check_dtype(fqn, entry)
            tensors[fqn] = entry
        else:
            left_out.append(fqn)
    if not tensors:
        raise lmc.NotFoundError(f"{chunks.checkpoint} has no tensor whose name begins with {prefix!r}")
    shards: list[list[str]] = [[]]
    size = 0
    for fqn, entry in tensors.items():
        nbytes = math.prod(entry.size) * entry.properties.dtype.itemsize
        if shards[-1] and size + nbytes > SHARD:
            shards.append([])
            size = 0
        shards[-1].append(fqn)
        size += nbytes
    names = [_shard_name(i, len(shards)) for i in range(len(shards))]
    total = 0
    weight_map = {}
    for name, fqns in zip(names, shards, strict=True):
        own = {fqn: tensors[fqn] for fqn in fqns}
        read = _whole(chunks, own, [index for index in indexes if index.fqn in own])
        whole = {fqn.removeprefix(prefix): read[fqn] for fqn in fqns}
        save_file(whole, folder / _partial(name), metadata={"format": "pt"})
        settle(folder / _partial(name), folder / name)
        total += sum(t.nbytes for t in whole.values())
        weight_map.update(dict.fromkeys(whole, name))
    if len(shards) > 1:
        names.append("model.safetensors.index.json")
        where = {"metadata": {"total_size": total}, "weight_map": weight_map}
        _write(folder / names[-1], (json.dumps(where, indent=2) + "\n").encode())
    return Unpacked([str(folder / name) for name in names], left_out)


def _check_dtype(fqn: str, entry: TensorStorageMetadata) -> None:
    """Fails for a tensor that safetensors files cannot hold, before the first file is written."""
    dtype = entry.properties.dtype
    if dtype not in NAMES or (NAMES[dtype] == "F4" and not entry.size):
        raise lmc.UnsupportedError(
            f"tensor {fqn!r} is of type {dtype} and shape {list(entry.size)}, which safetensors files cannot hold: "
            "select others by their prefix"
        )


def _shard_name(i: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{i + 1:05}-of-{count:05}.safetensors"


def _partial(name: str) -> str:
    """The name of a file that is not complete."""
    return f"{name}.tmp"


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(_partial(path.name))
    partial.write_bytes(data)
    settle(partial, path)


def _whole(
    chunks: _Chunks, tensors: dict[str, TensorStorageMetadata], indexes: list[MetadataIndex]
) -> dict[str, torch.Tensor]:
    """Tensors assembled from their chunks."""
    whole: dict[str, torch.Tensor] = {}
    for index in indexes:
        entry = tensors[index.fqn]
        chunk, part = chunk_at(entry, index), cast(torch.Tensor, chunks.read(index))
        if chunk.sizes == entry.size:
            whole[index.fqn] = part
            continue
        if index.fqn not in whole:
            whole[index.fqn] = empty(tuple(entry.size), entry.properties.dtype)
        where = tuple(slice(o, o + n) for o, n in zip(chunk.offsets, chunk.sizes, strict=True))
        whole[index.fqn][where] = part
    for fqn, entry in tensors.items():
        if fqn not in whole:
            whole[fqn] = empty(tuple(entry.size), entry.properties.dtype)
    return whole


def main(arguments: Sequence[str]) -> int:
    """`lmc unpack`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="lmc unpack",
        description="Writes a checkpoint of lmc.dcp as one that needs nothing of lmc.",
        allow_abbrev=False,
    )
    parser.add_argument("checkpoint", help="the checkpoint: a directory or a URL")
    parser.add_argument(
        "-o", "--output", required=True, metavar="DIR", help="the directory to write, which must be empty or not exist"
    )
    parser.add_argument(
        "--to",
        choices=["dcp", "safetensors"],
        default="safetensors",
        help="safetensors: whole tensors (default); dcp: what PyTorch's own writer saves",
    )
    parser.add_argument(
        "--prefix", default="", help="for safetensors: only names that begin so, without it (such as 'model.')"
    )
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="NAME",
        help="reads metadata that name MODULE.NAME, which is called with what the checkpoint says and can do whatever "
        "you can ('all' for any name); may be given several times",
    )
    messages = parser.add_mutually_exclusive_group()
    messages.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    messages.add_argument("-v", "--verbose", action="store_true", help="no more messages here: there are none")
    parser.add_argument("--no-progress", action="store_true", help="there is no progress bar")
    args = parser.parse_args(arguments)
    trust: Trust = True if "all" in args.trust else args.trust
    try:
        done = unpack(args.checkpoint, args.output, to=args.to, prefix=args.prefix, trust=trust)
    except (lmc.Error, OSError) as e:
        print(f"lmc: {args.checkpoint}: {e}", file=sys.stderr)
        return 1
    if args.quiet:
        return 0
    for file in done.files:
        print(file)
    if done.left_out:
        shown = ", ".join(done.left_out[:5]) + (", …" if len(done.left_out) > 5 else "")
        print(f"lmc: left out {len(done.left_out)} entries that are not tensors: {shown}", file=sys.stderr)
    return 0
