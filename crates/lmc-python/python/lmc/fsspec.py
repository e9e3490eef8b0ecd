"""Compressed files through fsspec, in both of its ways.

>>> import lmc.fsspec                                                       # registers the compression
>>> with fsspec.open("model.safetensors.lmc", compression="infer") as f:    # doctest: +SKIP
...     header = f.read(1000)
>>> with fsspec.open("lmc::s3://bucket/model.safetensors.lmc") as f:        # doctest: +SKIP
...     header = f.read(1000)

The second needs no import if the package `lmc-codec` is installed.
"""

# mypy: disable-error-code="import-untyped,misc,no-untyped-call"

import io
import os
import tempfile
from typing import Any

from fsspec import filesystem
from fsspec.compression import register_compression
from fsspec.implementations.chained import ChainedFileSystem

from lmc._errors import UsageError
from lmc._lmc import File, compress_stream
from lmc._reader import reader

__all__ = ["LmcFileSystem"]


class LmcFileSystem(ChainedFileSystem):
    """Files of another file system as what they restore to, under the same names; other files as they are. Read-only.

    `fsspec.open("lmc::s3://bucket/x.lmc", base=…, threads=…, s3={…})` makes one, or the class with the other as `fs`.
    `base` and `threads` are those of `lmc.open`. Listings do not say the size of `.lmc` files, as each would have to be
    opened; `info` does.
    """

    protocol = "lmc"
    # Bases may be of any size.
    cachable = False

    def __init__(
        self,
        fs: Any = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        fo: object = None,
        *,
        base: Any = None,
        threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if fs is None and target_protocol is None:
            raise UsageError('it reads from another file system: "lmc::file://x.lmc", or fs=')
        self.fs = filesystem(target_protocol, **(target_options or {})) if fs is None else fs
        self._base, self._threads = base, threads
        # Paths are those of the other.
        ours, theirs = super()._strip_protocol, self.fs._strip_protocol
        self._strip_protocol = lambda path: theirs(ours(path))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.BufferedReader:
        if mode != "rb":
            raise UsageError(f"{path}: mode={mode!r}, but lmc:: only reads: write with compression='lmc'")
        source = self.fs.open(path, "rb", **{k: v for k, v in options.items() if v is not None})
        return _opened(source, base=self._base, threads=self._threads, plain=True)

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        """What the other file system says, with the size of the restored file."""
        info: dict[str, Any] = self.fs.info(path, **options)
        if info["type"] == "file" and info["name"].endswith(".lmc"):
            with self._open(info["name"]) as file:
                info = info | {"size": file.seek(0, io.SEEK_END)}
        return info

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What the other file system lists, without the sizes of `.lmc` files."""
        listed: list[Any] = self.fs.ls(path, detail=detail, **options)
        if not detail:
            return listed
        return [one | {"size": None} if one["name"].endswith(".lmc") else one for one in listed]


def _opened(source: Any, **options: Any) -> io.BufferedReader:
    """A file object for what another restores to, which is closed with it."""
    try:
        file = File(source, **options)
    except BaseException:
        source.close()
        raise
    opened = reader(file, file, source)
    opened.size = file.size  # type: ignore[attr-defined]  # as files of fsspec have it
    return opened


class _Writer(io.FileIO):
    """Compresses, when it is closed, what was written to it: the directory of a zip archive is at its end."""

    def __init__(self, out: Any) -> None:
        file, self._path = tempfile.mkstemp(prefix="lmc-")
        super().__init__(file, "wb")
        self._out = out

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
            compress_stream(self._path, self._out)
        finally:
            os.unlink(self._path)
            self._out.close()


def _compression(file: Any, mode: str = "r") -> io.BufferedReader | io.BufferedWriter:
    """The compression "lmc" of fsspec."""
    return _opened(file) if "r" in mode else io.BufferedWriter(_Writer(file))


register_compression("lmc", _compression, "lmc", force=True)
