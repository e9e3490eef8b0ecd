"""Tensors in memory that follow a store."""

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import index
from typing import Any, Self, TypeAlias

from lmc._errors import NotFoundError, UsageError
from lmc._lmc import Snapshot, StagedTensors, Store, TensorFollower
from lmc._lmc import Tensor as Entry
from lmc.sync._libraries import library, library_of
from lmc.sync._library import Library
from lmc.sync._memory import Memory, without_aliases
from lmc.sync._patch import Patch

Path: TypeAlias = str | os.PathLike[str]
_At: TypeAlias = int | str | Snapshot | None


class Update:
    """The changes to a version that is ready. `Follower.stage` makes one.

    Of tensors that held nothing, as new ones, and those that somebody else wrote to, all elements count as changed.
    """

    def __init__(self, staged: StagedTensors, library: Library, tensors: dict[str, Any]) -> None:
        self._staged = staged
        self._library = library
        self._tensors = tensors

    @property
    def step(self) -> int:
        """The step of the version."""
        return self._staged.step

    @property
    def id(self) -> str:
        """The id of its snapshot."""
        return self._staged.id

    @property
    def base_step(self) -> int:
        """The step of the version that it was made from."""
        return self._staged.base_step

    @property
    def changed(self) -> int:
        """How many elements are written."""
        return self._staged.changed

    @property
    def fetched_size(self) -> int:
        """Bytes that were fetched from the store."""
        return self._staged.fetched_size

    def patches(self) -> Iterator[Patch]:
        """The changes, for copies of the tensors elsewhere, as on a GPU: apply each with `patch.write(copy)`."""
        names = list(self._tensors)
        for number in range(len(self._staged)):
            tensor, width, start, stop, indices, values = self._staged.patch(number)
            name = names[tensor]
            at = None if indices is None else self._library.indices(indices)
            like = self._tensors[name]
            yield Patch(name, start, stop, at, self._library.values(values, width, like), self._library, like)

    def __repr__(self) -> str:
        return f"<lmc.sync.Update of step {self.step} from {self.base_step}: {self.changed} elements>"


class Follower:
    """Keeps tensors in memory at the newest version of a store.

    `tensors` are those to keep up to date, by their names in the store: tensors of torch on the CPU, or arrays of
    numpy, contiguous and writable. Names that the store lacks are left out if the tensor shares its memory with one
    that it has, as tied weights do; a version with different values for names of one memory is refused. By default new
    tensors are made for all that a version has, of `framework`, `"pt"` or `"np"`, also for those that later versions
    add; given names in place of tensors, for these. If `tensors` are given, a warning names those that later versions
    add, once. A version that lacks a tensor is refused.

    `rows` are those that a tensor has, by its name: `(start, stop)` along the first dimension, as a worker of an engine
    holds a part of a matrix. Names without rows have all; all names of tied tensors need the same. What others have is
    not fetched, except with what is stored in one block with it. Such blocks count whole towards the memory that the
    follower keeps (at most 256 MiB and four times the tensors); what is not kept is fetched again.

    `stage` gets a version ready while the tensors are in use, `commit` writes what changed. Only the follower may write
    to the tensors. Where torch counts a write by others (`_version`), or a tensor got other memory, the next update
    writes all of that tensor. Torch does not count writes through `.data`, in inference mode or by kernels of others,
    and numpy none: then the next version is decoded without the tensors, if it is noticed, which it may never be while
    few elements change. `load` fills the tensors whatever they hold; `verify` compares all with their hashes each time.
    An earlier version than the one that the tensors hold is refused, unless `rewind` is set. One thread at a time may
    use a follower, and no forked child.

    The store need not exist yet: until it does, it has no version. Raises the other errors of `lmc.Store`.
    """

    def __init__(
        self,
        store: Store | Path,
        tensors: Mapping[str, Any] | Iterable[str] | None = None,
        *,
        rows: Mapping[str, tuple[int, int]] | None = None,
        framework: str = "pt",
        verify: bool = False,
        rewind: bool = False,
        threads: int | None = None,
    ) -> None:
        if isinstance(tensors, str | bytes):
            raise UsageError(f"tensors={tensors!r}: give tensors by name, or a list of names")
        self._owns = not isinstance(store, Store)
        self._opened = store if isinstance(store, Store) else None
        self._place: Path = store.location if isinstance(store, Store) else _absolute(store)
        self._given = dict(tensors) if isinstance(tensors, Mapping) else None
        self._names = None if tensors is None else list(dict.fromkeys(tensors))
        self._rows = {name: (index(start), index(stop)) for name, (start, stop) in dict(rows or {}).items()}
        self._library = library(framework) if self._given is None else library_of(self._given)
        self._options: dict[str, Any] = {"verify": verify, "rewind": rewind, "threads": threads}
        # Those that hold the version; and the memory of the native follower: also new ones, which hold nothing yet.
        self._tensors = dict[str, Any]()
        self._memory = Memory(self._library)
        # Names that need no mention when a version has them.
        self._known = set[str]()
        self._native: TensorFollower | None = None
        self._step: int | None = None
        self._closed = False
        # Other errors are no reason to wait.
        with suppress(NotFoundError):
            _ = self._store

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors that follow, by name. Raises `lmc.UsageError` before the first version."""
        self._begun()
        return dict(self._tensors)

    @property
    def step(self) -> int | None:
        """The step of the version that the tensors hold; `None` before the first one."""
        return self._step

    def load(self, at: _At = None) -> int:
        """Fills the tensors with a version, by default the newest one, and returns its step: this is how to begin.

        Raises `lmc.NotFoundError` when the store has no version, or lacks a tensor.
        """
        self._check_open()
        snapshot = self._store.find(at)
        native, memory = self._follower_of(snapshot)
        if native is self._native:
            memory.check()
            self._take_new(native, snapshot)
        before = native.current
        try:
            native.load(snapshot, memory.buffers())
        except BaseException:
            # They are undefined then, unless the version was refused.
            if native.current is None or native.current != before:
                self._written(memory)
            if self._native is not None:
                self._step = native.current[0] if native.current is not None else None
            raise
        self._written(memory)
        return self._hold(native, memory, snapshot)

    def adopt(self, at: _At) -> int:
        """Begins with a version that the tensors hold already, read from elsewhere, and returns its step.

        All of their bytes are compared with its hashes: raises `lmc.UsageError` when they differ.
        """
        self._check_open()
        if self._given is None:
            raise UsageError("adopt needs tensors: Follower(store, tensors)")
        snapshot = self._store.find(at)
        native, memory = self._follower_of(snapshot)
        native.adopt(snapshot, memory.buffers())
        return self._hold(native, memory, snapshot)

    def stage(self, at: _At = None) -> Update | None:
        """Gets a version ready, by default the newest one; the tensors are only read. Returns `None` if they hold it.

        Raises `lmc.UsageError` before the first version, or for an earlier one than the tensors hold; and when a tensor
        has another dtype or shape than before, or no memory of its own any more.
        """
        native = self._begun()
        self._memory.notice(native)
        snapshot = native.newest() if at is None else self._store.find(at)
        if snapshot is None and not self._memory.is_held:
            snapshot = self._store.find(self._step)
        current = native.current
        if snapshot is None or (self._memory.is_held and current is not None and current[1] == snapshot.id):
            return None
        self._take_new(native, snapshot)
        return Update(native.stage(snapshot, self._memory.buffers()), self._library, dict(self._memory.tensors))

    def commit(self, update: Update) -> None:
        """Writes what changed to the tensors, which must not be in use: shorter than a copy of them.

        Raises `lmc.UsageError` when the tensors do not hold what it was made from, as when it was committed before, or
        somebody else wrote to them since: nothing is written then.
        """
        native = self._begun()
        if changed := self._memory.notice(native):
            some = ", ".join(map(repr, changed[:3])) + (", …" if len(changed) > 3 else "")
            raise UsageError(f"step {update.step} was staged, and somebody else wrote to {some} since: stage it again")
        native.commit(update._staged, self._memory.buffers())
        if len(update._staged):
            self._written(self._memory)
        self._tensors = dict(self._memory.tensors)
        self._memory.hold()
        self._step = update.step

    def update(self) -> int | None:
        """Gets the tensors to the newest version: `load` the first time, then `stage` and `commit`.

        Returns its step; `None` if they hold it, or there is none. What somebody else wrote to them is noticed as the
        description of the class says.
        """
        self._check_open()
        if self.step is None:
            return self.load() if self._is_behind() else None
        update = self.stage()
        if update is None:
            return None
        self.commit(update)
        return update.step

    def wait(self, timeout: float | None = None, *, interval: float = 1.0) -> bool:
        """Waits until the store has a version that the tensors do not hold, looking every `interval` seconds.

        Returns whether it has one: `False` only after `timeout` seconds. Raises as `stage`, or `lmc.StoreError` when
        the store cannot be reached.
        """
        if interval <= 0:
            raise UsageError(f"interval={interval}: must be more than 0")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._is_behind():
            left = interval if end is None else min(interval, end - time.monotonic())
            if left <= 0:
                return False
            time.sleep(left)
        return True

    def close(self) -> None:
        """Ends it. The tensors stay as they are."""
        if self._native is not None:
            self._native.close()
        if self._owns and self._opened is not None:
            self._opened.close()
        self._closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lmc.sync.Follower of {os.fspath(self._place)!r}: step {self.step}>"

    @property
    def _store(self) -> Store:
        """The store. Raises `lmc.NotFoundError` as long as there is none."""
        if self._opened is None:
            self._opened = Store(self._place)
        return self._opened

    def _is_behind(self) -> bool:
        """Whether the store has a version, and the tensors do not hold its last one."""
        self._check_open()
        if self._native is not None and self._step is not None:
            self._memory.notice(self._native)
            return not self._memory.is_held or self._native.newest() is not None
        try:
            self._store.find()
        except NotFoundError:
            return False
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the follower is closed")

    def _begun(self) -> TensorFollower:
        self._check_open()
        if self._native is None or self._step is None:
            raise UsageError("the tensors hold no version yet: load one first")
        return self._native

    def _follower_of(self, snapshot: Snapshot) -> tuple[TensorFollower, Memory]:
        """The native follower and its memory: new ones as long as they hold nothing, since a version says which there
        are."""
        if self._native is not None:
            return self._native, self._memory
        reader = self._store.open_snapshot(snapshot)
        stored = dict.fromkeys(reader.keys())
        others = dict[str, str]()
        if self._given is None:
            names = stored if self._names is None else self._names
            tensors = {name: self._empty(reader.tensor(name)) for name in names}
        else:
            tensors, others = without_aliases(self._given, self._library, stored.keys(), self._rows)
        for name in self._rows.keys() - tensors.keys() - (self._given or {}).keys():
            raise UsageError(f"rows of {name!r}: no tensor of this name follows")
        memory = Memory(self._library, self._rows)
        native = self._store.follow_tensors(memory.specs(tensors), **self._options)
        memory.add(tensors)
        memory.tie(native, self._given or {}, others)
        self._known = {*stored, *(self._names or ())}
        return native, memory

    def _names_of(self, snapshot: Snapshot) -> list[str]:
        """The names of the tensors of a version."""
        return self._begun().names(snapshot)

    def _take_new(self, native: TensorFollower, snapshot: Snapshot) -> None:
        """Lets tensors follow that are new in a version, if all do; otherwise a warning names them."""
        names = [name for name in dict.fromkeys(native.names(snapshot)) if name not in self._known]
        if not names:
            return
        if self._names is None:
            tensors = {name: self._empty(native.tensor(snapshot, name)) for name in names}
            native.add(self._memory.specs(tensors))
            self._memory.add(tensors)
        else:
            some = ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
            warnings.warn(
                f"lmc: step {snapshot.step} of {os.fspath(self._place)!r} has {len(names)} tensors that those before"
                f" had not, and that do not follow: {some}; begin a new lmc.sync.Follower to follow these, too",
                stacklevel=3,
            )
        self._known.update(names)

    def _empty(self, entry: Entry) -> Any:
        """A new tensor, of the rows of an entry that follow."""
        rows = self._rows.get(entry.name)
        if rows is None:
            return self._library.empty(entry, entry.shape)
        start, stop = rows
        if not entry.shape or not 0 <= start <= stop <= entry.shape[0]:
            raise UsageError(f"rows={rows} of {entry.name!r}, which has the shape {list(entry.shape)}")
        return self._library.empty(entry, (stop - start, *entry.shape[1:]))

    def _hold(self, native: TensorFollower, memory: Memory, snapshot: Snapshot) -> int:
        self._native, self._memory, self._step = native, memory, snapshot.step
        self._tensors = dict(memory.tensors)
        memory.hold()
        return snapshot.step

    def _written(self, memory: Memory) -> None:
        # Those that share their memory, too.
        for tensor in (self._given or memory.tensors).values():
            self._library.written(tensor)


def _absolute(place: Path) -> Path:
    """The same place, whatever the current directory is when the store is opened."""
    path = os.fspath(place)
    return place if "://" in path else os.path.abspath(path)
