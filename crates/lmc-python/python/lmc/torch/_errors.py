"""The error raised where safetensors raises a `RuntimeError`."""

from lmc._errors import UsageError


class TensorError(UsageError, RuntimeError):
    """Tensors that cannot be saved as they are (they share memory, or have none), or that do not fit a model."""
