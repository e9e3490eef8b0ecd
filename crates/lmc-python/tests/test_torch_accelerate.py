"""States of a real `Accelerator` in a store."""

import subprocess
import sys
from pathlib import Path

import lmc
import lmc.accelerate
import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch_tensors import assert_same


class Count:
    """What is registered for checkpoints."""

    def __init__(self):
        self.value = 0

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Training:
    def __init__(self, folder):
        set_seed(0)
        self.accelerator = Accelerator(cpu=True, project_dir=str(folder))
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(), torch.nn.Linear(64, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
        self.model, self.optimizer, self.scheduler = self.accelerator.prepare(model, optimizer, scheduler)
        self.count = Count()
        self.accelerator.register_for_checkpointing(self.count)

    def steps(self, n):
        for _ in range(n):
            self.optimizer.zero_grad()
            self.accelerator.backward(self.model(torch.randn(4, 64)).square().mean())
            self.optimizer.step()
            self.scheduler.step()
            self.count.value += 1

    def state(self):
        return self.accelerator.unwrap_model(self.model).state_dict()


def test_saved_and_resumed(tmp_path):
    training = Training(tmp_path / "files")
    for step in (1, 2, 3):
        training.steps(1)
        lmc.accelerate.save_state(training.accelerator, tmp_path / "store", step=step, metadata={"loss": 1 / step})
    store = lmc.Store(tmp_path / "store")
    assert [s.metadata["loss"] for s in store.snapshots()] == [1, 0.5, 1 / 3]
    assert store.snapshots()[1].new_size < store.snapshots()[0].new_size
    assert not list((tmp_path / "files").iterdir())
    training.steps(2)
    for at, step in ((None, 3), (2, 2)):
        again = Training(tmp_path)
        assert lmc.accelerate.load_state(again.accelerator, store, at) == step == again.count.value
        again.steps(5 - step)
        assert_same(again.state(), training.state())
        assert again.scheduler.get_last_lr() == training.scheduler.get_last_lr()


def test_errors_leave_no_files(tmp_path):
    training = Training(tmp_path)
    lmc.accelerate.save_state(training.accelerator, tmp_path / "store", step=1)
    with pytest.raises(lmc.ExistsError):
        lmc.accelerate.save_state(training.accelerator, tmp_path / "store", step=1)
    with pytest.raises(lmc.NotFoundError):
        lmc.accelerate.load_state(training.accelerator, tmp_path / "store", 2)
    with pytest.raises(lmc.NotFoundError):
        lmc.accelerate.load_state(training.accelerator, tmp_path / "none")
    assert [p.name for p in tmp_path.iterdir()] == ["store"]
    named = Accelerator(
        cpu=True, project_config=ProjectConfiguration(str(tmp_path / "named"), automatic_checkpoint_naming=True)
    )
    with pytest.raises(lmc.UsageError, match="automatic_checkpoint_naming"):
        lmc.accelerate.save_state(named, tmp_path / "store", step=2)


@pytest.mark.long
def test_two_ranks(tmp_path):
    """Each has its state of random numbers, and fails as the first does."""
    script = tmp_path / "train.py"
    script.write_text(
        f"""if True:
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import lmc, lmc.accelerate, torch
        from test_torch_accelerate import Training
        store = sys.argv[1] + "/store"
        training = Training(sys.argv[1])
        rank = training.accelerator.process_index
        torch.manual_seed(rank)
        training.steps(2)
        lmc.accelerate.save_state(training.accelerator, store, step=2)
        try:
            lmc.accelerate.save_state(training.accelerator, store, step=2)
        except lmc.ExistsError:
            # A file each: what two processes print comes in one line now and then.
            open(f"{{store}}.failed.{{rank}}.{{training.accelerator.num_processes}}", "x").close()
        training.steps(2)
        first = {{name: tensor.clone() for name, tensor in training.state().items()}}
        assert lmc.accelerate.load_state(training.accelerator, store) == 2
        training.steps(2)
        assert all(torch.equal(first[name], tensor) for name, tensor in training.state().items())
        """
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, tmp_path]
    subprocess.run(command, check=True, timeout=600)
    assert sorted(file.name for file in tmp_path.glob("store.failed.*")) == ["store.failed.0.2", "store.failed.1.2"]
    names = [file.name for file in lmc.Store(tmp_path / "store").open_snapshot().files]
    assert {"random_states_0.pkl", "random_states_1.pkl"} <= set(names)
