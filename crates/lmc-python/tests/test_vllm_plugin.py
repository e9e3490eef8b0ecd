"""The plugin for vLLM without a vLLM, as in most places where it is imported. `test_vllm.py` has one."""

import importlib.metadata
import logging
import subprocess
import sys
import types

import lmc.vllm
import pytest


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
    """Modules of vLLM that record what is registered."""
    calls = []

    class Factory:
        @staticmethod
        def register_engine(name, module, cls):
            if name in [call[1] for call in calls if call[0] == "engine"]:
                raise ValueError("already registered")
            calls.append(("engine", name, module, cls))

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
        )
    }
    modules["vllm.model_executor.model_loader"].register_model_loader = lambda name: (
        lambda cls: calls.append(("loader", name, cls))
    )
    modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory = Factory
    modules["lmc.vllm._loader"].Loader = "Loader"
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(lmc.vllm, "_registered", set())
    return modules, calls


def test_it_registers_once(fake, caplog):
    _, calls = fake
    for _ in range(3):
        lmc.vllm.register()
    assert calls == [("loader", "lmc", "Loader"), ("engine", "lmc", "lmc.vllm._engine", "Engine")]
    assert not caplog.records


def test_an_older_vllm_gets_what_it_takes(fake, caplog):
    modules, calls = fake
    del modules["vllm.distributed.weight_transfer.factory"].WeightTransferEngineFactory
    lmc.vllm.register()
    assert calls == [("loader", "lmc", "Loader")]
    (record,) = caplog.records
    assert "weight transfer backend" in record.getMessage()
