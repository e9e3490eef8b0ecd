"""Weights that are published and followed in memory: tensors of torch."""

import warnings

import lmc
import lmc.sync
import pytest
import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool]


def model():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in DTYPES:
        noise = torch.randn(300, 400, generator=generator)
        tensors[str(dtype)] = (noise > 0 if dtype == torch.bool else (noise * 20).to(dtype)).contiguous()
    tensors["complex"] = torch.randn(70, 70, dtype=torch.complex64, generator=generator)
    tensors["small"] = torch.ones(5, dtype=torch.bfloat16)
    return tensors


def as_bytes(tensor):
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(as_bytes(a[name]), as_bytes(b[name])) for name in a)


def clone(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("every", [97, 1])
def test_tensors_of_every_dtype_follow(tmp_path, every):
    published = model()
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish(published)
    follower = lmc.sync.Follower(publisher.store)
    follower.load()
    assert equal(follower.tensors, published)
    assert all(follower.tensors[name].dtype == published[name].dtype for name in published)
    copies = clone(follower.tensors)
    for tensor in published.values():
        as_bytes(tensor)[:: every * tensor.itemsize] ^= 1
    publisher.publish(published)
    update = follower.stage()
    for patch in update.patches():
        assert patch.values.dtype == published[patch.name].dtype
        assert (patch.indices is None) or patch.indices.dtype == torch.int64
        patch.write(copies[patch.name])
    assert equal(copies, published)
    follower.commit(update)
    assert equal(follower.tensors, published)


def test_a_module_follows_another(tmp_path):
    def net():
        net = torch.nn.Sequential(torch.nn.Embedding(200, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 200))
        net[2].weight = net[0].weight  # tied
        return net

    torch.manual_seed(1)
    trained, served = net(), net()
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish(trained.state_dict(), step=1)
    follower = lmc.sync.Follower(publisher.store, served.state_dict())
    assert follower.update() == 1
    x = torch.arange(200)
    assert torch.equal(served(x), trained(x))
    optimizer = torch.optim.SGD(trained.parameters(), lr=1e-3)
    for step in (2, 3):
        trained(x).square().mean().backward()
        optimizer.step()
        publisher.publish(trained.state_dict(), step=step)
        assert follower.update() == step
        assert torch.equal(served(x), trained(x))
        assert served[2].weight is served[0].weight
    assert served[0].weight.requires_grad


def test_what_is_not_contiguous_is_packed_to_publish_and_refused_to_follow(tmp_path):
    w = torch.randn(30, 40)
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"w": w.T})
    follower = lmc.sync.Follower(publisher.store)
    follower.load()
    assert torch.equal(follower.tensors["w"], w.T)
    for tensors, match in [
        ({"w": torch.zeros(30, 40).T}, "not contiguous"),
        ({"w": torch.zeros(40, 30, device="meta")}, "is on meta"),
        ({"w": torch.zeros(40, 30, dtype=torch.complex128)}, "safetensors lacks"),
    ]:
        with pytest.raises(lmc.UsageError, match=match):
            lmc.sync.Follower(publisher.store, tensors).load()
    with pytest.raises(TypeError, match="all be of torch"):
        lmc.sync.Follower(publisher.store, {"w": torch.zeros(3), "v": torch.zeros(3).numpy()})


def test_patches_are_written_to_contiguous_tensors(tmp_path):
    w = torch.zeros(30, 40, dtype=torch.complex64)
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"w": w})
    follower = lmc.sync.Follower(publisher.store)
    follower.load()
    w[3, 4] = 1 + 2j
    publisher.publish({"w": w})
    (patch,) = follower.stage().patches()
    for tensor in (torch.zeros(40, 30, dtype=w.dtype).T, torch.zeros(30, 80, dtype=w.dtype)[:, ::2], w.conj()):
        with pytest.raises(lmc.UsageError, match="not contiguous"):
            patch.write(tensor)
    with pytest.raises(lmc.UsageError, match="not contiguous"):
        patch.write(torch.zeros(30, 40, dtype=w.dtype).to_sparse())
    copy = torch.zeros_like(w)
    patch.write(copy)
    assert torch.equal(copy, w)


@pytest.mark.parametrize("every", [97, 1])
def test_autograd_learns_that_tensors_were_written_to(tmp_path, every):
    published = torch.randn(300, 400)
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"w": published})
    w = torch.zeros(300, 400)
    with torch.inference_mode():
        inferred = torch.zeros(300, 400)
    followers = [lmc.sync.Follower(publisher.store, {"w": tensor}) for tensor in (w, inferred)]

    def changes():
        x = torch.ones(300, 400, requires_grad=True)
        y = (x * w).sum()
        assert [follower.update() for follower in followers] == [publisher.store.find().step] * 2
        assert torch.equal(w, published) and torch.equal(inferred, published)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()

    changes()
    published.view(-1)[::every] += 1
    publisher.publish({"w": published})
    changes()
    # A version that changes nothing writes nothing.
    publisher.publish({"w": published})
    version = w._version
    assert followers[0].update() == publisher.store.find().step
    assert w._version == version


def test_tied_tensors_are_published_once(tmp_path):
    w = torch.randn(300, 300)
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"b": w, "a": w.detach(), "t": w.T, "u": w.T})
    assert publisher.store.open_snapshot().keys() == ["a", "t"]
    # A part of larger memory, too.
    publisher.publish({"a": w[:200], "b": w[:200]})
    assert publisher.store.open_snapshot().keys() == ["a"]


@pytest.mark.parametrize("file_size", [1, 4 << 30])
@pytest.mark.parametrize("pairs", [False, True])
def test_views_are_published(tmp_path, file_size, pairs):
    qkv = torch.randn(6, 40)
    views = {"q": qkv[:2], "k": qkv[2:4], "v": qkv[4:], "left": qkv[:, :20], "right": qkv[:, 20:]}
    if not pairs:
        # Beside its whole, and some that overlap.
        views |= {"all": qkv, "flat": qkv.view(-1), "early": qkv[:4], "late": qkv[2:]}
    publisher = lmc.sync.Publisher(tmp_path / "s")
    given = views.items() if pairs else views
    part = publisher.save_part(given, step=1, rank=0, world_size=1, file_size=file_size)
    publisher.publish_parts([part])
    follower = lmc.sync.Follower(publisher.store)
    follower.load()
    assert equal(follower.tensors, views)


def test_memory_that_is_used_again_is_refused(tmp_path):
    publisher = lmc.sync.Publisher(tmp_path / "s")
    w, buffer = torch.ones(10), torch.zeros(10)

    def again(tensor_of):
        yield "w", w
        for i in range(3):
            buffer.fill_(i)
            yield f"w{i}", tensor_of()

    for tensor_of, why in [
        (lambda: buffer, "'w0' was written to after it was given"),
        (lambda: buffer[:], "'w1' is in the memory of 'w0'"),
        (lambda: buffer.detach(), "'w1' is in the memory of 'w0'"),
    ]:
        with pytest.raises(lmc.UsageError, match=why):
            publisher.publish(again(tensor_of))
    # Where writes are not counted, a change cannot be noticed.
    with torch.inference_mode():
        inferred = torch.ones(3)
    with pytest.raises(lmc.UsageError, match="'b' is in the memory of 'a'"):
        publisher.publish([("a", inferred), ("b", inferred)])
    assert publisher.store.snapshots() == []
    publisher.publish([("b", w), ("a", w), ("c", w.clone())])
    assert publisher.store.open_snapshot().keys() == ["a", "c"]
    publisher.publish(again(buffer.clone))
    follower = lmc.sync.Follower(publisher.store)
    follower.load()
    assert equal(follower.tensors, {"w": w, **{f"w{i}": torch.full((10,), float(i)) for i in range(3)}})


@pytest.mark.parametrize("every", [97, 1])
def test_rows_of_every_dtype_follow(tmp_path, every):
    published = model()
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish(published)
    rows = {name: (tensor.shape[0] // 3, tensor.shape[0] // 2 + 1) for name, tensor in published.items()}
    follower = lmc.sync.Follower(publisher.store, rows=rows)
    follower.load()
    for round in range(3):
        for tensor in published.values():
            flat = as_bytes(tensor)
            flat[round * tensor.itemsize :: every * tensor.itemsize] ^= 1
        publisher.publish(published)
        follower.update()
        assert equal(follower.tensors, {name: tensor[slice(*rows[name])] for name, tensor in published.items()})


def test_rows_of_four_bits(tmp_path):
    packed = torch.arange(240, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).view(60, 4)
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish({"w": packed, "flat": packed.view(-1)})
    # Of a dimension that torch packs, rows are counted as the store has them: two in one.
    follower = lmc.sync.Follower(publisher.store, rows={"w": (7, 20), "flat": (10, 20)})
    follower.load()
    assert torch.equal(as_bytes(follower.tensors["w"]), as_bytes(packed)[28:80])
    assert torch.equal(as_bytes(follower.tensors["flat"]), as_bytes(packed)[5:10])
    with pytest.raises(lmc.UsageError, match="row 3 of F4 does not begin with a byte"):
        lmc.sync.Follower(publisher.store, ["flat"], rows={"flat": (3, 5)}).load()


def published(tmp_path, tensors):
    publisher = lmc.sync.Publisher(tmp_path / "s")
    publisher.publish(tensors, step=1)
    return publisher


@pytest.mark.parametrize("rows", [30, 3000])
def test_names_of_one_memory_take_one_value(tmp_path, rows):
    a, b = torch.randn(rows, 200), torch.randn(rows, 200)
    differ = "tensors 'embed' and 'head' share their memory, and step {} of the store".replace("'", '"')
    publisher = published(tmp_path, {"embed": a, "head": b})
    w = torch.zeros(rows, 200)
    follower = lmc.sync.Follower(publisher.store, {"embed": w, "head": w})
    for begin in (follower.update, lambda: follower.adopt(1)):
        with pytest.raises(lmc.UsageError, match=differ.format(1)):
            begin()
    assert follower.step is None and not w.any()
    # Equal ones, which are stored twice, as they are not tied there.
    publisher.publish({"embed": a, "head": a.clone()}, step=2)
    assert follower.update() == 2 and torch.equal(w, a)
    a[3, 4] = 1
    publisher.publish({"embed": a, "head": a.clone()}, step=3)
    assert follower.update() == 3 and torch.equal(w, a)
    # Tied ones, which are stored once; and the other name alone is not enough.
    a[4, 4] = 1
    publisher.publish({"embed": a, "head": a}, step=4)
    assert follower.update() == 4 and torch.equal(w, a)
    before = w.clone()
    b = a.clone()
    b[5, 5] = 1
    publisher.publish({"embed": a, "head": b}, step=5)
    for update in (follower.update, follower.load, follower.stage):
        with pytest.raises(lmc.UsageError, match=differ.format(5)):
            update()
    assert follower.step == 4 and torch.equal(w, before)
    assert lmc.sync.Follower(publisher.store, {"embed": w, "head": w.clone()}).update() == 5


def test_tensors_that_overlap_are_named(tmp_path):
    publisher = published(tmp_path, {"a": torch.ones(6), "b": torch.ones(6), "c": torch.ones(2, 3)})
    w = torch.zeros(8)
    for tensors in ({"b": w[2:], "a": w[:6]}, {"b": w[:6], "a": w[:6].view(6), "c": w[:6].view(2, 3)}):
        with pytest.raises(lmc.UsageError, match="tensors '[ab]' and '[bc]' overlap in memory"):
            lmc.sync.Follower(publisher.store, tensors).load()
    assert not w.any()


def write(w):
    w.view(-1)[2] = 9


def add(w):
    with torch.no_grad():
        w += 1


def point_elsewhere(w):
    w.data = torch.full_like(w, 3)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("change", [write, add, point_elsewhere])
def test_what_others_wrote_is_undone(tmp_path, change, own):
    state = {"w": torch.randn(600, 600), "small": torch.randn(30), "other": torch.randn(600, 600)}
    state["little"] = torch.ones(3)
    publisher = published(tmp_path, state)
    mine = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    follower = lmc.sync.Follower(publisher.store, None if own else mine)
    follower.update()
    tensors = follower.tensors
    copies = clone(tensors)
    assert follower.update() is None
    # There is no other version: the tensors do not hold this one.
    change(tensors["w"])
    change(tensors["small"])
    assert follower.wait(0)
    update = follower.stage()
    assert (update.step, update.base_step, update.changed) == (1, 1, 600 * 600 + 30)
    assert not torch.equal(tensors["w"], state["w"])
    follower.commit(update)
    assert equal(follower.tensors, state) and follower.update() is None
    # A version of few changes, elsewhere and there.
    change(tensors["w"])
    change(tensors["little"])
    for tensor in state.values():
        tensor.view(-1)[1] += 1
    publisher.publish(state, step=2)
    update = follower.stage()
    assert update.changed == 600 * 600 + 3 + 2
    for patch in update.patches():
        patch.write(copies[patch.name])
    assert equal(copies, state), "patches lead from the version before, whatever the tensors had"
    follower.commit(update)
    assert equal(follower.tensors, state)
    # Between the two.
    state["w"][0, 0] += 1
    publisher.publish(state, step=3)
    update = follower.stage()
    change(tensors["w"])
    before = clone(tensors)
    with pytest.raises(lmc.UsageError, match="step 3 was staged, and somebody else wrote to 'w' since: stage it again"):
        follower.commit(update)
    assert equal(tensors, before) and follower.step == 2
    assert follower.update() == 3 and equal(follower.tensors, state)


def test_writes_that_torch_does_not_count_take_a_load(tmp_path):
    state = {"w": torch.randn(300, 300)}
    publisher = published(tmp_path, state)
    follower = lmc.sync.Follower(publisher.store)
    follower.update()
    follower.tensors["w"].data[5, 5] = 3
    assert follower.update() is None
    assert follower.load() == 1 and equal(follower.tensors, state)


def test_tensors_that_are_no_longer_what_they_were(tmp_path):
    state = {"a": torch.randn(40, 50), "b": torch.randn(40, 50)}
    publisher = published(tmp_path, state)

    def begin():
        mine = {name: torch.zeros(40, 50) for name in state}
        mine["tied"] = mine["b"].view(40, 50)
        follower = lmc.sync.Follower(publisher.store, mine)
        assert follower.update() == 1
        return follower, mine

    def shrink(mine):
        mine["b"].untyped_storage().resize_(0)

    def reshape(mine):
        mine["b"].data = torch.zeros(50, 40)

    def transpose(mine):
        mine["b"].data = torch.zeros(50, 40).T

    def untie(mine):
        mine["tied"].data = torch.zeros(40, 50)

    def overlap(mine):
        mine["b"].data = mine["tied"].data = mine["a"]

    for change, why in [
        (shrink, "tensor 'b' has 8000 bytes, and its storage was resized to 0"),
        (reshape, r"tensor 'b' was F32 of shape \[40, 50\] when it began to follow, and is not"),
        (transpose, "tensor 'b' is not contiguous"),
        (untie, "tensor 'tied' does not share the memory of 'b' any more"),
        (overlap, "tensors '[ab]' and '[ab]' overlap in memory"),
    ]:
        follower, mine = begin()
        change(mine)
        for call in (follower.update, follower.stage, follower.load, follower.wait):
            with pytest.raises(lmc.UsageError, match=why):
                call()


@pytest.mark.parametrize("every", [97, 1])
def test_a_whole_model_gets_new_tensors(tmp_path, every):
    state = {"a": torch.randn(300, 400), "norm": torch.randn(40)}
    publisher = published(tmp_path, state)
    follower = lmc.sync.Follower(publisher.store)
    follower.update()
    before = follower.tensors
    copies = clone(before)
    state["a"].view(-1)[::every] += 1
    state |= {"b": torch.zeros(300, 400), "scale": torch.ones(3, dtype=torch.bfloat16)}
    publisher.publish(state, step=2)
    abandoned = follower.stage()
    assert list(follower.tensors) == ["a", "norm"], "they appear with the version"
    state["c"] = torch.randn(5)
    publisher.publish(state, step=3)
    update = follower.stage()
    for patch in update.patches():
        copies.setdefault(patch.name, torch.full_like(state[patch.name], 7))
        patch.write(copies[patch.name])
    assert equal(copies, state)
    follower.commit(update)
    assert all(follower.tensors[name] is before[name] for name in before)
    assert equal(follower.tensors, state)
    with pytest.raises(lmc.UsageError, match="stage it again"):
        follower.commit(abandoned)
    # To load is one way, too.
    state["d"] = torch.randn(600, 600)
    publisher.publish(state, step=4)
    assert follower.load() == 4 and torch.equal(follower.tensors["d"], state["d"])
    state["d"][1, 1] = 0
    publisher.publish(state, step=5)
    assert follower.update() == 5
    assert equal(follower.tensors, state)
    # One that is gone is an error, and leaves all as they are.
    del state["norm"]
    publisher.publish(state, step=6)
    with pytest.raises(lmc.NotFoundError, match="norm"):
        follower.update()
    assert follower.step == 5


@pytest.mark.parametrize("names", [False, True])
def test_what_does_not_follow_is_named_once(tmp_path, names):
    state = {"a": torch.randn(30, 40), "left out": torch.randn(40)}
    publisher = published(tmp_path, state)
    follower = lmc.sync.Follower(publisher.store, ["a"] if names else {"a": torch.zeros(30, 40)})
    assert follower.update() == 1
    state |= {"b": torch.zeros(3), "c": torch.ones(3)}
    publisher.publish(state, step=2)
    with pytest.warns(UserWarning, match="step 2 of .* has 2 tensors .* that do not follow: 'b', 'c'; begin a new"):
        assert follower.update() == 2
    state["a"][0] = 1
    publisher.publish(state, step=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert follower.update() == 3
    assert list(follower.tensors) == ["a"] and torch.equal(follower.tensors["a"], state["a"])


@pytest.mark.parametrize("pairs", [False, True])
def test_a_tensor_that_changes_while_it_is_saved_is_not_published(tmp_path, monkeypatch, pairs):
    state = {"a": torch.randn(30, 40), "w": torch.randn(30, 40)}
    publisher = published(tmp_path, state)
    save = lmc.sync.Publisher._save

    def and_write(self, *arguments):
        saved = save(self, *arguments)
        state["w"][3, 3] = 1
        return saved

    monkeypatch.setattr(lmc.sync.Publisher, "_save", and_write)
    with pytest.raises(lmc.UsageError, match="tensor 'w' was written to while it was saved: nothing is published"):
        publisher.publish(list(state.items()) if pairs else state, step=2)
    monkeypatch.undo()
    assert publisher.store.find().step == 1
    publisher.publish(state, step=2)
    follower = lmc.sync.Follower(publisher.store)
    assert follower.update() == 2 and equal(follower.tensors, state)
