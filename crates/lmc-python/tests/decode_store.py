"""A decoder of stores, written from their page (docs/store.md) alone: an independent oracle for archives and tests.

It is slow: it reads all records of a store that nobody changes, holds a snapshot in memory, and forgives no damage.
"""

import argparse
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from blake3 import blake3
from lmc.decode import decode, must
from zstandard import CONTENTSIZE_UNKNOWN, ZstdDecompressor, ZstdError, get_frame_parameters

Json, Raws = dict[str, Any], dict[tuple[str, int], tuple[bytes, int]]
# Kinds of values (see fits): the largest integer, the pattern of a string, fields ("?": optional), None for anything.
U64, H32, H64, TEXT, PAIR, PLACE = 2**64 - 1, "[0-9a-f]{32}", "[0-9a-f]{64}", ".*", (2**32, 2, 2), (2**53, 3, 3)
TAG_NAME = "(?![0-9]+$|[0-9a-f]{32}$|latest$)[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
SEEN = {"key": r"snapshots/[0-9]{4}(/[0-9]{3}){4}-[0-9]{10}\.json", "hash": H64}
RECORD = {"step": 2**53, "id": H32, "time": U64, "state": "kept|pruned", "metadata": None, "shards": (H64, 0, 2**24)}
RECORD |= {"raw_size": U64, "new_size": U64, "seen": (SEEN, 0, 64), "check": H64}
SET = {"at": PLACE, "hash": H64, "raw_len": 2**26, "raw_hash": H64, "base?": PAIR, "age": 2**32 - 1}
SEGMENT = {"len": U64, "name?": TEXT, "dtype?": TEXT, "bits?": U64, "shape?": (U64, 0, 2**24)}
FILE = {"name": r"(?!(.*/)?\.{0,2}(/|\Z))[^\\:\0-\x1f\x7f-\x9f]*", "len": 2**53, "layout": TEXT, "segments_of?": PAIR}
FILE |= {"segments?": (SEGMENT, 0, 2**22), "extents": ((2**53, 4, 4), 0, 2**23)}
SHARD = {"save": H32, "began": U64, "shards": (H64, 0, 2**16), "objects": (2**53, 0, 2**20), "files": (FILE, 0, 2**20)}
SHARD |= {"sets": (SET, 0, U64), "writers?": ((None, 2, 2), 0, 2**20)}
SHARD |= {"alternatives?": ({"set": U64, "at": PLACE, "hash": H64, "base": H64, "shard": H64}, 0, U64)}


@contextmanager
def within(key: str) -> Iterator[None]:
    """Turn errors, also those of numbers that have no object, into ValueErrors that name the key."""
    try:
        yield
    except (ValueError, LookupError, OSError, RecursionError, ZstdError) as error:
        raise ValueError(f"{key}: {error}") from None


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a kind; that of an array is (kind of items, least length, largest length)."""
    if isinstance(kind, dict):
        kinds = {x.rstrip("?"): kind[x] for x in kind}
        known = isinstance(value, dict) and all(x in kinds or x.startswith("x_") for x in value)
        return known and all(fits(value[x], kinds[x]) if x in value else x not in kind for x in kinds)
    if isinstance(kind, tuple):
        return isinstance(value, list) and kind[1] <= len(value) <= kind[2] and all(fits(x, kind[0]) for x in value)
    if isinstance(kind, str):
        return isinstance(value, str) and re.fullmatch(kind, value, re.S) is not None
    return kind is None or (type(value) is int and 0 <= value <= kind)


def distinct(pairs: list[tuple[str, Any]]) -> Json:
    """Return an object of JSON, which must have no field twice."""
    must(len(dict(pairs)) == len(pairs), "a field is there twice")
    return dict(pairs)


def load(path: Path, key: str, limit: int, name: str, kind: Json) -> Json:
    """Read a document, and check its fields, and its checksum or hash; returns it with its key, hash and size."""
    with within(key):
        must((path / key).is_file() and (path / key).stat().st_size <= limit, "it is missing, or too large")
        data = text = (path / key).read_bytes()
        if kind is SHARD:
            frame, digest = get_frame_parameters(data), blake3(data).hexdigest()
            must(key == f"shards/{digest}.json.zst" and data[:4] == b"\x28\xb5\x2f\xfd", "not its hash, or no frame")
            must(frame.window_size <= 2**27 and frame.dict_id == 0, "its window is above 2^27, or it has a dictionary")
            must(frame.content_size == CONTENTSIZE_UNKNOWN or frame.content_size <= limit, "it becomes too large")
            text, once = ZstdDecompressor().decompress(data, max_output_size=limit), ZstdDecompressor().decompressobj()
            must(once.decompress(data) == text and once.eof and not once.unused_data, "it is not exactly one frame")
        document = json.loads(text.decode(), object_pairs_hook=distinct, parse_constant=int)  # int refuses NaN
        must(isinstance(document, dict) and document.get("version") == 1, "its version is not 1")
        must(fits(document, kind | {"format": name, "version": 1}), "a field is unknown, missing or out of its range")
        seal = b',"check":"%s"}' % blake3(data[:-76] + b"}").hexdigest().encode()
        must("check" not in kind or data.endswith(seal), "its check is wrong")
    return document | {"key": key, "hash": blake3(data).hexdigest(), "size": len(text)}


def find(path: Path, step: int | None) -> Json:
    """Return the record of a step's snapshot, or of the last one; records that others name must be there (§3)."""
    records: dict[str, Json] = {}
    for key in (x.relative_to(path).as_posix() for x in path.glob("snapshots/*/*/*/*/*.json")):
        try:
            records |= {key: load(path, key, 2**24, "lmc-snapshot", RECORD)} if fits(key, SEEN["key"]) else {}
        except ValueError as error:
            records[key] = {"error": str(error), "seen": [], "hash": ""}
    for seen in [seen for record in records.values() for seen in record["seen"]]:
        if (record := records.setdefault(seen["key"], {"hash": ""}))["hash"] != seen["hash"]:
            record.setdefault("error", f"{seen['key']}: it is lost or replaced: another record names it")
    in_force = {2**53 - int("".join(key.split("/"))[9:25]): x for key, x in sorted(records.items())}
    for at in in_force if step is None else [step]:  # from the last step on
        record = in_force.get(at, {"error": f"snapshots: there is no record of step {at}"})
        must("error" not in record, record.get("error"))
        state, shards, data = record["state"], record["shards"], record["metadata"]
        with within(record["key"]):
            must(record["step"] == at and len({*shards}) == len(shards), "its step or shards are wrong")
            must(isinstance(data, dict) and all(map(is_metadata, data.values())), "its metadata are wrong")
            empty = not (shards or data or record["raw_size"] or record["new_size"])
            must(shards if state == "kept" else empty, f"it is not what a {state} record has to be")
            must(step is None or shards, "the snapshot was pruned")
        if shards:
            return record
    raise ValueError("snapshots: there is no snapshot")


def is_metadata(value: Any) -> bool:
    """Return whether a value may be in the metadata: a string, an integer, or a finite double."""
    if type(value) is float:
        return math.isfinite(value)
    return isinstance(value, str) or (type(value) is int and abs(value) <= 2**53)


def load_shard(path: Path, name: str) -> Json:
    """Read a shard, and check what it says of itself (§4)."""
    shard = load(path, f"shards/{name}.json.zst", 2**28, "lmc-shard", SHARD)
    with within(shard["key"]):
        files, objects, writers = shard["files"], shard["objects"], [[0, shard["save"]], *shard.get("writers", [])]
        starts, saves = [x for x, _ in writers], [x for _, x in writers]
        must(fits(starts, (2**20, 0, U64)) and fits(saves, (H32, 0, U64)), "its writers have wrong types")
        must(len({*saves}) == len(saves), "a save is among its writers twice")
        must(starts[1:] == sorted({*starts[1:]} & {*range(len(objects))}), "the indices of its writers are wrong")
        must(len({*shard["shards"]}) == len(shard["shards"]), "it lists a shard twice")
        segments = [x for file in files for x in file.get("segments", [])]
        must(len(segments) <= 2**22 and sum(len(x.get("shape", [])) for x in segments) <= 2**24, "too many segments")
        for file in files:
            lengths = [len(x) for x in file["name"].encode().split(b"/")]
            must(max(lengths) <= 255 and sum(lengths) + len(lengths) <= 1025, f"{file['name']!r} is too long a name")
            must(sum(x[3] for x in file["extents"]) == file["len"], f"extents do not cover {file['name']!r}")
    return shard | {"writers": writers, "refs": [name, *shard["shards"]], "segments": len(segments)}


def unpack(path: Path, shards: dict[str, Json], raws: Raws, name: str, number: int) -> tuple[bytes, int]:
    """Return the raw bytes of a block set and the length of its chain; raws are those that are known."""
    shard, this, bases, links = shards[name], shards[name]["sets"][number], [], 1
    with within(f"{shard['key']}: set {number}"):
        if (name, number) in raws:
            return raws[name, number]
        if "base" in this:
            other, index = shard["refs"][this["base"][0]], this["base"][1]
            must(shards[other]["sets"][index]["age"] < this["age"] and (other != name or index < number), "its base")
            bases, links = [(base := unpack(path, shards, raws, other, index))[0]], base[1] + 1
        must(links <= 64 and bool(bases) == (this["age"] > 0), "its chain is longer than 64, or its age is wrong")
        place, offset, length = this["at"]
        first, save = [x for x in shard["writers"] if x[0] <= place][-1]
        with within(key := f"data/{save}/{place - first:06}"):
            must((path / key).is_file(), "there is no such file")
            with (path / key).open("rb") as file:
                must(file.seek(0, 2) == shard["objects"][place], f"it has not {shard['objects'][place]} bytes")
                file.seek(offset)
                stored = file.read(min(length, 2**27))
            must(len(stored) == length and blake3(stored).hexdigest() == this["hash"], "a set's hash is another")
        raw = decode(stored, bases, this["raw_len"])
        must(len(raw) == this["raw_len"] and blake3(raw).hexdigest() == this["raw_hash"], "its raw bytes are wrong")
        raws[name, number] = raw, links
    return raw, links


def read_tag(path: Path, name: str) -> Json:
    """Read the highest generation of a tag (§3)."""
    must(fits(name, TAG_NAME), f"tags: {name!r} is not the name of a tag")
    keys = sorted(x for x in path.glob(f"tags/{name}/*") if fits(x.name, r"[0-9]{10}\.json"))
    must(keys, f"tags/{name}: there is no such tag")
    kind = {"name": TAG_NAME, "step": None, "id": None, "check": H64}
    tag = load(path, keys[0].relative_to(path).as_posix(), 2**12, "lmc-tag", kind)
    must(tag["name"] == name, f"{tag['key']}: its name is {tag['name']!r}")
    must(tag["step"] is not None or tag["id"] is not None, f"{tag['key']}: the tag was deleted")
    must(fits(tag["step"], 2**53) and fits(tag["id"], H32), f"{tag['key']}: its step or id is wrong")
    return tag


def restore(path: Path, record: Json) -> dict[str, bytes]:
    """Return the files of a snapshot by name."""
    shards, raws, contents, segments = dict[str, Json](), Raws(), dict[str, bytes](), 0
    for name in record["shards"]:
        shards[name] = shards.get(name) or load_shard(path, name)
        for other in shards[name]["shards"]:
            shards[other] = shards.get(other) or load_shard(path, other)
            must(sum(x["size"] for x in shards.values()) <= 2**32, "the documents have more than 2^32 bytes")
    must(sum(x["segments"] for x in shards.values()) <= 2**24, "the documents list more than 2^24 segments")
    files = [(shards[name], i, file) for name in record["shards"] for i, file in enumerate(shards[name]["files"])]
    names = {file["name"] for _, _, file in files}
    folders = {str(x) for name in names for x in PurePosixPath(name).parents}
    must(len(names) == len(files) and not names & folders, "a name is there twice, or is that of a directory, too")
    must(sum(x["len"] for _, _, x in files) == record["raw_size"], "raw_size is wrong")
    must(sum(sum(shards[x]["objects"]) for x in record["shards"]) == record["new_size"], "new_size is wrong")
    for shard, i, file in files:
        with within(f"{shard['key']}: {file['name']}"):
            number, index = file.get("segments_of", (0, i))
            lister = shards[shard["refs"][number]]["files"][index]
            fit = "segments" in lister and lister["len"] == file["len"] and (number > 0 or index < i)
            must(lister is file or (fit and "segments" not in file), "its segments_of is wrong")
            must(sum(x["len"] for x in lister.get("segments", [])) == file["len"], "its segments do not cover it")
            must((segments := segments + len(lister.get("segments", []))) <= 2**24, "the files have too many segments")
            parts = []
            for number, index, first, length in file["extents"]:
                raw, _ = unpack(path, shards, raws, shard["refs"][number], index)
                must(0 < length and first + length <= len(raw), "an extent is empty, or ends after its set")
                parts.append(raw[first : first + length])
            contents[file["name"]] = b"".join(parts)
    return contents


def decode_store(directory: str | Path, step: int | str | None = None) -> dict[str, bytes]:
    """Return the files of a snapshot by name: that of a step, that of a tag, or the last one."""
    path = Path(directory)
    marker = load(path, "lmc-store.json", 2**12, "lmc-store", {"run": H32, "grace_seconds": 3_200_000_000})
    must(marker["grace_seconds"] >= 60, f"lmc-store.json: grace_seconds is {marker['grace_seconds']}")
    tag = read_tag(path, step) if isinstance(step, str) else None
    record = find(path, tag["step"] if tag else step)
    must(not tag or record["id"] == tag["id"], f"{record['key']}: the tag {step} names another snapshot")
    with within(record["key"]):
        return restore(path, record)


def main() -> None:
    """Restore a snapshot, the last one by default, into a new directory."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at", metavar="STEP|TAG", type=lambda x: int(x) if fits(x, "[0-9]+") else x)
    options = parser.parse_args()
    try:
        contents = decode_store(options.store, options.at)
        options.out.mkdir()
        for name, content in contents.items():
            (options.out / name).parent.mkdir(parents=True, exist_ok=True)
            (options.out / name).write_bytes(content)
    except (ValueError, OSError) as error:
        parser.exit(1, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
