"""Tensors in memory that follow a store."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Self, TypeAlias

from lmc._errors import NotFoundError, UsageError
from lmc._lmc import Snapshot, StagedTensors, Store, TensorFollower
from lmc.sync._libraries import library, library_of
from lmc.sync._library import Library
from lmc.sync._patch import Patch

Path: TypeAlias = str | os.PathLike[str]
_At: TypeAlias = int | str | Snapshot | None


class Update:
    """A version that is ready: what changed, decoded and verified. `Follower.stage` makes one."""

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
        """How many elements get another value."""
        return self._staged.changed

    @property
    def fetched_size(self) -> int:
        """Bytes that were fetched from the store."""
        return self._staged.fetched_size

    def patches(self) -> Iterator[Patch]:
        """What changed: for copies of the tensors elsewhere, as on a GPU, which get each with `patch.write(copy)`."""
        names = list(self._tensors)
        for number in range(len(self._staged)):
            tensor, width, start, stop, indices, values = self._staged.patch(number)
            name = names[tensor]
            at = None if indices is None else self._library.indices(indices)
            yield Patch(name, start, stop, at, self._library.values(values, width, self._tensors[name]), self._library)

    def __repr__(self) -> str:
        return f"<lmc.sync.Update of step {self.step} from {self.base_step}: {self.changed} elements>"


class Follower:
    """Keeps tensors in memory at the newest version of a store.

    `tensors` are those to keep up to date, by their names in the store: tensors of torch on the CPU, or arrays of
    numpy, contiguous and writable. Names that the store lacks are left out if the tensor shares its memory with one
    that it has, as tied weights do. By default new tensors are made for all that the first version has, of `framework`,
    `"pt"` or `"np"`.

    `stage` gets a version ready while the tensors are in use, `commit` writes what changed. Nobody but the follower may
    write to the tensors: where that happened, the next version is decoded without them, if it is noticed; `verify`
    compares all with their hashes each time. An earlier version than the one that the tensors hold is refused, unless
    `rewind` is set. One thread at a time may use a follower, and no forked child.
    """

    def __init__(
        self,
        store: Store | Path,
        tensors: Mapping[str, Any] | None = None,
        *,
        framework: str = "pt",
        verify: bool = False,
        rewind: bool = False,
        threads: int | None = None,
    ) -> None:
        self._store = store if isinstance(store, Store) else Store(store)
        self._library = library(framework) if tensors is None else library_of(tensors)
        self._given = None if tensors is None else dict(tensors)
        self._options: dict[str, Any] = {"verify": verify, "rewind": rewind, "threads": threads}
        self._tensors = dict[str, Any]()
        self._native: TensorFollower | None = None

    @property
    def tensors(self) -> dict[str, Any]:
        """The tensors that follow, by name. Raises `lmc.UsageError` before the first version."""
        self._begun()
        return dict(self._tensors)

    @property
    def step(self) -> int | None:
        """The step of the version that the tensors hold; `None` before the first one."""
        current = None if self._native is None else self._native.current
        return None if current is None else current[0]

    def load(self, at: _At = None) -> int:
        """Fills the tensors with a version, by default the newest one, and returns its step: this is how to begin.

        Raises `lmc.NotFoundError` when the store has no version, or lacks a tensor.
        """
        snapshot = self._store.find(at)
        native = self._begin(snapshot)
        native.load(snapshot, self._memory())
        return snapshot.step

    def adopt(self, at: _At) -> int:
        """Begins with a version that the tensors hold already, read from elsewhere, and returns its step.

        All of their bytes are compared with its hashes: raises `lmc.UsageError` when they differ.
        """
        if self._given is None:
            raise UsageError("adopt needs tensors: Follower(store, tensors)")
        snapshot = self._store.find(at)
        self._begin(snapshot).adopt(snapshot, self._memory())
        return snapshot.step

    def stage(self, at: _At = None) -> Update | None:
        """Gets a version ready, by default the newest one; the tensors are only read. Returns `None` if they hold it.

        Raises `lmc.UsageError` before the first version, or for an earlier one than the tensors hold.
        """
        native = self._begun()
        snapshot = native.newest() if at is None else self._store.find(at)
        current = native.current
        if snapshot is None or (current is not None and current[1] == snapshot.id):
            return None
        return Update(native.stage(snapshot, self._memory()), self._library, self._tensors)

    def commit(self, update: Update) -> None:
        """Writes what changed to the tensors, which must not be in use: shorter than a copy of them.

        Raises `lmc.UsageError` when the tensors do not hold what it was made from, as when it was committed before.
        """
        self._begun().commit(update._staged, self._memory())

    def update(self) -> int | None:
        """Gets the tensors to the newest version: `load` the first time, then `stage` and `commit`.

        Returns its step; `None` if they hold it, or there is none.
        """
        if self.step is None:
            try:
                self._store.find()
            except NotFoundError:
                return None
            return self.load()
        update = self.stage()
        if update is None:
            return None
        self.commit(update)
        return update.step

    def close(self) -> None:
        """Ends it. The tensors stay as they are."""
        if self._native is not None:
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lmc.sync.Follower of {self._store.location!r}: step {self.step}>"

    def _begun(self) -> TensorFollower:
        if self._native is None:
            raise UsageError("the tensors hold no version yet: load one first")
        return self._native

    def _begin(self, snapshot: Snapshot) -> TensorFollower:
        """The native follower, which is made when the first version says which tensors there are."""
        if self._native is None:
            reader = self._store.open_snapshot(snapshot)
            if self._given is None:
                entries = [reader.tensor(name) for name in dict.fromkeys(reader.keys())]
                self._tensors = {entry.name: self._library.empty(entry) for entry in entries}
            else:
                self._tensors = _without_aliases(self._given, self._library, set(reader.keys()))
            specs = [self._library.spec(name, tensor) for name, tensor in self._tensors.items()]
            self._native = self._store.follow_tensors(specs, **self._options)
        return self._native

    def _memory(self) -> list[Any]:
        return [self._library.memory(tensor) for tensor in self._tensors.values()]


def _without_aliases(tensors: dict[str, Any], library: Library, stored: set[str]) -> dict[str, Any]:
    """Each memory once, under a name that the store has if it has one."""
    names = dict[Any, str]()
    for name, tensor in tensors.items():
        spec = library.spec(name, tensor)
        address = library.address(tensor)
        # Empty tensors may be anywhere.
        key = (*address, *spec[1:]) if address[1] else name
        if key not in names or (names[key] not in stored and name in stored):
            names[key] = name
    return {name: tensors[name] for name in tensors if name in set(names.values())}
