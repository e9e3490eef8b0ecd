"""The version of a store that a model holds, as tensors of its checkpoint in the memory of the machine."""

import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor

from lmc._errors import BaseMismatchError, UsageError
from lmc._lmc import Snapshot, Store
from lmc.sync import Follower, Patch, Update
from lmc.vllm._memory import Memory
from lmc.vllm._ranks import gather, together


class Copy:
    """Tensors that hold a version. New ones are made by `load` or `adopt`; `stage` and `commit` get them to another."""

    def __init__(self, store: Store, snapshot: Snapshot, *, verify: bool = False, threads: int | None = None) -> None:
        self.store = store
        self.snapshot = snapshot
        self.verify = verify
        self.threads = threads
        reader = together("reading the store", lambda: store.open_snapshot(snapshot))
        self._memory = Memory([reader.tensor(name) for name in dict.fromkeys(reader.keys())])
        self.tensors: dict[str, Tensor] = self._memory.tensors
        self._follower = Follower(store, self.tensors, verify=verify, threads=threads)
        self._lock = threading.Lock()

    def set_options(self, verify: bool | None, threads: int | None) -> None:
        """Sets the options that are not `None`. Others than before take a comparison of all tensors."""
        verify = self.verify if verify is None else verify
        threads = self.threads if threads is None else threads
        if (verify, threads) == (self.verify, self.threads):
            return
        follower = Follower(self.store, self.tensors, verify=verify, threads=threads)
        with self._lock:
            try:
                follower.adopt(self.snapshot)
            except BaseException:
                follower.close()
                raise
            self._follower.close()
            self._follower = follower
        self.verify, self.threads = verify, threads

    def load(self) -> None:
        """Fills the tensors from the store."""
        follower, snapshot, leader = self._follower, self.snapshot, self._memory.leader
        together("loading the version", lambda: follower.load(snapshot) if leader else None)
        together("loading the version", lambda: None if leader else follower.adopt(snapshot))

    def adopt(self, directory: str) -> None:
        """Fills the tensors from the files that an engine was started on.

        Raises `lmc.BaseMismatchError` when these are not the version.
        """
        together("reading the model", lambda: _read(directory, self.tensors) if self._memory.leader else None)
        together("comparing the model", lambda: self._check(directory))

    def _check(self, directory: str) -> None:
        try:
            self._follower.adopt(self.snapshot)
        except UsageError as e:
            raise BaseMismatchError(
                f"{directory!r} does not hold step {self.snapshot.step} of {self.store.location!r}: {e}"
            ) from e

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether a version has tensors of the same names."""
        with self._lock:
            return set(self._follower._names_of(snapshot)) == self.tensors.keys()

    def stage(self, snapshot: Snapshot) -> Update:
        """Gets another version ready, verified; the tensors are only read.

        Raises `lmc.UsageError` when it has tensors of other names.
        """
        if not self.fits(snapshot):
            raise UsageError(
                f"step {snapshot.step} of {self.store.location!r} has tensors of other names than step"
                f' {self.snapshot.step}, which the model holds: load it whole with "full": true'
            )
        with self._lock:
            update = self._follower.stage(snapshot)
        if update is None:
            raise UsageError(f"the tensors hold step {snapshot.step} already")
        return update

    def commit(self, update: Update, snapshot: Snapshot) -> None:
        """Writes the changes."""
        # All workers that share the memory write the same.
        with self._lock:
            self._follower.commit(update)
            self.snapshot = snapshot

    def with_changes(self, update: Update) -> Iterator[tuple[str, Tensor]]:
        """All tensors as they are in a version that is not committed."""
        patches = dict[str, list[Patch]]()
        for patch in update.patches():
            patches.setdefault(patch.name, []).append(patch)
        for name, tensor in self.tensors.items():
            if name in patches:
                tensor = tensor.clone()
                for patch in patches[name]:
                    patch.write(tensor)
            yield name, tensor

    def close(self) -> None:
        """Ends following."""
        with self._lock:
            self._follower.close()


held: WeakKeyDictionary[torch.nn.Module, Copy] = WeakKeyDictionary()
"""The versions of models. The version of a model that is not here is unknown."""


written: WeakSet[torch.nn.Module] = WeakSet()
"""Models that got weights of a store, or were about to: the files that they were started on no longer identify their
weights."""


def agreed(model: torch.nn.Module) -> Copy | None:
    """The version of a model, if it is the same for all workers. Otherwise no worker knows it from then on."""
    copy = held.get(model)
    versions = gather(None if copy is None else (copy.store.location, copy.snapshot.id))
    if any(version != versions[0] for version in versions):
        held.pop(model, None)
        return None
    return copy


def _read(directory: str, tensors: dict[str, Tensor]) -> None:
    from safetensors import safe_open

    files = sorted(Path(directory).glob("*.safetensors"))
    if not files:
        raise UsageError(f"{directory!r} is no directory with safetensors files")
    missing = set(tensors)
    for path in files:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in missing.intersection(file.keys()):
                tensor, out = file.get_tensor(name), tensors[name]
                if (tensor.dtype, tensor.shape) != (out.dtype, out.shape):
                    raise BaseMismatchError(
                        f"tensor {name!r} of {str(path)!r} is {tensor.dtype} of shape {list(tensor.shape)}, and in the"
                        f" store {out.dtype} of shape {list(out.shape)}"
                    )
                out.copy_(tensor)
                missing.remove(name)
    if missing:
        raise BaseMismatchError(f"{directory!r} lacks tensor {min(missing)!r}, which the store has")
