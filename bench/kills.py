#!/usr/bin/env python3
"""Kills trainings at random moments, resumes them, and compares their losses with those of one that nothing killed.

    bench/kills.py [--kills N] [--seed N] [--dir DIR] [KIND...]

Each kind is a small training as the book shows it: a `loop` of its own with `Store.save`, the `trainer` of Hugging
Face with `lmc.hf.Callback`, `lightning` and `accelerate` with the modules of these names, and `dcp` and `async`, a
training that saves with `torch.distributed.checkpoint`. A kill is SIGKILL, to a process that was forked from one that
has imported everything, so that most of its time it trains and saves. The first process of a training is killed once
a checkpoint is there, the others at any time. After each kill the store is verified as a whole, and the next process
resumes: the first loss that it writes is of a later step than the first. A training is over when it has made its
steps, and the next one begins in another directory, until N processes were killed.

Prints for each kind how many processes were killed, how many went on from a checkpoint that a killed one left, how many
trainings came to their end, and how many of them had other losses; exits with 1 if any had, if a store was damaged, or
if a process began anew beside a checkpoint.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import lmc
import torch

STEPS, EVERY = 24, 2


class Losses:
    """The losses of a training, on disk: of a step that was made twice, the later."""

    def __init__(self, folder):
        self.path = folder / "losses"

    def add(self, step, loss):
        with open(self.path, "a") as file:
            file.write(json.dumps([step, float(loss).hex()]) + "\n")

    def written(self):
        """The steps of all losses, in the order of their writing."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [json.loads(line)[0] for line in lines if line.endswith("]")]

    def all(self):
        # A kill may leave half a line.
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return dict(json.loads(line) for line in lines if line.endswith("]"))


def batch(step):
    draw = torch.Generator().manual_seed(step)
    return torch.randn(16, 64, generator=draw)


def network():
    torch.manual_seed(0)
    # Dropout, so that losses depend on the state of the generator, too.
    return torch.nn.Sequential(
        torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(512, 64)
    )


def loss_of(net, step):
    x = batch(step)
    return (net(x) - x).square().mean()


def loop(folder, losses):
    net = network()
    optimizer = torch.optim.AdamW(net.parameters())
    store, first = lmc.Store.create(folder / "store"), 0
    try:
        state = store.load(into={"model": net, "optimizer": optimizer})
    except lmc.NotFoundError:
        pass
    else:
        first = state["step"]
        torch.set_rng_state(state["rng"])
    for step in range(first + 1, STEPS + 1):
        loss = loss_of(net, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.add(step, loss)
        if step % EVERY == 0:
            state = {"model": net, "optimizer": optimizer}
            state = {name: of.state_dict() for name, of in state.items()}
            state |= {"rng": torch.get_rng_state(), "step": step}
            store.save(state, step=step, metadata={"loss": loss}, threads=1)


def dcp(folder, losses, *, background=False):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    if background:
        torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    net = network()
    optimizer = torch.optim.AdamW(net.parameters())
    loss_of(net, 0).backward()
    optimizer.step()  # so that it has a state to load into
    net.load_state_dict(network().state_dict())
    for state in optimizer.state.values():
        for tensor in state.values():
            tensor.zero_()
    torch.manual_seed(0)

    def state(step):
        return {
            "model": net.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "step": torch.tensor(step),
        }

    first = 0
    if store_of(folder) is not None and lmc.Store(folder / "store").snapshots():
        found = state(0)
        dcp.load(found, storage_reader=lmc.dcp.Reader(folder / "store"), no_dist=not background)
        net.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        torch.set_rng_state(found["rng"])
        first = int(found["step"])
    saving = None
    for step in range(first + 1, STEPS + 1):
        loss = loss_of(net, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.add(step, loss)
        if step % EVERY == 0:
            writer = lmc.dcp.Writer(folder / "store", step=step, keep_last=3, threads=1)
            if saving is not None:
                saving.result()
            if background:
                saving = dcp.async_save(
                    state(step), storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType.THREAD
                )
            else:
                dcp.save(state(step), storage_writer=writer, no_dist=True)
    if saving is not None:
        saving.result()


def in_background(folder, losses):
    dcp(folder, losses, background=True)


def trainer(folder, losses):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, x):
            return {"loss": (self.net(x) - x).square().mean()}

    class Log(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in logs:
                losses.add(state.global_step, logs["loss"])

    output = folder / "output"
    arguments = TrainingArguments(
        str(output), max_steps=STEPS, save_steps=EVERY, logging_steps=1, per_device_train_batch_size=16, use_cpu=True,
        report_to=[], seed=1, disable_tqdm=True, remove_unused_columns=False, dataloader_num_workers=0,
    )  # fmt: skip
    data = [{"x": x} for x in batch(0).repeat(32, 1)]
    callback = lmc.hf.Callback()
    made = Trainer(Model(), arguments, train_dataset=data, callbacks=[callback, Log()])
    # The Trainer takes a directory that a kill left incomplete for its last checkpoint: the store says which is whole.
    store = store_of(folder)
    resumed = lmc.hf.restore(output) if store is not None and lmc.Store(store).snapshots() else None
    made.train(resume_from_checkpoint=resumed and str(resumed))


def lightning(folder, losses):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lmc.lightning import CheckpointIO

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, given, _):
            loss = (self.net(given) - given).square().mean()
            losses.add(self.global_step + 1, loss.detach())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

        def on_train_batch_start(self, *_):
            # Lightning saves no state of the generator, and a training that is resumed makes an iterator of its loader,
            # which draws from it, after its epoch began.
            torch.manual_seed(self.global_step)

    folder /= "epochs"
    keep = ModelCheckpoint(folder, save_top_k=-1, save_last=False)
    made = Trainer(
        max_epochs=STEPS // EVERY, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[keep], plugins=[CheckpointIO(threads=1)],
    )  # fmt: skip
    net = Net()
    torch.manual_seed(1)
    data = torch.utils.data.DataLoader(torch.cat([batch(i) for i in range(EVERY)]), batch_size=16)
    found = sorted(folder.glob("epoch=*.ckpt"), key=lambda path: int(path.stem.split("=")[-1]))
    made.fit(net, data, ckpt_path=str(found[-1]) if found else None)


def accelerate(folder, losses):
    import lmc.accelerate
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    made = Accelerator(cpu=True, project_dir=str(folder / "files"))
    net = network()
    net, optimizer = made.prepare(net, torch.optim.AdamW(net.parameters()))
    set_seed(1)
    try:
        first = lmc.accelerate.load_state(made, folder / "store")
    except lmc.NotFoundError:
        first = 0
    for step in range(first + 1, STEPS + 1):
        loss = loss_of(net, step)
        optimizer.zero_grad()
        made.backward(loss)
        optimizer.step()
        losses.add(step, loss)
        if step % EVERY == 0:
            lmc.accelerate.save_state(made, folder / "store", step=step, metadata={"loss": float(loss)}, threads=1)


KINDS = {
    "loop": loop, "trainer": trainer, "lightning": lightning, "accelerate": accelerate, "dcp": dcp,
    "async": in_background,
}  # fmt: skip


def imported(kind):
    """Imports what a kind needs, before processes are forked."""
    import lmc.dcp  # noqa: F401

    if kind == "trainer":
        import lmc.hf
        import transformers  # noqa: F401
        from transformers import Trainer  # noqa: F401
    if kind == "lightning":
        import lightning.pytorch  # noqa: F401
        import lmc.lightning  # noqa: F401
    if kind == "accelerate":
        import accelerate  # noqa: F401
        import lmc.accelerate  # noqa: F401


def start(kind, folder, log):
    """The process of a training, with its output in a file."""
    if process := os.fork():
        return process
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        KINDS[kind](folder, Losses(folder))
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def store_of(folder):
    places = [folder / name for name in ("store", "output/lmc-store", "epochs/lmc-store")]
    return next((place for place in places if (place / "lmc-store.json").exists()), None)


def wait_for_a_checkpoint(process, folder):
    """Waits until there is a snapshot, or the process ended, which it does not collect."""
    while os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if (place := store_of(folder)) is not None and lmc.Store(place).snapshots():
            return
        time.sleep(0.002)


def finished(process, within):
    """How a process ended, if it did in so many seconds."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    return None


def check(kind, kills, draw, root):
    """Kills so many processes; returns what came of it, and what was wrong."""
    imported(kind)
    whole, log = root / "whole", root / "log"
    whole.mkdir(parents=True)
    started = time.monotonic()
    if (status := finished(start(kind, whole, log), 600)) != 0:
        return {}, [f"the training that nothing kills ended with {status}: {log.read_text()[-2000:]}"]
    lasts, expected = time.monotonic() - started, Losses(whole).all()
    if set(expected) != set(range(1, STEPS + 1)):
        return {}, [f"there are losses of steps {sorted(expected)}"]
    counts, wrong, number = {"killed": 0, "resumed": 0, "trainings": 0, "other losses": 0}, [], 0
    while counts["killed"] < kills and len(wrong) < 5:
        number += 1
        folder = root / f"{number}"
        folder.mkdir()
        saved = []
        while True:
            before = len(Losses(folder).written())
            process = start(kind, folder, log)
            if not saved and counts["killed"] < kills:
                wait_for_a_checkpoint(process, folder)
            status = finished(process, draw.uniform(0, 0.7 * lasts) if counts["killed"] < kills else 600)
            if status is None:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                counts["killed"] += 1
            # A process that was killed early may have written none.
            if saved and (steps := Losses(folder).written()[before:]):
                counts["resumed"] += steps[0] > 1
                if steps[0] == 1:
                    wrong.append(f"training {number} began anew, though step {saved[-1]} is saved")
            if status is None:
                if (place := store_of(folder)) is not None:
                    # Until the first snapshot is saved there may be data without a record, which verify takes for loss.
                    store, had = lmc.Store(place), saved
                    saved = [s.step for s in store.snapshots()]
                    found = store.verify(deep=True).problems if saved else [f"step {step} is gone" for step in had]
                    wrong += [f"after kill {counts['killed']}: {problem}" for problem in found]
                continue
            if status:
                wrong.append(f"a process ended with {status}: {log.read_text()[-2000:]}")
            break
        counts["trainings"] += 1
        if (made := Losses(folder).all()) != expected:
            counts["other losses"] += 1
            different = [step for step in expected if made.get(step) != expected[step]]
            wrong.append(f"training {number} has other losses of steps {different}")
        shutil.rmtree(folder)
    return counts, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--kills", type=int, default=100, help="processes to kill of each kind (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="for the files of the trainings; by default a temporary directory")
    args = parser.parse_args()
    if unknown := set(args.kinds) - set(KINDS):
        parser.error(f"there is no kind {min(unknown)}")
    failed = False
    for kind in args.kinds or KINDS:
        with tempfile.TemporaryDirectory(dir=args.dir) as root:
            started = time.monotonic()
            counts, wrong = check(kind, args.kills, random.Random(args.seed), Path(root))
        counts["seconds"] = round(time.monotonic() - started)
        print(f"{kind:10}  " + ", ".join(f"{n} {what}" for what, n in counts.items()), flush=True)
        for one in wrong:
            print(f"  {one}", file=sys.stderr)
        failed |= bool(wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
