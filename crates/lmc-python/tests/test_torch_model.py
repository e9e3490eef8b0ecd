"""save_model and load_model: tensors that share memory, by the rules of safetensors."""

import copy
from itertools import product

import lmc
import lmc.torch
import pytest
import safetensors.torch
import torch
from lmc.torch import _sharing
from torch import nn
from torch_tensors import assert_same, raised_by, weights


class Tied(nn.Module):
    """Two layers that are one."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.a = nn.Linear(6, 6)
        self.b = self.a


class Apart(nn.Module):
    """Equal names, and no shared memory."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.a.weight = nn.Parameter(weights(6, 6).t())


class Part(nn.Module):
    """A parameter that is a part of a storage."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(weights(10)[:4])


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("again", self.norm.running_mean)


MODELS = [Tied, Apart, Transposed, Part, Buffers, nn.Identity]


def both(tmp_path, model, **options):
    """The result of saving with each library: a file, or an exception."""
    ours, theirs = tmp_path / "ours.lmc", tmp_path / "theirs.safetensors"
    return (
        raised_by(lmc.torch.save_model, model, ours, **options) or lmc.decompress(ours.read_bytes()),
        raised_by(safetensors.torch.save_model, model, theirs, **options) or theirs.read_bytes(),
    )


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("metadata", [None, {"b.weight": "mine", "b.bias": "mine"}])
@pytest.mark.parametrize("force", [True, False])
def test_files_are_those_of_safetensors(model, metadata, force, tmp_path):
    ours, theirs = both(tmp_path, model(), metadata=metadata, force_contiguous=force)
    if isinstance(theirs, Exception):
        assert isinstance(ours, lmc.Error) and isinstance(ours, type(theirs)) and ours.kind == "usage"
        return
    opened = []
    for data in (ours, theirs):
        with lmc.torch.safe_open(data) as f:
            opened.append((f.get_tensors(), f.offset_keys(), f.metadata()))
    assert_same(opened[0][0], opened[1][0])
    assert opened[0][1:] == opened[1][1:] and len(ours) == len(theirs)


def test_what_was_left_out_is_told(tmp_path):
    metadata = {"b.bias": "mine"}
    lmc.torch.save_model(Tied(), tmp_path / "m.lmc", metadata)
    with lmc.torch.safe_open(tmp_path / "m.lmc") as f:
        assert f.keys() == ["a.bias", "a.weight"]
        assert f.metadata() == {"b.bias": "mine", "b.weight": "a.weight"}
    assert metadata == {"b.bias": "mine"}


def test_hint_at_packing(tmp_path):
    with pytest.raises(ValueError, match="force_contiguous=True"):
        lmc.torch.save_model(Transposed(), tmp_path / "m.lmc", force_contiguous=False)


def test_no_tensor_has_all(tmp_path):
    with pytest.raises(RuntimeError, match="none of .*'w'") as raised:
        lmc.torch.save_model(Part(), tmp_path / "m.lmc")
    assert isinstance(raised.value, lmc.torch.TensorError)


def load_both(saved, model, tmp_path, strict):
    """The outcomes of loading, and the models then."""
    path = tmp_path / "m.lmc"
    path.write_bytes(lmc.compress(saved))
    raw = tmp_path / "m.safetensors"
    raw.write_bytes(saved)
    results = []
    for library, file in ((lmc.torch, path), (safetensors.torch, raw)):
        into = copy.deepcopy(model)
        try:
            missing, unexpected = library.load_model(into, file, strict=strict)
            outcome = sorted(missing), sorted(unexpected)
        except RuntimeError as e:
            outcome = e
        results.append((outcome, into.state_dict()))
    return results


@pytest.mark.parametrize("saved, loaded", list(product(MODELS, MODELS)), ids=lambda m: m.__name__)
@pytest.mark.parametrize("strict", [True, False])
def test_loading_does_what_safetensors_does(saved, loaded, strict, tmp_path):
    data = both(tmp_path, saved())[1]
    if isinstance(data, Exception):
        data = safetensors.torch.save({"w": weights(4)})
    (ours, our_state), (theirs, their_state) = load_both(data, loaded(), tmp_path, strict)
    assert_same(our_state, their_state)
    if isinstance(theirs, RuntimeError):
        assert isinstance(ours, RuntimeError)
        if isinstance(ours, lmc.Error) and "key(s)" in str(theirs):
            assert str(ours) == str(theirs)
    else:
        assert ours == theirs


def test_tied_model_from_either_name(tmp_path):
    model = Tied(1)
    for name in "ab":
        tensors = {f"{name}.{key}": tensor for key, tensor in model.a.state_dict().items()}
        lmc.torch.save_file(tensors, tmp_path / "m.lmc")
        other = Tied(2)
        assert lmc.torch.load_model(other, tmp_path / "m.lmc") == ([], [])
        assert_same(other.state_dict(), model.state_dict())


def test_delta_of_a_model(tmp_path):
    model = nn.Linear(60, 60)
    lmc.torch.save_model(model, tmp_path / "0.lmc")
    with torch.no_grad():
        model.weight.mul_(1.001)
    lmc.torch.save_model(model, tmp_path / "1.lmc", base=tmp_path / "0.lmc", level="max", threads=1)
    other = nn.Linear(60, 60)
    lmc.torch.load_model(other, tmp_path / "1.lmc", base=tmp_path / "0.lmc")
    assert_same(other.state_dict(), model.state_dict())
    (tmp_path / "0.lmc").unlink()
    with pytest.raises(lmc.BaseMismatchError):
        lmc.torch.load_model(other, tmp_path / "1.lmc")


def sharings():
    w, v = weights(100), weights(5, 5)
    return [
        {"a": w, "b": w[:10], "c": w[5:], "d": v},
        {"a": w[:50], "b": w[50:]},
        {"a": w[:50], "b": w[10:20], "c": w[30:60]},
        {"a": w[::3], "b": w[1:2], "c": w[99:], "d": v[1:]},
        {"a": w[0:0], "b": w[:0], "c": torch.empty(0)},
        {"a": torch.empty(4, device="meta"), "b": torch.empty(4, device="meta")},
        {"a": w.view(torch.int16), "b": w.view(torch.uint8)[:7], "c": w[99]},
        {"a": w.detach(), "b": nn.Parameter(w)},
        {},
    ]


@pytest.mark.parametrize("case", range(len(sharings())))
def test_what_shares_memory(case):
    tensors = sharings()[case]

    def groups(found):
        return sorted(sorted(names) for names in found)

    assert groups(_sharing.shared_tensors(tensors)) == groups(safetensors.torch._find_shared_tensors(tensors))
    for prefer in ([], ["b"], ["c", "b"]):
        ours = raised_by(_sharing.names_to_leave_out, tensors, prefer)
        theirs = raised_by(safetensors.torch._remove_duplicate_names, tensors, preferred_names=prefer)
        assert isinstance(ours, RuntimeError) == isinstance(theirs, RuntimeError)
        if theirs is None:
            expected = safetensors.torch._remove_duplicate_names(tensors, preferred_names=prefer)
            assert _sharing.names_to_leave_out(tensors, prefer) == expected
