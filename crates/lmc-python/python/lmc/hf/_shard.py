"""A file that all of a model is loaded from: tensors that share blocks are decoded together."""

import threading
from collections import OrderedDict
from typing import Any, Final

from torch import Tensor

from lmc._errors import Error
from lmc._lmc import Tensor as Entry
from lmc.torch import TensorSlice, safe_open

# A block is decoded for each call that reads a part of it, so adjacent tensors are read in one call: up to this many
# bytes of them.
_GROUP: Final = 32 << 20
# Bytes of tensors that were read with others and not asked for yet. The oldest beyond that are read again.
_MAX_WAITING: Final = 256 << 20


class Shard(safe_open):
    """`lmc.torch.safe_open` for those who ask for each tensor once, about in the order of the file."""

    def __init__(self, filename: str, device: Any = "cpu") -> None:
        super().__init__(filename, "pt", device)
        self._lock = threading.Lock()
        self._groups: dict[str, list[Entry]] = {}
        self._taken = set[str]()
        self._waiting = OrderedDict[str, Tensor]()
        group, size = list[Entry](), 0
        for entry in sorted(self._file.entries().values(), key=lambda e: e.offset):
            if size + entry.nbytes > _GROUP:
                group, size = [], 0
            self._groups[entry.name] = group
            group.append(entry)
            size += entry.nbytes

    def close(self) -> None:
        """Closes the file."""
        super().close()
        self._waiting.clear()

    def get_tensor(self, name: str) -> Tensor:
        """A tensor in memory of its own."""
        entry = self._file.entry(name)
        with self._lock:
            if name not in self._waiting:
                self._read(entry)
            self._taken.add(name)
            return self._waiting.pop(name)

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor that is read by indexing."""
        return _Slice(self, name)

    def _read(self, wanted: Entry) -> None:
        """Reads a tensor, with the others of its group that were not read yet."""
        others = [e for e in self._groups[wanted.name] if e.name not in self._taken and e.name not in self._waiting]
        entries = others if wanted in others else [wanted]
        try:
            tensors = self._new(entries)
        except Error:
            tensors = self._new([wanted])  # another one may be damaged
        self._waiting |= tensors
        self._waiting.move_to_end(wanted.name)
        size = sum(tensor.nbytes for tensor in self._waiting.values())
        while size > _MAX_WAITING and len(self._waiting) > 1:
            size -= self._waiting.popitem(last=False)[1].nbytes

    def _new(self, entries: list[Entry]) -> dict[str, Tensor]:
        tensors = {e.name: self._file.empty(e, self._device) for e in entries}
        self._file.read((e, tensors[e.name]) for e in entries)
        return tensors


class _Slice(TensorSlice):
    """A slice that is read with others if it is the whole tensor."""

    def __init__(self, shard: Shard, name: str) -> None:
        super().__init__(shard._file, shard._file.entry(name), shard._device)
        self._shard = shard

    def __getitem__(self, index: Any) -> Tensor:
        return self._shard.get_tensor(self._entry.name) if index is ... else super().__getitem__(index)
