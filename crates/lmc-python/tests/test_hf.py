"""A real `Trainer` of Hugging Face's, whose older checkpoints go to a store."""

from __future__ import annotations

import filecmp
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import lmc
import lmc.hf
import lmc.numpy
import pytest
import torch
from lmc.hf import Callback, restore
from torch.utils.data import Subset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

STEPS, EVERY = 8, 2


class Text(torch.utils.data.Dataset):
    """Yields equal tokens every time."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        tokens = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


class Copies(TrainerCallback):
    """Keeps a copy of every checkpoint as it was saved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_save(self, args, state, control, **kwargs):
        name = f"checkpoint-{state.global_step}"
        shutil.copytree(Path(args.output_dir) / name, self.folder / name)


def trainer(output: Path, *callbacks: TrainerCallback, steps: int = STEPS, **options) -> Trainer:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        str(output), max_steps=steps, save_steps=EVERY, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        seed=1, disable_tqdm=True,
        lr_scheduler_type="constant", **({"logging_strategy": "no"} | options),
    )  # fmt: skip
    few = Subset(Text(), range(4))
    return Trainer(model, arguments, train_dataset=Text(), eval_dataset=few, callbacks=list(callbacks))


def same(a: Path, b: Path) -> bool:
    names = {p.relative_to(a) for p in a.rglob("*")}
    files = [n for n in names if (a / n).is_file()]
    return (
        names == {p.relative_to(b) for p in b.rglob("*")}
        and filecmp.cmpfiles(a, b, files, shallow=False)[1:] == ([], [])
    )


def run_of(checkpoint: Path) -> str:
    """The id of the run in the trainer's state."""
    return json.loads((checkpoint / "trainer_state.json").read_bytes())["stateful_callbacks"]["lmc.hf.Callback"]["run"]


def steps_of(store: Path) -> list[int]:
    return [s.step for s in lmc.Store(store).snapshots()]


def checkpoints(output: Path) -> set[str]:
    return {p.name for p in output.glob("*checkpoint-*")}


class Waiting(Callback):
    """Has moved everything when `on_save` returns, so that tests do not depend on timing."""

    def on_save(self, *arguments, **kwargs):
        super().on_save(*arguments, **kwargs)
        self.wait()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    output, copies = folder / "out", folder / "copies"
    trainer(output, Copies(copies), Waiting()).train()
    return output, copies


def test_all_checkpoints_are_in_the_store(run):
    output, copies = run
    assert checkpoints(output) == {"checkpoint-8"}
    assert same(output / "checkpoint-8", copies / "checkpoint-8")
    store = lmc.Store(output / "lmc-store")
    assert [s.step for s in store.snapshots()] == [2, 4, 6, 8]
    assert store.verify(deep=True).problems == []


def test_any_is_brought_back(run, tmp_path):
    output, copies = run
    for step in (2, 4, 6, None):
        back = restore(tmp_path, step, store=output / "lmc-store")
        assert back == tmp_path / f"checkpoint-{step or 8}" and same(back, copies / back.name)
    (tmp_path / "checkpoint-2" / "more").touch()
    with pytest.raises(lmc.ExistsError, match="the store has another checkpoint of step 2"):
        restore(tmp_path, 2, store=output / "lmc-store")
    inode = (tmp_path / "checkpoint-8").stat().st_ino
    assert restore(tmp_path, store=output / "lmc-store") == back and back.stat().st_ino == inode
    with pytest.raises(lmc.NotFoundError):
        restore(tmp_path, 5, store=output / "lmc-store")
    assert checkpoints(tmp_path) == {f"checkpoint-{step}" for step in (2, 4, 6, 8)}


@pytest.mark.parametrize("step", [8, 4])
def test_training_is_resumed(run, tmp_path, step):
    """From the newest checkpoint as always, and from one that was brought back, to the same weights."""
    output, copies = run
    if step == 8:
        shutil.copytree(output / "checkpoint-8", tmp_path / "out" / "checkpoint-8")
    else:
        restore(tmp_path / "out", step, store=output / "lmc-store")
    again = trainer(tmp_path / "out", steps=12)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 12
    plain = tmp_path / "plain"
    shutil.copytree(copies / f"checkpoint-{step}", plain / f"checkpoint-{step}")
    expected = trainer(plain, steps=12)
    expected.train(resume_from_checkpoint=True)
    for a, b in zip(again.model.parameters(), expected.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_only_so_many_are_kept(tmp_path):
    trainer(tmp_path / "out", Waiting(tmp_path / "store", keep=2, level="fast")).train()
    assert [s.step for s in lmc.Store(tmp_path / "store").snapshots()] == [6, 8]
    assert not (tmp_path / "out" / "lmc-store").exists()


def test_another_run_is_refused_and_loses_nothing(tmp_path):
    out, place = tmp_path / "out", tmp_path / "store"
    trainer(out, Waiting(place)).train()
    before = steps_of(place)
    run = run_of(out / "checkpoint-8")
    assert before == [2, 4, 6, 8] and all(s.metadata["run"] == run for s in lmc.Store(place).snapshots())

    def refused(output, said, callback=Waiting, **options):
        with pytest.raises(lmc.UsageError, match=said):
            trainer(output, callback(place, keep=1), steps=12).train(**options)
        assert steps_of(place) == before and not list(output.glob("checkpoint-1[02]"))

    begins = f"has snapshots of the run {run}, such as step 2, and this training begins a new run: give it a store"
    refused(tmp_path / "other", begins)
    refused(tmp_path / "other", begins, lambda *args, **kwargs: Waiting(*args, run=run, **kwargs))
    # It goes on in its own directory only, unless it is said that the run is the same.
    shutil.copytree(out, tmp_path / "copy")
    goes_on = {"resume_from_checkpoint": str(tmp_path / "copy" / "checkpoint-8")}
    refused(tmp_path / "copy", f"of the run {run}, such as step 2, .*run='{run}' that it is the same", **goes_on)
    refused(out, "this is the run mine", lambda *args, **kwargs: Waiting(*args, run="mine", **kwargs), **goes_on)
    trainer(tmp_path / "copy", Waiting(place, run=run), steps=10).train(**goes_on)
    assert steps_of(place) == [*before, 10]
    shutil.rmtree(out)
    before.append(10)
    refused(out, begins)
    lmc.Store.create(tmp_path / "by hand").save_files({"w": b"w"}, step=5)
    place, before = tmp_path / "by hand", [5]
    refused(out, "has snapshots that no Trainer saved, such as step 5")


def test_two_runs_that_begin_at_once_are_kept_apart(tmp_path, caplog):
    class Other(TrainerCallback):
        def on_train_begin(self, *args, **kwargs):
            store = lmc.Store.create(tmp_path / "store")
            for step in (1, 2, 4):
                store.save_files({"model.safetensors": b"of another run"}, step=step, metadata={"run": "other"})

    with caplog.at_level(logging.WARNING):
        trainer(tmp_path / "out", Waiting(tmp_path / "store", keep=1), Other(), steps=12).train()
    assert steps_of(tmp_path / "store") == [1, 2, 4, 12]
    assert checkpoints(tmp_path / "out") == {f"checkpoint-{step}" for step in (2, 4, 12)}
    assert "the store has a checkpoint of step 2 of the run other" in caplog.text


def test_checkpoints_of_another_run_stay(run, tmp_path, caplog):
    """Those that were in the directory before a training that begins anew."""
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies / "checkpoint-2", output / "checkpoint-1")
    with caplog.at_level(logging.WARNING):
        trainer(output, Waiting()).train()
    assert checkpoints(output) == {"checkpoint-1", "checkpoint-8"}
    assert steps_of(output / "lmc-store") == [2, 4, 6, 8]
    assert f"is of the run {run_of(output / 'checkpoint-1')}, not of" in caplog.text


def test_a_run_that_lost_its_disk_goes_on_from_the_store(run, tmp_path):
    output, _ = run
    # The step that it saves again, otherwise, is not replaced.
    again = tmp_path / "again"
    restore(again, 6, store=output / "lmc-store")
    shutil.copytree(output / "lmc-store", again / "lmc-store")
    (again / "checkpoint-6" / "more").write_text("other files in its next checkpoint")
    trainer(again, Waiting(keep=2), steps=10).train(resume_from_checkpoint=True)
    assert steps_of(again / "lmc-store") == [8, 10]


def test_what_the_trainer_logged_is_metadata(tmp_path):
    class Log(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            log.append({key: value for entry in state.log_history for key, value in entry.items()})

    log = []
    options = {
        "logging_strategy": "steps", "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 4,
    }  # fmt: skip
    trainer(tmp_path / "out", Log(), Waiting(), **options).train()
    for i, snapshot in enumerate(lmc.Store(tmp_path / "out" / "lmc-store").snapshots()):
        found = snapshot.metadata
        assert {"loss", "grad_norm", "learning_rate", "epoch", "run"} <= found.keys() and "step" not in found
        assert found["loss"] == log[i]["loss"] and found["epoch"] == log[i]["epoch"]
        # An evaluation of another step says nothing of this one.
        assert ("eval_loss" in found) == (snapshot.step % 4 == 0)
    assert lmc.Store(tmp_path / "out" / "lmc-store").plan_prune(keep_best=("eval_loss", "min")).keep


def test_odd_numbers_in_a_log_are_left_out(run, tmp_path):
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies, output)
    path = output / "checkpoint-4" / "trainer_state.json"
    state = json.loads(path.read_bytes())
    state["log_history"] = [{"step": 4, "loss": float("nan"), "flops": 10**18, "note": "text", "is": True, "n": 3}]
    path.write_text(json.dumps(state))
    (output / "checkpoint-2" / "trainer_state.json").write_text("{")
    trainer(output, Waiting(), steps=10).train(resume_from_checkpoint=True)
    found = {s.step: s.metadata for s in lmc.Store(output / "lmc-store").snapshots()}
    assert found[4] == {"epoch": 0.25, "flops": 1e18, "n": 3, "run": run_of(copies / "checkpoint-4")}
    assert found[2] == {"run": found[4]["run"]}


def test_a_limit_of_the_trainer_is_refused(tmp_path):
    with pytest.raises(lmc.UsageError, match=r"save_total_limit=2 would delete .*Callback\(keep=2\)"):
        trainer(tmp_path / "out", Waiting(), save_total_limit=2).train()
    assert not checkpoints(tmp_path / "out")


def test_space_is_freed_while_the_run_goes_on(tmp_path):
    place = tmp_path / "out" / "lmc-store"

    class Later(TrainerCallback):
        """Lets half an hour pass after each save."""

        def on_save(self, *args, **kwargs):
            for path in place.rglob("*"):
                if path.is_file() and path.name != "lmc-store.json":
                    then = path.stat().st_mtime - 1900
                    os.utime(path, (then, then))
            sizes.append(sum(p.stat().st_size for p in place.rglob("*") if p.is_file()))

    sizes = []
    trainer(tmp_path / "out", Waiting(keep=1), Later(), steps=20).train()
    assert '"grace_seconds":1800' in (place / "lmc-store.json").read_text()
    assert steps_of(place) == [20]
    # Of one snapshot, the last one, and what was pruned within the grace period.
    assert max(sizes[-3:]) < 3.5 * sizes[1]


def test_a_save_does_not_read_all_snapshots(tmp_path, monkeypatch):
    asked = []

    class Counting:
        def __init__(self, store):
            self.store = store

        def __getattr__(self, name):
            asked.append(name)
            return getattr(self.store, name)

    class Stores:
        create = staticmethod(lambda *args, **kwargs: Counting(create(*args, **kwargs)))

        def __new__(cls, *args, **kwargs):
            return Counting(opened(*args, **kwargs))

    opened, create = lmc.Store, lmc.Store.create
    create(tmp_path / "store")
    monkeypatch.setattr(lmc, "Store", Stores)
    trainer(tmp_path / "out", Waiting(tmp_path / "store", keep=2)).train()
    assert asked.count("snapshots") == 1 and asked.count("save_files") == 4 and asked.count("prune") == 2


def test_a_run_that_went_back_keeps_the_checkpoint_that_it_saved_last(run, tmp_path):
    _, copies = run
    output = tmp_path / "out"
    for step in (2, 4):
        shutil.copytree(copies / f"checkpoint-{step}", output / f"checkpoint-{step}")
    shutil.copytree(copies / "checkpoint-8", output / "checkpoint-30")
    store = lmc.Store.create(output / "lmc-store")
    run_id = {"run": run_of(copies / "checkpoint-4")}
    store.save_files({"model.safetensors": b"of the first time"}, step=20, metadata=run_id)
    trainer(output, Waiting(keep=1)).train(resume_from_checkpoint=str(output / "checkpoint-4"))
    assert checkpoints(output) == {"checkpoint-8", "checkpoint-30"}
    assert [s.step for s in store.snapshots()] == [8, 20]


def test_in_the_background(tmp_path):
    trainer(tmp_path / "out", Callback()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-8"}
    assert {s.step for s in lmc.Store(tmp_path / "out" / "lmc-store").snapshots()} == {2, 4, 6, 8}


def test_what_was_saved_while_others_were_moved_is_moved_in_the_end(tmp_path, monkeypatch):
    ended = threading.Event()

    class Ends(TrainerCallback):
        def on_train_end(self, *arguments, **kwargs):
            ended.set()

    def waits(*arguments, **options):
        # The trainer saves the others meanwhile.
        assert ended.wait(600)
        move(*arguments, **options)

    move = Callback._store
    monkeypatch.setattr(Callback, "_store", waits)
    # A checkpoint of a later step, as of a run that went back, is the newest all the time.
    (tmp_path / "out" / "checkpoint-30").mkdir(parents=True)
    trainer(tmp_path / "out", Ends(), Callback()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-8", "checkpoint-30"}
    assert [s.step for s in lmc.Store(tmp_path / "out" / "lmc-store").snapshots()] == [2, 4, 6, 8]


def test_the_best_one_stays(tmp_path):
    class Best(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            state.best_model_checkpoint = str(Path(args.output_dir) / "checkpoint-4")

    trainer(tmp_path / "out", Best(), Waiting()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-4", "checkpoint-8"}


def test_a_step_that_the_run_saved_before_it_went_back_costs_no_checkpoint(run, tmp_path, caplog):
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies / "checkpoint-2", output / "checkpoint-2")
    store = lmc.Store.create(output / "lmc-store")
    run_id = {"run": run_of(output / "checkpoint-2")}
    store.save_files({"model.safetensors": b"of the first time"}, step=4, metadata=run_id)
    with caplog.at_level(logging.WARNING):
        trainer(output, Waiting()).train(resume_from_checkpoint=True)
    assert checkpoints(output) == {"checkpoint-4", "checkpoint-8"}
    assert [s.step for s in store.snapshots()] == [2, 4, 6, 8]
    assert "the store has another checkpoint of step 4" in caplog.text


def test_a_directory_that_cannot_be_listed_is_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        state = SimpleNamespace(is_world_process_zero=True, best_model_checkpoint=None, global_step=2)
        Callback().on_save(SimpleNamespace(output_dir=str(tmp_path / "missing"), distributed_state=None), state, None)
    assert "checkpoints stay as they are" in caplog.text and "missing" in caplog.text


@pytest.mark.parametrize("odd", ["link", "link to a directory", "broken link", "empty directory", "pipe"])
def test_what_a_store_does_not_keep_stays(run, tmp_path, caplog, odd):
    """A checkpoint that could not be restored unchanged is not moved; others are."""
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies, output)
    path = output / "checkpoint-4" / "odd"
    if "link" in odd:
        path.symlink_to({"link": "config.json", "link to a directory": ".."}.get(odd, "nothing"))
    elif odd == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with caplog.at_level(logging.WARNING):
        trainer(output, Waiting(), steps=10).train(resume_from_checkpoint=True)
    assert checkpoints(output) == {"checkpoint-4", "checkpoint-10"} and os.path.lexists(path)
    assert [s.step for s in lmc.Store(output / "lmc-store").snapshots()] == [2, 6, 8, 10]
    why = "a link" if "link" in odd else "an empty directory" if "directory" in odd else "not a regular file"
    assert f"{path} is {why}" in caplog.text


def test_directories_of_a_checkpoint_come_back(run, tmp_path):
    """As FSDP and DeepSpeed leave them: the shards of each process in directories beside the trainer's own files."""
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies, output)
    for name in ["model_0/__0_0.distcp", "model_0/__1_0.distcp", "optimizer_0/__0_0.distcp", "a/b/c"]:
        path = output / "checkpoint-4" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 1000)
    shutil.copytree(output / "checkpoint-4", tmp_path / "before")
    trainer(output, Waiting(), steps=10).train(resume_from_checkpoint=True)
    assert checkpoints(output) == {"checkpoint-10"}
    assert restore(output, 4) == output / "checkpoint-4"
    assert same(tmp_path / "before", output / "checkpoint-4")
    assert (output / "checkpoint-4/a/b/c").read_bytes() == b"a/b/c" * 1000


def test_a_move_that_was_interrupted_goes_on(run, tmp_path):
    _, copies = run
    output = tmp_path / "out"
    shutil.copytree(copies, output)
    store = lmc.Store.create(output / "lmc-store")
    files = {p.name: p for p in sorted((output / "checkpoint-2").iterdir())}
    store.save_files(files, step=2, metadata={"run": run_of(output / "checkpoint-2")})
    shutil.copytree(copies / "checkpoint-4", output / ".checkpoint-1.stored")  # half deleted
    trainer(output, Waiting(), steps=10).train(resume_from_checkpoint=True)
    assert checkpoints(output) == {"checkpoint-10"}
    assert [s.step for s in store.snapshots()] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("options", [{"keep": 0}, {"grace_seconds": 59}, {"level": "best"}, {"threads": -3}])
def test_options_that_are_none(options):
    with pytest.raises(lmc.UsageError, match=next(iter(options))):
        Callback(**options)


@pytest.mark.long
def test_two_ranks(tmp_path):
    """What each rank saves is in the snapshots."""
    script = tmp_path / "train.py"
    script.write_text(
        f"""if True:
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from test_hf import Callback, trainer
        trainer(Path(sys.argv[1]), Callback()).train()
        """
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*command, script, tmp_path / "out"], check=True, timeout=600)
    store = lmc.Store(tmp_path / "out" / "lmc-store")
    assert [s.step for s in store.snapshots()] == [2, 4, 6, 8]
    for step in (2, 4, 6, 8):
        names = {f.name for f in store.open_snapshot(step).files}
        assert {"model.safetensors", "optimizer.pt", "rng_state_0.pth", "rng_state_1.pth"} <= names
    assert checkpoints(tmp_path / "out") == {"checkpoint-8"}
