"""Shared by the tests: weights, the snapshots of a run, and memory use."""

import itertools
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest


def weights(n, seed=0):
    """`n` floats that compress as those of a model do."""
    return (np.random.default_rng(seed).standard_normal(n) * 0.02).astype(np.float32)


def other_version(folder):
    """Makes all files and stores in a folder say that they have version 2."""
    for path in folder.rglob("*"):
        if path.suffix == ".lmc":
            data = path.read_bytes()
            path.write_bytes(data[:8] + b"\2" + data[9:])
        elif path.name in ("lmc-store.json", "store.tar"):
            path.write_bytes(path.read_bytes().replace(b'"lmc-store","version":1', b'"lmc-store","version":2'))


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def thinned(*values):
    """Cases for tests of several parameters, given the values of each, that have every value of every parameter.

    Of all their combinations there are only as many as the longest has values, unless LMC_TEST_DEPTH is `release`.
    """
    values = [list(v) for v in values]
    if os.environ.get("LMC_TEST_DEPTH") == "release":
        return list(itertools.product(*values))
    return [tuple(v[i % len(v)] for v in values) for i in range(max(map(len, values)))]


def equal(a, b):
    """Whether these are equal arrays of the same names."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


@pytest.fixture(autouse=True)
def nothing_in_memory():
    """No checkpoint of another test is a base in memory; without PyTorch there is none."""
    if stores := sys.modules.get("lmc.dcp._stores"):
        stores.forget()


@pytest.fixture(scope="session")
def array():
    """3 MiB of weights, in several blocks."""
    return weights(3 << 18)


@pytest.fixture(scope="session")
def raw(array):
    return array.tobytes()


@pytest.fixture(scope="session")
def later(array):
    """These weights some steps later."""
    return array * np.float32(1.0001)


@pytest.fixture
def on_disk(monkeypatch):
    """Calls that bring files to disk and name them, in order: `("sync", NAME)`, `("replace", FROM, TO)`."""
    done, fsync, rename = [], os.fsync, os.replace

    def synced(descriptor):
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def replaced(source, target):
        done.append(("replace", Path(source).name, Path(target).name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    return done
