"""Loading: `safe_open`, `load_file` and `load`."""

import os
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor

from lmc._errors import UsageError
from lmc._lmc import File
from lmc._reader import Raw, buffered
from lmc._safetensors import TORCH, check_backend, check_framework, is_buffer
from lmc._shards import Shards, bases, is_index, model
from lmc.torch._file import TensorFile
from lmc.torch._slices import TensorSlice

Device = str | int | torch.device


def as_device(device: Device) -> torch.device:
    """The device with a name or number.

    Raises `UsageError` when it does not exist, or its tensors have no values.
    """
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as e:
        raise UsageError(f"device {device!r} is invalid: {str(e).splitlines()[0]}") from e
    if found.type == "meta":
        raise UsageError("device 'meta' is invalid: tensors there have no values")
    return found


class safe_open:  # noqa: N801 (the name of what it stands in for)
    """Opens a `.lmc` or `.safetensors` file, or the files of a model, and reads tensors on demand.

    `filename` is a path (or whatever `lmc.open` takes), an index (`model.safetensors.index.json`), which stands for the
    files that it names, or a directory, which stands for its one model. `base` gives the bases of a delta (those
    that lie beside it need not be given; an index or a directory stands for its files), and `device` is where tensors
    go. Threads may share it; it is a context manager.

    Raises `FileNotFoundError`, `lmc.DamagedError`, `lmc.UnsupportedError` when it is not a safetensors file,
    `lmc.BaseMismatchError`, and `lmc.UsageError` for an unknown framework, device or backend.
    """

    def __new__(cls, filename: Any, *args: Any, **options: Any) -> Any:
        return super().__new__(_Model if cls is safe_open and is_index(model(filename)) else cls)

    def __init__(
        self,
        filename: Any,
        framework: str = "pt",
        device: Device = "cpu",
        *,
        backend: str = "mmap",
        base: Any = None,
        threads: int | None = None,
    ) -> None:
        check_framework(framework, "lmc.torch", TORCH)
        check_backend(backend)
        self._device = as_device(device)
        self._file = TensorFile(model(filename), base=bases(base), threads=threads)

    def __enter__(self) -> Self:
        self._file.__enter__()  # fails once it is closed
        return self

    def __exit__(
        self, exception: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def keys(self) -> list[str]:
        """Names of the tensors, sorted."""
        return self._file.keys()

    def offset_keys(self) -> list[str]:
        """Names of the tensors, in the order of the file."""
        return self._file.offset_keys()

    def metadata(self) -> dict[str, str] | None:
        """The metadata saved with the tensors, or `None`."""
        return self._file.metadata()

    def get_tensor(self, name: str) -> Tensor:
        """Reads a tensor into its own memory. Raises `lmc.NotFoundError` when there is none with this name."""
        entry = self._file.entry(name)
        tensor = self._file.empty(entry, self._device)
        self._file.read([(entry, tensor)])
        return tensor

    def get_tensors(self) -> dict[str, Tensor]:
        """All tensors by name, in the order of the file, each with a storage of its own.

        On the CPU, memory of tensors up to 64 KiB is freed in blocks of 2 MiB, each with its last tensor.
        """
        return self._file.load(self._device)

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor that is read by indexing. Raises `lmc.NotFoundError` when there is none with this name."""
        return TensorSlice(self._file, self._file.entry(name), self._device)


class _Model(Shards, safe_open):
    """The files of a model."""

    _one = safe_open


def load_file(
    filename: str | os.PathLike[str],
    device: Device = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> dict[str, Tensor]:
    """Loads all tensors of a model, by name: of a `.lmc` or `.safetensors` file, of all files that an index
    (`model.safetensors.index.json`) names, compressed or not, or of the one model in a directory.

    On the CPU they are decoded straight into their memory; for other devices through at most 128 MiB of main memory.
    Raises what `safe_open` raises, `lmc.NotFoundError` for a directory without a model, `lmc.UsageError` for one with
    several, and `lmc.DamagedError` for files that contradict their index.
    """
    with safe_open(filename, "pt", device, backend=backend, base=base, threads=threads) as f:
        return f.get_tensors()


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    base: Any = None,
    threads: int | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Loads what `torch.save` wrote to a file, compressed or not, as `torch.load` does; or the tensors of a safetensors
    file in memory, as `safetensors.torch.load` does.

    `f` is a path or a binary file object that can seek, and the other arguments are those of `torch.load`:
    `weights_only` is true by default. Large tensors are decoded straight into their memory. `mmap=True` is refused for
    compressed files. If `f` is a C-contiguous buffer, it is a `.lmc` or `.safetensors` file, and the result a dict of
    all tensors by name, on the CPU. `base` gives the bases of a delta.

    Raises what `torch.load` raises, what `safe_open` raises, and `lmc.UsageError` for a file of safetensors:
    `load_file` loads it.
    """
    if is_buffer(f):
        if pickle_load_args or any(given is not None for given in (map_location, pickle_module, weights_only, mmap)):
            raise UsageError(
                "bytes are loaded as a safetensors file, without these arguments: for a file of torch.save, "
                "give io.BytesIO(f)"
            )
        with safe_open(f, base=base, threads=threads) as opened:
            return opened.get_tensors()
    with File(f, base=base, threads=threads, plain=True) as file:
        if file.layout == "safetensors":
            raise UsageError(f"{file.name or f}: it is a safetensors file, which load_file loads")
        if mmap and file.compressed:
            raise UsageError(
                f"{file.name or f}: a compressed file cannot be mapped: mount it (lmc mount), or omit mmap"
            )
        raw = Raw(file)
        options = pickle_load_args | {"weights_only": weights_only, "mmap": bool(mmap)}
        try:
            return torch.load(f if mmap else buffered(raw), map_location, pickle_module, **options)
        except Exception as e:
            # torch calls `read` when `readinto` has failed, and raises what comes of that.
            if raw.failed is not None:
                raise raw.failed from e
            raise
