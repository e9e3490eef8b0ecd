"""The plugin for vLLM without a vLLM, as in most places where it is imported. `test_vllm.py` has one."""

import importlib.metadata
import logging
import subprocess
import sys
import types

import lmc.vllm
import pytest


@pytest.mark.wheel
def test_it_is_the_entry_point():
    (found,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="lmc")
    assert found.value == "lmc.vllm:register"
    assert found.load() is lmc.vllm.register


def test_its_import_is_light():
    heavy = "import lmc.vllm, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", heavy], check=True, capture_output=True, text=True).stdout.split()
    assert "lmc" in found
    assert not {"torch", "vllm", "numpy", "safetensors"} & set(found)


def test_without_vllm_it_warns(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setattr(lmc.vllm, "_registered", set())
    with caplog.at_level(logging.WARNING, "vllm.plugins.lmc"):
        lmc.vllm.register()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert all(lmc.vllm.TESTED[0] in record.getMessage() for record in caplog.records)


@pytest.fixture
def fake(monkeypatch):
    """Modules of vLLM that record registrations."""
    calls = []

    class Factory:
        @staticmethod
        def register_engine(name, cls):
            if name in [call[1] for call in calls if call[0] == "engine"]:
                raise ValueError("already registered")
            calls.append(("engine", name, cls))

    modules = {
        name: types.ModuleType(name)
        for name in (
            "vllm",
            "vllm.model_executor",
            "vllm.model_executor.model_loader",
            "vllm.distributed",
            "vllm.distributed.weight_transfer",
            "vllm.distributed.weight_transfer.factory",
            "lmc.vllm._loader",
            "lmc.vllm._engine",
        )
    }
    modules["vllm.model_executor.model_loader"].register_model_loader = lambda name: (
        lambda cls: calls.append(("loader", name, cls))
    )
    modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory = Factory
    modules["lmc.vllm._loader"].Loader = "Loader"
    modules["lmc.vllm._engine"].Engine = "Engine"
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(lmc.vllm, "_registered", set())
    return modules, calls


def test_it_registers_once(fake, caplog):
    _, calls = fake
    for _ in range(3):
        lmc.vllm.register()
    assert calls == [("loader", "lmc", "Loader"), ("engine", "lmc", "Engine")]
    assert not caplog.records


def test_an_older_vllm_gets_what_it_takes(fake, caplog):
    modules, calls = fake
    del modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory
    lmc.vllm.register()
    assert calls == [("loader", "lmc", "Loader")]
    (record,) = caplog.records
    assert "weight transfer backend" in record.getMessage()
    assert lmc.vllm.TESTED[0] in record.getMessage()


@pytest.mark.parametrize("error", [AttributeError, TypeError, ValueError, RuntimeError, OSError])
def test_a_vllm_whose_interface_is_another_gets_a_warning(fake, monkeypatch, caplog, error):
    modules, calls = fake

    def fails(*_arguments):
        raise error("on purpose")

    monkeypatch.setattr(modules["vllm.model_executor.model_loader"], "register_model_loader", fails)
    factory = modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory
    monkeypatch.setattr(factory, "register_engine", fails)
    lmc.vllm.register()
    assert not calls
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    for record in caplog.records:
        assert f"{error.__name__}: on purpose" in record.getMessage()
        assert lmc.vllm.TESTED[0] in record.getMessage()


def test_a_vllm_without_the_classes_of_a_backend_gets_a_warning(fake, monkeypatch, caplog):
    _, calls = fake
    monkeypatch.setitem(sys.modules, "lmc.vllm._engine", None)
    lmc.vllm.register()
    assert calls == [("loader", "lmc", "Loader")]
    (record,) = caplog.records
    assert lmc.vllm.TESTED[0] in record.getMessage()
