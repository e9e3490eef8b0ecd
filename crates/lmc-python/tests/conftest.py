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


def dequantised(seed=0):
    """float32 weights that had 4 bits, in groups of 64 with a scale each."""
    random = np.random.default_rng(seed)
    levels = random.integers(0, 8, (2, 128, 1024)).sum(axis=0) - 7
    scales = random.uniform(0.001, 0.002, (128, 16)).astype(np.float32)
    return np.repeat(scales, 64, axis=1) * levels.astype(np.float32)


def has_grids(data):
    """Whether any `.lmc` file in these bytes needs a reader that knows grids."""
    headers = [file[:8] for file in data.split(b"\x89LMC\r\n\x1a\n")[1:]]
    assert headers
    return any(int.from_bytes(header[4:], "little") & 4 for header in headers)


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
    if bases := sys.modules.get("lmc.dcp._bases"):
        bases.forget()


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
