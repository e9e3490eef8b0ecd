"""`from_pretrained` of compressed models: what transformers looks for and opens, it finds compressed, too.

Two names of `transformers.modeling_utils` are replaced. `_get_resolved_checkpoint_files` says which files a model
consists of: for a file that is there as a `.lmc` file it is called as if the configuration named that file
(`transformers_weights`), and for a model in the hub's cache with such files as if its folder had been given.
`safe_open`, which is replaced in a few other modules, too, opens `.lmc` files under the names of their originals. All
other files go to the functions that were there before.
"""

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any, Final

import transformers
from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedModel, modeling_utils
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME

from lmc._errors import UnsupportedError
from lmc._shards import SUFFIX, in_place
from lmc.hf._shard import Shard
from lmc.torch import safe_open

TESTED: Final = ("4.57.6", "5.0.0", "5.23.0", "5.24.0")
"""Versions of transformers that this was run with."""

_RESOLVE: Final = "_get_resolved_checkpoint_files"
_PARAMETERS: Final = frozenset(
    {"pretrained_model_name_or_path", "variant", "gguf_file", "use_safetensors", "transformers_explicit_filename"}
)
#: What opens files elsewhere: `load_file` of safetensors, which diffusers and sentence-transformers call, and what
#: reads single tensors of weights that stay on the disk.
_OTHERS: Final = {
    "safetensors.torch": Shard,
    "transformers.integrations.accelerate": safe_open,
    "accelerate.utils.offload": safe_open,
}
_MAGIC: Final = b"\x89LMC\r\n\x1a\n"


@functools.cache
def install() -> None:
    """Replaces the functions of transformers, once.

    Where they are not those that this module knows, loading a compressed model raises `lmc.UnsupportedError`.
    """
    if missing := _missing():
        _refuse(missing)
        return
    module: Any = modeling_utils
    setattr(module, _RESOLVE, _with_compressed(getattr(module, _RESOLVE)))
    module.safe_open = _opens(module.safe_open, Shard)
    for name, compressed in _OTHERS.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # accelerate is not installed
        if callable(getattr(module, "safe_open", None)):
            module.safe_open = _opens(module.safe_open, compressed)


def _missing() -> str | None:
    """What this version of transformers lacks."""
    if not callable(getattr(modeling_utils, "safe_open", None)):
        return "modeling_utils.safe_open"
    resolve = getattr(modeling_utils, _RESOLVE, None)
    if not callable(resolve) or not inspect.signature(resolve).parameters.keys() >= _PARAMETERS:
        return f"modeling_utils.{_RESOLVE} with the parameters {', '.join(sorted(_PARAMETERS))}"
    return None


def _refuse(missing: str) -> None:
    """Lets `from_pretrained` say why a compressed model is not loaded."""
    load: Any = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    @functools.wraps(load)
    def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        path = pretrained_model_name_or_path
        if isinstance(path, str | os.PathLike) and os.path.isdir(path) and _has_compressed(os.fsdecode(path)):
            raise UnsupportedError(
                f"{os.fsdecode(path)} has compressed files, which lmc.hf cannot load with transformers"
                f" {transformers.__version__}: that has no {missing}. Install one of the versions that lmc was run with"
                f" ({', '.join(TESTED)}), or use `lmc mount` or lmc.torch.load_file"
            )
        return load(cls, path, *args, **kwargs)

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[assignment]


def _opens(before: Any, compressed: Callable[..., Any]) -> Callable[..., Any]:
    """`safe_open` that opens `.lmc` files, too."""

    @functools.wraps(before)
    def opened(filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
        path = in_place(os.fsdecode(filename))
        if _is_compressed(path):
            return compressed(path, device=device)
        return before(filename, framework, device, **options)

    return opened


def _is_compressed(path: str) -> bool:
    """Whether a file is a `.lmc` file: links of the hub's cache may lead to one under the name of its original."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _with_compressed(before: Any) -> Callable[..., Any]:
    """The function that says which files a model has, for compressed ones, too."""
    signature = inspect.signature(before)

    @functools.wraps(before)
    def resolve(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        call.apply_defaults()
        given = call.arguments
        path = given["pretrained_model_name_or_path"]
        others = given["gguf_file"] or given.get("from_tf") or given.get("from_flax")
        if path is None or others or given["use_safetensors"] is False:
            return before(*args, **kwargs)
        # Before transformers 5, what is in download_kwargs are parameters.
        options = given | (given.get("download_kwargs") or {})
        names = [given["transformers_explicit_filename"]]
        if names == [None]:
            names = [_with_variant(name, given["variant"]) for name in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME)]
        subfolder = options.get("subfolder") or ""
        path = os.fspath(path)
        if not os.path.isdir(path) and (folder := _in_cache(path, subfolder, names, options)) is not None:
            path = given["pretrained_model_name_or_path"] = folder
        if os.path.isdir(path):
            folder = os.path.join(path, subfolder)
            if _took_the_place(folder, names[0]):
                given["transformers_explicit_filename"] = names[0]
            elif _took_the_place(folder, WEIGHTS_NAME) and not any(
                os.path.isfile(os.path.join(folder, name)) for name in names
            ):
                raise UnsupportedError(
                    f"{folder} has {WEIGHTS_NAME}{SUFFIX}, and lmc.hf loads safetensors only:"
                    " use `lmc mount`, or restore the file with `lmc decompress`"
                )
        return before(*call.args, **call.kwargs)

    return resolve


def _took_the_place(folder: str, name: str) -> bool:
    """Whether a compressed file is there in place of its original."""
    file = os.path.join(folder, name)
    return in_place(file) != file


def _with_variant(name: str, variant: str | None) -> str:
    stem, _, suffix = name.rpartition(".")
    return name if variant is None else f"{stem}.{variant}.{suffix}"


def _in_cache(repository: str, subfolder: str, names: list[str], options: dict[str, Any]) -> str | None:
    """The folder of a model in the hub's cache, if it has compressed files."""
    if options.get("force_download"):
        return None
    revision = options.get("commit_hash") or options.get("revision")
    revision = getattr(revision, "resolved", revision)
    for name in names:
        file = os.path.join(subfolder, name)
        for there in (file, file + SUFFIX):
            try:
                found = try_to_load_from_cache(repository, there, cache_dir=options.get("cache_dir"), revision=revision)
            except ValueError:
                return None  # not the name of a model
            if isinstance(found, str) and _has_compressed(os.path.dirname(found)):
                return found.removesuffix(there).rstrip(os.sep)
    return None


def _has_compressed(folder: str) -> bool:
    return any(name.endswith(SUFFIX) for name in os.listdir(folder))
