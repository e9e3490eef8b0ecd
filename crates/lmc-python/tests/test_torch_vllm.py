"""The copy of a version that the plugin for vLLM keeps, without a vLLM."""

import importlib
import sys
import types

import lmc
import lmc.sync
import pytest
import torch


class Alone:
    """The group of the only worker."""

    rank_in_group, world_size = 0, 1


@pytest.fixture
def copies(monkeypatch):
    """`lmc.vllm._copy`, with a group of one worker."""
    modules = {name: types.ModuleType(name) for name in ("vllm", "vllm.distributed")}
    modules["vllm.distributed"].get_world_group = Alone
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("_copy", "_ranks", "_memory"):
        monkeypatch.delitem(sys.modules, f"lmc.vllm.{name}", raising=False)
    found = importlib.import_module("lmc.vllm._copy")
    yield found
    for name in ("_copy", "_ranks", "_memory"):
        sys.modules.pop(f"lmc.vllm.{name}", None)


@pytest.fixture
def published(copies, tmp_path):
    """A publisher, the tensors that it published as step 1, and a copy of them."""
    publisher = lmc.sync.Publisher(tmp_path / "s")
    state = {"a": torch.randn(300, 300), "b": torch.randn(300)}
    publisher.publish(state, step=1)
    copy = copies.Copy(publisher.store, publisher.store.find())
    copy.load()
    return publisher, state, copy


def test_a_version_of_other_tensors_is_loaded_whole(published):
    publisher, state, copy = published
    store = publisher.store
    for changed in (state | {"c": torch.ones(3)}, {"a": state["a"]}):
        publisher.publish(changed)
        assert not copy.fits(store.find())
        with pytest.raises(lmc.UsageError, match='has tensors of other names than step 1, .*load it whole with "full"'):
            copy.stage(store.find())
    publisher.publish(state)
    assert copy.fits(store.find())


def test_what_others_write_to_a_copy_is_undone(published):
    publisher, state, copy = published
    store = publisher.store
    state["b"][3] = 1
    publisher.publish(state, step=2)
    copy.tensors["a"][5, 5] = 1
    update = copy.stage(store.find())
    for name, tensor in copy.with_changes(update):
        assert torch.equal(tensor, state[name])
    copy.commit(update, store.find())
    assert all(torch.equal(copy.tensors[name], state[name]) for name in state)
