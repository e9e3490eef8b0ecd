"""Writes `arrays.npz` and `compressed.npz`; the tests expect the names, types and shapes of the arrays.

python3 testdata/layouts/npz.py
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def main() -> None:
    arrays = {
        "weight": np.arange(12, dtype="f4").reshape(3, 4),
        "deep/bias": np.arange(5, dtype="f2"),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "names": np.array(["a", "bc"]),
        "big": np.arange(4, dtype=">f4"),
        "scalar": np.array(7),
    }
    np.savez(HERE / "arrays.npz", **arrays)
    np.savez_compressed(HERE / "compressed.npz", **arrays)


if __name__ == "__main__":
    main()
