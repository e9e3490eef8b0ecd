"""Store.save and Store.load: states of torch."""

import json

import lmc
import lmc.torch
import pytest
import torch
from test_torch_state import HOSTILE, REFUSED, VALUES, assert_equal, state_of, training
from torch import nn
from torch_tensors import DTYPES, random_bits, same, shapes_of, weights


@pytest.fixture
def store(tmp_path):
    return lmc.Store.create(tmp_path / "store")


def test_values(store):
    state = {"values": VALUES, "again": tuple(VALUES)}
    store.save(state)
    assert_equal(store.load(), state)


def test_tensors(store):
    state = {
        name: {shape: random_bits(dtype, shape, seed) for seed, shape in enumerate(shapes_of(dtype))}
        for name, dtype in DTYPES.items()
    }
    store.save(state)
    assert_equal(store.load(), state)


def test_training(store, tmp_path):
    states = []
    for steps in (1, 2):
        states.append(state_of(*training(steps=steps)))
        store.save(states[-1], step=steps)
    for steps, state in enumerate(states, 1):
        assert_equal(store.load(steps), state)
    # The files of a snapshot are those of `save_state`.
    (path,) = store.restore(tmp_path / "back", 1)
    assert_equal(lmc.torch.load_state(path), states[0])
    lmc.torch.save_state(states[0], tmp_path / "state.lmc")
    assert lmc.decompress((tmp_path / "state.lmc").read_bytes()) == path.read_bytes()


def test_shared_tensors(store):
    w = weights(30, 30)
    store.save({"a": w, "b": [w.detach()], "p": nn.Parameter(w), "t": w.t()})
    found = store.load()
    assert found["a"] is found["b"][0] and found["p"].data_ptr() == found["a"].data_ptr() != found["t"].data_ptr()
    assert same(found["t"], w.t().contiguous())


def test_steps_are_deltas(store):
    """Also of an optimizer, whose keys are numbers; what did not change takes no space."""
    model = nn.Linear(512, 512)
    frozen = weights(512, 512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in (1, 2):
        model(torch.ones(512)).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "frozen": frozen}
        saved = store.save(state, step=step)
    assert saved.new_size < 0.7 * store.find(1).new_size
    assert saved.raw_size > 4 << 20


def test_into_a_model_and_its_optimizer(store):
    model, optimizers = training()
    optimizer, scheduler = optimizers[0]
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    store.save(state | {"step": 2})
    other, others = training(steps=1, seed=1)
    into = {"model": other, "optimizer": others[0][0], "scheduler": others[0][1], "step": 0}
    places = {name: parameter.data_ptr() for name, parameter in other.named_parameters()}
    version = next(other.parameters())._version
    found = store.load(into=into)
    assert found["model"] is other and found["optimizer"] is others[0][0] and found["step"] == 2
    assert_equal(other.state_dict(), model.state_dict())
    assert_equal(others[0][0].state_dict(), optimizer.state_dict())
    assert_equal(others[0][1].state_dict(), scheduler.state_dict())
    assert {name: parameter.data_ptr() for name, parameter in other.named_parameters()} == places
    assert next(other.parameters())._version > version
    # An optimizer that has no state yet.
    fresh = torch.optim.AdamW(model.parameters(), amsgrad=True)
    store.load(into={"optimizer": fresh})
    assert_equal(fresh.state_dict(), optimizer.state_dict())
    # A model alone, and tensors.
    store.save(model.state_dict(), step=9)
    third = training(steps=1, seed=2)[0]
    assert store.load(into=third) is third
    assert_equal(third.state_dict(), model.state_dict())
    tensors = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
    assert store.load(into=tensors)["0.weight"] is tensors["0.weight"]
    assert_equal(tensors, dict(model.state_dict()))


def test_into_a_model_that_does_not_fit(store):
    store.save({"model": nn.Linear(3, 3).state_dict(), "step": 1})
    for model, said in (
        (nn.Linear(3, 4), r"into has at state\['model'\]\['weight'\] a tensor of torch.float32 and shape \[4, 3\]"),
        (nn.Linear(3, 3, bias=False), r"into has at state\['model'\] a torch.nn.*Linear.*has also \['bias'\]"),
        (nn.Sequential(nn.Linear(3, 3)), r"lacks its \['0.bias', '0.weight'\] and has also \['bias', 'weight'\]"),
        (nn.Linear(3, 3, device="meta"), "a tensor on meta"),
    ):
        before = [parameter.clone() for parameter in model.parameters()]
        with pytest.raises(lmc.UsageError, match=said):
            store.load(into={"model": model})
        assert all(p.is_meta or torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    with pytest.raises(lmc.UsageError, match=r"state\['step'\] a torch.nn.*Linear, but the state none of a module"):
        store.load(into={"step": nn.Linear(3, 3)})


def test_arrays_and_tensors_are_not_each_other(store):
    w = weights(3)
    store.save({"t": w, "n": w.numpy()})
    with pytest.raises(lmc.UsageError, match=r"state\['t'\] a numpy.ndarray, but the state a tensor of torch"):
        store.load(into={"t": w.numpy()})
    with pytest.raises(lmc.UsageError, match=r"state\['n'\] a torch.Tensor, but the state an array of numpy"):
        store.load(into={"n": w})
    # They may share memory.
    t = torch.zeros(3)
    assert_equal(store.load(into={"t": t, "n": t.numpy()}), {"t": w, "n": w.numpy()})


def test_devices(store):
    store.save({"w": weights(3)})
    assert store.load(device=torch.device("cpu"))["w"].device.type == "cpu"
    for wrong in ("moon", "meta"):
        with pytest.raises(lmc.UsageError, match="device"):
            store.load(device=wrong)


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_stored(case, store, tmp_path):
    value, said = REFUSED[case]
    before = sorted((tmp_path / "store").rglob("*"))
    with pytest.raises(lmc.UsageError) as raised:
        store.save({"big": weights(1000, 100), "a": [1, {2: value}]})
    assert "state['a'][1][2]" in str(raised.value) and said in str(raised.value)
    assert sorted((tmp_path / "store").rglob("*")) == before


def test_modules_are_refused_with_advice(store):
    with pytest.raises(lmc.UsageError, match=r"state\['model'\] is of type torch.nn.*: save its `state_dict\(\)`"):
        store.save({"model": nn.Linear(3, 3)})


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_descriptions(case, store):
    description = HOSTILE[case]
    text = description if isinstance(description, str) else json.dumps({"version": 1, "state": description})
    tensors = [("w", "F32", (4,), bytes(16)), ("b", "U8", (4,), bytes(4))]
    store.save_files({"state.safetensors": (tensors, {"lmc.state": text})})
    with pytest.raises(lmc.DamagedError) as raised:
        store.load()
    assert len(str(raised.value)) < 1000
