"""Metadata of untrusted checkpoints: nothing that they name is executed unless it is trusted."""

from __future__ import annotations

import collections
import copyreg
import enum
import functools
import importlib
import io
import operator
import os
import pickle
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path, PurePosixPath

import lmc
import lmc.dcp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from dcp_ranks import command, equal, process
from dcp_states import load, save, state
from lmc.dcp import _bases, _unpickle
from torch.distributed._shard.sharded_tensor import metadata as old
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


class Calls:
    """Calls a function when it is unpickled."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced

    def __call__(self):
        """`reduce` accepts only callables, so this is one."""


OS = Calls(importlib.import_module, ("os",))


class SetState:
    """Has a `__setstate__` that is called when it is unpickled."""

    def __setstate__(self, state):
        os.system(state)

    def __reduce__(self):
        return SetState, (), "touch PWNED"


def touch():
    """The effect of a gadget."""
    return "open('PWNED', 'w').close()"


GADGETS = {
    "os.system": lambda: Calls(os.system, ("touch PWNED",)),
    "subprocess.Popen": lambda: Calls(subprocess.Popen, (["touch", "PWNED"],)),
    "eval": lambda: Calls(eval, (touch(),)),
    "exec": lambda: Calls(exec, (touch(),)),
    "getattr": lambda: Calls(Calls(getattr, (OS, "system")), ("touch PWNED",)),
    "partial": lambda: Calls(functools.partial(os.system, "touch PWNED"), ()),
    "methodcaller": lambda: Calls(operator.methodcaller("system", "touch PWNED"), (OS,)),
    "import": lambda: Calls(importlib.import_module, ("this",)),
    "torch.load": lambda: Calls(torch.load, ("nothing",)),
    "reconstructor": lambda: Calls(copyreg._reconstructor, (SetState, object, None), "touch PWNED"),
    "setstate": lambda: SetState(),
    "defaultdict": lambda: Calls(collections.defaultdict, (list,)),
}
NAMES = {
    "os.system": "posix.system",
    "subprocess.Popen": "subprocess.Popen",
    "eval": "builtins.eval",
    "exec": "builtins.exec",
    "getattr": "importlib.import_module",
    "partial": "functools.partial",
    "methodcaller": "operator.methodcaller",
    "import": "importlib.import_module",
    "torch.load": "torch.serialization.load",
    "reconstructor": "copyreg._reconstructor",
    "setstate": f"{__name__}.SetState",
    "defaultdict": "collections.defaultdict",
}


def spoiled(metadata, place, gadget):
    """Metadata with a gadget somewhere in it."""
    if place == "alone":
        return gadget
    if place == "planner_data":
        return replace(metadata, planner_data={"deep": [(1, {"deeper": gadget})]})
    if place == "storage_data":
        return replace(metadata, storage_data={index: gadget for index in metadata.storage_data})
    return replace(metadata, state_dict_metadata={**metadata.state_dict_metadata, "x": gadget})


def spoil(checkpoint, place, gadget):
    path = checkpoint / ".metadata"
    path.write_bytes(pickle.dumps(spoiled(pickle.loads(path.read_bytes()), place, gadget)))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The folder of a run, in which gadgets are executed."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("place", ["alone", "planner_data", "storage_data", "state_dict_metadata"])
@pytest.mark.parametrize("kind", GADGETS)
class TestNothingIsRun:
    @pytest.fixture(autouse=True)
    def nothing_was_run(self, run):
        before = set(sys.modules)
        yield
        assert not (run / "PWNED").exists()
        assert "this" not in set(sys.modules) - before

    def test_by_saving_beside_it(self, run, kind, place):
        save(run / "other", 1)
        spoil(run / "other", place, GADGETS[kind]())
        _bases.forget()
        # Only the places of chunks are read, and nothing is unpickled: the rest does not matter.
        if place in ("alone", "storage_data"):
            with pytest.warns(UserWarning, match="saving without a base, since .*metadata: is no metadata of torch"):
                save(run / "new", 2)
        else:
            save(run / "new", 2)
            assert len(list((run / "new").glob("*.lmc"))) == 2
        assert equal(load(run / "new"), state(2))

    def test_by_loading_it(self, run, kind, place):
        save(run / "a", 1)
        spoil(run / "a", place, GADGETS[kind]())
        with pytest.raises(lmc.FormatError, match=f"metadata: names {NAMES[kind]}, .*it may be hostile"):
            lmc.dcp.Reader("a").read_metadata()
        with pytest.raises(CheckpointException, match="it may be hostile"):
            load(run / "a")

    def test_by_unpacking_it(self, run, kind, place):
        save(run / "a", 1)
        spoil(run / "a", place, GADGETS[kind]())
        for to in ("dcp", "safetensors"):
            with pytest.raises(lmc.FormatError, match="it may be hostile"):
                lmc.dcp.unpack("a", "out", to=to)
        assert not (run / "out").exists()

    def test_by_collecting_garbage(self, run, kind, place):
        save(f"file://{run}/a", 1)
        spoil(run / "a", place, GADGETS[kind]())
        there = set((run / "lmc-data").iterdir())
        if place in ("alone", "storage_data"):
            with pytest.raises(lmc.FormatError, match="is no metadata of torch"):
                lmc.dcp.collect_garbage(run, grace_seconds=-1)
        else:
            assert lmc.dcp.collect_garbage(run, grace_seconds=-1) == lmc.dcp.UnusedFiles([], [])
        assert set((run / "lmc-data").iterdir()) == there


def rebuilt(*parts):
    """A pickle from its pieces: opcodes, and values that are put on the stack."""
    pieces = [part if isinstance(part, bytes) else pickle.dumps(part, 2)[2:-1] for part in parts]
    return b"\x80\x04" + b"".join(pieces) + b"."


def named(module, name):
    return f"c{module}\n{name}\n".encode()


METADATA = named("torch.distributed.checkpoint.metadata", "Metadata")
ENCODING = named("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING")


class TestWhatMayBeNamed:
    def refused(self, data, match):
        with pytest.raises(lmc.FormatError, match=match):
            _unpickle.load(io.BytesIO(data), "x/.metadata", frozenset())

    @pytest.mark.parametrize("given", [{"version": "pwned"}, (None, {"version": "pwned"}), (None, {"__init__": None})])
    def test_classes_are_not_changed(self, given):
        before = dict(vars(Metadata))
        self.refused(rebuilt(METADATA, given, b"b"), "changes an object that is not part of it")
        assert dict(vars(Metadata)) == before
        assert _unpickle._KNOWN["torch.distributed.checkpoint.metadata", "Metadata"]

    def test_members_of_enumerations_are_not_changed(self):
        member = _MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
        before = dict(vars(member))
        for given in [{"_value_": 2}, (None, {"_value_": 2}), (None, {"member": 2})]:
            self.refused(rebuilt(ENCODING, (0,), b"R", given, b"b"), "changes an object that is not part of it")
        assert dict(vars(member)) == before and member.value == 0

    @pytest.mark.parametrize(
        "given",
        [
            METADATA + b"X\x08\0\0\0__init__\x86R",
            ENCODING + b"X\x08\0\0\0__init__\x86R",
            ENCODING + b"X\x04\0\0\0_new\x86R",
            ENCODING + b"X\x07\0\0\0__doc__\x86R",
            ENCODING + b"K\0\x86R",
            b"X\x01\0\0\0xX\x04\0\0\0join\x86R",
            b"NX\x09\0\0\0__class__\x86R",
            b"]X\x06\0\0\0append\x86R",
        ],
    )
    def test_only_members_of_enumerations_are_taken_by_name(self, given):
        self.refused(rebuilt(named("builtins", "getattr"), given), "takes an attribute of what is no enumeration")

    def test_names_are_not_paths(self):
        for module, name in [("torch", "os.system"), ("torch", "serialization.os.system"), ("torch", "os")]:
            data = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(t)]) + t.encode() for t in (module, name)) + b"\x93."
            self.refused(data, f"names {module}.{name}, which is not part")

    def test_what_is_shown_of_a_name_is_bounded_and_plain(self):
        self.refused(rebuilt(named("os", "\x1b[2J" + "x" * 100_000), b"0", b"N"), r"names os.\\x1b\[2Jx{80,100}\.\.\.,")

    @pytest.mark.parametrize("name", ["bytearray", "set", "frozenset", "list", "bytes", "range", "type", "object"])
    def test_no_number_says_how_much_to_make(self, name):
        data = rebuilt(named("builtins", name), (1 << 40,), b"R")
        with pytest.raises(lmc.FormatError, match="is not what torch|names builtins"):
            _unpickle.load(io.BytesIO(data), "x", frozenset())

    @pytest.mark.parametrize(
        "data",
        [
            b"\x80\x04Nr" + struct.pack("<I", 1 << 31) + b".",
            b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
            b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
            b"\x80\x04\x8d" + struct.pack("<Q", (1 << 64) - 1) + b"x.",
            b"\x80\x04X" + struct.pack("<I", 0xFFFF_FFFF) + b"x.",
            b"\x80\x04cos",
            b"\x80\x04",
            b"",
        ],
    )
    def test_no_pickle_has_room_made_for_what_it_does_not_have(self, data):
        self.refused(data, r"x/\.metadata: (byte 3 of the pickle stores memo|the pickle is truncated)")

    @pytest.mark.parametrize("opcode", [b"I1\n", b"Pid\n", b"\x82\x01", b"(ios\nsystem\n", b"(o", b"g0\n", b"\x97"])
    def test_opcodes_of_no_writer(self, opcode):
        self.refused(b"\x80\x04" + opcode + b".", "which no checkpoint's metadata has")

    def test_size_is_bounded(self, monkeypatch):
        monkeypatch.setattr(_unpickle, "LARGEST", 100)
        self.refused(pickle.dumps("x" * 200), "has more than 100 bytes")


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def deep(opcodes):
    """Values in values, as a key."""
    return b"\x80\x04})" + opcodes * 100_000 + b"Ns."


def doubled(n):
    """A tuple of 2^n values, as a key: each is twice the one before."""
    return b"\x80\x04})" + b"2\x86" * n + b"Ns."


def alike(n):
    """Keys with one hash."""
    keys = ((1 << 61) - 1) * 3
    long = [b"\x8a\x10" + (keys * i).to_bytes(16, "little") for i in range(1, n)]
    return b"\x80\x04}(" + b"".join(key + b"N" for key in long) + b"u."


def index_pickle(offsets):
    """A table with indices as keys, all of the tensor `w`."""
    items = b""
    for offset in offsets:
        numbers = b"".join(b"\x8a\x09" + n.to_bytes(9, "little") for n in offset)
        items += named("torch.distributed.checkpoint.metadata", "MetadataIndex") + b")\x81}(" + text("fqn") + text("w")
        items += text("offset") + named("torch", "Size") + b"(" + numbers + b"t\x85R" + text("index") + b"K\0ubN"
    return b"\x80\x04}(" + items + b"u."


NUMBERS = [b"J" + struct.pack("<i", i) for i in range(5_000)]
SHARED = b"\x80\x04](" + b"K\1" * 50_000 + b"e\x94"

HOSTILE = {
    "deep tuples": (deep(b"\x85"), "nests values more than 64 deep"),
    "deep lists": (b"\x80\x04" + b"]" * 2_000 + b"a" * 1_999 + b".", "nests values more than 64 deep"),
    "lists made deep from outside": (
        b"\x80\x04]\x94" + b"".join(b"]\x94h" + bytes([i]) + b"h" + bytes([i + 1]) + b"a0" for i in range(200)) + b".",
        "changes a value that is a part of another one",
    ),
    "doubled tuples": (doubled(60), "has a key that no checkpoint's metadata has"),
    "equal hashes": (alike(10_000), "has a key that no|has more than 4096 keys that are no text"),
    "numbers": (b"\x80\x04}(" + b"".join(n + b"N" for n in NUMBERS) + b"u.", "more than 4096 keys"),
    "a set of numbers": (b"\x80\x04\x8f(" + b"".join(NUMBERS) + b"\x90.", "more than 4096 keys"),
    "one list in many sets": (
        SHARED + b"(" + (named("builtins", "set") + b"h\0\x85R") * 9 + b"t.",
        "more than 4096 keys",
    ),
    "one list in many sizes": (
        SHARED + named("torch", "Size") + b"\x94(" + b"h\1h\0\x85R" * 50_000 + b"t.",
        "makes more of its values than its length allows",
    ),
    "one state of many objects": (
        b"\x80\x04}(" + b"".join(text(str(i)) + b"N" for i in range(20_000)) + b"u\x94("
        + named("torch.distributed.checkpoint.metadata", "StorageMeta") + b"\x94" + b"h\1)\x81h\0b" * 20_000 + b"t.",
        "makes more of its values than its length allows",
    ),
    "a state twice": (
        rebuilt(METADATA, b")\x81", {"version": "1"}, b"b", {"version": "2"}, b"b"),
        "of one object twice",
    ),
    "many values": (b"\x80\x04" + b"]" * 200_000 + b".", "more values than its length allows"),
    "a key that is a number of many digits": (
        b"\x80\x04}\x8b" + struct.pack("<I", 100_000) + b"\1" * 100_000 + b"Ns.",
        "has a key that no",
    ),
    "alike indices": (index_pickle([(7 + ((1 << 61) - 1) * i,) for i in range(3)] * 3), "whose offsets have one hash"),
    "an index of no name": (index_pickle([(1,)]).replace(text("w"), b"K\1"), "has an index that is not structured"),
    "a size of many dimensions": (SHARED + named("torch", "Size") + b"h\0\x85R.", "more than 64 dimensions"),
}


class TestWhatIsToUseUpTheProcess:
    """A pickle of names that are all allowed, which would take the stack, the memory, or hours."""

    @pytest.mark.parametrize("kind", HOSTILE)
    def test_by_reading_it(self, kind):
        data, why = HOSTILE[kind]
        with pytest.raises(lmc.FormatError, match=f"^x: .*({why})"):
            _unpickle.load(io.BytesIO(data), "x", frozenset())
        with pytest.raises(lmc.FormatError, match=f"^x: .*({why})"):
            _unpickle.load(io.BytesIO(data), "x", frozenset(["x.y"]))

    @pytest.mark.parametrize("url", [False, True])
    @pytest.mark.parametrize("kind", HOSTILE)
    def test_by_saving_beside_it(self, run, kind, url):
        (run / "other").mkdir()
        (run / "other" / ".metadata").write_bytes(HOSTILE[kind][0])
        _bases.forget()
        why = "saving without a base, since .*other cannot be used: .*is no metadata of"
        with pytest.warns(UserWarning, match=why):
            save(f"file://{run}/new" if url else run / "new", 2)
        assert equal(load(run / "new"), state(2))
        if url:
            with pytest.raises(lmc.FormatError, match="other/.metadata: is no metadata of"):
                lmc.dcp.collect_garbage(run)

    def test_one_list_of_chunks_for_many(self):
        entry = tensor()
        metadata = whole(state_dict_metadata={"w": entry, "v": replace(entry, properties=entry.properties)})
        with pytest.raises(lmc.FormatError, match="^x: its entry for 'v' is not structured as PyTorch's"):
            _unpickle.load(io.BytesIO(pickle.dumps(metadata)), "x", frozenset())


def tensor(**given):
    properties = TensorProperties.create_from_tensor(torch.zeros(2, 2))
    chunk = ChunkStorageMetadata(torch.Size([0, 0]), torch.Size([2, 2]))
    return TensorStorageMetadata(**{"properties": properties, "size": torch.Size([2, 2]), "chunks": [chunk]} | given)


def whole(**given):
    places = {MetadataIndex("w", [0, 0], 0): _StorageInfo("__0_0.distcp", 0, 16)}
    fields = {"state_dict_metadata": {"w": tensor()}, "planner_data": {"w": ("w",)}, "storage_data": places}
    return Metadata(**fields | given)


class ByName(pickle.Pickler):
    """Pickles members of enumerations as Python 3.11.0 to 3.11.3 do."""

    def reducer_override(self, value):
        return (getattr, (type(value), value.name)) if isinstance(value, enum.Enum) else NotImplemented


def pickled(value, protocol, pickler):
    out = io.BytesIO()
    pickler(out, protocol).dump(value)
    return out.getvalue()


class TestWhatPyTorchWrites:
    @pytest.mark.parametrize("pickler", [pickle.Pickler, ByName])
    @pytest.mark.parametrize("protocol", [3, 4, 5])
    def test_every_part(self, protocol, pickler):
        tensors = {}
        for name, dtype in vars(torch).items():
            if isinstance(dtype, torch.dtype):
                for layout in (torch.strided, torch.sparse_coo):
                    for form in (torch.contiguous_format, torch.channels_last, torch.preserve_format):
                        properties = TensorProperties(dtype, layout, True, form, True, (2, 1))
                        tensors[f"{name}-{layout}-{form}"] = tensor(properties=properties)
        tensors["before"] = tensor(properties=old.TensorProperties(torch.float16))
        plans = [set("ab"), frozenset({1}), slice(1, 2), 1j, collections.OrderedDict(a=1), PurePosixPath("a/b"), b"x"]
        metadata = whole(
            state_dict_metadata={"w": tensor(), **tensors, "bytes": BytesStorageMetadata()},
            planner_data=plans + [bytearray(b"xy"), True, None, 1 << 100, 1.5],
            storage_meta=StorageMeta(Path("/some/where"), "saved", "loaded", ["a", "b"]),
            version="1",
        )
        data = pickled(metadata, protocol, pickler)
        assert (b"getattr" in data) == (pickler is ByName or sys.version_info < (3, 11, 4))
        found = _unpickle.load(io.BytesIO(data), "x", frozenset())
        assert found == metadata
        assert type(found.state_dict_metadata["w"].properties) is TensorProperties
        assert pickle.dumps(found, 4) == pickle.dumps(pickle.loads(pickle.dumps(metadata, 4)), 4)

    def test_a_checkpoint_of_its_own_writer(self, tmp_path):
        dcp.save(state(1), storage_writer=FileSystemWriter(tmp_path / "a"), no_dist=True)
        assert equal(load(tmp_path / "a"), state(1))


class TestWhatIsNoMetadata:
    @pytest.mark.parametrize(
        "given",
        [
            {"state_dict_metadata": None},
            {"state_dict_metadata": {1: BytesStorageMetadata()}},
            {"state_dict_metadata": {"w": None}},
            {"state_dict_metadata": {"w": tensor(size=(2, 2))}},
            {"state_dict_metadata": {"w": tensor(chunks=[None])}},
            {"state_dict_metadata": {"w": tensor(properties=None)}},
            {"state_dict_metadata": {}},
            {"storage_data": []},
            {"storage_data": {"w": _StorageInfo("x", 0, 1)}},
            {"storage_data": {MetadataIndex("w"): _StorageInfo(None, 0, 1)}},
            {"storage_data": {MetadataIndex("w"): _StorageInfo("x", "0", 1)}},
            {"storage_data": {MetadataIndex("w"): _StorageInfo("x", 0, 1, [1])}},
            {"storage_data": {MetadataIndex("w"): _StorageInfo("x", 0, 1, 1)}},
        ],
    )
    def test_is_refused(self, given):
        data = pickle.dumps(whole(**given))
        with pytest.raises(lmc.FormatError, match="^x: "):
            _unpickle.load(io.BytesIO(data), "x", frozenset())

    @pytest.mark.parametrize(
        "name", ["../a/x.lmc", "/etc/passwd", "a/../../x", "..", "", "file:///x", "a\0b", "..\\x", "C:\\x", "\\x"]
    )
    @pytest.mark.parametrize("trust", [(), True])
    def test_files_elsewhere(self, run, name, trust):
        save(run / "a", 1)
        metadata = pickle.loads((run / "a" / ".metadata").read_bytes())
        places = {index: replace(place, relative_path=name) for index, place in metadata.storage_data.items()}
        (run / "a" / ".metadata").write_bytes(pickle.dumps(replace(metadata, storage_data=places)))
        with pytest.raises(lmc.FormatError, match="which is not a file of the checkpoint"):
            lmc.dcp.Reader("a", trust=trust).read_metadata()
        with pytest.raises(lmc.FormatError, match="which is not a file of the checkpoint"):
            lmc.dcp.unpack("a", "out", trust=trust)
        _bases.forget()
        with pytest.warns(UserWarning, match="which is not a file of the checkpoint"):
            save(run / "b", 2)

    def test_a_chunk_of_another_size_than_its_data(self, run):
        save(run / "a", 1)
        metadata = pickle.loads((run / "a" / ".metadata").read_bytes())
        entry = metadata.state_dict_metadata["weights.w"]
        for sizes in ([1 << 40, 1 << 20], [-1, -1]):
            entry.chunks[0].sizes = torch.Size(sizes)
            (run / "a" / ".metadata").write_bytes(pickle.dumps(metadata))
            with pytest.raises(lmc.FormatError, match="weights.w: its chunk .* is not inside of its shape"):
                lmc.dcp.unpack("a", f"out{sizes[0]}")
        entry.size = entry.chunks[0].sizes = torch.Size([1 << 40, 1 << 20])
        (run / "a" / ".metadata").write_bytes(pickle.dumps(metadata))
        with pytest.raises(lmc.FormatError, match="it has 240000 bytes in the data file"):
            lmc.dcp.unpack("a", "out")


class Ours:
    """A part of metadata that a user's planner adds."""

    def __eq__(self, other):
        return type(other) is Ours

    __hash__ = None


class TestTrust:
    @pytest.fixture
    def checkpoint(self, run):
        save(run / "a", 1)
        spoil(run / "a", "planner_data", Ours())
        _bases.forget()
        return run / "a"

    @pytest.mark.parametrize("trust", [True, [f"{__name__}.Ours"], (f"{__name__}.Ours", "x.y"), {f"{__name__}.Ours"}])
    def test_what_is_trusted_is_read(self, run, checkpoint, trust):
        found = state(99)
        dcp.load(found, storage_reader=lmc.dcp.Reader(checkpoint, trust=trust), no_dist=True)
        assert equal(found, state(1))
        save(run / "b", 2)
        assert len(list((run / "b").glob("*.lmc"))) == 2, "it is made from the first"
        done = lmc.dcp.unpack(checkpoint, run / "plain", trust=trust)
        assert pickle.loads(Path(done.files[-1]).read_bytes()).planner_data == {"deep": [(1, {"deeper": Ours()})]}

    def test_garbage(self, run):
        save(f"file://{run}/a", 1)
        spoil(run / "a", "planner_data", Ours())
        found = lmc.dcp.collect_garbage(run, grace_seconds=-1)
        assert (found.files, found.young) == ([], [])

    @pytest.mark.parametrize("trust", [(), False, ["x.Ours"], ["Ours.x"]])
    def test_nothing_else_is(self, checkpoint, trust):
        with pytest.raises(lmc.FormatError, match=rf"names {__name__}.Ours, .*trust=\['{__name__}.Ours'\]"):
            lmc.dcp.Reader(checkpoint, trust=trust).read_metadata()

    @pytest.mark.parametrize("trust", ["os.system", b"os.system", 1, None, ["system"], [1], [".x"], ["x."]])
    def test_is_a_list_of_names(self, tmp_path, trust):
        with pytest.raises(lmc.UsageError, match="trust"):
            lmc.dcp.Reader(tmp_path, trust=trust)
        with pytest.raises(lmc.UsageError, match="trust"):
            lmc.dcp.unpack(tmp_path, tmp_path / "out", trust=trust)

    def test_of_the_command(self, run, checkpoint):
        # The class is in this module, which the process finds like this one.
        unpack = functools.partial(process, command, "unpack", "a", "--to", "dcp", "-o", "out", folder=run)
        done = unpack()
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert f"names {__name__}.Ours, which is not part of a checkpoint's metadata" in done.stderr
        assert not (run / "out").exists()
        done = unpack("--trust", f"{__name__}.Ours")
        assert done.returncode == 0, done.stderr
        assert unpack("--trust", "all").returncode == 1, "the directory is there"


@pytest.fixture
def impatient():
    """A test that waits for the writer of a FIFO ends."""

    def end(*_):
        raise TimeoutError("it waits for somebody who writes")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("url", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_what_is_no_file_is_refused(tmp_path, impatient, plain, url):
    checkpoint = tmp_path / "a"
    writer = FileSystemWriter(checkpoint) if plain else lmc.dcp.Writer(checkpoint)
    dcp.save(state(0), storage_writer=writer, no_dist=True)
    location = f"file://{checkpoint}" if url else checkpoint
    assert equal(load(location), state(0))
    data = next(path for path in checkpoint.iterdir() if path.suffix in (".distcp", ".lmc"))
    for path in (data, checkpoint / ".metadata"):
        path.rename(tmp_path / "moved")
        os.mkfifo(path)
        refused = f"{path.name}: cannot read: it is not a regular file"
        with pytest.raises((lmc.IOError, CheckpointException), match=refused):
            load(location)
        path.unlink()
        # A link to a file is as good as one.
        path.symlink_to(tmp_path / "moved")
        assert equal(load(location), state(0))
        path.unlink()
        (tmp_path / "moved").rename(path)
    assert equal(load(location), state(0))
