"""The exceptions of lmc: one tree, and in it a class for each thing that a caller may do next."""

import builtins


class Error(Exception):
    """What every error of lmc is.

    `kind` is a word that says what to do, and that does not change from version to version. `tensor`, `block` (its
    number) and `offset` (in bytes, of the compressed file) say where it happened, as far as that is known.
    """

    kind: str = "internal"
    tensor: str | None = None
    block: int | None = None
    offset: int | None = None


class UsageError(Error, ValueError):
    """The arguments do not fit together, or do not fit the file."""

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
    """It is of no format that this version knows, or needs a newer lmc."""

    kind = "unsupported"


class BaseMismatchError(Error, ValueError):
    """A base of a delta is missing, or is another file than the one that the delta was made from."""

    kind = "base"


class LimitError(Error):
    """It would exceed a limit that was set, or there is no memory for it."""

    kind = "limit"


class IOError(Error, OSError):
    """The operating system refused to read or write."""

    kind = "io"


class MissingFileError(IOError, FileNotFoundError):
    """There is no such file."""


class PermissionDeniedError(IOError, PermissionError):
    """A file may not be read or written."""


class ExistsError(Error, FileExistsError):
    """There is such a file or snapshot already, or another process was first."""

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
