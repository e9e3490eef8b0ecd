"""Writes the checkpoints of this folder, and the whole tensors of each as `NAME.safetensors`, for tests to compare.

python3 testdata/layouts/dcp/make.py    # PyTorch 2.15

`python3.11.2/` is what `dcp.save` writes there, of `{"model": {"w": torch.arange(12.).reshape(3, 4), "b":
torch.ones(5).bfloat16()}, "step": 3}`.
"""

import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

HERE = Path(__file__).parent
State = dict[str, object]


def counting(*sizes: int, dtype: torch.dtype = torch.float32, first: int = 0) -> torch.Tensor:
    """A tensor whose elements are all different, up to the precision of their type."""
    n = torch.Size(sizes).numel()
    return torch.arange(first, first + n).to(dtype).reshape(sizes)


def fsdp() -> State:
    """A model that two ranks share, trained for a step, and tensors cut in other ways."""
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(1)
    # 5 and 3 rows: the ranks' parts are of different sizes; the one row of the last layer is all of rank 0's.
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3), torch.nn.Linear(3, 1))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    return {
        "model": weights,
        "optimizer": moments,
        "columns": distribute_tensor(counting(3, 7, dtype=torch.bfloat16), mesh, [Shard(1)]),
        "middle": distribute_tensor(counting(2, 3, 4, dtype=torch.int32), mesh, [Shard(1)]),
        "last": distribute_tensor(counting(2, 2, 5, dtype=torch.float64), mesh, [Shard(2)]),
        "replicated": distribute_tensor(counting(4, 3, dtype=torch.int64), mesh, [Replicate()]),
        # The part of each rank is saved with its strides.
        "turned": DTensor.from_local(counting(3, 2, first=10 * dist.get_rank()).t(), mesh, [Shard(0)]),
        "plain": counting(6, dtype=torch.float16),
        "transposed": counting(3, 4).t(),
        "image": counting(1, 3, 2, 2).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(7.5),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False, True]),
        "complex": torch.tensor([1 + 2j, 3 - 4j]),
        "small": counting(5).to(torch.float8_e4m3fn),
        "step": 12,
        "note": {"text": "a string", "list": [1, 2]},
    }


def grid() -> State:
    """Four ranks in two rows and two columns."""
    mesh = init_device_mesh("cpu", (2, 2))
    return {
        "both": distribute_tensor(counting(5, 7), mesh, [Shard(0), Shard(1)]),
        "rows": distribute_tensor(counting(7, 3, dtype=torch.bfloat16), mesh, [Shard(0), Shard(0)]),
        "half": distribute_tensor(counting(4, 3, 3, dtype=torch.uint8), mesh, [Replicate(), Shard(2)]),
    }


def named() -> State:
    """For files of safetensors."""
    mesh = init_device_mesh("cpu", (2,))
    return {
        "rows": distribute_tensor(counting(5, 3), mesh, [Shard(0)]),
        "columns": distribute_tensor(counting(2, 4, dtype=torch.bfloat16), mesh, [Shard(1)]),
        "plain": counting(3, dtype=torch.int64),
    }


def unsupported() -> State:
    """Of types that safetensors lacks."""
    return {"complex128": torch.tensor([1 + 2j], dtype=torch.complex128), "model": {"weight": counting(3)}}


def whole(state: State, prefix: str = "") -> dict[str, torch.Tensor]:
    """The whole tensors of a state, named by their ways as `torch.distributed.checkpoint` names them."""
    found: dict[str, torch.Tensor] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= whole(value, f"{prefix}{name}.")
        elif isinstance(value, torch.Tensor):
            tensor = value.full_tensor() if isinstance(value, DTensor) else value
            found[prefix + name] = tensor.detach().contiguous().clone()
    return found


def rank(rank: int, ranks: int, meeting: str, name: str) -> None:
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    state = {"fsdp": fsdp, "grid": grid, "named": named, "unsupported": unsupported}[name]()
    tensors = whole(state)
    # `.metadata` says where it was written.
    os.chdir(HERE)
    folder = Path(name)
    if name == "named":
        form = SerializationFormat.SAFETENSORS
        dcp.save(state, storage_writer=FileSystemWriter(folder, serialization_format=form))
    else:
        dcp.save(state, checkpoint_id=folder)
    if rank == 0 and name != "unsupported":
        save_file(tensors, f"{name}.safetensors")
    dist.destroy_process_group()


def main() -> None:
    for name, ranks in {"fsdp": 2, "grid": 4, "named": 2, "unsupported": 1}.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        shutil.rmtree(HERE / name, ignore_errors=True)
        with tempfile.TemporaryDirectory() as meeting:
            mp.spawn(rank, (ranks, f"{meeting}/meeting", name), nprocs=ranks)


if __name__ == "__main__":
    main()
