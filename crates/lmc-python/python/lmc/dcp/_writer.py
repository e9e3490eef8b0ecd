"""Writing checkpoints."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

import lmc
from lmc._lmc import TensorList, is_url
from lmc._options import check_level, check_threads
from lmc.dcp import _bases
from lmc.dcp._files import DESCRIPTOR, Files, chunk_key, tensor_name, with_bases
from lmc.dcp._hold import Hold, HoldInBucket
from lmc.dcp._storage import NOTE, POOL, SUFFIX, Fsspec, StorageOptions, is_data_file, metadata_name, storage_of
from lmc.dcp._tensors import Chunk, chunk

#: The version that PyTorch's own writer gives to metadata; older ones have none.
_VERSION: str | None = getattr(filesystem, "CURRENT_DCP_VERSION", None)


class Writer(FileSystemWriter):
    """Writes checkpoints for `dcp.save` and `dcp.async_save`, compressed, and as deltas of earlier ones.

    Every rank writes one file. The base of a tensor's chunk is the one with the same name, offsets, sizes and type in
    the base checkpoint, whichever rank wrote it. If there is no base, or it cannot be read, the file is written without
    one.

    Args:
        path: the new checkpoint; a directory, or a URL that fsspec knows, which is given `storage_options`. Its parent
            is the run: checkpoints that are deltas of each other are in the same folder.
        base: `"auto"` for the checkpoint that this process saved or loaded last, or else the newest complete one of the
            run, if it is of the same kind: its data files hold the same chunks, or mostly; the path of one in the same
            run; `None` for none.
        max_chain: the longest chain of deltas; 0 for none. After it a checkpoint is written without a base.
        level: `"fast"`, `"default"` or `"max"`.
        threads: threads that compress; `None` for one per core.
        cache: bytes of main memory for caching the last save of a process, so that the next save need not read it;
            `None` for a quarter of the machine's memory shared by its ranks. If a rank writes more, it is read from
            storage.
        sync_files: whether `.metadata` is on stable storage when a save ends, as data files are in any case. Storage
            that cannot be synced, such as a bucket, ignores it.
        overwrite: whether an existing checkpoint is replaced: at every moment there is the old one or the new one.

    Raises:
        lmc.Error: nothing can be compressed or written.
        TypeError: a tensor is sparse, nested, quantized or without data.
    """

    # PyTorch's writer sets them; before `dcp.save` had the argument, ranks always used collectives.
    use_collectives: bool = True
    rank: int | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = "auto",
        max_chain: int = 16,
        level: str = "default",
        threads: int | None = None,
        cache: int | None = None,
        sync_files: bool = True,
        overwrite: bool = True,
        cache_staged_state_dict: bool = False,
        storage_options: StorageOptions = None,
    ) -> None:
        super().__init__(
            "" if is_url(path) else path,
            sync_files=sync_files,
            overwrite=overwrite,
            cache_staged_state_dict=cache_staged_state_dict,
        )
        if max_chain < 0:
            raise lmc.UsageError(f"max_chain must be a number of deltas, not {max_chain}")
        check_level(level)
        check_threads(threads)
        self._options = storage_options
        self._base = None if base is None else os.fspath(base)
        self._max_chain = max_chain
        self._level = level
        self._threads = threads
        self._cache = cache
        self._replaces = False
        self._open(path)

    def _open(self, path: str | os.PathLike[str]) -> None:
        self.fs, self._storage, self.path = storage_of(path, self._options)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # A process that receives the writer opens its own file systems.
        del state["fs"], state["_storage"]
        state["path"] = os.fspath(self.path)
        # The staged state is sent separately.
        state.pop("state_dict_cache", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.state_dict_cache = None
        self._open(state["path"])

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        super().reset(None)
        if checkpoint_id:
            self._open(checkpoint_id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        # Files of a previous checkpoint here, or of one never completed.
        self._replaces = any(map(is_data_file, self._storage.names(os.fspath(self.path))))
        return super().prepare_local_plan(plan)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write(plan, planner) if plan.items else [])
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        # PyTorch's own removes the metadata of the checkpoint that is replaced before the new ones have their name.
        if _VERSION is not None:
            metadata.version = _VERSION
        metadata.storage_data = {written.index: written.storage_data for of_rank in results for written in of_rank}
        metadata.storage_meta = self.storage_meta()
        name = metadata_name(None if self.use_collectives else self.rank)
        path = self._storage.join(os.fspath(self.path), name)
        self._storage.replace(path, pickle.dumps(metadata), sync=self.sync_files)
        # Without collectives, other ranks have files here that these metadata do not name.
        if self._replaces and self.use_collectives:
            try:
                self._remove_replaced(metadata)
            except (lmc.Error, OSError) as e:
                warnings.warn(f"lmc: {self.path} is saved, but the previous files were not removed: {e}", stacklevel=2)

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        chunks = [(item, self._resolve(item, planner)) for item in plan.items]
        checkpoint = os.fspath(self.path)
        run = self._storage.parent(checkpoint)
        # Names are unique in the run, so that files of several checkpoints can be in one folder.
        name = f"{plan.storage_data.prefix}{os.urandom(8).hex()}{SUFFIX}"
        folder = checkpoint
        if isinstance(self._storage, Fsspec):
            folder = self._storage.join(run, POOL)
            self.fs.mkdir(folder)
        with _bases.saving(run):
            base = self._base_of(run, plan)
            with Files(self._storage, base.checkpoint if base else checkpoint) as files, self._hold(files) as hold:
                made_from = self._made_from(files, base, run, plan, hold)
                written = self._compress([c for _, c in chunks], self._storage.join(folder, name), made_from, run, hold)
            if isinstance(self._storage, Fsspec):
                self._storage.write(self._storage.join(checkpoint, name), NOTE)
            depth = 1 + max((b.depth for b in made_from if b.name in written.bases), default=-1)
            # They hold memory, which is used again or freed now.
            made_from.clear()
            budget = _bases.default_budget() if self._cache is None else self._cache
            file = _bases.DataFile(checkpoint, name, depth)
            _bases.keep(run, budget, file, written.header, [(written.places[c.name], c.flat) for _, c in chunks])
            _bases.remember(run, checkpoint)
        results = []
        for item, c in chunks:
            place = written.places[c.name]
            info = _StorageInfo(name, place.offset, place.nbytes, [f"{DESCRIPTOR}/{c.name}"])
            results.append(WriteResult(index=item.index, size_in_bytes=place.nbytes, storage_data=info))
        return results

    def _resolve(self, item: WriteItem, planner: SavePlanner) -> Chunk:
        data = planner.resolve_data(item)
        if isinstance(data, io.BytesIO):
            raw = bytearray(data.getbuffer())
            flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8, device="cpu")
            return Chunk(item.index.fqn, "U8", (len(raw),), flat)
        assert item.tensor_data is not None, "an item that is not bytes is a tensor"
        place = item.tensor_data.chunk
        whole = place.sizes == item.tensor_data.size
        # Names of chunks are stable while the sharding stays the same.
        name = (
            item.index.fqn
            if whole
            else f"{item.index.fqn}[{','.join(f'{o}+{n}' for o, n in zip(place.offsets, place.sizes, strict=True))}]"
        )
        return chunk(name, data)

    def _hold(self, files: Files) -> Hold:
        checkpoint = os.fspath(self.path)
        if isinstance(self._storage, Fsspec):
            pool = self._storage.join(self._storage.parent(checkpoint), POOL)
            return HoldInBucket(self._storage, files, checkpoint, pool)
        return Hold(self._storage, files, checkpoint)

    def _base_of(self, run: str, plan: SavePlan) -> _bases.Base | None:
        """The base of this checkpoint."""
        if self._base is None or self._max_chain == 0:
            return None
        if self._base == "auto":
            return _bases.find(self._storage, run, _places(plan))
        _, _, path = storage_of(self._base, self._options)
        base: str = os.fspath(path)
        if self._storage.parent(base) != run:
            raise lmc.UsageError(
                f"the base {base} is not in the same folder as {os.fspath(self.path)}, so it is not of the same run"
            )
        try:
            return _bases.Base(base, self._storage.chunks_of(base))
        except FileNotFoundError as e:
            raise lmc.NotFoundError(f"the base {base} is not a complete checkpoint") from e

    def _made_from(self, files: Files, base: _bases.Base | None, run: str, plan: SavePlan, hold: Hold) -> list[_Base]:
        """The base's data files with the chunks that this rank is about to write; `hold` protects them.

        Empty if there is no base, or none that can be read.
        """
        if base is None:
            return []
        try:
            return self._open_bases(files, base, run, plan, hold)
        except (lmc.Error, OSError) as e:
            if self._base != "auto":
                raise
            warnings.warn(f"lmc: saving without a base, since {base.checkpoint} cannot be used: {e}", stacklevel=2)
            return []

    def _open_bases(self, files: Files, base: _bases.Base, run: str, plan: SavePlan, hold: Hold) -> list[_Base]:
        wanted = _places(plan)
        names = {name for name, chunks in base.chunks.items() if not wanted.isdisjoint(chunks)}
        found = []
        for name in sorted(names):
            file, closure = files.open(name), files.closure(name)
            kept = _bases.kept(run, base.checkpoint, name)
            source, depth = (file, files.depth(name)) if kept is None else (kept.image, kept.depth)
            found.append(_Base(name, lmc.Base(source, name=name), file.content_hash, depth, closure))
        if not found or any(base.depth >= self._max_chain for base in found):
            return []
        hold.take(dict.fromkeys(n for base in found for n in base.closure))
        return found

    def _compress(self, chunks: list[Chunk], path: str, made_from: list[_Base], run: str, hold: Hold) -> _Written:
        """Writes a data file."""
        if made_from:
            try:
                written = self._compress_from(chunks, path, made_from)
                hashes = {base.name: base.content_hash for base in made_from}
                if all(hashes[name] == used for name, used in written.bases.items()):
                    hold.keep({n for base in made_from if base.name in written.bases for n in base.closure})
                    return written
                why = "tensors were changed while the last checkpoint was saved"
            except (lmc.DamagedError, lmc.BaseMismatchError, lmc.LimitError, FileNotFoundError) as e:
                why = f"it cannot be read: {e}"
            _bases.forget(run)
            warnings.warn(f"lmc: saving without the base {made_from[0].name}, since {why}", stacklevel=2)
        return self._compress_from(chunks, path, [])

    def _compress_from(self, chunks: list[Chunk], path: str, made_from: list[_Base]) -> _Written:
        bases = [base.source for base in made_from]
        tensors = TensorList()
        for c in chunks:
            tensors.add(c.name, c.dtype, c.shape, c.source())
        header = tensors.header()
        options: dict[str, Any] = {"level": self._level, "threads": self._threads}
        if not isinstance(self._storage, Fsspec):
            lmc.compress_tensors_file(tensors, path, base=bases or None, **options)
        else:
            data = lmc.compress_tensors(tensors, base=bases or None, **options)
            self._storage.write(path, data)
        # The index has the locations, and can be read without the bases.
        with self._storage.open(path, []) as file:
            places = {t.name: t for t in file.tensors()}
            used = {base.name: base.content_hash for base in file.bases}
            return _Written(used, header, places)

    def _remove_replaced(self, metadata: Metadata) -> None:
        """Removes the data files of the previous checkpoint here."""
        folder = os.fspath(self.path)
        # In buckets, only placeholders of this checkpoint's own files are here.
        needed = {p.relative_path for p in metadata.storage_data.values() if tensor_name(p) is not None}
        if not isinstance(self._storage, Fsspec):
            needed = with_bases(self._storage, folder, needed, {})
        for name in self._storage.names(folder):
            if is_data_file(name) and name not in needed:
                self._storage.remove(self._storage.join(folder, name))


def _places(plan: SavePlan) -> set[str]:
    return {chunk_key(item.index) for item in plan.items}


@dataclass(frozen=True)
class _Base:
    """A data file that may be the base of the next one."""

    name: str
    source: lmc.Base
    content_hash: str
    #: Length of its chain: files to be decoded before this one.
    depth: int
    #: The file and all of its bases.
    closure: list[str]


@dataclass(frozen=True)
class _Written:
    """A data file that was written."""

    #: The hashes of the bases that it turned out to need.
    bases: dict[str, str]
    #: Its raw bytes before the tensors, and the tensors' offsets.
    header: bytes
    places: dict[str, lmc.Tensor]
