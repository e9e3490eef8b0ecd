"""Nested states as safetensors files: tensors by their place in the state, and a description of the rest as metadata.

`lmc.torch.save_state` writes such files, and `lmc.Store.save` makes one the snapshot of a step.
"""

import json
import os
import warnings
from typing import Any, Final

from lmc._errors import DamagedError, NotFoundError, UnsupportedError, UsageError
from lmc._lmc import File, Header, SnapshotReader
from lmc._safetensors import Given
from lmc._state._decode import Bytes, Decoder
from lmc._state._encode import Encoder, library

FILE: Final = "state.safetensors"
"""The name of the file of a snapshot that has its state."""

# The key of the description in the file's metadata.
_KEY: Final = "lmc.state"
_VERSION: Final = 1
# So many problems of a state are shown.
_SHOWN: Final = 10


def encode(state: Any) -> tuple[list[Given], dict[str, str]]:
    """The tensors and the metadata of a state's file.

    Raises `UsageError` for what a state cannot have, with its place, and warns of what will be loaded as another type.
    """
    encoder = Encoder()
    description = {"version": _VERSION, "state": encoder.encode(state)}
    for note in encoder.notes.values():
        warnings.warn(note, stacklevel=3)
    return encoder.tensors, {_KEY: json.dumps(description, allow_nan=False, separators=(",", ":"))}


def check_state(state: Any) -> None:
    """Checks that `lmc.Store.save` and `lmc.torch.save_state` take a state: for the beginning of a training that will
    save it hours later. Nothing is copied, and values of tensors are not read.

    Raises `lmc.UsageError` that says what they would refuse, each with its place, and warns as they do.
    """
    problems = list[UsageError]()
    encoder = Encoder(problems)
    encoder.encode(state)
    for note in encoder.notes.values():
        warnings.warn(note, stacklevel=2)
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UsageError("; ".join(map(str, problems[:_SHOWN])) + more)


def decode(
    file: Bytes, header: Header, what: str, into: Any, device: Any = "cpu", *, dropped: str | None = None
) -> Any:
    """The state in a file, with its tensors in those of `into`, or else in new ones, of torch on a device. `what` names
    the file in errors, and `dropped` says why it may lack tensors.

    Raises `UsageError` when the file holds no state or `into` does not fit, `UnsupportedError` when it needs a newer
    version, `NotFoundError` when tensors were dropped, `DamagedError`.
    """
    decoder = Decoder(file, {entry.name: entry for entry in header.tensors()}, device, dropped)
    state = decoder.decode(_description(header, what), into)
    decoder.fill()
    return state


def _description(header: Header, what: str) -> Any:
    text = (header.metadata() or {}).get(_KEY)
    if text is None:
        raise UsageError(f"{what} holds tensors but no state: load_file loads them from a file")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DamagedError(f"{what}: the description of the state is invalid: {e}") from e
    version = found.get("version") if isinstance(found, dict) else None
    if type(version) is not int or "state" not in found:
        raise DamagedError(f"{what}: the description of the state is invalid: it has no version, or no state")
    if version != _VERSION:
        raise UnsupportedError(
            f"{what} has a state of version {version}, but this lmc knows only {_VERSION}: use a newer one"
        )
    return found["state"]


def inputs(state: Any) -> dict[str, Any]:
    """What `Store.save_files` takes to save a state."""
    return {FILE: encode(state)}


def load(snapshot: SnapshotReader, into: Any, device: Any) -> Any:
    """The state of a snapshot.

    Raises `NotFoundError` when it has none, or lost the states of optimizers, and what `decode` raises.
    """
    where = f"the snapshot of step {snapshot.snapshot.step}"
    sizes = {file.name: file.nbytes for file in snapshot.files}
    if FILE not in sizes:
        raise NotFoundError(
            f"{where} has no {FILE}, as Store.save writes: Store.restore restores its files, and"
            " Store.open_snapshot reads their tensors"
        )
    device = "cpu" if device is None else library("torch").as_device(device)
    contents = _Contents(snapshot, sizes[FILE])
    with File(contents, plain=True) as file:
        header = file.safetensors_header()
    step = snapshot.snapshot.step
    dropped = (
        f"step {step} has only weights, the states of optimizers were dropped to save space:"
        f" Store.open_snapshot({step}) reads the weights, and Store.restore writes their file"
    )
    what = f"{FILE} of {where}"
    return decode(contents, header, what, into, device, dropped=dropped if snapshot.snapshot.dropped else None)


class _Contents:
    """The bytes of a snapshot's state: a file object, for its header, and `Bytes`."""

    def __init__(self, snapshot: SnapshotReader, size: int) -> None:
        self._snapshot = snapshot
        self._size = size
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + (self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int, /) -> bytes:
        data = bytearray(min(size, self._size - self._at))
        self._at += self.read_range_into(self._at, data)
        return bytes(data)

    def read_range_into(self, offset: int, out: Any, /) -> int:
        return self._snapshot.read_range_into(FILE, offset, out)

    def read_ranges_into(self, wanted: Any, /) -> int:
        return self._snapshot.read_ranges_into((FILE, offset, out) for offset, out in wanted)
