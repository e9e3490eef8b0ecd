"""Writes the files of this folder; the tests expect the names, types and values of the tensors.

python3 testdata/layouts/torch/make.py    # PyTorch 2.7 or later
"""

import io
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat

HERE = Path(__file__).parent


class Evil:
    """An object whose pickle runs a command where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/lmc-unpickled",)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(3, 2)
        self.register_buffer("b", torch.arange(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x)


def state(steps: int) -> dict[str, object]:
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(net.parameters())
    for number, parameter in enumerate(net.parameters()):
        with torch.no_grad():
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 10 * number)
        parameter.grad = torch.ones_like(parameter)
    for _ in range(steps):
        optimizer.step()
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}


def kinds() -> dict[str, object]:
    names = "float64 float16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128".split()
    names += ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
    tensors = {name: torch.arange(4).to(getattr(torch, name)) for name in names}
    return {**tensors, "parameter": torch.nn.Parameter(torch.arange(9.0).reshape(3, 3)), "scalar": torch.tensor(7.0)}


def views() -> dict[str, object]:
    flat = torch.arange(24.0)
    return {
        # Ranges of one storage, whose last eight elements none of them has.
        "first": flat[:4],
        "second": flat[4:16].reshape(3, 4),
        "overlaps": flat[2:6],
        # One storage under two names.
        "tied": (tied := torch.arange(6.0)),
        "again": tied,
        # No range of its storage; none at all; keys that give equal names.
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "empty": torch.empty(0, 5),
        "a": {"b": torch.zeros(2)},
        "a.b": torch.ones(2),
        "list": [torch.full((2,), 5.0), (torch.full((2,), 6.0),)],
        7: torch.full((2,), 7.0),
    }


def shared() -> dict[str, object]:
    """Tensors that are no segments of their own, each of them under a name that no other has."""
    flat = torch.arange(24.0)
    tied = torch.nn.Parameter(torch.arange(6.0))
    part = {"w": torch.arange(3).to(torch.bfloat16)}
    cycle: dict[str, object] = {"t": torch.full((2,), 8.0)}
    cycle["itself"] = cycle
    return {
        # Ranges of one storage, and elements of it that are none.
        "first": flat[:4],
        "second": flat[4:16].reshape(3, 4),
        "overlaps": flat[2:6],
        "every_second": flat[1::2],
        "column": flat.reshape(4, 6)[:, 2],
        "scalar": flat[5],
        "all": flat,
        # One tensor under two names, its elements in another shape, and a part of the state under two names.
        "embed": tied,
        "head": tied,
        "of_head": tied.detach().reshape(2, 3),
        "model": part,
        "ema": {"shadow": part},
        "cycle": cycle,
        # Not in order.
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "image": torch.arange(24).to(torch.float16).reshape(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "expanded": torch.arange(3).to(torch.bfloat16).reshape(3, 1).expand(3, 4),
        "complex": torch.arange(6).to(torch.complex64).reshape(2, 3).t(),
        "slice": torch.arange(100)[10:20],
        # The second one is beyond the end of its storage.
        "empty": torch.empty(0, 5),
        "none": torch.arange(2).as_strided((0,), (1,), 9),
        "list": [torch.full((2,), 5.0), (torch.full((2,), 6.0),)],
        7: torch.full((2,), 7.0),
    }


def flattened(value: object, name: str = "", above: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """The tensors of a state, as safetensors has them."""
    if isinstance(value, torch.Tensor):
        return {name: value.detach().clone(memory_format=torch.contiguous_format)}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    found = {}
    for key, below in items:
        if id(below) not in above:
            found |= flattened(below, f"{name}.{key}" if name else str(key), (*above, id(below)))
    return found


def odd() -> dict[str, object]:
    """A plain tensor, and some that no range of bytes has; one with an attribute that is a tensor."""
    numbers = torch.arange(4.0)
    plain = torch.nn.Parameter(torch.arange(5.0))
    plain.scale = torch.full((1,), 0.5)
    return {
        "plain": plain,
        "conjugate": torch.complex(numbers, numbers).conj(),
        "negative": torch.complex(numbers, numbers).conj().imag,
        "sparse": torch.eye(3).to_sparse(),
        "quantised": torch.quantize_per_tensor(numbers, 0.5, 0, torch.quint8),
        "meta": torch.empty(3, device="meta"),
    }


def fp4() -> dict[str, torch.Tensor]:
    """Pairs of FP4, in order and with strides."""
    pairs = torch.arange(12, dtype=torch.uint8).reshape(3, 4)
    return {"w": pairs.view(torch.float4_e2m1fn_x2), "turned": pairs.view(torch.float4_e2m1fn_x2).t()}


def rewritten(name: str, change: Callable[[list[tuple[str, bytes]]], list[tuple[str, bytes]]]) -> None:
    """Writes an archive of torch with other entries: torch refuses each of them."""
    with io.BytesIO() as file:
        torch.save({"w": torch.arange(3.0)}, file)
        with zipfile.ZipFile(file) as archive:
            entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(HERE / "lost" / f"{name}.pt", "w") as archive:
        for entry, data in change(entries):
            archive.writestr(zipfile.ZipInfo(entry), data)


def lost() -> None:
    """Files with what is no plain tensor, or that torch does not load."""
    folder = HERE / "lost"
    folder.mkdir(exist_ok=True)
    array, storage = np.ones((3, 4), np.float32), torch.arange(4.0).untyped_storage()
    torch.save({"model": {"w": array}, "ema": torch.ones(4)}, folder / "numpy.pt")
    torch.save({"w": array}, folder / "only-numpy.pt")
    with_storage = {"s": storage, "w": torch.ones(3)}
    torch.save(with_storage, folder / "storage.pt")
    torch.save(with_storage, folder / "storage-legacy.pt", _use_new_zipfile_serialization=False)
    for kind in (torch.complex128, torch.complex32):
        torch.save({"w": torch.ones(4, 5).to(kind)}, folder / f"{str(kind).removeprefix('torch.')}.pt")
    rewritten("no-version", lambda entries: [e for e in entries if not e[0].endswith("version")])
    rewritten("two-folders", lambda entries: [*entries, ("other/hello", b"")])
    rewritten("other-first", lambda entries: [("other/hello", b""), *entries])
    rewritten("deep", lambda entries: [(f"deeper/{name}", data) for name, data in entries])
    rewritten("twice", lambda entries: [*entries, *(e for e in entries if e[0].endswith("/data/0"))])
    rewritten("long-storage", lambda entries: [(n, d + bytes(4) * n.endswith("/data/0")) for n, d in entries])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(1)
    torch.save(state(1), HERE / "state.pt")
    torch.save(state(2), HERE / "state-next.pt")
    torch.save(kinds(), HERE / "kinds.pt")
    torch.save(views(), HERE / "views.pt")
    torch.save(views(), HERE / "protocol5.pt", pickle_protocol=5)
    torch.save(views(), HERE / "legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(shared(), HERE / "shared.pt")
    torch.save(shared(), HERE / "shared-legacy.pt", _use_new_zipfile_serialization=False)
    # Types that have no class of storages: the file counts bytes.
    untyped = {"u": torch.arange(4).to(torch.uint16), "w": torch.arange(6.0)}
    torch.save(untyped, HERE / "untyped-legacy.pt", _use_new_zipfile_serialization=False)
    save_file(flattened(shared()), HERE / "shared.safetensors", metadata={"format": "pt"})
    torch.save(fp4(), HERE / "fp4.pt")
    torch.save(fp4(), HERE / "fp4-legacy.pt", _use_new_zipfile_serialization=False)
    turned = torch.arange(12, dtype=torch.uint8).reshape(3, 4).t().contiguous().view(torch.float4_e2m1fn_x2)
    save_file(fp4() | {"turned": turned}, HERE / "fp4.safetensors", metadata={"format": "pt"})
    lost()
    torch.save(odd(), HERE / "odd.pt")
    torch.save(Net(), HERE / "module.pt")
    torch.save({"weights": torch.arange(5.0), "evil": Evil()}, HERE / "evil.pt")
    torch.save(torch.arange(5.0), HERE / "one.pt")
    with io.BytesIO() as file:
        torch.jit.save(torch.jit.script(Net()), file)
        (HERE / "script.pt").write_bytes(file.getvalue())
    for name, form in (("dcp", SerializationFormat.TORCH_SAVE), ("dcp-safetensors", SerializationFormat.SAFETENSORS)):
        writer = FileSystemWriter(HERE / name, serialization_format=form)
        tensors = {"model": {"weight": torch.arange(12.0).reshape(3, 4), "bias": torch.arange(3)}}
        dcp.save({**tensors, "step": 5} if name == "dcp" else tensors, storage_writer=writer)


if __name__ == "__main__":
    main()
