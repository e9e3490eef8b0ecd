"""A real `Trainer` of Lightning's, whose checkpoints are in a store."""

import json
import subprocess
import sys
from pathlib import Path

import lmc
import pytest
import torch
from torch_tensors import assert_same

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def io(tmp_path):
    import lmc.lightning

    return lmc.lightning.CheckpointIO(level="fast", threads=1)


def model():
    from lightning.pytorch import LightningModule

    class Net(LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.save_hyperparameters({"width": 64, "folder": Path("data"), "sizes": {1, 2}})
            self.net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 1))

        def training_step(self, batch, _):
            loss = self.net(batch).square().mean()
            # The best are the second and the fourth.
            self.log("score", float([3, 1, 4, 2, 5][self.current_epoch]), on_step=False, on_epoch=True)
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)]

    return Net()


def data():
    return torch.utils.data.DataLoader(torch.randn(12, 32, generator=torch.Generator().manual_seed(1)), batch_size=4)


def trainer(folder, plugin, *, epochs=5, **options):
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    keep = ModelCheckpoint(folder, **{"monitor": "score", "mode": "min", "save_top_k": 2} | options)
    return Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[keep], plugins=[plugin] if plugin else None,
    )  # fmt: skip


def expected(folder, epochs=5):
    """The weights after a training with Lightning's own files."""
    plain, net = trainer(folder, None, epochs=epochs), model()
    plain.fit(net, data())
    return net.state_dict()


def files(folder):
    return {path.name for path in Path(folder).glob("*.ckpt")}


def steps(folder):
    return [s.step for s in lmc.Store(folder / "lmc-store").snapshots()]


def test_the_best_are_kept_and_resumed_from(tmp_path, io):
    folder = tmp_path / "run"
    trainer(folder, io).fit(model(), data())
    assert files(folder) == {"epoch=1-step=6.ckpt", "epoch=3-step=12.ckpt"}
    assert steps(folder) == [6, 12]
    assert lmc.Store(folder / "lmc-store").verify(deep=True).problems == []
    found = {s.step: s.metadata for s in lmc.Store(folder / "lmc-store").snapshots()}
    assert found == {6: {"epoch": 1, "global_step": 6, "score": 1}, 12: {"epoch": 3, "global_step": 12, "score": 2}}
    for name in files(folder):
        assert (folder / name).stat().st_size < 200
    # In another place, with another object, to the same weights.
    folder.rename(tmp_path / "moved")
    net, plugin = model(), type(io)()
    again = trainer(tmp_path / "moved", plugin)
    again.fit(net, data(), ckpt_path=tmp_path / "moved" / "epoch=1-step=6.ckpt", weights_only=True)
    assert again.global_step == 15
    assert_same(net.state_dict(), expected(tmp_path / "plain"))


def test_a_checkpoint_is_the_one_that_lightning_saves(tmp_path, io):
    net = model()
    training = trainer(tmp_path, io)
    training.fit(net, data())
    training.save_checkpoint(tmp_path / "ours.ckpt")
    ours = io.load_checkpoint(tmp_path / "ours.ckpt")
    training.strategy.checkpoint_io = None
    training.save_checkpoint(tmp_path / "theirs.ckpt")
    theirs = io.load_checkpoint(tmp_path / "theirs.ckpt", weights_only=False)
    assert repr(ours) == repr(theirs)
    assert_same(ours["state_dict"], theirs["state_dict"])
    assert ours["hyper_parameters"] == {"width": 64, "folder": Path("data"), "sizes": {1, 2}}
    other = model()
    other.load_state_dict(type(io)().load_checkpoint(tmp_path / "ours.ckpt")["state_dict"])
    assert_same(other.state_dict(), net.state_dict())


@pytest.mark.parametrize("last", [True, "link"])
def test_the_last_one(tmp_path, io, last):
    trainer(tmp_path, io, save_last=last).fit(model(), data())
    assert files(tmp_path) == {"epoch=1-step=6.ckpt", "epoch=3-step=12.ckpt", "last.ckpt"}
    assert io.load_checkpoint(tmp_path / "last.ckpt")["global_step"] == 12
    # What was saved there before is gone.
    assert len(steps(tmp_path)) == (3 if last is True else 2)
    net = model()
    again = trainer(tmp_path, io, save_last=last)
    again.fit(net, data(), ckpt_path="last", weights_only=True)
    assert_same(net.state_dict(), expected(tmp_path / "plain"))
    # A link to another checkpoint is replaced, and that one stays.
    (tmp_path / "link.ckpt").symlink_to("epoch=1-step=6.ckpt")
    again.save_checkpoint(tmp_path / "link.ckpt")
    assert io.load_checkpoint(tmp_path / "epoch=1-step=6.ckpt")["global_step"] == 6
    assert io.load_checkpoint(tmp_path / "link.ckpt")["global_step"] == 15


def test_in_the_background(tmp_path, io):
    from lightning.pytorch.plugins import AsyncCheckpointIO

    net = model()
    trainer(tmp_path, AsyncCheckpointIO(io), save_top_k=-1).fit(net, data())
    assert steps(tmp_path) == [3, 6, 9, 12, 15]
    assert_same(io.load_checkpoint(tmp_path / "epoch=4-step=15.ckpt")["state_dict"], net.state_dict())


def test_a_store_elsewhere(tmp_path, monkeypatch):
    import lmc.lightning

    monkeypatch.chdir(tmp_path)
    trainer("run", lmc.lightning.CheckpointIO("stores/1", level="fast")).fit(model(), data())
    assert [s.step for s in lmc.Store("stores/1").snapshots()] == [6, 12]
    monkeypatch.chdir("run")
    found = lmc.lightning.CheckpointIO().load_checkpoint("epoch=3-step=12.ckpt")
    assert found["epoch"] == 3 and not Path("lmc-store").exists()


def test_what_cannot_be_saved_or_loaded(tmp_path, io):
    with pytest.raises(lmc.UsageError, match=r"state\['hook'\] is of type"):
        io.save_checkpoint({"global_step": 1, "hook": len}, tmp_path / "a.ckpt")
    with pytest.raises(TypeError, match="storage_options"):
        io.save_checkpoint({}, tmp_path / "a.ckpt", {"a": 1})
    with pytest.raises(FileNotFoundError):
        io.load_checkpoint(tmp_path / "a.ckpt")
    assert not files(tmp_path)
    io.save_checkpoint({"w": torch.ones(3)}, tmp_path / "a.ckpt")
    good = json.loads((tmp_path / "a.ckpt").read_text())
    for wrong in ('{"lmc.lightning.CheckpointIO": 7}', json.dumps(good)[:-3], json.dumps(good).replace("0", "-1")):
        (tmp_path / "b.ckpt").write_text(wrong)
        with pytest.raises(lmc.DamagedError, match=r"b.ckpt does not say where"):
            io.load_checkpoint(tmp_path / "b.ckpt")
    lmc.Store(tmp_path / "lmc-store").save({"w": torch.ones(3)}, step=1)
    lmc.Store(tmp_path / "lmc-store").prune(drop=[0])
    with pytest.raises(lmc.NotFoundError):
        io.load_checkpoint(tmp_path / "a.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    io.remove_checkpoint(tmp_path / "a.ckpt")
    assert not (tmp_path / "a.ckpt").exists()


def test_the_only_one_is_removed(tmp_path, io):
    for _ in range(2):
        io.save_checkpoint({"w": torch.ones(3)}, tmp_path / "a.ckpt")
        io.remove_checkpoint(tmp_path / "a.ckpt")
        assert not files(tmp_path) and len(steps(tmp_path)) == 1


def test_two_ranks(tmp_path, io):
    """Only the first saves, and all load."""
    program = f"""if True:
        import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
        import lmc.lightning, torch, warnings
        from test_torch_lightning import data, model, trainer
        from lightning.pytorch import Trainer
        from lightning.pytorch.callbacks import ModelCheckpoint
        warnings.simplefilter("ignore")
        def go(**options):
            run = Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", logger=False,
                enable_progress_bar=False, enable_model_summary=False, plugins=[lmc.lightning.CheckpointIO(threads=1)],
                callbacks=[ModelCheckpoint({str(tmp_path)!r}, save_top_k=-1)])
            net = model()
            run.fit(net, data(), weights_only=True, **options)
            return [p.detach().clone() for p in net.parameters()]
        first = go()
        again = go(ckpt_path={str(tmp_path / "epoch=1-step=4.ckpt")!r})
        assert all(map(torch.equal, first, again))
    """
    script = tmp_path / "train.py"
    script.write_text(program)
    subprocess.run([sys.executable, script], check=True, timeout=600)
    assert {"epoch=0-step=2.ckpt", "epoch=1-step=4.ckpt"} <= files(tmp_path)
