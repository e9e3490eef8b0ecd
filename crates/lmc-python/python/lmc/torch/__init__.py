"""`.lmc` files of PyTorch tensors: the functions of `safetensors.torch`, and nested states.

>>> import torch
>>> from lmc.torch import load_file, save_file
>>> save_file({"weight": torch.zeros(2, 3)}, "model.lmc")
>>> load_file("model.lmc")["weight"].shape
torch.Size([2, 3])
"""

from lmc.torch._errors import TensorError
from lmc.torch._load import load, load_file, safe_open
from lmc.torch._model import load_model, save_model
from lmc.torch._save import save, save_file
from lmc.torch._slices import TensorSlice
from lmc.torch._state import load_state, save_state

__all__ = [
    "TensorError",
    "TensorSlice",
    "load",
    "load_file",
    "load_model",
    "load_state",
    "safe_open",
    "save",
    "save_file",
    "save_model",
    "save_state",
]
