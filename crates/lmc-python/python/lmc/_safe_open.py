"""One `safe_open` for all frameworks, as in `safetensors`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from lmc._safetensors import TORCH, check_framework

if TYPE_CHECKING:
    from lmc import numpy as _numpy
    from lmc import torch as _torch


@overload
def safe_open(
    filename: Any,
    framework: Literal["pt", "torch", "pytorch"],
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> _torch.safe_open: ...
@overload
def safe_open(
    filename: Any,
    framework: Literal["np", "numpy"],
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> _numpy.safe_open: ...
@overload
def safe_open(
    filename: Any,
    framework: str,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> _torch.safe_open | _numpy.safe_open: ...
def safe_open(
    filename: Any,
    framework: str,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    base: Any = None,
    threads: int | None = None,
) -> _torch.safe_open | _numpy.safe_open:
    """Opens a `.lmc` or `.safetensors` file, or the files of a model, and reads tensors on demand.

    It is `lmc.torch.safe_open` for the frameworks `"pt"`, `"torch"` and `"pytorch"`, and `lmc.numpy.safe_open` for
    `"np"` and `"numpy"`; the framework is imported by the call. Arguments and behaviour are the same as there.

    Raises what those do, `lmc.UsageError` for other frameworks, and `ModuleNotFoundError` for one that is not
    installed.
    """
    check_framework(framework, "lmc.safe_open")
    if framework in TORCH:
        import lmc.torch

        return lmc.torch.safe_open(filename, framework, device, backend=backend, base=base, threads=threads)
    import lmc.numpy

    return lmc.numpy.safe_open(filename, framework, device, backend=backend, base=base, threads=threads)
