"""The exceptions of lmc: one tree, with a class for each reaction that a caller may choose."""

import builtins


class Error(Exception):
    """The base of all errors of lmc.

    `kind` is a word for the kind of error, stable across versions. `tensor`, `block` (its number) and `offset` (in
    bytes, in the compressed file) locate the error, where known.
    """

    kind: str = "internal"
    tensor: str | None = None
    block: int | None = None
    offset: int | None = None


class UsageError(Error, ValueError):
    """The arguments contradict each other, or do not fit the file."""

    kind = "usage"


class NotFoundError(Error, LookupError):
    """There is no such tensor, snapshot, file in a snapshot, or store."""

    kind = "not_found"


class FormatError(Error, ValueError):
    """The bytes are not those of a file or store that this version can read."""

    kind = "damaged"


class DamagedError(FormatError):
    """The bytes are not what a writer produced: fetch them again."""

    kind = "damaged"


class UnsupportedError(FormatError):
    """The format is unknown to this version, or needs a newer lmc."""

    kind = "unsupported"


class BaseMismatchError(Error, ValueError):
    """A base of a delta is missing, or is not the file that the delta was made from."""

    kind = "base"


class LimitError(Error):
    """A limit would be exceeded, or memory ran out."""

    kind = "limit"


class IOError(Error, OSError):
    """The operating system refused to read or write."""

    kind = "io"


class MissingFileError(IOError, FileNotFoundError):
    """There is no such file."""


class PermissionDeniedError(IOError, PermissionError):
    """A file may not be read or written."""


class ExistsError(Error, FileExistsError):
    """The file or snapshot exists already, or another process was first."""

    kind = "exists"


class StoreError(Error, builtins.OSError):
    """A store cannot be reached, or refused: look at it, and at the credentials, and try again."""

    kind = "store"


class ExpiredError(Error):
    """It took longer than the store allows: start it again."""

    kind = "expired"


class InternalError(Error, RuntimeError):
    """A bug of lmc. Please report it."""

    kind = "internal"
