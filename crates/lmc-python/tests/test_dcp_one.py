"""Checkpoints of one process: their contents, their steps, what they cost, and what is refused."""

from __future__ import annotations

import io
import pickle
import shutil
from pathlib import Path

import dcp_ranks as ranks
import lmc
import lmc.dcp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_ranks import equal
from dcp_states import load, model, save, state
from lmc.dcp import _export, _reader, _stores, _tensors
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, staging
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, WriteItem

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def sizes(store: Path) -> list[int]:
    """Bytes of data that each checkpoint added."""
    return [snapshot.new_size for snapshot in lmc.Store(store).snapshots()]


def steps(store: Path) -> list[int]:
    return [snapshot.step for snapshot in lmc.Store(store).snapshots()]


def largest(store: Path) -> Path:
    """The largest data object."""
    return max((p for p in (store / "data").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


class TestMemory:
    @pytest.mark.parametrize("staged", [1, 3000, 256 << 20])
    def test_what_does_not_fit_its_destination_is_read_some_rows_at_a_time(self, tmp_path, monkeypatch, staged):
        save(tmp_path, 1)
        taken = []
        empty = torch.empty
        monkeypatch.setattr(_reader, "_STAGED", staged)
        monkeypatch.setattr(torch, "empty", lambda *a, **k: taken.append(empty(*a, **k)) or taken[-1])
        weights = {"w": torch.zeros(300, 400, dtype=torch.float64), "b": torch.zeros(14)[::2]}
        found = load(tmp_path, into={"weights": weights, "half": {"w": torch.zeros(400, 300).bfloat16().t()}})
        assert torch.equal(found["weights"]["w"], model(1)["w"].double())
        assert torch.equal(found["weights"]["b"], model(1)["b"])
        assert torch.equal(found["half"]["w"], model(1)["w"].bfloat16())
        assert max(t.nbytes for t in taken) <= max(staged, 1600)

    def test_a_part_of_a_chunk_takes_its_own_rows(self, tmp_path):
        save(tmp_path, 1)
        reader = lmc.dcp.Reader(tmp_path)
        for start, rows, column, columns in [(0, 300, 0, 400), (299, 1, 0, 400), (100, 50, 0, 400), (7, 9, 399, 1)]:
            index = MetadataIndex("weights.w", torch.Size([0, 0]))
            out = torch.zeros(rows, columns)
            item = ReadItem(
                LoadItemType.TENSOR, index, torch.Size([0, 0]), index, torch.Size([start, column]), out.size()
            )
            reader.read_metadata()
            reader.read_data(LoadPlan([item]), Resolved(out)).wait()
            assert torch.equal(out, model(1)["w"][start : start + rows, column : column + columns])

    def test_memory_of_a_device_is_read_as_it_is_compressed(self, tmp_path, monkeypatch):
        save(tmp_path / "here", 1)
        monkeypatch.setattr(_tensors, "is_remote", lambda tensor: True)
        for step in (1, 2):
            save(tmp_path / "there", step)
        monkeypatch.undo()
        here, there, delta = sizes(tmp_path / "here") + sizes(tmp_path / "there")
        assert here == there and delta < 0.9 * there
        assert equal(load(tmp_path / "there"), state(2))

    def test_the_default_device_makes_no_difference(self, tmp_path):
        with torch.device("meta"):
            here = {"w": torch.ones(3, 4, device="cpu"), "none": io.BytesIO()}
            dcp.save(here, storage_writer=lmc.dcp.Writer(tmp_path, step=1), planner=AsTheyAre(), no_dist=True)
            out = torch.zeros(4, 3, device="cpu").t()
            load(tmp_path, into={"w": out})
        assert torch.equal(out, torch.ones(3, 4))

    @pytest.mark.parametrize("inside", [False, True])
    def test_tensors_of_inference_mode_are_filled(self, tmp_path, inside):
        save(tmp_path, 1)
        with torch.inference_mode():
            weights = {"w": torch.zeros(400, 300).t(), "b": torch.zeros(7, dtype=torch.float64)}
        normal = {"w": torch.zeros(400, 300).bfloat16().t()}
        with torch.inference_mode(inside):
            load(tmp_path, into={"weights": weights, "half": normal})
        assert equal(weights, {"w": model(1)["w"], "b": model(1)["b"].double()})
        assert torch.equal(normal["w"], model(1)["w"].bfloat16()) and not normal["w"].is_inference()

    @pytest.mark.parametrize("kind", ["direct", "staged"])
    def test_autograd_learns_that_a_tensor_was_filled(self, tmp_path, kind):
        save(tmp_path, 1)
        w = torch.zeros(300, 400, dtype=torch.float64 if kind == "staged" else torch.float32)
        x = torch.ones(300, 400, dtype=w.dtype, requires_grad=True)
        y = (x * w).sum()
        load(tmp_path, into={"weights": {"w": w}})
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()


class AsTheyAre(DefaultSavePlanner):
    """Saves files in memory without pickling them."""

    def transform_object(self, write_item: WriteItem, object: object) -> object:
        return object


class Resolved(DefaultLoadPlanner):
    """Loads everything to one tensor."""

    def __init__(self, out: torch.Tensor) -> None:
        super().__init__()
        self.out = out

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        return self.out

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        assert tensor is self.out


class TestSteps:
    def test_a_path_may_name_the_step(self, tmp_path, monkeypatch):
        dcp.save(state(5), storage_writer=lmc.dcp.Writer(tmp_path / "run" / "step-5"), no_dist=True)
        dcp.save(state(6), storage_writer=lmc.dcp.Writer(f"{tmp_path}/run/step-000006/"), no_dist=True)
        dcp.save(state(7), storage_writer=lmc.dcp.Writer(tmp_path / "run", step=7), no_dist=True)
        monkeypatch.chdir(tmp_path / "run")
        dcp.save(state(8), storage_writer=lmc.dcp.Writer("step-8"), no_dist=True)
        assert steps(tmp_path / "run") == [5, 6, 7, 8]
        assert equal(load("step-5"), state(5)) and equal(load(tmp_path / "run" / "step-6"), state(6))
        assert equal(load(tmp_path / "run", 7), state(7))
        for last in (None, "latest", lmc.Store(tmp_path / "run").find(8).id):
            assert equal(load(tmp_path / "run", last), state(8))

    def test_checkpoint_id_names_the_store_and_the_step(self, tmp_path):
        writer, reader = lmc.dcp.Writer(tmp_path / "a"), lmc.dcp.Reader(tmp_path / "a")
        for step in (1, 2):
            dcp.save(state(step), checkpoint_id=tmp_path / "b" / f"step-{step}", storage_writer=writer, no_dist=True)
        assert steps(tmp_path / "b") == [1, 2] and not (tmp_path / "a").exists()
        found = state(99)
        dcp.load(found, checkpoint_id=f"{tmp_path}/b/step-1", storage_reader=reader, no_dist=True)
        assert equal(found, state(1))

    def test_steps_that_are_none(self, tmp_path):
        with pytest.raises(CheckpointException, match=r"no step is given: Writer\(.*, step=N\)"):
            dcp.save(state(1), storage_writer=lmc.dcp.Writer(tmp_path / "a"), no_dist=True)
        for made in (lmc.dcp.Writer, lmc.dcp.Reader):
            with pytest.raises(lmc.UsageError, match="names a step, and step=6 is given"):
                made("run/step-5", step=6)
            with pytest.raises(lmc.UsageError, match="s3:/bucket/run: is a URL without"):
                made("s3:/bucket/run", step=6)
            with pytest.raises(TypeError, match="must be str"):
                made(b"run", step=6)
        for bad in (-1, 2**60):
            with pytest.raises(CheckpointException):
                save(tmp_path / "a", bad)
        assert not (tmp_path / "a").exists() or not steps(tmp_path / "a")

    def test_what_is_not_there(self, tmp_path):
        with pytest.raises(CheckpointException, match="none: there is no such directory"):
            load(tmp_path / "none")
        save(tmp_path / "a", 1)
        with pytest.raises(CheckpointException, match="(?i)no snapshot of step 2|step 2"):
            load(tmp_path / "a", 2)
        lmc.Store(tmp_path / "a").save_files({"file": b"of another kind"}, step=3)
        with pytest.raises(CheckpointException, match="step 3 has no file .metadata.json"):
            load(tmp_path / "a")

    def test_a_step_is_saved_once(self, tmp_path):
        save(tmp_path, 1)
        with pytest.raises(CheckpointException, match="step 1 has a snapshot: .* replace it with overwrite=True"):
            save(tmp_path, 1, state(2))
        save(tmp_path, 1)
        assert equal(load(tmp_path), state(1))
        (record,) = lmc.Store(tmp_path).snapshots()
        save(tmp_path, 1, overwrite=True)
        assert lmc.Store(tmp_path).snapshots() == [record], "it has the same contents"

    @pytest.mark.parametrize("others", [[], [0], [0, 2]])
    def test_a_step_is_replaced(self, tmp_path, others):
        for step in (*others, 1):
            save(tmp_path, step)
        save(tmp_path, 1, state(5), overwrite=True)
        assert steps(tmp_path) == sorted([*others, 1])
        assert equal(load(tmp_path, 1), state(5))
        assert all(equal(load(tmp_path, step), state(step)) for step in others)
        assert not lmc.Store(tmp_path).verify(deep=True).problems

    def test_only_the_last_ones_stay(self, tmp_path):
        for step in range(1, 8):
            save(tmp_path, step, keep_last=2, keep_every=3)
        assert steps(tmp_path) == [3, 6, 7]
        assert all(equal(load(tmp_path, step), state(step)) for step in (3, 6, 7))
        # One that is saved after a run went back is not the last, and stays.
        save(tmp_path, 4, keep_last=2)
        assert steps(tmp_path) == [4, 6, 7]

    def test_the_others_keep_their_weights(self, tmp_path):
        def parts(step):
            w = torch.randn(300, 300, generator=torch.Generator().manual_seed(step))
            moments = {"exp_avg": w * 2, "step": torch.tensor(7.0)}
            return {"model": {"w": w}, "optimizer": {"state": {"w": moments}, "lr": 0.1}}

        for step in range(1, 6):
            save(tmp_path, step, parts(step), keep_last=1, keep_every=3, drop_state=True)
        assert steps(tmp_path) == [1, 2, 3, 4, 5]
        assert [bool(s.dropped) for s in lmc.Store(tmp_path).snapshots()] == [True, True, False, True, False]
        for step in (1, 4):
            found = {"model": {"w": torch.zeros(300, 300)}}
            dcp.load(found, storage_reader=lmc.dcp.Reader(tmp_path, step=step))
            assert equal(found["model"], parts(step)["model"])
            with pytest.raises(CheckpointException, match=f"step {step} has only weights"):
                dcp.load(parts(9), storage_reader=lmc.dcp.Reader(tmp_path, step=step))
        assert not lmc.Store(tmp_path).verify(deep=True).problems

    def test_a_checkpoint_is_saved_even_if_others_cannot_be_removed(self, tmp_path):
        save(tmp_path, 1)
        save(tmp_path, 2)
        largest(tmp_path).unlink()
        with pytest.warns(UserWarning, match="step 3 is saved, but older ones were not all removed"):
            save(tmp_path, 3, keep_last=2)
        assert equal(load(tmp_path), state(3))

    def test_metadata(self, tmp_path):
        save(tmp_path, 1, metadata={"loss": "2.31"})
        assert lmc.Store(tmp_path).find(1).metadata == {"loss": "2.31"}

    def test_the_grace_period_of_a_new_store(self, tmp_path):
        save(tmp_path / "a", 1)
        save(tmp_path / "b", 1, grace_seconds=100)
        found = [(tmp_path / name / "lmc-store.json").read_text() for name in ("a", "b")]
        assert ["1800" in found[0], '"grace_seconds":100}' in found[1]] == [True, True]


class TestBases:
    @pytest.mark.parametrize("cache", [0, None])
    def test_deltas_are_small_and_chains_end(self, tmp_path, cache):
        for step in range(6):
            save(tmp_path, step, anchor_every=3, cache=cache)
        found = sizes(tmp_path)
        assert [size > 0.9 * found[0] for size in found] == [True, False, False, True, False, False]
        assert all(equal(load(tmp_path, step), state(step)) for step in range(6))

    def test_no_deltas(self, tmp_path):
        for step in range(3):
            save(tmp_path, step, anchor_every=1)
        assert min(sizes(tmp_path)) > 0.9 * max(sizes(tmp_path))

    def test_what_did_not_change_is_not_stored_again(self, tmp_path):
        for step in (1, 2):
            save(tmp_path, step, {"w": model(1)["w"], "name": "x"})
        assert sizes(tmp_path)[1] == 0

    def test_the_cache_saves_reading(self, tmp_path):
        """With it a base is used that could not be read any more."""
        save(tmp_path, 1)
        base = largest(tmp_path)
        spoiled = base.read_bytes()
        base.write_bytes(bytes(len(spoiled)))
        save(tmp_path, 2)
        base.write_bytes(spoiled)
        assert sizes(tmp_path)[1] < 0.9 * sizes(tmp_path)[0] and equal(load(tmp_path), state(2))

    @pytest.mark.parametrize("spoil", ["missing", "damaged", "nonsense"])
    def test_a_base_that_cannot_be_read(self, tmp_path, spoil):
        save(tmp_path, 1)
        _stores.forget()
        base = largest(tmp_path)
        spoiled = bytearray(base.read_bytes())
        spoiled[len(spoiled) // 2] ^= 1
        if spoil == "missing":
            base.unlink()
        else:
            base.write_bytes(spoiled if spoil == "damaged" else b"nonsense")
        save(tmp_path, 2)
        assert equal(load(tmp_path), state(2))

    def test_a_store_that_was_deleted_and_made_again(self, tmp_path):
        save(tmp_path / "a", 1)
        shutil.rmtree(tmp_path / "a")
        save(tmp_path / "a", 2)
        assert steps(tmp_path / "a") == [2] and equal(load(tmp_path / "a"), state(2))

    def test_the_caches_of_two_stores_stay(self, tmp_path):
        for name in ("a", "b", "a", "c"):
            save(tmp_path / name, len(list(tmp_path.glob(f"{name}/snapshots/*"))))
        assert [Path(location).name for location in _stores._open] == ["a", "c"]

    def test_two_kinds_in_one_store(self, tmp_path):
        for step in range(3):
            save(tmp_path, 2 * step, state(step))
            save(tmp_path, 2 * step + 1, {"weights": model(step), "name": step})
        for step in range(3):
            assert equal(load(tmp_path, 2 * step), state(step))
            found = load(tmp_path, 2 * step + 1, {"weights": model(9), "name": -1})
            assert equal(found, {"weights": model(step), "name": step})
        # Of what both have, the one before is the base, whichever kind it is of.
        assert max(sizes(tmp_path)[1::2]) < 0.9 * sizes(tmp_path)[0]

    def test_ranks_share_memory(self, monkeypatch):
        for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
            monkeypatch.delenv(name, raising=False)
        whole = _stores._budget()
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8")
        assert _stores._budget() == whole // 8

    def test_one_planner_caches_its_plans(self, tmp_path):
        for writer in (
            dcp.FileSystemWriter(tmp_path / "plain"),
            *(lmc.dcp.Writer(tmp_path / "a", step=n) for n in (1, 2)),
        ):
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            dcp.save(state(3), storage_writer=writer, planner=planner, no_dist=True)
        assert equal(load(tmp_path / "a", 1), state(3)) and equal(load(tmp_path / "a", 2), state(3))

    def test_staged_states_are_cached(self, tmp_path, monkeypatch):
        # Pinned memory takes a GPU.
        create = staging._create_cpu_state_dict
        monkeypatch.setattr(staging, "_create_cpu_state_dict", lambda state, **_: create(state))
        writer = lmc.dcp.Writer(tmp_path, cache_staged_state_dict=True, threads=1)
        for step in (1, 2):
            saved = dcp.async_save(
                state(step), checkpoint_id=tmp_path / f"step-{step}", storage_writer=writer, no_dist=True
            )
            getattr(saved, "upload_completion", saved).result()
        assert equal(load(tmp_path, 1), state(1)) and equal(load(tmp_path, 2), state(2))


class TestTensors:
    def test_every_dtype(self, tmp_path):
        bits = torch.randint(0, 256, (96,), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
        dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
        tensors = {}
        for dtype in dtypes - {torch.bool}:
            try:
                torch._utils._element_size(dtype)  # as the plan of a checkpoint asks
                tensors[str(dtype)] = bits.view(dtype).clone().reshape(2, -1)
            except (RuntimeError, TypeError):
                continue  # PyTorch itself cannot save them
        tensors["bool"] = bits > 128
        assert len(tensors) > 18, sorted(tensors)
        for step in (1, 2):
            save(tmp_path, step, tensors)
            blank = {
                n: torch.zeros(t.numel() * t.element_size(), dtype=torch.uint8).view(t.dtype).reshape(t.shape)
                for n, t in tensors.items()
            }
            found = load(tmp_path, step, blank)
            for key, t in tensors.items():
                assert found[key].view(torch.uint8).equal(t.view(torch.uint8)), key

    def test_every_layout(self, tmp_path):
        whole = torch.arange(24.0).reshape(4, 6) * (1 + 2j)
        tensors = {
            "transposed": whole.t(),
            "strided": whole[::2, 1:4],
            "conjugate": whole.conj(),
            "negative": whole.conj().imag,
            "scalar": torch.tensor(3.5),
            "empty": torch.empty(0, 5),
        }
        dcp.save(tensors, storage_writer=lmc.dcp.Writer(tmp_path, step=1), no_dist=True)
        found = load(tmp_path, into={n: torch.zeros(t.shape, dtype=t.dtype) for n, t in tensors.items()})
        assert all(torch.equal(found[n], t) for n, t in tensors.items())
        into = torch.zeros(6, 4, dtype=torch.complex64).t()
        assert torch.equal(load(tmp_path, into={"transposed": into.t()})["transposed"], whole.t())

    def test_weights_that_are_tied(self, tmp_path):
        """Names of the same memory, and of parts of it."""
        whole = torch.arange(600.0).reshape(30, 20)
        tied = {"a": whole, "b": whole, "rows": whole[3:7], "more": whole[5:9]}
        dcp.save(tied, storage_writer=lmc.dcp.Writer(tmp_path, step=1), no_dist=True)
        into = torch.zeros(30, 20)
        load(tmp_path, into={"a": into, "b": into, "rows": into[3:7], "more": into[5:9]})
        assert torch.equal(into, whole)

    def test_objects(self, tmp_path):
        things = {"a": [1, "two", {"three": 3.0}], "b": None, "rng": torch.get_rng_state(), "n": 2**80}
        dcp.save(things, storage_writer=lmc.dcp.Writer(tmp_path, step=1), no_dist=True)
        found = load(
            tmp_path, into={"a": [0, "", {"three": 0.0}], "b": 1, "rng": torch.zeros_like(things["rng"]), "n": 0}
        )
        assert equal(found, things)

    @pytest.mark.parametrize("kind", ["sparse", "meta", "nested", "quantized"])
    def test_what_cannot_be_saved(self, tmp_path, kind):
        tensor = {
            "sparse": lambda: torch.eye(3).to_sparse(),
            "meta": lambda: torch.empty(3, device="meta"),
            "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        }[kind]()
        with pytest.raises(CheckpointException):
            dcp.save({"t": tensor}, storage_writer=lmc.dcp.Writer(tmp_path, step=1), no_dist=True)
        assert not list(tmp_path.iterdir())


class TestStates:
    """As PyTorch's own tests of checkpoints of file systems."""

    def test_nested(self, tmp_path):
        nested = {
            "a": {"b": [torch.ones(3), {"c": torch.zeros(2, 2)}], "d": {"e": 1, "f": "text"}},
            "g": (1, torch.ones(1)),
        }
        save(tmp_path, 1, nested)
        blank = {
            "a": {"b": [torch.zeros(3), {"c": torch.ones(2, 2)}], "d": {"e": 0, "f": ""}},
            "g": (0, torch.zeros(1)),
        }
        assert equal(load(tmp_path, into=blank), nested)

    def test_without_flattening(self, tmp_path):
        flat = {"a.b": torch.ones(3), "c": torch.zeros(2, 2)}
        writer = lmc.dcp.Writer(tmp_path, step=1)
        dcp.save(flat, storage_writer=writer, planner=DefaultSavePlanner(flatten_state_dict=False), no_dist=True)
        found = {"a.b": torch.zeros(3), "c": torch.ones(2, 2)}
        reader, planner = lmc.dcp.Reader(tmp_path), DefaultLoadPlanner(flatten_state_dict=False)
        dcp.load(found, storage_reader=reader, planner=planner, no_dist=True)
        assert equal(found, flat) and reader.read_metadata().planner_data is None

    def test_modules_and_optimizers(self, tmp_path):
        def made(seed):
            torch.manual_seed(seed)
            net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 4))
            optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
            net(torch.ones(2, 8)).sum().backward()
            optimizer.step()
            return net, optimizer

        (net, optimizer), (other, another) = made(1), made(2)
        save(tmp_path, 1, {"net": net, "optimizer": optimizer})
        load(tmp_path, into={"net": other, "optimizer": another})
        assert equal(other.state_dict(), net.state_dict())
        assert equal(another.state_dict()["state"], optimizer.state_dict()["state"])

    def test_a_part_is_loaded(self, tmp_path):
        save(tmp_path, 1)
        found = {"weights": {"w": torch.zeros(300, 400)}}
        assert torch.equal(load(tmp_path, into=found)["weights"]["w"], model(1)["w"])

    def test_missing_keys(self, tmp_path):
        save(tmp_path, 1)
        with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: new"):
            load(tmp_path, into=state(9) | {"new": torch.ones(2)})
        found = state(9) | {"new": torch.ones(2)}
        reader, planner = lmc.dcp.Reader(tmp_path), DefaultLoadPlanner(allow_partial_load=True)
        dcp.load(found, storage_reader=reader, planner=planner, no_dist=True)
        assert equal(found, state(1) | {"new": torch.ones(2)})

    def test_other_sizes(self, tmp_path):
        save(tmp_path, 1)
        with pytest.raises(CheckpointException, match="Size mismatch"):
            load(tmp_path, into={"weights": {"w": torch.zeros(300, 401)}})

    def test_the_state_is_made_from_the_metadata(self, tmp_path):
        save(tmp_path, 1)
        found: dict[str, object] = {}
        planner = dcp.default_planner._EmptyStateDictLoadPlanner()
        reader = lmc.dcp.Reader(tmp_path)
        dcp.state_dict_loader._load_state_dict(found, storage_reader=reader, planner=planner, no_dist=True)
        assert equal(found, state(1))

    def test_nothing(self, tmp_path):
        save(tmp_path, 1, {})
        assert load(tmp_path, into={}) == {}


class TestOthers:
    def test_threads_of_a_reader(self, tmp_path):
        save(tmp_path, 1)
        for threads in (1, 3, None):
            found = state(99)
            dcp.load(found, storage_reader=lmc.dcp.Reader(tmp_path, threads=threads), no_dist=True)
            assert equal(found, state(1))
        with pytest.raises(lmc.UsageError, match="not -1"):
            lmc.dcp.Reader(tmp_path, threads=-1)

    def test_ranks_that_found_different_checkpoints(self, tmp_path):
        save(tmp_path, 1)
        readers = [lmc.dcp.Reader(tmp_path) for _ in range(2)]
        readers[0].read_metadata()
        save(tmp_path, 2)
        readers[1].read_metadata()
        plans = [reader.prepare_local_plan(LoadPlan([])) for reader in readers]
        with pytest.raises(lmc.UsageError, match="of steps 1 and 2: say which to load"):
            readers[0].prepare_global_plan(plans)
        assert readers[0].prepare_global_plan(plans[:1] * 2)

    def test_the_store_sees_its_tensors(self, tmp_path):
        for step in (1, 2):
            save(tmp_path, step)
        files = {f.name: [t.name for t in f.tensors] for f in lmc.Store(tmp_path).open_snapshot().files}
        names = ["weights.w", "weights.b", "half.w", "half.b", "step"]
        assert {name: sorted(of) for name, of in files.items()} == {
            "rank-0.safetensors": sorted(names),
            ".metadata.json": [],
        }
        studied = lmc.analyze(lmc.Store(tmp_path))
        assert [c["step"] for c in studied["checkpoints"]] == [1, 2]
        assert {t["name"] for t in studied["tensors"]} == set(names)
        shown = ranks.process(ranks.command, "snapshot", "show", str(tmp_path), folder=tmp_path).stdout
        assert any(line.split()[:2] == ["rank-0.safetensors", "safetensors"] for line in shown.splitlines()), shown

    def test_writers_are_sent_to_processes(self, tmp_path):
        writer = lmc.dcp.Writer(tmp_path, step=1, level="fast", anchor_every=3)
        sent = pickle.loads(pickle.dumps(writer))
        dcp.save(state(1), storage_writer=sent, no_dist=True)
        assert equal(load(tmp_path), state(1))

    @pytest.mark.parametrize("options", [{"level": "best"}, {"threads": -3}])
    def test_options_that_are_none(self, tmp_path, options):
        with pytest.raises(lmc.UsageError, match=next(iter(options))):
            lmc.dcp.Writer(tmp_path, step=1, **options)

    def test_paths_for_pytorch(self, tmp_path):
        assert lmc.dcp.Writer.validate_checkpoint_id(tmp_path / "step-1")
        assert not lmc.dcp.Writer.validate_checkpoint_id(tmp_path / "one")
        assert lmc.dcp.Reader.validate_checkpoint_id(tmp_path / "one")


class TestExport:
    @pytest.mark.parametrize("ahead", [1, 5000, 256 << 20])
    def test_a_plain_checkpoint(self, tmp_path, monkeypatch, ahead):
        monkeypatch.setattr(_export, "_AHEAD", ahead)
        saved = state(1) | {"empty": torch.empty(0, 3), "scalar": torch.tensor(2.5), "none": None}
        save(tmp_path / "a", 1, saved)
        lmc.dcp.export(tmp_path / "a" / "step-1", tmp_path / "plain")
        found = state(9) | {"empty": torch.ones(0, 3), "scalar": torch.tensor(0.0), "none": 1}
        dcp.load(found, storage_reader=dcp.FileSystemReader(tmp_path / "plain"), no_dist=True)
        assert equal(found, saved)
        ours = lmc.dcp.Reader(tmp_path / "a").read_metadata()
        plain = dcp.FileSystemReader(tmp_path / "plain").read_metadata()
        assert plain.state_dict_metadata == ours.state_dict_metadata and plain.planner_data == ours.planner_data

    def test_values_are_not_unpickled(self, tmp_path):
        writer = lmc.dcp.Writer(tmp_path / "a", step=1)
        dcp.save({"evil": io.BytesIO(b"no pickle")}, storage_writer=writer, planner=AsTheyAre(), no_dist=True)
        lmc.dcp.export(tmp_path / "a", tmp_path / "plain")
        (file,) = (tmp_path / "plain").glob("*.distcp")
        assert file.read_bytes() == b"no pickle"

    def test_only_to_new_directories(self, tmp_path):
        save(tmp_path / "a", 1)
        with pytest.raises(lmc.ExistsError, match="holds files: export to a new directory"):
            lmc.dcp.export(tmp_path / "a", tmp_path / "a")
        with pytest.raises(lmc.NotFoundError):
            lmc.dcp.export(tmp_path / "none", tmp_path / "plain")
        assert not (tmp_path / "plain").exists()
