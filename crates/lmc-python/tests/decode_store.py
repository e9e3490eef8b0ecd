"""A decoder of stores, written from their page (docs/store.md) alone: an independent oracle for archives and tests.

It is slow, and holds a snapshot in memory. As a program: python decode_store.py STORE OUT [STEP|TAG]
"""

import json
import math
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from blake3 import blake3
from lmc.decode import decode, must
from zstandard import ZstdDecompressor, ZstdError, frame_content_size, get_frame_parameters

Json = dict[str, Any]
# Kinds of values: the largest integer, the pattern of a string, fields by name ("?": optional), None for anything; of
# an array a list of kinds, or (kind of items, largest length).
U64, HASH, ID, UNREAD = 2**64 - 1, "[0-9a-f]{64}", "[0-9a-f]{32}", {"segments?": None, "segments_of?": None}
SET = {"at": [U64] * 3, "hash": HASH, "raw_len": 2**26, "raw_hash": HASH, "base?": [U64] * 2}
SET |= {"others?": ([U64] * 2, 3), "age": 2**32 - 1}
NAME = r"(?!(.*/)?\.{0,2}(/|\Z))[^\\:\0-\x1f\x7f-\x9f]*"  # no component is empty, "." or ".."
FILE = {"name": NAME, "len": U64, "layout": ".*", "extents": ([U64] * 4, 2**23)} | UNREAD
TAG_NAME = "(?![0-9]+$|[0-9a-f]{32}$|latest$)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
STORE, TAG = {"run": ID, "grace_seconds": 3_200_000_000}, {"name": TAG_NAME, "step": None, "id": None, "check": HASH}
RECORD = {"step": 2**53, "id": ID, "time": U64, "state": "kept|pruned", "metadata": None, "shards": (HASH, 2**24)}
RECORD |= {"raw_size": U64, "new_size": U64, "dropped?": U64, "seen": None, "check": HASH}
SHARD = {"save": ID, "began": U64, "shards": (HASH, 2**16), "objects": (U64, 2**20), "sets": (SET, U64)}
SHARD |= {"files": (FILE, 2**20), "alternatives?": None, "writers?": ([2**20, ID], 2**20)}


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind."""
    if isinstance(kind, dict):
        kinds = {x.rstrip("?"): kind[x] for x in kind}
        known = isinstance(value, dict) and all(x in kinds or x.startswith("x_") for x in value)
        return known and all(fits(value[x], kinds[x]) if x in value else x not in kind for x in kinds)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) <= kind[1] and fits(value, [kind[0]] * len(value))
    if isinstance(kind, list):
        return isinstance(value, list) and len(value) == len(kind) and all(map(fits, value, kind))
    if isinstance(kind, str):
        return isinstance(value, str) and re.fullmatch(kind, value, re.S) is not None
    return kind is None or (type(value) is int and 0 <= value <= kind)


def load(path: Path, key: str, name: str, kind: Json, limit: int = 2**12) -> Json:
    """§1: Read a document, and check its hash or checksum, and its fields; adds its key and its size."""
    must((path / key).is_file() and (path / key).stat().st_size <= limit, f"{key}: it is missing, or too large")
    data = text = (path / key).read_bytes()
    if kind is SHARD:
        must(key == f"shards/{blake3(data).hexdigest()}.json.zst", f"{key}: it has another hash")
        fit = frame_content_size(data) <= limit and get_frame_parameters(data).window_size <= 2**27
        must(fit, f"{key}: it becomes too large, or needs a larger window")
        text = ZstdDecompressor().decompress(data, max_output_size=limit, allow_extra_data=False)
        must(ZstdDecompressor().decompressobj().decompress(data) == text, f"{key}: its frame is no stream")
    hooks: Json = {"parse_constant": int, "parse_int": lambda x: float(x) if x == "-0" else int(x)}  # int refuses NaN
    hooks["object_pairs_hook"] = lambda x: dict(x) if len(dict(x)) == len(x) else must(0, f"{key}: a field is twice")
    document = json.loads(text.decode(), **hooks)
    json.dumps(document, ensure_ascii=False).encode()  # refuses halves of surrogate pairs
    must(isinstance(document, dict) and document.get("version") == 1, f"{key}: its version is not 1")
    must(fits(document, kind | {"format": name, "version": 1}), f"{key}: a field is unknown, missing or wrong")
    end = b',"check":"%s"}' % blake3(data[:-76] + b"}").hexdigest().encode()
    must("check" not in kind or data.endswith(end), f"{key}: its check is wrong")
    return document | {"key": key, "size": len(text)}


def find(path: Path, step: int | None) -> Json:
    """§3: Return the record of a step's snapshot, or of the last one."""
    keys = sorted(x.relative_to(path).as_posix() for x in path.glob("snapshots/*/*/*/*/*"))
    keys = [x for x in keys if fits(x, r"snapshots/[0-9]{4}(/[0-9]{3}){4}-[0-9]{10}\.json") and int(x[-15:-5]) < 2**32]
    newest = {2**53 - int(key[10:-16].replace("/", "")): key for key in keys}  # from the last step on
    for at in [x for x in newest if x >= 0] if step is None else [step]:
        record = load(path, newest[at], "lmc-snapshot", RECORD, 2**24)
        shards, metadata, is_kept = record["shards"], record["metadata"], record["state"] == "kept"
        numbers = [x for x in metadata.values() if not isinstance(x, str)] if isinstance(metadata, dict) else [None]
        are_right = all(abs(x) <= 2**53 if type(x) is int else type(x) is float and math.isfinite(x) for x in numbers)
        fit = are_right and record["step"] == at and len({*shards}) == len(shards) and record.get("dropped", 1)
        must(fit, f"{newest[at]}: its metadata, step or shards are wrong")
        nothing = step is None and not (shards or metadata or any(map(record.get, ["raw_size", "new_size", "dropped"])))
        must(shards if is_kept else nothing, f"{newest[at]}: it was pruned, or contradicts itself")
        if is_kept:
            return record
    raise ValueError("there is no snapshot")


def load_shard(path: Path, name: str) -> Json:
    """§4: Read a shard, and check what it says of itself."""
    shard = load(path, key := f"shards/{name}.json.zst", "lmc-shard", SHARD, 2**28)
    sets, files, objects, writers = shard["sets"], shard["files"], shard["objects"], shard.get("writers", [])
    refs, starts, saves = [name, *shard["shards"]], [x for x, _ in writers], [shard["save"], *(x for _, x in writers)]
    must(starts == sorted({*starts} & {*range(len(objects))}), f"{key}: the indices of its writers are wrong")
    must(len({*saves}) == len(saves) and len({*refs[1:]}) == len(refs) - 1, f"{key}: it has a save or a shard twice")
    must(max(sum(objects), sum(x["len"] for x in files)) <= 2**53, f"{key}: it has more than 2^53 bytes")
    for i, this in enumerate(sets):
        (number, offset, length), others = this["at"], this.get("others", [])
        this["bases"] = [this["base"], *others] if "base" in this else others
        must(length <= 2**27 and offset + length <= objects[number], f"{key}: set {i} is not within its object")
        must(("base" in this) == (this["age"] > 0), f"{key}: set {i} has a base and no age, or an age and no base")
        must("base" in this or not others, f"{key}: set {i} has other bases, but none")
        fit = all(x[1] < i if x[0] == 0 else x[0] < len(refs) for x in this["bases"])
        must(fit, f"{key}: set {i} has a wrong base")
    for file in files:
        must(sum(x[3] for x in file["extents"]) == file["len"], f"{key}: extents do not cover {file['name']!r}")
        for number, index, first, length in file["extents"]:
            fit = number > 0 or first + length <= sets[index]["raw_len"]
            must(fit and length > 0 and number < len(refs), f"{key}: an extent of {file['name']!r} is wrong")
    return shard | {"refs": refs, "saves": [*zip([0, *starts], saves, strict=True)]}


def decode_store(directory: str | Path, step: int | str | None = None) -> dict[str, bytes]:
    """Return the files of a snapshot by name: that of a step, that of a tag, or the last one."""
    path, shards, contents = Path(directory), dict[str, Json](), dict[str, bytes]()

    @cache
    def unpack(name: str, number: int) -> tuple[bytes, set[tuple[str, int]]]:
        """§4: Return the raw bytes of a block set, and the sets of its chain."""
        shard, this, bases, chain = shards[name], shards[name]["sets"][number], [], {(name, number)}
        for at, index in this["bases"]:
            raw, links = unpack(other := shard["refs"][at], index)
            chain |= links
            must(shards[other]["sets"][index]["age"] < this["age"] and len(chain) <= 64, f"{name}: a chain is too long")
            bases.append(raw)
        first, save = [x for x in shard["saves"] if x[0] <= this["at"][0]][-1]
        must((path / (key := f"data/{save}/{this['at'][0] - first:06}")).is_file(), f"{key}: there is no such file")
        with (path / key).open("rb") as file:
            file.seek(this["at"][1])
            stored = file.read(this["at"][2])
        must((stored[16:20] == b"BASE") == ("base" in this), f"{key}: of a set and its file, one has a base")
        raw = decode(stored, bases, this["raw_len"])
        must((len(raw), blake3(raw).hexdigest()) == (this["raw_len"], this["raw_hash"]), f"{key}: has other raw bytes")
        return raw, chain

    try:
        must(load(path, "lmc-store.json", "lmc-store", STORE)["grace_seconds"] >= 60, "grace_seconds is less than 60")
        tag: Json = {"step": step}
        if isinstance(step, str):
            keys = [x for x in path.glob(f"tags/{step}/*") if fits(x.name, r"[0-9]{10}\.json") and int(x.stem) < 2**32]
            tag = load(path, min(keys).relative_to(path).as_posix(), "lmc-tag", TAG)
            must(tag["step"] is not None or tag["id"] is not None, f"{tag['key']}: the tag was deleted")
            fit = tag["name"] == step and fits(tag["step"], 2**53) and fits(tag["id"], ID)
            must(fit, f"{tag['key']}: its name, step or id is wrong")
        record = find(path, tag["step"])
        must(tag.get("id", record["id"]) == record["id"], f"{record['key']}: the tag names another snapshot")
        for name in record["shards"]:
            shards[name] = shards.get(name) or load_shard(path, name)
            shards |= {other: load_shard(path, other) for other in shards[name]["shards"] if other not in shards}
            must(sum(x["size"] for x in shards.values()) <= 2**32, "the documents have more than 2^32 bytes")
        files = [(shards[name]["refs"], file) for name in record["shards"] for file in shards[name]["files"]]
        for group in [[file for _, file in files], *(shard["files"] for shard in shards.values())]:
            names = sorted(file["name"].encode().split(b"/") for file in group)
            fit = all(max(map(len, x)) <= 255 and len(b"/".join(x)) <= 1024 for x in names)
            distinct = all(after[: len(x)] != x for x, after in zip(names, names[1:], strict=False))
            must(fit and distinct, "a name is too long, there twice, or that of a directory")
        for refs, file in files:
            parts = [unpack(refs[x[0]], x[1])[0][x[2] : x[2] + x[3]] for x in file["extents"]]
            must(sum(map(len, parts)) == file["len"], f"{file['name']!r}: an extent ends after its set")
            contents[file["name"]] = b"".join(parts)
    except (LookupError, OSError, RecursionError, ZstdError) as error:  # such as a set that is not there
        raise ValueError(f"{directory}: {error!r}") from error
    return contents


if __name__ == "__main__":
    for _name, _content in decode_store(sys.argv[1], *(int(x) if x.isdigit() else x for x in sys.argv[3:])).items():
        (_file := Path(sys.argv[2], _name)).parent.mkdir(parents=True, exist_ok=True)
        _file.write_bytes(_content)
