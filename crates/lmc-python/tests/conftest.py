"""What the tests share: weights, and the snapshots of a run."""

import numpy as np
import pytest


def weights(n, seed=0):
    """`n` floats that compress as those of a model do."""
    return (np.random.default_rng(seed).standard_normal(n) * 0.02).astype(np.float32)


@pytest.fixture(scope="session")
def array():
    """3 MiB of weights, in several blocks."""
    return weights(3 << 18)


@pytest.fixture(scope="session")
def raw(array):
    return array.tobytes()


@pytest.fixture(scope="session")
def later(array):
    """The same weights some steps later."""
    return array * np.float32(1.0001)
