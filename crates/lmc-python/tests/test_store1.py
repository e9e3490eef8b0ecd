"""The stores of testdata/store1, read by the decoder that was written from `docs/store.md`: see the README there."""

import json
import shutil
from pathlib import Path

import pytest
from blake3 import blake3
from decode_store import decode_store
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

FOLDER = Path(__file__).parents[3] / "testdata" / "store1"
STORES = {path.name: json.loads(path.with_suffix(".json").read_bytes()) for path in FOLDER.iterdir() if path.is_dir()}
CHANGED = [entry for name in ("good", "bad") for entry in json.loads((FOLDER / f"{name}.json").read_bytes())]


def digest(data):
    return blake3(data).hexdigest().encode()


def unpack(data):
    try:
        return ZstdDecompressor().decompressobj().decompress(data)
    except ZstdError:
        return data


def pack(key, text):
    if key.startswith("shards/"):
        return ZstdCompressor().compress(text)
    if key.startswith(("snapshots/", "tags/", "floors/")):
        return text[:-76] + b',"check":"%s"}' % digest(text[:-76] + b"}")
    return text


def change(store, key, new):
    """Replace an object, and its hash in all that name it."""
    old, now = digest(store.pop(key)), digest(new)
    store[key.replace(old.decode(), now.decode())] = new
    while other := next((x for x in store if old in unpack(store[x])), None):
        change(store, other, pack(other, unpack(store[other]).replace(old, now)))


def changed(store, entry):
    for edit in entry.get("edit", []):
        text = unpack(store[edit["key"]])
        for old, new in edit["replace"]:
            text = text.replace(old.encode(), new.encode())
        change(store, edit["key"], pack(edit["key"], text))
    for key, data in entry.get("stored", {}).items():
        change(store, key, bytes.fromhex(data))
    for key, data in entry.get("put", {}).items():
        store[key] = None if data is None else bytes.fromhex(data)
    return {key: data for key, data in store.items() if data is not None}


def check(path, expected, refuse):
    """Restore all that can be restored, and nothing else."""
    refused = [x.split()[1] for x in refuse if x.startswith("restore ")]
    places = {n: n for n in expected["snapshots"]} | {tag: str(n) for tag, n in expected["tags"].items()}
    for place, step in {**places, **dict.fromkeys(refused)}.items():
        at = int(place) if place.isdigit() else place
        if place in refused or step in refused:
            with pytest.raises(ValueError):
                decode_store(path, at)
        else:
            files = decode_store(path, at)
            assert {name: blake3(data).hexdigest() for name, data in files.items()} == expected["snapshots"][step]


@pytest.mark.parametrize("name", STORES)
def test_stores(name):
    check(FOLDER / name, STORES[name], STORES[name]["refuse"])


@pytest.mark.parametrize("entry", CHANGED, ids=lambda entry: entry["name"])
def test_changed_stores(entry, tmp_path):
    folder = FOLDER / entry["store"]
    store = {x.relative_to(folder).as_posix(): x.read_bytes() for x in folder.rglob("*") if x.is_file()}
    for key, data in changed(store, entry).items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    expected = STORES[entry["store"]]
    check(tmp_path, expected, entry.get("refuse", expected["refuse"]))
    shutil.rmtree(tmp_path)
