"""The package as installed."""

import builtins
import importlib.metadata
from pathlib import Path

import lmc
import lmc._lmc
import pytest
from packaging.version import Version


@pytest.mark.wheel
def test_metadata():
    found = importlib.metadata.metadata("lmc-codec")
    # Cargo and Python spell pre-release versions differently.
    assert Version(found["Version"]) == Version(lmc.__version__)
    assert found["License-Expression"] == "MIT OR Apache-2.0"
    assert set(found.get_all("License-File")) == {"LICENSE-MIT", "LICENSE-APACHE"}
    assert found["Requires-Python"] == ">=3.11"
    assert "Lossless compression" in found["Summary"]
    assert found.get_payload().lstrip().startswith("# lmc")
    scripts = importlib.metadata.entry_points(group="console_scripts", name="lmc")
    assert [s.value for s in scripts] == ["lmc.__main__:main"]


@pytest.mark.wheel
def test_one_build_is_for_every_python():
    assert Path(lmc._lmc.__file__).name == "_lmc.abi3.so"


def test_types_come_with_it():
    folder = Path(lmc.__file__).parent
    assert (folder / "py.typed").is_file()
    assert (folder / "_lmc.pyi").is_file()


def test_everything_is_documented():
    for module, name in [(of, name) for of in (lmc, lmc.store) for name in of.__all__]:
        found = getattr(module, name)
        if not callable(found):
            continue
        assert found.__doc__, name
        if found.__module__ == module.__name__ and isinstance(found, type):
            for method, value in vars(found).items():
                if not method.startswith("_") and callable(value):
                    assert value.__doc__, f"{name}.{method}"


def test_all_is_everything():
    assert all(hasattr(lmc, name) for name in lmc.__all__)
    assert lmc.open is lmc.File
    taken = {}
    exec("from lmc import *", taken)
    assert lmc.__all__ and not taken.keys() & vars(builtins).keys() - {"__builtins__"}
