"""A real `Trainer` of Hugging Face's, whose older checkpoints go to a store."""

from __future__ import annotations

import filecmp
import logging
import os
import shutil
import threading
from pathlib import Path

import lmc
import lmc.hf
import lmc.numpy
import pytest
import torch
from lmc.hf import Callback, restore
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


def trainer(output: Path, *callbacks: TrainerCallback, steps: int = STEPS) -> Trainer:
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        str(output), max_steps=steps, save_steps=EVERY, per_device_train_batch_size=4, use_cpu=True, report_to=[],
        seed=1, disable_tqdm=True,
        logging_strategy="no", lr_scheduler_type="constant",
    )  # fmt: skip
    return Trainer(model, arguments, train_dataset=Text(), callbacks=list(callbacks))


def same(a: Path, b: Path) -> bool:
    names = {p.relative_to(a) for p in a.rglob("*")}
    files = [n for n in names if (a / n).is_file()]
    return (
        names == {p.relative_to(b) for p in b.rglob("*")}
        and filecmp.cmpfiles(a, b, files, shallow=False)[1:] == ([], [])
    )


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


def test_older_checkpoints_are_in_the_store(run):
    output, copies = run
    assert checkpoints(output) == {"checkpoint-8"}
    assert same(output / "checkpoint-8", copies / "checkpoint-8")
    store = lmc.Store(output / "lmc-store")
    assert [s.step for s in store.snapshots()] == [2, 4, 6]
    assert store.verify(deep=True).problems == []


def test_any_is_brought_back(run, tmp_path):
    output, copies = run
    for step in (2, 4, 6):
        back = restore(tmp_path, step, store=output / "lmc-store")
        assert back == tmp_path / f"checkpoint-{step}" and same(back, copies / back.name)
    with pytest.raises(lmc.ExistsError):
        restore(tmp_path, 4, store=output / "lmc-store")
    with pytest.raises(lmc.NotFoundError):
        restore(tmp_path, 5, store=output / "lmc-store")
    assert checkpoints(tmp_path) == {f"checkpoint-{step}" for step in (2, 4, 6)}


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
    assert [s.step for s in lmc.Store(tmp_path / "store").snapshots()] == [4, 6]
    assert not (tmp_path / "out" / "lmc-store").exists()


def test_a_run_that_went_back_keeps_what_it_saves(tmp_path):
    store = lmc.Store.create(tmp_path / "store")
    for step in (20, 30):
        store.save_files({"model.safetensors": b"of the first time"}, step=step)
    trainer(tmp_path / "out", Waiting(tmp_path / "store", keep=1)).train()
    assert [s.step for s in store.snapshots()] == [6, 20, 30]


def test_a_run_that_went_back_keeps_the_checkpoint_that_it_saved_last(run, tmp_path):
    _, copies = run
    output = tmp_path / "out"
    for step in (2, 4):
        shutil.copytree(copies / f"checkpoint-{step}", output / f"checkpoint-{step}")
    shutil.copytree(copies / "checkpoint-8", output / "checkpoint-30")
    store = lmc.Store.create(output / "lmc-store")
    store.save_files({"model.safetensors": b"of the first time"}, step=20)
    trainer(output, Waiting(keep=1)).train(resume_from_checkpoint=str(output / "checkpoint-4"))
    assert checkpoints(output) == {"checkpoint-8", "checkpoint-30"}
    assert [s.step for s in store.snapshots()] == [6, 20]


def test_in_the_background(tmp_path):
    trainer(tmp_path / "out", Callback()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-8"}
    assert {s.step for s in lmc.Store(tmp_path / "out" / "lmc-store").snapshots()} == {2, 4, 6}


def test_what_was_saved_while_others_were_moved_is_moved_in_the_end(tmp_path, monkeypatch):
    ended = threading.Event()

    class Ends(TrainerCallback):
        def on_train_end(self, *arguments, **kwargs):
            ended.set()

    def waits(*arguments, **options):
        # The trainer saves the others meanwhile.
        assert ended.wait(600)
        move(*arguments, **options)

    move = lmc.hf._move
    monkeypatch.setattr(lmc.hf, "_move", waits)
    # A checkpoint of a later step, as of a run that went back, is the newest all the time.
    (tmp_path / "out" / "checkpoint-30").mkdir(parents=True)
    trainer(tmp_path / "out", Ends(), Callback()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-8", "checkpoint-30"}
    assert [s.step for s in lmc.Store(tmp_path / "out" / "lmc-store").snapshots()] == [2, 4, 6]


def test_the_best_one_stays(tmp_path):
    class Best(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            state.best_model_checkpoint = str(Path(args.output_dir) / "checkpoint-4")

    trainer(tmp_path / "out", Best(), Waiting()).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-4", "checkpoint-8"}


def test_what_goes_wrong_costs_no_checkpoint(tmp_path, caplog):
    # A store that has another checkpoint of the first step.
    store = lmc.Store.create(tmp_path / "store")
    store.save_files({"model.safetensors": b"of another run"}, step=2)
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path / "out", Waiting(tmp_path / "store")).train()
    assert checkpoints(tmp_path / "out") == {"checkpoint-2", "checkpoint-8"}
    assert [s.step for s in store.snapshots()] == [2, 4, 6]
    assert "the store has another checkpoint of step 2" in caplog.text


def test_a_directory_that_cannot_be_listed_is_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        Callback()._move(tmp_path / "missing", 2, None)
    assert "older checkpoints stay as they are" in caplog.text and "missing" in caplog.text


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
    assert [s.step for s in lmc.Store(output / "lmc-store").snapshots()] == [2, 6, 8]
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
    store.save_files({p.name: p for p in sorted((output / "checkpoint-2").iterdir())}, step=2)
    shutil.copytree(copies / "checkpoint-4", output / ".checkpoint-1.stored")  # half deleted
    trainer(output, Waiting(), steps=10).train(resume_from_checkpoint=True)
    assert checkpoints(output) == {"checkpoint-10"}
    assert [s.step for s in store.snapshots()] == [2, 4, 6, 8]


@pytest.mark.parametrize("options", [{"keep": 0}, {"level": "best"}, {"threads": -3}])
def test_options_that_are_none(options):
    with pytest.raises(lmc.UsageError, match=next(iter(options))):
        Callback(**options)
