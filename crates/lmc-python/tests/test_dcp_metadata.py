"""The metadata of checkpoints as JSON: what they keep, and what is refused of those that anybody may have written."""

from __future__ import annotations

import copy
import json
from typing import Any

import lmc
import lmc.dcp
import pytest
import torch
from dcp_states import load, save
from lmc.dcp import _metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


def chunk(offsets: list[int], sizes: list[int]) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def example() -> Metadata:
    grad = TensorProperties(dtype=torch.float32, requires_grad=True)
    grad.strides = (3, 1)
    entries = {
        "model.w": TensorStorageMetadata(grad, torch.Size([5, 3]), [chunk([0, 0], [3, 3]), chunk([3, 0], [2, 3])]),
        "step": BytesStorageMetadata(),
        "half": TensorStorageMetadata(TensorProperties(dtype=torch.bfloat16), torch.Size([]), [chunk([], [])]),
    }
    return Metadata(entries, planner_data={"model.w": ("model", "w"), "step": ("step",), "half": ("half", 0)})


FILES = {
    MetadataIndex("model.w", [0, 0]): "rank-0.safetensors",
    MetadataIndex("model.w", [3, 0]): "rank-1.safetensors",
    MetadataIndex("step"): "rank-0.safetensors",
    MetadataIndex("half", []): "rank-1.safetensors",
}

DOCUMENT = json.loads(_metadata.encode(example(), FILES))


def decode(document: Any) -> Metadata:
    return _metadata.decode(json.dumps(document).encode(), "step 1, .metadata.json")


def test_the_document() -> None:
    assert DOCUMENT == {
        "format": "lmc-dcp",
        "version": 1,
        "files": ["rank-0.safetensors", "rank-1.safetensors"],
        "entries": {
            "model.w": {
                "dtype": "float32",
                "size": [5, 3],
                "requires_grad": True,
                "strides": [3, 1],
                "chunks": [[[0, 0], [3, 3], 0], [[3, 0], [2, 3], 1]],
            },
            "step": {"bytes": 0},
            "half": {"dtype": "bfloat16", "size": [], "chunks": [[[], [], 1]]},
        },
        "paths": {"model.w": ["model", "w"], "step": ["step"], "half": ["half", 0]},
    }
    found, expected = decode(DOCUMENT), example()
    assert found.state_dict_metadata == expected.state_dict_metadata
    assert list(found.state_dict_metadata) == list(expected.state_dict_metadata)
    assert found.planner_data == expected.planner_data
    assert found.storage_data == {
        MetadataIndex("model.w", [0, 0]): ("rank-0.safetensors", "model.w[0+3,0+3]"),
        MetadataIndex("model.w", [3, 0]): ("rank-1.safetensors", "model.w[3+2,0+3]"),
        MetadataIndex("step"): ("rank-0.safetensors", "step"),
        MetadataIndex("half", []): ("rank-1.safetensors", "half"),
    }
    assert decode({k: v for k, v in DOCUMENT.items() if k != "paths"}).planner_data is None


def test_what_a_save_cannot_keep() -> None:
    for planner_data in (["a list"], {"model.w": ["model", "w"]}, {"model.w": ("model", 1.5)}, {1: ("a",)}, {"a": "b"}):
        bad = example()
        bad.planner_data = planner_data
        with pytest.raises(lmc.UsageError, match="saves only what PyTorch's adds"):
            _metadata.encode(bad, FILES)
    with pytest.raises(
        lmc.UsageError, match=r"'model.w': the metadata name its chunk at \[3, 0\], which no rank wrote"
    ):
        _metadata.encode(example(), {i: f for i, f in FILES.items() if i.offset != torch.Size([3, 0])})
    bad = example()
    bad.state_dict_metadata[7] = BytesStorageMetadata()
    with pytest.raises(lmc.UsageError, match="7: the names of a state must be text, not int"):
        _metadata.encode(bad, FILES)


def test_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_metadata, "MAX_LEN", 100)
    with pytest.raises(lmc.LimitError, match="more than 100"):
        _metadata.encode(example(), FILES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        '{"format":"lmc-dcp"',
        "[" * 100_000,
        '{"a":' * 100_000,
        "\x00",
        '{"format":"lmc-dcp","format":"lmc-dcp"}',
        '{"format":NaN}',
        '{"version":' + "9" * 5000 + "}",
        '"\\ud800',
    ],
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(lmc.DamagedError, match=r"^step 1, \.metadata\.json: is no JSON that lmc reads: "):
        _metadata.decode(text.encode(), "step 1, .metadata.json")
    with pytest.raises(lmc.DamagedError):
        _metadata.decode(b"\xff" + text.encode(), "")


@pytest.mark.parametrize("document", [None, [], 1, {}, {"format": "lmc-store", "version": 1}])
def test_what_is_no_document(document: Any) -> None:
    with pytest.raises(lmc.DamagedError, match="is no metadata of lmc.dcp"):
        decode(document)


def test_other_versions() -> None:
    with pytest.raises(lmc.UnsupportedError, match="has version 2, but this lmc knows only 1"):
        decode(DOCUMENT | {"version": 2, "new": True})
    for version in (None, "1", True, 1.0):
        with pytest.raises(lmc.DamagedError, match="has no version"):
            decode(DOCUMENT | {"version": version})


W = ("entries", "model.w")
BAD = [
    ((), {"files": ["a", "a"]}, "files are no list of different names"),
    ((), {"files": [1]}, "files are no list"),
    ((), {"entries": []}, "entries are no object"),
    ((), {"more": 1}, "the document has a field 'more', which is not known"),
    ((), {"paths": []}, "paths are no object"),
    (("paths",), {"step": []}, "the path of 'step' is no list"),
    (("paths",), {"step": [1.5]}, "the path of 'step' is no list"),
    (("paths",), {"step": [["a"]]}, "the path of 'step' is no list"),
    (("entries",), {"step": 1}, "'step' is no object"),
    (("entries", "step"), {"bytes": 2}, "'step' is in the file 2, and there are 2"),
    (("entries", "step"), {"bytes": -1}, "'step' is in the file -1"),
    (("entries", "step"), {"bytes": True}, "'step' is in the file True"),
    (("entries", "step"), {"size": []}, "'step' has a field 'size'"),
    (W, {"more": 1}, "'model.w' has a field 'more'"),
    (W, {"size": None}, "the size of 'model.w' is no list"),
    (W, {"size": [5.0, 3]}, "the size of 'model.w' is no list"),
    (W, {"size": [5, -3]}, "the size of 'model.w' is no list"),
    (W, {"size": [1] * 65}, "the size of 'model.w' is no list of at most 64"),
    (W, {"size": [2**31, 2**31]}, "'model.w' has more than 9223372036854775807 bytes"),
    (W, {"size": [2**64, 0]}, "the size of 'model.w' is no list"),
    (W, {"strides": [1]}, "'model.w' has 1 strides and 2 dimensions"),
    (W, {"strides": "31"}, "the strides of 'model.w' is no list"),
    (W, {"requires_grad": 1}, "requires_grad of 'model.w' is neither"),
    (W, {"chunks": {}}, "the chunks of 'model.w' are no list"),
    (W, {"chunks": [[[0, 0], [5, 3]]]}, "chunk 0 of 'model.w' is not offsets, sizes"),
    (W, {"chunks": [[[0, 0], [5, 3], 9]]}, "chunk 0 of 'model.w' is in the file 9"),
    (W, {"chunks": [[[0], [5, 3], 0]]}, "chunk 0 of 'model.w' is not inside"),
    (W, {"chunks": [[[0, 0], [3, 3], 0], [[3, 0], [3, 3], 0]]}, r"chunk 1 of 'model.w' is not inside of .*\[5, 3\]"),
    (W, {"chunks": [[[0, 0], [3, 3], 0], [[0, 0], [3, 2], 1]]}, "chunk 1 of 'model.w' is there twice"),
    (("entries",), {"model.w[0+3,0+3]": {"bytes": 0}}, r"'model.w\[0\+3,0\+3\]' is there twice"),
]


@pytest.mark.parametrize(("where", "what", "why"), BAD)
def test_what_is_wrong_is_named(where: tuple[str, ...], what: dict[str, Any], why: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    part = document
    for name in where:
        part = part[name]
    part.update(what)
    with pytest.raises(lmc.DamagedError, match=rf"^step 1, \.metadata\.json: {why}"):
        decode(document)


@pytest.mark.parametrize("field", ["files", "entries", "version"])
def test_what_is_missing(field: str) -> None:
    with pytest.raises(lmc.DamagedError, match=f"has no {field}"):
        decode({k: v for k, v in DOCUMENT.items() if k != field})


@pytest.mark.parametrize("dtype", ["nn", "float33", "Tensor", 5, None, "__doc__", "float32\n"])
def test_types_that_torch_lacks(dtype: Any) -> None:
    document = copy.deepcopy(DOCUMENT)
    document["entries"]["half"]["dtype"] = dtype
    with pytest.raises(lmc.UnsupportedError, match="'half': torch .* has no dtype"):
        decode(document)


def saved_with(tmp_path: Any, **changes: Any) -> Any:
    """A checkpoint whose metadata are changed as one who can write to the store would do it."""
    save(tmp_path / "a", 1)
    with lmc.Store(tmp_path / "a") as store:
        opened = store.open_snapshot()
        document = json.loads(opened.read_file(".metadata.json"))
        document["entries"]["weights.w"].update(changes)
        files = {"rank-0.safetensors": opened.read_file("rank-0.safetensors")}
        files[".metadata.json"] = json.dumps(document).encode()
        store.save_files(files, step=2)
    return tmp_path / "a"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dtype": "float64"}, r"weights.w: it has 480000 bytes in rank-0.safetensors, not those of torch.float64"),
        ({"size": [300, 401], "chunks": [[[0, 0], [300, 400], 0]]}, "the snapshot does not have its chunk at"),
        ({"chunks": [[[0, 0], [300, 399], 0]]}, "the snapshot does not have its chunk at"),
    ],
)
def test_metadata_that_do_not_fit_the_tensors(tmp_path: Any, changes: dict[str, Any], why: str) -> None:
    store = saved_with(tmp_path, **changes)
    into = {"weights": {"w": torch.zeros(changes.get("size", [300, 400]))}}
    with pytest.raises(CheckpointException, match=why):
        load(store, 2, into)
    with pytest.raises(lmc.DamagedError, match=why):
        lmc.dcp.export(store, tmp_path / "plain", step=2)


def test_a_file_that_is_too_large(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    monkeypatch.setattr(_metadata, "MAX_LEN", 100)
    with pytest.raises(CheckpointException, match="more than 100"):
        load(tmp_path)


def test_saves_of_the_same_chunks_have_the_same_metadata(tmp_path: Any) -> None:
    """So that they take no space again."""
    store = lmc.Store.create(tmp_path)
    for step in (1, 2):
        save(tmp_path, step)
    assert len({store.open_snapshot(step).read_file(".metadata.json") for step in (1, 2)}) == 1


def test_many_chunks_take_little() -> None:
    entries = {"w": TensorStorageMetadata(TensorProperties(), torch.Size([100_000]), [])}
    files = {}
    for i in range(100_000):
        entries["w"].chunks.append(chunk([i], [1]))
        files[MetadataIndex("w", [i])] = f"rank-{i % 1000}.safetensors"
    data = _metadata.encode(Metadata(entries), files)
    assert len(data) < 30 * 100_000
    assert len(_metadata.decode(data, "").storage_data) == 100_000


def test_a_save_reads_no_metadata(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So its cost does not grow with the chunks of other ranks."""
    save(tmp_path, 1)
    monkeypatch.setattr(_metadata, "decode", None)
    save(tmp_path, 2)
    monkeypatch.undo()
    assert load(tmp_path)["step"] == 2
