"""Checkpoints of one process: their contents, their bases, and rejected checkpoints."""

from __future__ import annotations

import functools
import io
import os
import pickle
import shutil
import weakref
from pathlib import Path

import lmc
import lmc.dcp
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_ranks import equal
from dcp_states import load, model, save, state
from lmc.dcp import _bases, _reader, _tensors
from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem, WriteItem

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def files(folder: Path) -> dict[str, int]:
    return {p.name: p.stat().st_size for p in folder.glob("*.lmc")}


class TestMemory:
    @pytest.mark.parametrize("staged", [1, 3000, 256 << 20])
    def test_what_does_not_fit_its_destination_is_read_some_rows_at_a_time(self, tmp_path, monkeypatch, staged):
        save(tmp_path / "a", 1)
        taken = []
        empty = torch.empty
        monkeypatch.setattr(_reader, "_STAGED", staged)
        monkeypatch.setattr(torch, "empty", lambda *a, **k: taken.append(empty(*a, **k)) or taken[-1])
        weights = {"w": torch.zeros(300, 200, dtype=torch.float64), "b": torch.zeros(14)[::2]}
        found = load(tmp_path / "a", {"weights": weights, "half": {"w": torch.zeros(200, 300).bfloat16().t()}})
        assert torch.equal(found["weights"]["w"], model(1)["w"].double())
        assert torch.equal(found["weights"]["b"], model(1)["b"])
        assert torch.equal(found["half"]["w"], model(1)["w"].bfloat16())
        assert max(t.nbytes for t in taken) <= max(staged, 800)

    def test_a_part_of_a_chunk_takes_its_own_rows(self, tmp_path):
        save(tmp_path / "a", 1)
        reader = lmc.dcp.Reader(tmp_path / "a")
        for start, rows, column, columns in [(0, 300, 0, 200), (299, 1, 0, 200), (100, 50, 0, 200), (7, 9, 199, 1)]:
            index = MetadataIndex("weights.w", torch.Size([0, 0]))
            out = torch.zeros(rows, columns)
            item = ReadItem(
                LoadItemType.TENSOR, index, torch.Size([0, 0]), index, torch.Size([start, column]), out.size()
            )
            reader.set_up_storage_reader(reader.read_metadata(), is_coordinator=True)
            reader.read_data(LoadPlan([item]), Resolved(out)).wait()
            assert torch.equal(out, model(1)["w"][start : start + rows, column : column + columns])

    def test_memory_of_a_device_is_read_as_it_is_compressed(self, tmp_path, monkeypatch):
        save(tmp_path / "here" / "1", 1)
        monkeypatch.setattr(_tensors, "is_remote", lambda tensor: True)
        for step in (1, 2):
            save(tmp_path / "there" / str(step), step)
        monkeypatch.undo()
        (here,), (there,) = ((tmp_path / where / "1").glob("*.lmc") for where in ("here", "there"))
        assert there.read_bytes() == here.read_bytes()
        assert len(files(tmp_path / "there" / "2")) == 2
        assert equal(load(tmp_path / "there" / "2"), state(2))

    def test_the_default_device_makes_no_difference(self, tmp_path):
        with torch.device("meta"):
            here = {"w": torch.ones(3, 4, device="cpu"), "none": io.BytesIO()}
            dcp.save(here, storage_writer=lmc.dcp.Writer(tmp_path / "a"), planner=AsTheyAre(), no_dist=True)
            out = torch.zeros(4, 3, device="cpu").t()
            load(tmp_path / "a", {"w": out})
        assert torch.equal(out, torch.ones(3, 4))

    @pytest.mark.parametrize("inside", [False, True])
    def test_tensors_of_inference_mode_are_filled(self, tmp_path, inside):
        save(tmp_path / "a", 1)
        with torch.inference_mode():
            weights = {"w": torch.zeros(200, 300).t(), "b": torch.zeros(7, dtype=torch.float64)}
        normal = {"w": torch.zeros(200, 300).bfloat16().t()}
        with torch.inference_mode(inside):
            load(tmp_path / "a", {"weights": weights, "half": normal})
        assert equal(weights, {"w": model(1)["w"], "b": model(1)["b"].double()})
        assert torch.equal(normal["w"], model(1)["w"].bfloat16()) and not normal["w"].is_inference()

    @pytest.mark.parametrize("kind", ["direct", "staged"])
    def test_autograd_learns_that_a_tensor_was_filled(self, tmp_path, kind):
        save(tmp_path / "a", 1)
        w = torch.zeros(300, 200, dtype=torch.float64 if kind == "staged" else torch.float32)
        x = torch.ones(300, 200, dtype=w.dtype, requires_grad=True)
        y = (x * w).sum()
        load(tmp_path / "a", {"weights": {"w": w}})
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


class TestBases:
    def test_the_newest_checkpoint_of_the_run(self, tmp_path):
        save(tmp_path / "a", 1)
        save(tmp_path / "b", 2)
        _bases.forget()
        os.utime(tmp_path / "a" / ".metadata", (2e9, 2e9))
        save(tmp_path / "c", 3)
        assert set(files(tmp_path / "a")) < set(files(tmp_path / "c"))
        assert not set(files(tmp_path / "b")) & set(files(tmp_path / "c")) - set(files(tmp_path / "a"))
        for name, seed in [("a", 1), ("b", 2), ("c", 3)]:
            assert equal(load(tmp_path / name), state(seed))

    def test_the_one_that_was_loaded_last(self, tmp_path):
        save(tmp_path / "a", 1, base=None)
        save(tmp_path / "b", 2, base=None)
        load(tmp_path / "a")
        save(tmp_path / "c", 3)
        assert set(files(tmp_path / "a")) < set(files(tmp_path / "c"))

    def test_one_that_is_named(self, tmp_path):
        save(tmp_path / "a", 1)
        save(tmp_path / "b", 2, base=None)
        save(tmp_path / "c", 3, base=tmp_path / "a")
        assert set(files(tmp_path / "c")) & set(files(tmp_path / "a"))
        assert not set(files(tmp_path / "c")) & set(files(tmp_path / "b"))
        with pytest.raises(CheckpointException, match="same folder"):
            save(tmp_path / "elsewhere" / "d", 3, base=tmp_path / "a")
        with pytest.raises(CheckpointException, match="not a complete checkpoint"):
            save(tmp_path / "d", 3, base=tmp_path / "typo")

    def test_incomplete_checkpoints_are_none(self, tmp_path):
        save(tmp_path / "a", 1)
        save(tmp_path / "b", 2)
        (tmp_path / "b" / ".metadata").unlink()
        save(tmp_path / "c", 3)
        assert set(files(tmp_path / "a")) < set(files(tmp_path / "c"))
        assert not set(files(tmp_path / "b")) - set(files(tmp_path / "a")) <= set(files(tmp_path / "c"))

    @pytest.mark.parametrize("cache", [0, None])
    def test_deltas_are_small_and_chains_end(self, tmp_path, cache):
        for seed in range(6):
            save(tmp_path / f"{seed}", seed, max_chain=2, cache=cache)
        assert [len(files(tmp_path / f"{seed}")) for seed in range(6)] == [1, 2, 3, 1, 2, 3]
        whole, both = sum(files(tmp_path / "0").values()), sum(files(tmp_path / "1").values())
        assert both < 1.8 * whole
        for seed in range(6):
            assert equal(load(tmp_path / f"{seed}"), state(seed))

    def test_no_chain(self, tmp_path):
        for seed in range(2):
            save(tmp_path / f"{seed}", seed, max_chain=0)
        assert [len(files(tmp_path / f"{seed}")) for seed in range(2)] == [1, 1]

    @pytest.mark.parametrize("content", [b"", b"nonsense", None, pickle.dumps([])])
    def test_metadata_that_cannot_be_read(self, tmp_path, content):
        save(tmp_path / "a", 1)
        _bases.forget()
        metadata = tmp_path / "a" / ".metadata"
        metadata.write_bytes(metadata.read_bytes()[:-100] if content is None else content)
        with pytest.warns(UserWarning, match="saving without a base"):
            save(tmp_path / "b", 2)
        assert equal(load(tmp_path / "b"), state(2))

    @pytest.mark.parametrize("spoil", ["missing", "damaged", "nonsense"])
    def test_a_base_that_cannot_be_read(self, tmp_path, spoil):
        save(tmp_path / "a", 1)
        _bases.forget()
        (base,) = (tmp_path / "a").glob("*.lmc")
        spoiled = bytearray(base.read_bytes())
        spoiled[len(spoiled) // 2] ^= 1
        if spoil == "missing":
            base.unlink()
        else:
            base.write_bytes(spoiled if spoil == "damaged" else b"nonsense")
        with pytest.warns(UserWarning, match="saving without"):
            save(tmp_path / "b", 2)
        assert len(files(tmp_path / "b")) == 1
        assert equal(load(tmp_path / "b"), state(2))

    def test_tensors_that_were_changed_while_they_were_saved(self, tmp_path):
        save(tmp_path / "a", 1)
        (kept,) = _bases._kept.values()
        kept.image[-1] ^= 1
        with pytest.warns(UserWarning, match="changed while"):
            save(tmp_path / "b", 2)
        assert equal(load(tmp_path / "b"), state(2))

    def test_what_is_in_memory_is_bounded_for_all_runs(self, tmp_path):
        save(tmp_path / "one" / "0", 1)
        (kept,) = _bases._kept.values()
        size = len(kept.image)
        save(tmp_path / "two" / "0", 1, cache=2 * size)
        assert len(_bases._kept) == 2
        save(tmp_path / "three" / "0", 1, cache=2 * size)
        assert {Path(run).name for run, _ in _bases._kept} == {"two", "three"}

    def test_memory_of_the_save_before_is_freed_before_more_is_taken(self, tmp_path, monkeypatch):
        alive, images, empty = [], [], np.empty

        def counted(*arguments, **options):
            alive.append(sum(image() is not None for image in images))
            image = empty(*arguments, **options)
            images.append(weakref.ref(image))
            return image

        states = [{"w": model(seed)["w"], "name": "x" * 1000 * seed} for seed in range(3)]
        monkeypatch.setattr(_bases.np, "empty", counted)
        for seed, saved in enumerate(states):
            dcp.save(saved, storage_writer=lmc.dcp.Writer(tmp_path / str(seed), threads=1), no_dist=True)
        monkeypatch.undo()
        assert alive == [0, 0, 0]
        for seed, saved in enumerate(states):
            assert len(files(tmp_path / str(seed))) == 1 + seed
            assert equal(load(tmp_path / str(seed), {"w": model(9)["w"], "name": ""}), saved)

    @pytest.mark.parametrize("same_process", [True, False])
    def test_two_kinds_in_one_folder(self, tmp_path, same_process):
        """The base is the newest checkpoint of the same kind, not the newest of all."""
        for seed in range(3):
            if not same_process:
                _bases.forget()
            save(tmp_path / f"all-{seed}", seed)
            ours = {"weights": model(seed), "name": seed}
            dcp.save(ours, storage_writer=lmc.dcp.Writer(tmp_path / f"weights-{seed}", threads=1), no_dist=True)
            for kind in ("all", "weights"):
                os.utime(tmp_path / f"{kind}-{seed}" / ".metadata", (seed + 1, seed + 1))
        for kind, other in (("all", "weights"), ("weights", "all")):
            made = [set(files(tmp_path / f"{kind}-{seed}")) for seed in range(3)]
            assert [len(names) for names in made] == [1, 2, 3] and made[0] < made[1] < made[2]
            assert not made[2] & set(files(tmp_path / f"{other}-2"))
        assert len(_bases._kept) == 2 if same_process else 1
        for seed in range(3):
            assert equal(load(tmp_path / f"all-{seed}"), state(seed))
            found = load(tmp_path / f"weights-{seed}", {"weights": model(9), "name": -1})
            assert equal(found, {"weights": model(seed), "name": seed})

    def test_one_that_cannot_be_read_is_passed_over(self, tmp_path):
        save(tmp_path / "a", 1)
        save(tmp_path / "b", 2, base=None)
        _bases.forget()
        (tmp_path / "b" / ".metadata").write_bytes(b"nonsense")
        with pytest.warns(UserWarning, match="b is left out as a base"):
            save(tmp_path / "c", 3)
        assert set(files(tmp_path / "a")) < set(files(tmp_path / "c"))

    def test_a_base_that_is_deleted_while_it_is_used(self, tmp_path, monkeypatch):
        save(tmp_path / "a", 1)
        compress = lmc.compress_tensors_file

        def compress_and_delete(*arguments, **options):
            shutil.rmtree(tmp_path / "a", ignore_errors=True)
            return compress(*arguments, **options)

        monkeypatch.setattr(lmc, "compress_tensors_file", compress_and_delete)
        save(tmp_path / "b", 2, cache=0)
        assert len(files(tmp_path / "b")) == 2
        assert equal(load(tmp_path / "b"), state(2))

    def test_ranks_share_memory(self, monkeypatch):
        for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
            monkeypatch.delenv(name, raising=False)
        whole = _bases.default_budget()
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8")
        assert _bases.default_budget() == whole // 8

    def test_one_planner_caches_its_plans(self, tmp_path):
        for seed in range(3):
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            dcp.save(state(seed), storage_writer=lmc.dcp.Writer(tmp_path / f"{seed}"), planner=planner, no_dist=True)
        assert [len(files(tmp_path / f"{seed}")) for seed in range(3)] == [1, 2, 3]
        for seed in range(3):
            assert equal(load(tmp_path / f"{seed}"), state(seed))

    def test_nothing_in_common(self, tmp_path):
        save(tmp_path / "a", 1)
        other = {"x": torch.arange(1000.0)}
        dcp.save(other, storage_writer=lmc.dcp.Writer(tmp_path / "b"), no_dist=True)
        assert len(files(tmp_path / "b")) == 1


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
        for name in ("a", "b"):
            dcp.save(tensors, storage_writer=lmc.dcp.Writer(tmp_path / name), no_dist=True)
            blank = {
                n: torch.zeros(t.numel() * t.element_size(), dtype=torch.uint8).view(t.dtype).reshape(t.shape)
                for n, t in tensors.items()
            }
            found = load(tmp_path / name, blank)
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
        dcp.save(tensors, storage_writer=lmc.dcp.Writer(tmp_path / "a"), no_dist=True)
        found = load(tmp_path / "a", {n: torch.zeros(t.shape, dtype=t.dtype) for n, t in tensors.items()})
        assert all(torch.equal(found[n], t) for n, t in tensors.items())
        into = torch.zeros(6, 4, dtype=torch.complex64).t()
        assert torch.equal(load(tmp_path / "a", {"transposed": into.t()})["transposed"], whole.t())

    def test_weights_that_are_tied(self, tmp_path):
        """Names of the same memory, and of parts of it."""
        whole = torch.arange(600.0).reshape(30, 20)
        tied = {"a": whole, "b": whole, "rows": whole[3:7], "more": whole[5:9]}
        dcp.save(tied, storage_writer=lmc.dcp.Writer(tmp_path / "a"), no_dist=True)
        into = torch.zeros(30, 20)
        load(tmp_path / "a", {"a": into, "b": into, "rows": into[3:7], "more": into[5:9]})
        assert torch.equal(into, whole)

    def test_objects(self, tmp_path):
        things = {"a": [1, "two", {"three": 3.0}], "b": None, "rng": torch.get_rng_state(), "n": 2**80}
        dcp.save(things, storage_writer=lmc.dcp.Writer(tmp_path / "a"), no_dist=True)
        found = load(
            tmp_path / "a", {"a": [0, "", {"three": 0.0}], "b": 1, "rng": torch.zeros_like(things["rng"]), "n": 0}
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
            dcp.save({"t": tensor}, storage_writer=lmc.dcp.Writer(tmp_path / "a"), no_dist=True)
        assert not (tmp_path / "a" / ".metadata").exists()


class TestOthers:
    def test_what_is_no_checkpoint(self, tmp_path):
        with pytest.raises(CheckpointException, match="none is not a complete checkpoint"):
            load(tmp_path / "none")
        with pytest.raises(FileNotFoundError, match="none is not a complete checkpoint"):
            lmc.dcp.unpack(tmp_path / "none", tmp_path / "plain")

    def test_threads_of_a_reader(self, tmp_path):
        save(tmp_path / "a", 1)
        for threads in (1, 3, None):
            found = state(99)
            dcp.load(found, storage_reader=lmc.dcp.Reader(tmp_path / "a", threads=threads), no_dist=True)
            assert equal(found, state(1))
        with pytest.raises(lmc.UsageError, match="not -1"):
            lmc.dcp.Reader(tmp_path / "a", threads=-1)

    def test_pytorchs_own_reader_says_what_is_missing(self, tmp_path):
        save(tmp_path / "a", 1)
        with pytest.raises(CheckpointException, match="Unknown extension name='lmc.tensor'"):
            dcp.load(state(9), storage_reader=dcp.FileSystemReader(tmp_path / "a"), no_dist=True)

    def test_checkpoints_of_pytorchs_own_writer_are_read(self, tmp_path):
        dcp.save(state(4), storage_writer=dcp.FileSystemWriter(tmp_path / "a"), no_dist=True)
        assert equal(load(tmp_path / "a"), state(4))
        save(tmp_path / "b", 5)
        assert len(files(tmp_path / "b")) == 1

    def test_writers_are_sent_to_processes(self, tmp_path):
        writer = lmc.dcp.Writer(tmp_path / "a", level="fast", max_chain=3)
        sent = pickle.loads(pickle.dumps(writer))
        dcp.save(state(1), storage_writer=sent, no_dist=True)
        assert equal(load(tmp_path / "a"), state(1))

    @pytest.mark.parametrize("options", [{"level": "best"}, {"max_chain": -1}, {"threads": -3}])
    def test_options_that_are_none(self, tmp_path, options):
        with pytest.raises(lmc.UsageError, match=next(iter(options))):
            lmc.dcp.Writer(tmp_path, **options)

    @pytest.mark.parametrize("path", ["a", "memory://run/a", "s3://bucket/run/a"])
    def test_options_that_are_misspelt(self, path):
        for call, name in [
            (lmc.dcp.Writer, "thread"),
            (lmc.dcp.Writer, "endpoint_url"),
            (lmc.dcp.Reader, "thread"),
            (lmc.dcp.collect_garbage, "dryrun"),
            (functools.partial(lmc.dcp.unpack, target="out"), "prefixes"),
        ]:
            with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
                call(path, **{name: True})

    def test_options_of_the_storage(self, tmp_path):
        save(tmp_path / "a", 1)
        options = {"auto_mkdir": True, "secret": "1234"}
        for call in (
            lmc.dcp.Writer,
            lmc.dcp.Reader,
            lmc.dcp.collect_garbage,
            functools.partial(lmc.dcp.unpack, target=tmp_path / "out"),
        ):
            with pytest.raises(lmc.UsageError, match="has 'auto_mkdir', 'secret', but .*/a is a directory"):
                call(tmp_path / "a", storage_options=options)
            call(tmp_path / "a", storage_options={})
        for made in (lmc.dcp.Writer, lmc.dcp.Reader):
            assert made(f"file://{tmp_path}/a", storage_options=options).fs.fs.auto_mkdir
            assert not made(f"file://{tmp_path}/a").fs.fs.auto_mkdir

    def test_a_hostile_base_name_is_no_path(self, tmp_path):
        victim = tmp_path / "secret.lmc"
        raw = os.urandom(1000)
        victim.write_bytes(lmc.compress(raw))
        save(tmp_path / "a", 1)
        (file,) = (tmp_path / "a").glob("*.lmc")
        content = lmc.decompress(file.read_bytes())
        file.write_bytes(lmc.compress(content, base=lmc.Base(content, name="../secret.lmc")))
        with pytest.raises(CheckpointException, match="not data files"):
            load(tmp_path / "a")
