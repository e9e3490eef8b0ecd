"""Writes the files of this folder: a checkpoint of ZeRO stage 2, of two ranks that train a tiny model in bf16 on CPUs.

DS_ACCELERATOR=cpu python3 -m torch.distributed.run --nproc_per_node 2 testdata/layouts/deepspeed/make.py

With DeepSpeed 0.19.8 and PyTorch 2.15.
"""

import tempfile
from pathlib import Path

import deepspeed
import torch
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
TOKENS = 180
WIDTH = 16


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 6 * WIDTH)
        self.down = nn.Linear(6 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        return self.head(x + self.down(functional.gelu(self.up(self.norm(x)))))


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    groups = [{"params": [p for p in net.parameters() if (p.ndim > 1) == decays]} for decays in (True, False)]
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True},
    }
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.AdamW(groups, lr=3e-3), config=config)
    for _ in range(20):
        x = torch.randint(0, TOKENS, (2, 33))
        loss = functional.cross_entropy(engine(x[:, :-1]).float().flatten(0, 1), x[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        torch.distributed.broadcast_object_list(shared)
        engine.save_checkpoint(shared[0], tag="step")
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            for file in Path(folder, "step").glob("*.pt"):
                (HERE / file.name).write_bytes(file.read_bytes())
        torch.distributed.barrier()


if __name__ == "__main__":
    main()
