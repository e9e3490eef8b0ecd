"""Reading tensors of a file into memory of torch."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from lmc._lmc import File
from lmc._lmc import Tensor as Entry
from lmc._safetensors import SafetensorsFile
from lmc._state._decode import Bytes
from lmc.torch._dtypes import torch_type
from lmc.torch._memory import as_bytes, check_byte_order, empty, memory

# Bytes per transfer to a device: enough to keep all cores busy for a while.
_WINDOW: Final = 64 << 20


class TensorFile(SafetensorsFile):
    """An open `.lmc` or `.safetensors` file."""

    def __init__(self, source: Any, *, base: Any = None, threads: int | None = None) -> None:
        check_byte_order()
        super().__init__(File(source, base=base, threads=threads, plain=True))

    def entries(self) -> dict[str, Entry]:
        """The tensors by name, in the order of the file."""
        return self._open()

    def entry(self, name: str) -> Entry:
        """The entry of a tensor. Raises `NotFoundError` when there is none."""
        return self._tensor(name)

    def empty(self, entry: Entry, device: torch.device) -> Tensor:
        """A new tensor, to be filled by `read`."""
        dtype, shape = torch_type(entry.name, entry.dtype, entry.shape)
        return empty(shape, dtype, device)

    def load(self, device: torch.device) -> dict[str, Tensor]:
        """All tensors by name, in the order of the file, new ones on a device."""
        self._check_open()
        entries = self._header.tensors()
        # Each has its own storage of its size, so that none overlap, and `torch.save` of one writes no others.
        tensors = {e.name: self.empty(e, device) for e in entries}
        self.read((e, tensors[e.name]) for e in entries)
        return tensors

    def read(self, wanted: Iterable[tuple[Entry, Tensor]]) -> None:
        """Reads tensors into contiguous ones of the same size, each on any device."""
        here, elsewhere = list[tuple[Entry, Tensor]](), list[tuple[Entry, Tensor]]()
        for entry, tensor in wanted:
            (here if tensor.device.type == "cpu" else elsewhere).append((entry, tensor))
        self._file.read_ranges_into((entry.offset, memory(tensor)) for entry, tensor in here)
        read_elsewhere(self._file, elsewhere)

    def read_elements(self, entry: Entry, start: int, out: Tensor) -> None:
        """Fills a contiguous tensor on the CPU with elements of a tensor of the file, from the one with index `start`
        on."""
        self._file.read_range_into(entry.offset + start * out.itemsize, memory(out))


def read_elsewhere(file: Bytes, wanted: list[tuple[Entry, Tensor]]) -> None:
    """Reads tensors into contiguous ones of the same size, on devices."""
    for device in {tensor.device for _, tensor in wanted}:
        theirs = [(entry, tensor) for entry, tensor in wanted if tensor.device == device]
        send(file.read_range_into, _pieces(theirs), device)


def _pieces(wanted: list[tuple[Entry, Tensor]]) -> Iterator[tuple[int, Tensor]]:
    """Offsets in the file with destinations, in the order of the file, none larger than a window."""
    for entry, tensor in sorted(wanted, key=lambda w: w[0].offset):
        flat = as_bytes(tensor)
        for at in range(0, entry.nbytes, _WINDOW):
            yield entry.offset + at, flat[at : at + _WINDOW]


def _windows(pieces: Iterable[tuple[int, Tensor]]) -> Iterator[tuple[int, list[Tensor]]]:
    """Groups destinations that are adjacent in the file, by offset of the first."""
    start, size, window = 0, 0, list[Tensor]()
    for offset, piece in pieces:
        if window and (offset != start + size or size + len(piece) > _WINDOW):
            yield start, window
            size, window = 0, []
        if not window:
            start = offset
        window.append(piece)
        size += len(piece)
    if window:
        yield start, window


def send(read_into: Callable[[int, Any], int], pieces: Iterable[tuple[int, Tensor]], device: torch.device) -> None:
    """Copies to a device through two windows in main memory: one is read while the other is transferred.

    Memory use does not depend on the size of the tensors.
    """
    cuda = device.type == "cuda"
    windows = list(_windows(pieces))
    size = max((sum(map(len, window)) for _, window in windows), default=0)
    stages: list[tuple[Tensor, torch.cuda.Event | None]] = []
    for turn, (start, window) in enumerate(windows):
        if turn < 2:
            stage = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=cuda)
            stages.append((stage, torch.cuda.Event() if cuda else None))  # type: ignore[no-untyped-call]
        stage, copied = stages[turn % 2]
        if copied is not None:
            copied.synchronize()
        read_into(start, memory(stage[: sum(map(len, window))]))
        at = 0
        for piece in window:
            piece.copy_(stage[at : at + len(piece)], non_blocking=cuda)
            at += len(piece)
        if copied is not None:
            copied.record(torch.cuda.current_stream(device))
    for _, copied in stages:
        if copied is not None:
            copied.synchronize()
