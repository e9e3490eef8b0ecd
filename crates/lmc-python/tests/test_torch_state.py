"""save_state and load_state: nested states, as those of optimizers."""

import json
import math
import random
import re
import struct
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from zoneinfo import ZoneInfo

import lmc
import lmc.torch
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn, optim
from torch.optim import lr_scheduler
from torch_tensors import DTYPES, no_warning, random_bits, same, shapes_of, weights


def assert_equal(found, expected, where="state"):
    """Compares states: types, order of keys, bits of floats and of tensors."""
    assert type(found) is type(expected), where
    if isinstance(expected, torch.Tensor):
        assert same(found, expected) and found.requires_grad == expected.requires_grad, where
        assert found.is_contiguous() and found.grad_fn is None, where
    elif isinstance(expected, np.ndarray | np.generic):
        assert found.dtype.str == expected.dtype.str and found.shape == expected.shape, where
        assert found.tobytes() == expected.tobytes(), where
    elif isinstance(expected, dict):
        assert_equal(list(found), list(expected), f"keys of {where}")
        for i, (key, value) in enumerate(expected.items()):
            assert_equal(found[key], value, f"item {i} of {where}")
        assert getattr(found, "default_factory", None) is getattr(expected, "default_factory", None), where
        assert_equal(getattr(found, "_metadata", None), getattr(expected, "_metadata", None), f"{where}._metadata")
    elif isinstance(expected, list | tuple | deque):
        assert getattr(found, "maxlen", None) == getattr(expected, "maxlen", None), where
        assert len(found) == len(expected), where
        for i, (a, b) in enumerate(zip(found, expected, strict=True)):
            assert_equal(a, b, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert struct.pack("d", found) == struct.pack("d", expected), where
    elif isinstance(expected, complex):
        assert_equal([found.real, found.imag], [expected.real, expected.imag], where)
    else:
        assert found == expected, where


def there_and_back(state, tmp_path):
    path = tmp_path / "state.lmc"
    lmc.torch.save_state(state, path)
    return lmc.torch.load_state(path)


NAN = struct.unpack("<d", bytes.fromhex("230100000000f87f"))[0]
VALUES = [
    None,
    True,
    False,
    0,
    -1,
    2**53,
    -(2**53),
    2**53 + 1,
    -(2**64),
    10**6000,
    0.0,
    -0.0,
    0.1,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    NAN,
    -NAN,
    1 + 2j,
    complex(NAN, -0.0),
    "",
    "text",
    'é\n\0"\\\u2028\U0001f600',
    "\ud800",
    b"",
    b"bytes\0\xff",
    bytearray(b"more bytes"),
    [],
    (),
    {},
    [[]],
    ((1,), [2, (3,)]),
    OrderedDict(b=1, a=2),
    Counter({3: 1, 5: 2}),
    {1: "int", "1": "str", 1.5: "float", None: "none", (1, ("a", None)): "tuple", False: "bool"},
    {10**30: "big", 10**6000: "bigger"},
    {math.inf: 1, "": 2, "dict": {"dict": 3}, "tensor": "no tensor"},
    torch.Size([]),
    torch.Size([2, 3]),
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.device("cpu"),
    torch.device("cuda:1"),
    np.float32(0.1),
    np.float64(NAN),
    np.bool_(True),
    np.int8(-5),
    np.uint64(2**64 - 1),
    np.complex64(1 - 2j),
    np.array(3.5),
    np.zeros((0, 3), np.int16),
    np.arange(12, dtype=np.float16).reshape(3, 4),
    np.arange(6, dtype=">i4").reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(10, dtype=np.uint8)[::3],
    np.array([True, False]),
    set(),
    {3, 1, "b", None, (1, "c"), frozenset({2, frozenset()}), 10**30},
    frozenset({"a", 1.5, 1j}),
    deque([1, [2], torch.ones(1)], maxlen=5),
    deque([weights(2)]),
    defaultdict(list, {1: [2], "b": weights(2)}),
    defaultdict(None, a=1),
    range(3, 10**20, 2),
    slice(1, None, 2),
    Path("/a/\udcff b"),
    PurePosixPath("a/../b"),
    datetime(2026, 2, 3, 4, 5, 6, 789),
    datetime(2026, 2, 3, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    date(1, 1, 1),
    time(23, 59, 59, 999999, UTC),
    timedelta.min,
    timedelta.max,
    timezone(timedelta(seconds=-1)),
    {np.int64(1): 1, np.float16(2): 2, Path("a"): 3, date(2026, 1, 1): 4, torch.bfloat16: 5, range(3): 6, 1j: 7},
    {torch.Size([1]): 1, torch.device("cpu"): 2, frozenset({1}): 3, (np.uint8(1), Path("b")): 4, np.str_("c"): 5},
    np.str_("é\0 text"),
    np.str_(""),
    np.bytes_(b"bytes"),
    np.void(b"\0raw\0"),
    np.datetime64("2026-01-01T00:00:00.5", "ms"),
    np.datetime64("NaT"),
    np.timedelta64(-25, "25s"),
    np.complex128(1 - 2j),
    np.array(["a", "long text", ""]),
    np.array([b"a", b"bc"], "S5").reshape(2, 1),
    np.array([[1 + 2j, NAN]], ">c16"),
    np.array(["2026-01-01", "NaT"], "datetime64[D]"),
    np.arange(4, dtype="m8[us]")[::2],
    np.zeros((0, 2), "<U3"),
    np.zeros(3, "V5"),
    np.array("no dimension", ">U20"),
    np.array(["a", "b", "c"])[::-2],
    np.array(np.datetime64(7, "s")),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values(value, tmp_path):
    assert_equal(there_and_back(value, tmp_path), value)
    assert_equal(there_and_back({"a": [value, value], 0: (value,)}, tmp_path), {"a": [value, value], 0: (value,)})


@pytest.mark.parametrize("name", DTYPES)
def test_tensors(name, tmp_path):
    dtype = DTYPES[name]
    state = {shape: random_bits(dtype, shape, seed) for seed, shape in enumerate(shapes_of(dtype))}
    assert_equal(there_and_back(state, tmp_path), state)


def test_more_tensors(tmp_path):
    w = weights(4, 6)
    state = {
        "alone": torch.complex(w.double(), -w.double()),
        "half": no_warning(torch.complex, w.half(), w.half()),
        "transposed": w.t(),
        "columns": w[:, 1::2],
        "expanded": torch.tensor([1.5]).expand(3),
        "conjugate": torch.complex(w, w).conj(),
        "wants a gradient": weights(3).requires_grad_(),
        "in a graph": weights(3).requires_grad_() * 2,
        "parameter": nn.Parameter(weights(3)),
        "frozen": nn.Parameter(weights(3), requires_grad=False),
    }
    found = there_and_back(state, tmp_path)
    expected = {name: tensor.detach().resolve_conj().contiguous() for name, tensor in state.items()}
    expected["wants a gradient"] = state["wants a gradient"]
    expected["in a graph"] = state["in a graph"].detach().requires_grad_()
    expected["parameter"], expected["frozen"] = state["parameter"], state["frozen"]
    assert_equal(found, expected)
    assert_equal(there_and_back(w, tmp_path), w)


def training(steps=2, seed=0):
    """A model, optimizers and schedulers of many kinds after some steps."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
    kinds = [
        (optim.AdamW, {"amsgrad": True}, lambda o: lr_scheduler.MultiStepLR(o, [1, 3])),
        (optim.SGD, {"lr": 0.1, "momentum": 0.9}, lambda o: lr_scheduler.OneCycleLR(o, 1.0, 9)),
        (optim.Adagrad, {}, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3)),
        (optim.RMSprop, {"momentum": 0.5}, lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step)),
        (optim.NAdam, {}, lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2)),
    ]
    optimizers = []
    for of, options, scheduler in kinds:
        optimizer = of(model.parameters(), **options)
        optimizers.append((optimizer, scheduler(optimizer)))
    for _ in range(steps):
        model(torch.randn(5, 8)).square().mean().backward()
        for optimizer, scheduler in optimizers:
            optimizer.step()
            scheduler.step()
    return model, optimizers


def state_of(model, optimizers):
    return {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer, _ in optimizers],
        "schedulers": [scheduler.state_dict() for _, scheduler in optimizers],
        "random": (random.getstate(), np.random.get_state(), torch.get_rng_state()),
        "numpy": np.random.default_rng(5).bit_generator.state,
        "step": 2,
    }


def test_training(tmp_path):
    model, optimizers = training()
    state = state_of(model, optimizers)
    found = there_and_back(state, tmp_path)
    assert_equal(found, state)
    # It is good for going on from.
    other, others = training(steps=1, seed=1)
    other.load_state_dict(found["model"])
    for (optimizer, scheduler), theirs, schedule in zip(others, found["optimizers"], found["schedulers"], strict=True):
        optimizer.load_state_dict(theirs)
        scheduler.load_state_dict(schedule)
    random.setstate(found["random"][0])
    np.random.set_state(found["random"][1])
    torch.set_rng_state(found["random"][2])
    assert_equal(state_of(other, others), state)


def test_file_is_of_tensors_and_text(tmp_path):
    model, optimizers = training()
    lmc.torch.save_state(state_of(model, optimizers), tmp_path / "state.lmc")
    tensors = lmc.torch.load_file(tmp_path / "state.lmc")
    assert same(tensors["model.0.weight"], model[0].weight.detach())
    assert "optimizers.0.state.0.exp_avg" in tensors
    raw = lmc.decompress((tmp_path / "state.lmc").read_bytes())
    assert same(safetensors.torch.load(raw)["model.0.weight"], model[0].weight.detach())
    again = tmp_path / "again.lmc"
    lmc.torch.save_state(state_of(model, optimizers), again)
    assert again.read_bytes() == (tmp_path / "state.lmc").read_bytes()


def test_delta(tmp_path):
    paths = [tmp_path / f"{i}.lmc" for i in range(3)]
    first = {"step": 1, "w": weights(400, 300), "state": {0: {"exp_avg": weights(400, 300, seed=1)}}}
    second = {"step": 2, "w": first["w"] * 1.001, "state": {0: {"exp_avg": first["state"][0]["exp_avg"] * 0.999}}}
    lmc.torch.save_state(first, paths[0])
    lmc.torch.save_state(second, paths[1], base=paths[0])
    lmc.torch.save_state(second, paths[2])
    assert paths[1].stat().st_size < 0.9 * paths[2].stat().st_size
    assert_equal(lmc.torch.load_state(paths[1], base=paths[0]), second)
    assert_equal(lmc.torch.load_state(paths[1]), second)
    # A base may be of no use to a state.
    lmc.torch.save_state({"step": 3}, paths[2], base=paths[0])
    assert lmc.torch.load_state(paths[2], base=paths[0]) == {"step": 3}


def test_shared_tensors_come_back_as_one(tmp_path):
    w, whole = weights(30, 30), weights(10)
    nothing = torch.empty(0)
    array = np.arange(5)
    state = {
        "a": w,
        "b": w,
        "c": w.detach(),
        "d": [w.view(30, 30)],
        "p": nn.Parameter(w),
        "t": w.view(-1),
        "one": whole[:6],
        "two": whole[4:],
        "nothing": (nothing, nothing, torch.empty(0)),
        "arrays": [array, array],
    }
    found = there_and_back(state, tmp_path)
    assert found["a"] is found["b"] is found["c"] is found["d"][0]
    assert found["p"].data_ptr() == found["a"].data_ptr() and type(found["p"]) is nn.Parameter
    assert found["t"].data_ptr() != found["a"].data_ptr()
    assert found["arrays"][0] is found["arrays"][1]
    assert found["nothing"][0] is found["nothing"][1] is not found["nothing"][2]
    found["one"][4:] = 0
    assert same(found["two"], whole[4:])
    with lmc.torch.safe_open(tmp_path / "state.lmc") as f:
        assert sorted(f.keys()) == ["a", "arrays.0", "nothing.0", "nothing.2", "one", "t", "two"]
    model = nn.Linear(3, 3)
    model.again = model.weight
    found = there_and_back(model.state_dict(), tmp_path)
    assert found["weight"] is found["again"]


def test_names_of_tensors(tmp_path):
    w = weights(3)
    keys = ("a.b", "", "__metadata__", "\ud800", 1, "1", "a.b~2")
    state = {"a": {"b": w}, **{key: w.clone() for key in keys}, None: {"": [w.clone()]}}
    assert_equal(there_and_back(state, tmp_path), state)
    with lmc.torch.safe_open(tmp_path / "state.lmc") as f:
        assert {"a.b", "a.b~2", "value", "__metadata__~2", "\\ud800", "1", "1~2", "None..0"} < set(f.keys())


class Thing:
    """A type that is not supported."""


class Text(str):
    """A subclass of a type that is known."""


class Colour(Enum):
    RED = "red"
    ITEMS = ([1], {2})


class Number(IntEnum):
    ONE = 1


@dataclass(frozen=True)
class Key:
    value: int


@dataclass
class Config:
    lr: float
    more: object


Pair = namedtuple("Pair", "a b")
BY_VALUE = [
    (Colour.RED, "red", "Colour, and will be loaded as its value"),
    (Colour.ITEMS, ([1], {2}), "Colour, and will be loaded as its value"),
    (Number.ONE, 1, "Number, and will be loaded as its value"),
    (
        Config(0.1, Pair(1, weights(2))),
        {"lr": 0.1, "more": (1, weights(2))},
        "Config, and will be .* a dict of its fields",
    ),
    (Pair(1, weights(2)), (1, weights(2)), "Pair, and will be loaded as a tuple"),
    (Text("a"), "a", "Text, and will be loaded as str"),
    (torch.__version__, str(torch.__version__), "TorchVersion, and will be loaded as str"),
    ({Colour.RED: 1, 2: 3}, {"red": 1, 2: 3}, "Colour, and will be loaded as its value"),
    ({Text("a"), Number.ONE}, {"a", 1}, "Text, and will be loaded as str"),
    (defaultdict(lambda: 1, a=2), defaultdict(None, a=2), "defaultdict, and .* without its default_factory"),
]


@pytest.mark.parametrize(("value", "expected", "said"), BY_VALUE, ids=range(len(BY_VALUE)))
def test_what_needs_code_is_saved_by_value_with_a_warning(value, expected, said, tmp_path):
    with pytest.warns(UserWarning, match=rf"state\['a'\].* is of type .*{said}$") as warned:
        found = there_and_back({"a": [value, value]}, tmp_path)
    # One for each type.
    assert len({str(w.message) for w in warned}) == len(warned)
    assert_equal(found, {"a": [expected, expected]})
    with pytest.warns(UserWarning, match=said):
        lmc.check_state(value)


def with_attribute():
    mapping = OrderedDict(a=1)
    mapping.other = 1
    return mapping


def in_itself():
    items = []
    items.append({"again": items})
    return items


def deep(levels):
    state = 1
    for _ in range(levels):
        state = [state]
    return state


REFUSED = {
    "an object": (Thing(), "test_torch_state.Thing"),
    "a function": (len, "builtin_function_or_method"),
    "an object in a set": ({Thing()}, "key of type test_torch_state.Thing"),
    "an object in a deque": (deque([Thing()]), "test_torch_state.Thing"),
    "a subclass of dict": (type("Named", (dict,), {})(), "Named"),
    "keys of one value": ({Number.ONE: 1, Colour.RED: 2, "red": 3}, "keys that are equal by value"),
    "an Enum in a key": ({(Colour.RED,): 1}, "key of type test_torch_state.Colour"),
    "a key that is a dataclass": ({Key(1): 1}, "key of type test_torch_state.Key"),
    "a time zone": (datetime.now(ZoneInfo("Europe/Paris")), "datetime.datetime"),
    "a key": ({Thing: 1}, "key of type type"),
    "a key of bytes": ({b"a": 1}, "key of type bytes"),
    "a key in a tuple": ({(1, Thing()): 1}, "key of type test_torch_state.Thing"),
    "attributes": (with_attribute(), "attributes of this OrderedDict: ['other']"),
    "sparse": (torch.ones(2).to_sparse(), "torch.sparse_coo"),
    "meta": (torch.ones(2, device="meta"), "meta tensor"),
    "nested": (no_warning(torch.nested.nested_tensor, [torch.ones(2), torch.ones(3)]), "nested"),
    "quantized": (no_warning(torch.quantize_per_tensor, weights(3), 0.1, 0, torch.qint8), "torch.qint8"),
    "a subclass of Tensor": (weights(3).as_subclass(type("Sub", (torch.Tensor,), {})), "Sub"),
    "objects in an array": (np.array([None]), "object"),
    "a structured array": (np.zeros(2, "i4,f4"), "'f0'"),
    "a record": (np.zeros(2, "i4,f4")[0], "'f0'"),
    "long double": (np.longdouble(1), "float128" if np.longdouble(1).nbytes == 16 else "longdouble"),
    "a memoryview": (memoryview(b"a"), "memoryview"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_place(case, tmp_path):
    value, said = REFUSED[case]
    path = tmp_path / "state.lmc"
    with pytest.raises(lmc.UsageError) as raised:
        lmc.torch.save_state({"a": [1, {2: value}]}, path)
    assert "state['a'][1][2]" in str(raised.value) and said in str(raised.value)
    assert raised.value.kind == "usage" and not path.exists()
    with pytest.raises(lmc.UsageError) as checked:
        lmc.check_state({"a": [1, {2: value}]})
    assert str(checked.value) == str(raised.value)


def test_a_check_names_all_that_would_be_refused():
    model = nn.Linear(3, 3)
    lmc.check_state({"model": model.state_dict(), "w": weights(3).to(torch.complex128), "a": np.zeros(3)})
    state = {"w": weights(3), "a": [len, 1, torch.ones(2, device="meta")], "b": {"c": Thing()}}
    with pytest.raises(lmc.UsageError) as raised:
        lmc.check_state(state)
    assert re.findall(r"state[][\w']+", str(raised.value)) == ["state['a'][0]", "state['a'][2]", "state['b']['c']"]
    with pytest.raises(lmc.UsageError, match=r"state\[9\] is .*; and 90 more$"):
        lmc.check_state([Thing()] * 100)


def test_depth(tmp_path):
    assert_equal(there_and_back(deep(100), tmp_path), deep(100))
    # What can be saved so deep can be loaded.
    for value in (
        {(1, (2,)): 1},
        {frozenset({(1,)}): 1},
        {frozenset({frozenset()}): 1},
        {1j: 1},
        range(10**30),
        {(1j,)},
    ):
        state, saved = [value], []
        for _ in range(94):
            state = [state]
        for _ in range(8):
            try:
                lmc.torch.save_state(state, tmp_path / "keys.lmc")
            except lmc.UsageError:
                saved.append(False)
            else:
                assert_equal(lmc.torch.load_state(tmp_path / "keys.lmc"), state)
                saved.append(True)
            state = [state]
        assert saved[0] and not saved[-1]
    for state in (deep(101), in_itself(), deep(100_000)):
        with pytest.raises(lmc.UsageError, match="more than 100"):
            lmc.torch.save_state(state, tmp_path / "none.lmc")


def test_into(tmp_path):
    w = weights(50, 40)
    state = {"w": w, "t": w[:4].t(), "n": [weights(3), 5], "new": torch.ones(2), "z": weights(2).to(torch.complex128)}
    path = tmp_path / "state.lmc"
    lmc.torch.save_state(state, path)
    into = {
        "w": nn.Parameter(torch.zeros(50, 40)),
        "t": torch.zeros(40, 8)[:, ::2],
        "n": (torch.zeros(3), "other"),
        "z": torch.zeros(2, dtype=torch.complex128),
        "more": 1,
    }
    version = into["w"]._version
    found = lmc.torch.load_state(path, into=into)
    assert (
        found["w"] is into["w"]
        and found["t"] is into["t"]
        and found["n"][0] is into["n"][0]
        and found["z"] is into["z"]
    )
    assert into["w"]._version > version
    assert same(into["w"], w) and same(into["t"].contiguous(), state["t"].contiguous()) and same(into["z"], state["z"])
    assert found.keys() == state.keys() and found["n"][1] == 5 and same(found["new"], state["new"])


def test_into_shared_memory(tmp_path):
    w = weights(20)
    state = {"a": w, "b": w, "c": w[5:], "d": w[10:15].clone()}
    path = tmp_path / "state.lmc"
    lmc.torch.save_state(state, path)
    apart = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    lmc.torch.load_state(path, into=apart)
    whole = torch.zeros(20)
    together = {"a": whole, "b": whole, "c": whole[5:], "d": whole[10:15]}
    lmc.torch.load_state(path, into=together)
    for name, tensor in state.items():
        assert same(apart[name], tensor) and same(together[name], tensor)


@pytest.mark.parametrize("wrong", [weights(4), weights(3).half(), weights(3).to_sparse(), weights(3).to("meta")])
def test_into_what_does_not_fit(wrong, tmp_path):
    lmc.torch.save_state({"a": weights(3), "b": [weights(3)]}, tmp_path / "state.lmc")
    fits = torch.zeros(3)
    with pytest.raises(lmc.UsageError, match=r"state\['b'\]\[0\]"):
        lmc.torch.load_state(tmp_path / "state.lmc", into={"a": fits, "b": [wrong]})
    assert not fits.any()


def file_of(description, tensors=None):
    text = description if isinstance(description, str) else json.dumps({"version": 1, "state": description})
    tensors = {"w": weights(4), "b": torch.zeros(4, dtype=torch.uint8)} if tensors is None else tensors
    return lmc.torch.save(tensors, {"lmc.state": text})


HOSTILE = {
    "no JSON": "{",
    "no object": "[]",
    "no version": '{"state": 1}',
    "no state": '{"version": 1}',
    "a version that is not a number": '{"version": true, "state": 1}',
    "nested a million times": '{"version":1,"state":' + "[" * 1_000_000,
    "nested too deeply": deep(102),
    "keys nested too deeply": {"dict": [[json.loads('{"tuple":[' * 150 + "]}" * 150), 1]]},
    "a number of a million digits": '{"version":1,"state":' + "9" * 1_000_000 + "}",
    "an integer that is none": {"int": "0x"},
    "an integer in other digits": {"int": "1_0"},
    "a float of other length": {"float": "00"},
    "a float that is a number": {"float": 1},
    "a tuple that is a number": {"tuple": 1},
    "a dict that is a number": {"dict": 1},
    "a dict of triples": {"dict": [[1, 2, 3]]},
    "a list for a key": {"dict": [[[1], 2]]},
    "a tensor for a key": {"dict": [[{"tensor": "w"}, 2]]},
    "no such tensor": {"tensor": "v"},
    "a tensor without a name": {"tensor": None},
    "a tensor of a dtype that does not fit": {"tensor": "w", "dtype": "complex128"},
    "a tensor of an odd dtype": {"tensor": "w", "dtype": ["complex128"]},
    "a gradient of integers": {"tensor": "b", "requires_grad": True},
    "bytes of floats": {"bytes": "w"},
    "bytes of nothing": {"bytes": {}},
    "an array of another dtype": {"ndarray": "w", "dtype": "<i4"},
    "an array of objects": {"ndarray": "w", "dtype": "|O"},
    "an array that is a tensor": [{"tensor": "b"}, {"ndarray": "b", "dtype": "|u1"}],
    "a tensor that is an array": [{"ndarray": "w", "dtype": "<f4"}, {"tensor": "w"}],
    "a scalar of another length": {"numpy": "<f4", "value": "00"},
    "a scalar of objects": {"numpy": "|O", "value": "0000000000000000"},
    "sizes that are none": {"torch.Size": [1.5]},
    "sizes beyond numbers": {"torch.Size": [10**30]},
    "a dtype that is a function": {"torch.dtype": "load"},
    "a device that is none": {"torch.device": "moon" * 10_000},
    "a tensor of a long name": {"tensor": "n" * 100_000},
    "a set of lists": {"set": [[1]]},
    "a set of tensors": {"set": [{"tensor": "w"}]},
    "a set that is a number": {"set": 1},
    "a set of one hash": {"set": [{"int": hex(n * ((1 << 61) - 1))} for n in range(1, 100)]},
    "a key that is a set": {"dict": [[{"set": []}, 1]]},
    "a key that is void": {"dict": [[{"slice": [[], 1, 1]}, 1]]},
    "a deque that is longer than it may be": {"deque": [1, 2], "maxlen": 1},
    "a range without steps": {"range": [1, 2, 0]},
    "a range of texts": {"range": ["a", 2, 1]},
    "a path that is a number": {"PosixPath": 1},
    "a date that is none": {"date": "2026-13-01"},
    "a time of a million digits": {"time": "1" * 1_000_000},
    "a span that is too long": {"timedelta": [10**9, 0, 0]},
    "a span of texts": {"timedelta": ["a", 0, 0]},
    "a zone of a day": {"timezone": {"timedelta": [1, 0, 0]}},
    "a factory that is a function": {"defaultdict": {}, "default_factory": "eval"},
    "a factory that is a list": {"defaultdict": {}, "default_factory": []},
    "a text of a billion letters": {"numpy": "<U999999999", "value": "00"},
    "a date of no unit": {"numpy": "<M8[parsec]", "value": "00" * 8},
    "an array of nothing": {"ndarray": "b", "dtype": "|S0"},
    "an array of parts that do not fit": {"ndarray": "b", "dtype": "<U2"},
    "keys of one hash": {"dict": [[{"int": hex(n * ((1 << 61) - 1))}, 1] for n in range(1, 100)]},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_descriptions(case):
    with pytest.raises(lmc.DamagedError) as raised:
        lmc.torch.load_state(file_of(HOSTILE[case]))
    assert raised.value.kind == "damaged" and len(str(raised.value)) < 1000


@pytest.mark.parametrize("description", [{}, {"heap": [1]}, {"n" * 100_000: 1}, '{"version": 2, "state": 1}'], ids=len)
def test_types_and_versions_to_come(description):
    with pytest.raises(lmc.UnsupportedError, match="newer") as raised:
        lmc.torch.load_state(file_of(description))
    assert raised.value.kind == "unsupported" and len(str(raised.value)) < 1000


def test_files_without_a_state(tmp_path):
    with pytest.raises(lmc.UsageError, match="load_file"):
        lmc.torch.load_state(lmc.torch.save({"w": weights(3)}))
    with pytest.raises(FileNotFoundError):
        lmc.torch.load_state(tmp_path / "none.lmc")
    with pytest.raises(lmc.UsageError, match="device"):
        lmc.torch.load_state(file_of(1), device="moon")
