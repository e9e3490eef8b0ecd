"""What a `lmc.File` restores to, as a binary file object."""

import io
import os
from typing import TYPE_CHECKING, Final, Protocol

from lmc._errors import UsageError
from lmc._lmc import File

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# A small read decodes to the end of a window. It is the block that the read begins in, and becomes larger, for all
# threads to decode, as long as reads follow one another. Windows begin where blocks do, so that none is decoded twice.
_SMALLEST: Final = 1 << 20
_LARGEST: Final = 8 << 20


class _Closes(Protocol):
    def close(self) -> object: ...


class Raw(io.RawIOBase):
    """The file object without a buffer. `failed` is what the last read raised, for libraries that lose it."""

    mode = "rb"
    name: str
    failed: Exception | None = None

    def __init__(self, file: File, *owned: _Closes) -> None:
        self._file, self._owned, self._size = file, owned, file.size
        self._at, self._end, self._window = 0, -1, _SMALLEST
        if file.name is not None:
            self.name = str(file.name)

    def readable(self) -> bool:
        self._checkClosed()
        return True

    def seekable(self) -> bool:
        self._checkClosed()
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        self._checkClosed()
        out = memoryview(buffer).cast("B")
        size = min(len(out), max(self._size - self._at, 0))
        if len(out) <= _LARGEST:
            self._window = min(2 * self._window, _LARGEST) if self._at == self._end else _SMALLEST
            size = min(size, self._window - self._at % self._window)
        if size:
            try:
                self._file.read_range_into(self._at, out[:size])
            except Exception as e:
                self.failed = e
                raise
        self._at += size
        self._end = self._at
        return size

    def readall(self) -> bytes:
        self._checkClosed()
        start, self._at = self._at, max(self._at, self._size)
        return self._file.read_range(start, self._size - start) if start < self._size else b""

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._checkClosed()
        origins = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}
        if whence not in origins:
            raise UsageError(f"whence={whence}: must be 0, 1 or 2")
        at = origins[whence] + offset
        if at < 0:
            raise UsageError(f"there is no position {at}: a file begins at 0")
        self._at = at
        return at

    def close(self) -> None:
        if not self.closed:
            super().close()
            for one in self._owned:
                one.close()


def buffered(raw: Raw) -> io.BufferedReader:
    """The file object with its buffer, which takes what is decoded ahead."""
    return io.BufferedReader(raw, _LARGEST)


def reader(file: File, *owned: _Closes) -> io.BufferedReader:
    """A binary file object that reads what a file restores to; closing it closes `owned`, too."""
    return buffered(Raw(file, *owned))
