"""Tests of `lmc.decode`: valid files decode, and whatever else the bytes are ends in FormatError or LimitError.

Vectors are made by `cargo run -p lmc-testing --example vectors -- FOLDER`; LMC_VECTORS says where that is. There,
NAME.lmc restores to NAME.raw, with NAME.base1, NAME.base2, … as its bases. So it does in testdata/format1, which is
committed; the files in testdata/format1/bad break one rule each.
"""

import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmc
import pytest
import zstandard
from lmc import decode
from lmc.decode import FormatError, LimitError
from xxhash import xxh3_64_intdigest, xxh3_128_digest

VECTORS = sorted(Path(os.environ.get("LMC_VECTORS", "vectors")).glob("*.lmc"))
EXHAUSTIVE = os.environ.get("LMC_TEST_DEPTH") == "release"
SMALL = sorted(VECTORS, key=lambda path: path.stat().st_size)[: 40 if EXHAUSTIVE else 8]
FLIPS = 200 if EXHAUSTIVE else 20  # random ones for each vector
TEST_DATA = Path(__file__).parents[3] / "testdata"
FORMAT1 = TEST_DATA / "format1"
LISTED = dict(line.split("  ")[::-1] for line in (FORMAT1 / "SHA256SUMS").read_text("ascii").splitlines())
GOOD = [FORMAT1 / name for name in LISTED if name.endswith(".lmc") and not name.startswith("bad/")]
BAD = [FORMAT1 / name for name in LISTED if name.endswith(".lmc") and name.startswith("bad/")]
VERSION = 1
FUZZED_MOST = 5 << 20  # raw bytes, of the reference decoder


def name_of(path: Path) -> str:
    """Return the name of a test for a vector."""
    return path.stem


def bases_of(path: Path) -> list[bytes]:
    """Return the bases of a vector, not in the order of the file."""
    return [base.read_bytes() for base in sorted(path.parent.glob(f"{path.stem}.base*"), reverse=True)]


def records_of(data: bytes) -> Iterator[tuple[int, int]]:
    """Return the offset and head length of each record of a valid file."""
    offset = 16
    while offset < len(data) - 32:
        head_length = int.from_bytes(data[offset + 4 : offset + 8], "little")
        yield offset, head_length
        offset += 24 + head_length + int.from_bytes(data[offset + 8 : offset + 16], "little")


def with_checks(data: bytearray, original: bytes) -> bytes:
    """Recompute the checks of a valid file after a change, so that it reaches the code behind them."""
    for offset, head_length in records_of(original):
        head = offset + 24
        body = head + head_length
        end = body + int.from_bytes(original[offset + 8 : offset + 16], "little")
        check_of_body = xxh3_64_intdigest(original[body:end]).to_bytes(8, "little")
        if original[offset : offset + 4] == b"BLCK" and original[body - 8 : body] == check_of_body:
            data[body - 8 : body] = xxh3_64_intdigest(bytes(data[body:end])).to_bytes(8, "little")
        covered = data[offset : offset + 16] + data[head:body]
        data[offset + 16 : head] = xxh3_64_intdigest(bytes(covered)).to_bytes(8, "little")
    data[-16:-8] = xxh3_64_intdigest(bytes(data[-32:-16])).to_bytes(8, "little")
    return bytes(data)


def refused_or_same(data: bytes, bases: Sequence[bytes], raw: bytes) -> bool:
    """Return whether a changed file is rejected; fails if it gives other bytes, or another exception."""
    try:
        assert decode.decode(data, bases, max_size=2**24) == raw
    except (FormatError, LimitError) as error:
        assert str(error)
        assert "\n" not in str(error)
        return True
    return False


# Vectors


def test_there_are_vectors() -> None:
    """An empty folder would pass everything else."""
    assert len(VECTORS) > 200, "LMC_VECTORS must name the folder that the example `vectors` of lmc-testing wrote"


@pytest.mark.parametrize("path", VECTORS, ids=name_of)
def test_vector(path: Path) -> None:
    """Each vector decodes to its raw bytes, whatever the order of the bases and whatever else is given with them."""
    raw = path.with_suffix(".raw").read_bytes()
    assert decode.decode(path.read_bytes(), [*bases_of(path), b"no base of it"]) == raw
    assert decode.decode(path.read_bytes(), bases_of(path), max_size=len(raw)) == raw
    if raw:
        with pytest.raises(LimitError):
            decode.decode(path.read_bytes(), bases_of(path), max_size=len(raw) - 1)


@pytest.mark.parametrize("kind", ["container", "plain", "delta"])
def test_fuzzed(kind: str) -> None:
    """The files that fuzzing has made end as in the reference decoder: in their raw bytes, or in an error."""
    paths = sorted((VECTORS[0].parent / "fuzzed").glob(f"{kind}-*.lmc"))
    assert len(paths) >= 200
    for path in paths:
        raw = path.with_suffix(".raw")
        if raw.exists():
            assert decode.decode(path.read_bytes(), bases_of(path), max_size=FUZZED_MOST) == raw.read_bytes(), path
        else:
            with pytest.raises((FormatError, LimitError)):
                decode.decode(path.read_bytes(), bases_of(path), max_size=FUZZED_MOST)
                pytest.fail(f"{path} is accepted")


def test_format1_is_complete() -> None:
    """The committed vectors are those that the manifest lists, with their digests."""
    there = {str(path.relative_to(FORMAT1)): path for path in FORMAT1.rglob("*") if path.is_file()}
    del there["SHA256SUMS"]
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == LISTED
    assert len(GOOD) >= 100
    assert len(BAD) >= 200
    assert {entry["file"] for entry in json.loads((FORMAT1 / "bad" / "bad.json").read_bytes())} == {p.name for p in BAD}


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_format1(path: Path) -> None:
    """Each committed vector decodes to its raw bytes."""
    assert decode.decode(path.read_bytes(), bases_of(path)) == path.with_suffix(".raw").read_bytes()


@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_format1_bad(path: Path) -> None:
    """Each file that breaks a rule is refused."""
    with pytest.raises(FormatError):
        decode.decode(path.read_bytes(), bases_of(path), max_size=2**25)


@pytest.mark.parametrize("level", ["fast", "default", "max"])
@pytest.mark.parametrize("path", sorted(TEST_DATA.glob("*.safetensors")), ids=name_of)
def test_models(path: Path, level: str) -> None:
    """Models decode as the library writes them, alone and as deltas, and have the content hash that it says."""
    raw = path.read_bytes()
    file = lmc.compress(raw, level=level)
    assert decode.decode(file) == raw
    with lmc.open(file) as opened:
        assert opened.content_hash == decode.content_hash(raw).hex()
    base = (TEST_DATA / "gpt-step300-state.safetensors").read_bytes()
    assert decode.decode(lmc.compress(raw, level=level, base=base), [base]) == raw


@pytest.mark.parametrize("path", sorted((TEST_DATA / "small").iterdir()), ids=name_of)
def test_small_files(path: Path) -> None:
    """So do files of every dtype, and files that only look like models."""
    raw = path.read_bytes()
    assert decode.decode(lmc.compress(raw)) == raw


@pytest.mark.parametrize("path", SMALL, ids=name_of)
def test_truncations(path: Path) -> None:
    """No file can be cut, and nothing can follow it."""
    data, bases = path.read_bytes(), bases_of(path)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            decode.decode(data[:end], bases)
    with pytest.raises(FormatError):
        decode.decode(data + b"\0", bases)


@pytest.mark.parametrize("path", SMALL, ids=name_of)
@pytest.mark.parametrize("fix_checks", [False, True], ids=["as they are", "with checks"])
def test_every_flip(path: Path, fix_checks: bool) -> None:
    """Each flipped bit is an error, or has no effect, which only few may outside of the table of the index."""
    data, bases, raw = path.read_bytes(), bases_of(path), path.with_suffix(".raw").read_bytes()
    start_of_index, head_length = list(records_of(data))[-1]
    start_of_table = start_of_index + 24 + 8 + 16 + 4  # and two varints
    same = 0
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        in_table = start_of_table <= bit // 8 < start_of_index + 24 + head_length
        accepted = not refused_or_same(with_checks(changed, data) if fix_checks else bytes(changed), bases, raw)
        same += accepted and not in_table
        assert fix_checks or not (accepted and in_table), "the check of the index covers its table"
    # What may mean nothing: features, a few bits of zstd frames, the check of a body, which is not read,
    # names of bases, and checks that were set right again (64 bits for each record, its body and the trailer).
    records = list(records_of(data))
    names = sum(8 * head_length for offset, head_length in records if data[offset : offset + 4] in (b"BASE", b"zzzz"))
    assert same <= (names + 64 * (2 * len(records) + 1) + 64 if fix_checks else 16)


@pytest.mark.parametrize("path", VECTORS, ids=name_of)
def test_random_flips(path: Path) -> None:
    """As above, for some bits of every vector, with the checks set right."""
    data, bases, raw = path.read_bytes(), bases_of(path), path.with_suffix(".raw").read_bytes()
    choose = random.Random(path.stem)
    for _ in range(FLIPS):
        changed = bytearray(data)
        changed[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        refused_or_same(with_checks(changed, data), bases, raw)


@pytest.mark.parametrize("path", VECTORS, ids=name_of)
def test_mutations_without_checks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without checks and digests, wilder changes end in an error of the decoder or in other bytes, in nothing else."""
    must_be = decode.must_be

    def lenient(name: str, value: object, expected: object) -> None:
        if name not in ("check", "digest", "content hash"):
            must_be(name, value, expected)

    monkeypatch.setattr(decode, "must_be", lenient)
    data, bases = path.read_bytes(), bases_of(path)
    choose = random.Random(path.stem)
    for _ in range(FLIPS):
        changed = bytearray(data)
        for _ in range(choose.choice([1, 1, 2, 8])):
            at = choose.randrange(16, len(data))
            changed[at] = choose.choice([0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)])
        if choose.random() < 0.2:
            at = choose.randrange(16, len(data))
            changed[at : at + choose.randrange(4)] = choose.randbytes(choose.randrange(4))
        try:
            decode.decode(bytes(changed), bases, max_size=2**22)
        except (FormatError, LimitError) as error:
            assert str(error)


def test_hostile_files_need_little_memory() -> None:
    """Files that claim everything are refused within 1 GiB of memory."""
    program = (
        "import resource, test_decode as t\n"
        "from lmc import decode\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "for data in t.hostile():\n"
        "    try:\n"
        "        decode.decode(data, max_size=2**26)\n"
        "    except (decode.FormatError, decode.LimitError) as error:\n"
        "        print(error)\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command, here = [sys.executable, "-c", program], Path(__file__).parent
    run = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == len(hostile())


# Files that are made here


def varint(value: int) -> bytes:
    """Encode a varint."""
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value >= 0x80 else bytes([value])


def string(text: bytes) -> bytes:
    """Encode a string."""
    return varint(len(text)) + text


def u32(value: int) -> bytes:
    """Encode a u32."""
    return value.to_bytes(4, "little")


def u64(value: int) -> bytes:
    """Encode a u64."""
    return value.to_bytes(8, "little")


def record(tag: bytes, head: bytes, body: bytes = b"", body_length: int | None = None) -> bytes:
    """Make a record."""
    fixed = tag + u32(len(head)) + u64(len(body) if body_length is None else body_length)
    return fixed + u64(xxh3_64_intdigest(fixed + head)) + head + body


def block(length: int, column: bytes, body: bytes, raw: bytes | None = None, checked: bytes | None = None) -> bytes:
    """Make a block of one column without lanes; the check of the body is that of the bytes `checked`."""
    digest = decode.content_hash(body if raw is None else raw)
    check = b"" if checked is None else u64(xxh3_64_intdigest(checked))
    return record(b"BLCK", varint(length) + b"\0\1" + column + digest + check, body)


def opaque(length: int) -> bytes:
    """Make the segments of a table: all of it opaque."""
    return b"\1\0" + varint(length)


def zstd(raw: bytes, content_size: bool = True, window_log: int = 0) -> bytes:
    """Make a zstd frame."""
    parameters = zstandard.ZstdCompressionParameters(write_content_size=content_size, window_log=window_log)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)


def frame_of(frame: bytes, width_code: int = 0, ranges: bytes = b"\0", length: int | None = None) -> bytes:
    """Make a zstd column."""
    return bytes([1, width_code]) + ranges + varint(len(frame) if length is None else length)


def naming(dictionary: int) -> bytes:
    """Make a zstd frame of RAW that names a dictionary."""
    return bytes.fromhex("28b52ffd21") + bytes([dictionary, len(RAW), len(RAW) << 3 | 1, 0, 0]) + RAW


def file_of(
    blocks: Sequence[tuple[bytes, int]],
    raw: bytes,
    *,
    header: bytes = b"\x89LMC\r\n\x1a\n" + VERSION.to_bytes(2, "little") + b"\1" + bytes(5),
    before: bytes = b"",
    between: bytes = b"",
    segments: bytes | None = None,
    exact: int = 0,
) -> bytes:
    """Make a file of block records and their raw lengths."""
    table = b"".join(varint(len(data)) + varint(length) for data, length in blocks)
    table += string(b"raw") + string(b"test")
    table += opaque(sum(length for _, length in blocks)) if segments is None else segments
    head = u64(len(raw)) + decode.content_hash(raw) + u32(exact)
    head += varint(len(blocks)) + varint(len(table)) + zstd(table, window_log=27 if len(table) > 2**21 else 0)
    file = header + before + b"".join(data for data, _ in blocks) + between
    place = u64(len(file)) + u64(24 + len(head))
    return file + record(b"INDX", head) + place + u64(xxh3_64_intdigest(place)) + b"LMCend\r\n"


def one_block(column: bytes, body: bytes, raw: bytes) -> bytes:
    """Make a file of one block of one column."""
    return file_of([(block(len(raw), column, body, raw), len(raw))], raw)


RAW = b"Some raw bytes."
STORED = (block(len(RAW), b"\0", RAW), len(RAW))
HEADER = file_of([], b"")[:16]
ZERO = b"\0\x08\0\0\0"  # a cluster of bytes 0: flags, low, high, k, coder
EVERY = b"\1\x08\0\0\0\xff"  # one of bytes 255
BYTES = b"\0\0\0\x08\0"  # one of bytes that stand in the bulk
ZEROS = b"\0\0\1\0" + ZERO  # a stream of bytes 0: map, mask, clusters, patches, cluster


def hostile() -> list[bytes]:
    """Return files that claim more data than they have."""
    most = varint(2**64 - 1)
    zeros = bytes(2**24)
    bomb = zstd(bytes(2**28))
    unstated = zstd(bytes(2**28), content_size=False)
    huge_window = bytes.fromhex("28b52ffd00a8") + (2**17 << 3 | 3).to_bytes(3, "little") + b"\0"
    leaf = (block(2**18, frame_of(zstd(bytes(2**18))), zstd(bytes(2**18)), bytes(2**18)), 2**18)
    whole = b"\0\0" + varint(2**18)  # a range
    own, ranges = HEADER[:12] + u32(3), varint(2**18) + whole * 2**18  # of 2^36 bytes
    files = [
        file_of([(block(2**24, b"\0", b"x"), 2**24)], b""),
        file_of([(block(2**24, b"\2\0" + ZEROS, b"", zeros), 2**24)] * 5, b""),
        file_of([(block(2**24, frame_of(bomb), bomb, zeros), 2**24)], b""),
        file_of([(block(2**24, frame_of(unstated), unstated, zeros), 2**24)], b""),
        file_of([(block(2**24, frame_of(huge_window), huge_window, zeros), 2**24)], b""),
        file_of([(block(2**24, b"\2\0\0\0\1\1" + most, b""), 2**24)], b""),
        file_of([(block(2**24, b"\2\0\0\3" + most, b""), 2**24)], b""),
        file_of([(block(2**24, b"\2\0\0\1" + varint(2**24) + EVERY + ZEROS[2:], b"", zeros), 2**24)] * 2, b""),
        file_of([(block(2**24, b"\2\0\0\3\1\0\0\0" + most, b""), 2**24)], b""),
        file_of([(block(2**24, b"\2\0\0\3\1\0\0\0\0\0\0\0\0" + most, b""), 2**24)], b""),
        file_of([leaf, (block(2**24, frame_of(b"", 0, ranges), b""), 2**24)], b"", header=own),
        file_of([leaf, (block(2**24, frame_of(b"", 0, varint(2**20) + whole), b""), 2**24)], b"", header=own),
        file_of([leaf, (block(2**24, b"\3\0\1\1\0" + ranges, b""), 2**24)], b"", header=own),
        file_of([STORED], RAW, segments=most),
        file_of([STORED], RAW, segments=b"\1" + b"\2" + string(b"a") + varint(2**40)),
        file_of([STORED], RAW, segments=b"\1" + b"\2\0" + most),
        file_of([STORED], RAW, segments=b"\1" + b"\2\0\0\x40" + most * 64),
        file_of([STORED], RAW, before=record(b"BLCK", b"", body_length=2**64 - 1)),
        file_of([STORED], RAW, between=record(b"zzzz", b"", body_length=2**63)),
    ]
    head = u64(len(RAW)) + decode.content_hash(RAW) + u32(0) + b"\1"
    for table in (varint(2**26) + bomb, varint(2**28) + bomb, most + bomb, varint(2**26) + huge_window):
        files.append(file_of([STORED], RAW).split(b"INDX")[0] + record(b"INDX", head + table) + bytes(32))
    return files


def test_made_files_are_valid() -> None:
    """The files changed below are valid unless changed."""
    assert decode.decode(file_of([STORED], RAW)) == RAW
    assert decode.decode(file_of([], b"")) == b""
    text = 100 * RAW
    assert decode.decode(one_block(frame_of(zstd(text)), zstd(text), text)) == text
    assert decode.decode(one_block(frame_of(naming(0)), naming(0), RAW)) == RAW
    two = bytes(2**18) + RAW
    assert decode.decode(file_of([(block(2**18, b"\0", bytes(2**18)), 2**18), STORED], two)) == two


@pytest.mark.parametrize(
    ("column", "body", "wrong"),
    [
        (b"\5", b"", "method is 5"),
        (b"\4\1", b"", "bit 2 of required features is not set"),
        (frame_of(zstd(RAW), length=len(zstd(RAW)) + 1), zstd(RAW), "frame should have"),
        (frame_of(zstd(RAW) + b"\0"), zstd(RAW) + b"\0", "does not decode"),
        (frame_of(zstd(RAW[:7]) * 2), zstd(RAW[:7]) * 2, "content size"),
        (frame_of(bytes(16)), bytes.fromhex("502a4d1808000000") + bytes(8), "magic"),
        (frame_of(zstd(RAW)), zstd(RAW) + b"\0", "left over after the bulk"),
        (frame_of(zstd(RAW, False)), zstd(RAW, False), "a zstd frame states no content size"),
        (frame_of(naming(7)), naming(7), "dictionary of a zstd frame is 7, not 0"),
        (b"\1\4", b"", "width code is 4"),
        (b"\1\1", b"", "not a multiple of the width of 2 bytes"),
        (b"\2\4", b"", "width code is 4"),
        (b"\2\1", b"", "not a multiple"),
        (b"\2\0\4", b"", "map is 4"),
        (b"\2\0\3\2abb", b"", "value 98 is in the palette more than once"),
        (b"\2\0\3\xffabc", b"", "value of the palette should have 1 bytes"),
        (b"\2\0\3\1ab\0\1\0\1\x08\0\0\0\2", b"", "a mapped value is 2, the palette has 2 values"),
        (b"\2\0\0\4", b"", "mask is 4, not 0 to 3"),
        (b"\2\0\0\0\0", b"", "number of clusters is 0, not 1 to 16"),
        (b"\2\0\0\0\x11", b"", "number of clusters is 17"),
        (b"\2\0\0\0\1\2", b"", "patches is 2"),
        (b"\2\0\0\0\1\0\4\0\0\0\0", b"", "flags is 4"),
        (b"\2\0\0\0\1\0\2\0\0\0\0", b"", "sign plane"),
        (b"\2\0\0\0\1\0\0\4\4\1\0", b"", "more than the width"),
        (b"\2\0\0\0\1\0\0\0\0\0\0", b"", "width of symbols is 8"),
        (b"\2\0\0\0\1\0\0\0\0\0\2", b"", "coder 2 is unknown"),
        (b"\2\0\0\0\1\0\0\0\0\0\7\0\1\x40\x40\0", b"", "no lane set"),
        (b"\2\0\0\0\1\0\0\0\0\0\7\0\1\x40\x3f\0", b"", "sum of the frequencies is 127"),
        (b"\2\0\0\0\1\0" + BYTES, RAW[:-1], "raw bits should have"),
        (b"\2\0\0\0\1\1\0", b"", "number of patches is 0"),
        (b"\2\0\0\0\1\1\x10", b"", "number of patches is 16"),
        (b"\2\0\0\0\1\1\x0f\x08", b"", "t, the low bits"),
        (b"\2\0\0\0\1\1\1\0\x40", b"", "r is 64"),
        (b"\2\0\0\0\1\1\1\0\1\xff\0", b"", "more than 64 bits"),
        (b"\2\0\0\0\1\1\1\0\0\xff\1", b"", "code of gaps: count - 1 is 1, not 0 to 0"),
        (b"\2\0\0\0\1\1\1\0\0\x0f\0\0\0\0\0" + ZERO, b"", "a gap is 15, the stream has 15 elements"),
        (b"\2\0\0\0\1\1\2\0\0\x07\0\0\0\0\0" + ZERO, b"", "the last gap leads to element 15"),
        (b"\2\0\0\0\1\1\1\7\0\0\0\0\1\0\0" + ZERO, b"", r"\(y \+ 1\) << 7 is 0x100"),
        (b"\2\0\0\0\1\1\1\0\0\0\0\0\0\0\1" + ZERO, b"\0", "patches: length of the bits is 1, not 0"),
        (b"\2\0\0\0\1\1\1\0\1\0\0\0\0\0\1" + ZERO, b"\2", "unused bits of the last byte is 1, not 0"),
        # Masks: of bits
        (b"\2\0\0\1\0", b"", "number of selected elements is 0, not 1 to 15"),
        (b"\2\0\0\1\x10", b"", "number of selected elements is 16, not 1 to 15"),
        (b"\2\0\0\1\1" + ZERO, b"", "mask: number of selected elements is 1, not 0"),
        (b"\2\0\0\1\x0e" + BYTES, b"\xff\x7f", "mask: number of selected elements is 14, not 15"),
        (b"\2\0\0\1\x0f" + BYTES, b"\xff\xff", "mask: unused bits of the last byte are not 0"),
        (b"\2\0\0\1\x0f" + BYTES, b"\xff", "mask: raw bits should have 2 bytes, 1 are left"),
        (b"\2\0\0\1\1\0\0\0\0\7\0\1\x40\x40\0", b"", "mask: a cluster has a coder, but the block no lane sets"),
        (b"\2\0\0\2\1" + BYTES, b"\1\0\0", "mask: signs should have 2 bytes, 1 are left"),
        (b"\2\0\0\2\1" + BYTES, b"\1\0\0\x80", "mask: unused bits of the last byte are not 0"),
        (b"\2\0\3\0a\2\1" + BYTES + ZEROS[2:], b"\1\0\2\0", "a mapped value is 1, the palette has 1 values"),
        (b"\2\0\0\1\2" + BYTES + b"\1\1\3", b"\3\0", "number of patches is 3, not 1 to 2"),
        (b"\2\0\0\1\2" + BYTES + b"\1\1\1\0\0\2\0\0\0\0\0" + ZERO, b"\3\0", "gap is 2, the stream has 2"),
        # of gaps
        (b"\2\0\0\3\1\0\x0f\0\0", b"", "mask: a gap is 15, the stream has 15"),
        (b"\2\0\0\3\4\0\3\0\0\1", b"", "mask: the last gap leads to element 15, the stream has 15"),
        (b"\2\0\0\3\1\0\0\0\1", b"\0", "mask: length of the bits is 1, not 0"),
        (b"\2\0\0\3\1\1\0\0\0", b"", "mask: the bits do not fit into their 0 bytes"),
        (b"\2\0\0\3\1\1\0\0\1", b"\x82", "mask: unused bits of the last byte is 65, not 0"),
        (b"\2\0\0\3\1\0\0\1\1", b"", "mask: code of gaps: the sum of"),
        (b"\2\0\0\3\1\0\0\0\0\x11", b"", "number of clusters is 17, not 0 to 16"),
        # Listed values
        (b"\2\0\0\3\1\0\0\0\0\0\4\x0f\0\0", b"", "bits do not fit into their 0 bytes"),
        (b"\2\0\0\3\1\0\0\0\0\0\4\x0f\0\1", b"\x0f", r"listed values: \(y \+ 1\) << 0 is 0x100, above"),
        (b"\2\0\0\3\1\0\0\0\0\0\0\0\0\1", b"\0", "listed values: length of the bits is 1, not 0"),
        (b"\2\0\0\3\1\0\0\0\0\0\1\0\0\1", b"\2", "listed values: unused bits of the last byte is 1, not 0"),
        (b"\2\0\3\1ab\3\1\0\0\0\0\0\0\1\0\0", b"", "a mapped value is 2, the palette has 2 values"),
        (b"\3\0\0", b"", "predictor is 0"),
        (b"\3\0\1\0", b"", "number of operands is 0"),
        (b"\3\0\1\2", b"", "number of operands is 2"),
        (b"\3\0\1\1\1", b"", "conversion is 1"),
        (b"\3\0\1\1\5", b"", "conversion is 5"),
        (b"\3\0\1\1\4", b"", "grid: bit 2 of required features is not set"),
        (b"\3\0\1\1\0\0", b"", "number of ranges is 0"),
        (b"\3\0\1\1\0\1\0\0\1", b"", "range 0: bit 0 of required features is not set"),
    ],
)
def test_wrong_columns(column: bytes, body: bytes, wrong: str) -> None:
    """Each of some invalid columns is rejected for the right reason."""
    with pytest.raises(FormatError, match=wrong) as caught:
        decode.decode(one_block(column, body, RAW))
    assert str(caught.value).startswith("block 0: ")


def test_limits() -> None:
    """A file that is larger than the caller allows is not said to break a rule; tables have 2^26 bytes in any case."""
    with pytest.raises(LimitError, match="block 0: over 14 raw bytes: see --max-size"):
        decode.decode(file_of([STORED], RAW), max_size=14)
    segments = b"\2\0" + varint(len(RAW)) + b"\2\0" + string(bytes(2**26)) + b"\1\0"  # a long name
    with pytest.raises(LimitError, match="index: table of 671[0-9]{5} bytes: see --max-size"):
        decode.decode(file_of([STORED], RAW, segments=segments), max_size=2**26)
    assert decode.decode(file_of([STORED], RAW, segments=segments)) == RAW


SKIPPABLE = record(b"zZ\0\xff", b"whatever")


@pytest.mark.parametrize(
    ("data", "wrong"),
    [
        (b"", "header: magic"),
        (file_of([], b"", header=b"\x89LMD" + HEADER[4:]), "header: magic"),
        (file_of([], b"", header=HEADER[:8] + b"\0\0" + HEADER[10:]), "header: version is 0"),
        (file_of([], b"", header=HEADER[:8] + b"\2\0" + HEADER[10:]), "header: version is 2"),
        (file_of([], b"", header=HEADER[:10] + b"\2\0" + HEADER[12:]), "header: hash is 2"),
        (file_of([], b"", header=HEADER[:10] + b"\1\1" + HEADER[12:]), "header: reserved is 1"),
        (file_of([], b"", header=HEADER[:12] + u32(8)), "header: required features is 8"),
        (file_of([], b"", header=HEADER[:12] + u32(2)), "header: required features is 2"),
        (file_of([], b"", header=HEADER[:12] + u32(6)), "header: required features is 6"),
        (file_of([STORED], RAW, between=SKIPPABLE * 65), "more than 64"),
        (file_of([STORED], RAW, before=SKIPPABLE), "index: tag"),
        (file_of([STORED], RAW, between=record(b"zzzz", b"", b"1")), "skippable record 0: body length is 1"),
        (file_of([STORED], RAW, between=record(b"zzzz", bytes(2**24))), "skippable record 0: head length"),
        (file_of([STORED], RAW, between=SKIPPABLE[:-1] + b"E"), "skippable record 0: check"),
        (file_of([STORED], RAW, between=record(b"ZZZZ", b"")), "index: tag b'ZZZZ' is unknown"),
        (file_of([STORED], RAW, before=record(b"BASE", b"")), "bases: bit 0"),
        (file_of([STORED], RAW, between=record(b"BASE", b"")), "index: tag"),
        (file_of([STORED, STORED], RAW + RAW), "block 1: it starts at 15"),
        (file_of([STORED], RAW + b"!"), "index: raw size is 16, not 15"),
        (file_of([STORED], RAW[::-1]), "index: content hash"),
        (file_of([STORED], RAW, exact=1), "index: exact features is 1, not 0"),
        (file_of([(STORED[0], 14)], RAW), "raw length of block 0"),
        (file_of([STORED], RAW, segments=opaque(14)), "sum of the lengths of segments is 14"),
        (file_of([STORED], RAW, segments=opaque(16)), "sum of the lengths of segments is 16, not 15"),
        (file_of([STORED], RAW, segments=opaque(15) + b"\0"), "left over after the last segment is 1"),
        (file_of([STORED], RAW, segments=b"\1\x17"), "dtype 23 is unknown"),
        (file_of([STORED], RAW, segments=b"\1\x80"), "bit 7 of an opaque segment"),
        (file_of([STORED], RAW, segments=b"\1\x82\0\0"), "bit 7 of the first tensor"),
        (file_of([STORED], RAW, segments=b"\1\2\1\0\0"), "shared is 1, not 0 to 0"),
        (file_of([STORED], RAW, segments="\2\2\0\2é\0\2\1".encode() + b"\0\0"), "inside a character"),
        (file_of([STORED], RAW, segments=b"\1\2\0\1\xff\0"), "rest of the name is not UTF-8"),
        (file_of([STORED], RAW, segments=b"\1\2\0\0\x41"), "rank is 65"),
        (file_of([STORED], RAW, segments=b"\1\x12\0\0\1\3"), "12 bits"),
        (file_of([STORED], RAW, segments=b"\1\2\0\0\3" + varint(2**32) * 2 + b"\0"), "product of dimensions"),
        (file_of([STORED], RAW, segments=b"\x81\0" + opaque(15)[1:]), "a byte of 0"),
        (file_of([STORED], RAW, segments=b"\xff" * 9 + b"\2"), "not 0 to 18446744073709551615"),
        (file_of([STORED], RAW) + b"\0", "trailer: length is 33"),
        (file_of([STORED], RAW)[:-1], "trailer: length is 31"),
        (file_of([STORED], RAW)[:-1] + b"\r", "trailer: magic"),
    ],
)
def test_wrong_files(data: bytes, wrong: str) -> None:
    """Each of some invalid files is rejected for the right reason."""
    with pytest.raises(FormatError) as caught:
        decode.decode(data)
    assert wrong in str(caught.value)


def test_skippable_records() -> None:
    """At most 64 skippable records stand before the index."""
    assert decode.decode(file_of([STORED], RAW, between=SKIPPABLE * 64)) == RAW


def test_bases() -> None:
    """Bases are identified by content; all of them are needed, with the recorded length."""
    header = HEADER[:12] + u32(1)

    def delta(*bases: tuple[bytes, int]) -> bytes:
        named = b"".join(decode.content_hash(base) + varint(length) + string(b"name") for base, length in bases)
        return file_of([STORED], RAW, header=header, before=record(b"BASE", varint(len(bases)) + named))

    two = delta((b"one", 3), (b"two", 3))
    assert decode.decode(two, [b"two", b"three", b"one"]) == RAW
    with pytest.raises(FormatError, match="bases: base 2: it was not given: file name 'name'"):
        decode.decode(two, [b"one"])
    with pytest.raises(FormatError, match="bases: base 1: raw length is 4, not 3"):
        decode.decode(delta((b"one", 4)), [b"one"])
    with pytest.raises(FormatError, match="number of bases is 0"):
        decode.decode(delta())
    assert decode.decode(delta((b"one", 3), (b"one", 3)), [b"one"]) == RAW


def range_of(offset: int, length: int, source: int = 0) -> bytes:
    """Make a range of this file, or of a base."""
    return varint(source) + varint(offset) + varint(length)


def copy(raw: bytes, offset: int, length: int) -> tuple[bytes, int]:
    """Make a block that is a range of this file, predicted without any residual."""
    column = b"\3\0\2\1\0\1" + range_of(offset, length) + b"\0" + varint(length) + ZEROS
    return block(length, column, b"", raw[offset : offset + length], b""), length


def test_ranges_of_this_file() -> None:
    """Ranges may touch several blocks before this one; the depth is at most 8."""
    header = HEADER[:12] + u32(3)
    leaf = random.Random(1).randbytes(2**18)
    leaves = [(block(2**18, b"\0", leaf), 2**18)]
    for depth in range(1, 9):
        leaves.append(copy(leaf * 9, (depth - 1) * 2**18, 2**18))
    assert decode.decode(file_of(leaves, leaf * 9, header=header, exact=3)) == leaf * 9
    for exact in (0, 1, 2, 7):
        with pytest.raises(FormatError, match=f"exact features is {exact}, not 3"):
            decode.decode(file_of(leaves, leaf * 9, header=header, exact=exact))
    with pytest.raises(FormatError, match="depth of the block is 9"):
        decode.decode(file_of([*leaves, copy(leaf * 9, 9 * 2**18 - 1, 1)], leaf * 9 + leaf[-1:], header=header))
    with pytest.raises(FormatError, match="depth of the block is 9"):
        decode.decode(file_of([*leaves, copy(leaf * 9, 8 * 2**18 - 1, 2)], leaf * 9 + leaf[:2], header=header))
    two = leaf * 9 + leaf[-1:] + leaf[:1]
    assert decode.decode(file_of([*leaves, copy(two, 7 * 2**18 - 1, 2)], two, header=header, exact=3)) == two
    for features, wrong in ((0, "bit 0"), (1, "bit 1")):
        with pytest.raises(FormatError, match=f"{wrong} of required features is not set"):
            decode.decode(file_of(leaves, leaf * 9, header=HEADER[:12] + u32(features)))
    with pytest.raises(FormatError, match="it ends at 262145, source 0 at 262144"):
        decode.decode(file_of([leaves[0], copy(leaf * 2, 1, 2**18)], leaf * 2, header=header))


def test_wrong_ranges() -> None:
    """The limits of the ranges that one block names, and of operands and prefixes, are checked."""
    header, leaf = HEADER[:12] + u32(3), (block(2**18, b"\0", bytes(2**18)), 2**18)

    def refused(column: bytes, wrong: str) -> None:
        two = [leaf, (block(1, column, b"", b"\0", b""), 1)]
        with pytest.raises(FormatError, match=wrong):
            decode.decode(file_of(two, bytes(2**18 + 1), header=header, exact=3))

    operand = b"\3\0\2\1\0"
    whole, one = range_of(0, 2**18), range_of(0, 1)
    refused(operand + b"\1" + range_of(0, 1, 1), "range 0: source is 1, not 0 to 0")
    refused(operand + b"\2" + one + range_of(0, 0), "range 1: length is 0")
    refused(operand + b"\1" + range_of(2**18, 1), "it ends at 262145, source 0 at 262144")
    refused(operand + b"\2" + one + one, "range 1: operand has 2 bytes, above 1")
    refused(operand + varint(2**20 + 1), "number of ranges is 1048577")
    refused(operand + b"\2" + one + whole, "range 1: operand has 262145 bytes, above 1")
    refused(operand + b"\1" + one + b"\0\1\3", "map is 3, not 0 to 2")
    refused(frame_of(b"", 0, varint(33) + whole * 32 + one), "range 32: prefix has 8388609 bytes")
    wide = [leaf, (block(8, frame_of(b"", 1, b"\1" + one), b"", bytes(8), b""), 8)]
    with pytest.raises(FormatError, match="number of ranges is 1, not 0 to 0"):
        decode.decode(file_of(wide, bytes(2**18 + 8), header=header, exact=3))
    columns = operand + b"\1" + one + b"\0\1" + ZEROS + operand + varint(2**20)
    many = record(b"BLCK", b"\2\0\2" + b"\2\0\1\1\1" + columns)
    with pytest.raises(FormatError, match="column 1: the block names 1048577 ranges"):
        decode.decode(file_of([leaf, (many, 2)], bytes(2**18 + 2), header=header, exact=3))
    two_bytes = [leaf, (block(2, operand + b"\1" + one, b"", bytes(2), b""), 2)]
    with pytest.raises(FormatError, match="length of the operand is 1, not 2"):
        decode.decode(file_of(two_bytes, bytes(2**18 + 2), header=header, exact=3))
    long = 2**24 - 2**18 + 1
    together = [leaf, (block(long, frame_of(b"", 0, b"\1" + whole), b"", bytes(long), b""), long)]
    with pytest.raises(FormatError, match="prefix and column have 262144 \\+ 16515073 bytes"):
        decode.decode(file_of(together, bytes(2**18 + long), header=header, exact=3))


def test_byte_planes() -> None:
    """A zstd column may hold the first bytes of all elements, then the second, and so on."""
    elements = [i.to_bytes(8, "big") for i in range(1000)]
    for code in range(4):
        raw = b"".join(element[-(1 << code) :] for element in elements)
        frame = zstd(b"".join(raw[i :: 1 << code] for i in range(1 << code)))
        assert decode.decode(one_block(frame_of(frame, code), frame, raw)) == raw


@pytest.mark.parametrize("base", [random.Random(1).randbytes(5000), b"x\x37\xa4\x30\xec" + bytes(range(256)), b"xy"])
def test_prefix(base: bytes) -> None:
    """The matches of a frame may reach the bytes of ranges, whatever these are; the xxh3-64 of the body is not read."""
    raw = base[:-1] + b"!" + base[1:]
    prefix = zstandard.ZstdCompressionDict(base[1:] + base[:1], dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    frame = zstandard.ZstdCompressor(dict_data=prefix).compress(raw)
    ranges = b"\2" + range_of(1, len(base) - 1, 1) + range_of(0, 1, 1)
    data = block(len(raw), frame_of(frame, 0, ranges), frame, raw, checked=frame)
    bases = record(b"BASE", b"\1" + decode.content_hash(base) + varint(len(base)) + b"\0")

    def delta(data: bytes, exact: int) -> bytes:
        return file_of([(data, len(raw))], raw, header=HEADER[:12] + u32(1), before=bases, exact=exact)

    assert decode.decode(delta(data, 1), [base]) == raw
    with pytest.raises(FormatError, match="index: exact features is 0, not 1"):
        decode.decode(delta(data, 0), [base])
    damaged = block(len(raw), frame_of(frame, 0, ranges), frame, raw, checked=frame + b"\0")
    assert decode.decode(delta(damaged, 1), [base]) == raw
    without = block(len(raw), frame_of(frame, 0, ranges), frame, raw)
    with pytest.raises(FormatError, match="xxh3-64 of the body should have 8 bytes"):
        decode.decode(delta(without, 1), [base])


def test_copies() -> None:
    """Bytes are copied from before their own, in raw order, and may be copied again."""

    def file(raw: bytes, extents: Sequence[tuple[int, int]], *distances: int, exact: int = 4) -> bytes:
        stored = b"".join(raw[sum(n for _, n in extents[:i]) :][:n] for i, (c, n) in enumerate(extents) if c == 0)
        order = varint(len(extents)) + b"".join(bytes([column]) + varint(n) for column, n in extents)
        columns = b"\0" + b"".join(b"\4" + varint(distance) for distance in distances)
        head = varint(len(raw)) + b"\0" + bytes([1 + len(distances)]) + order + columns + decode.content_hash(raw)
        return file_of([(record(b"BLCK", head, stored), len(raw))], raw, header=HEADER[:12] + u32(4), exact=exact)

    for raw, extents, distances in (
        (b"one two.one two three", [(0, 8), (1, 3), (0, 1), (1, 3), (0, 6)], [8]),
        (b"-ababababa!", [(0, 3), (1, 7), (0, 1)], [2]),
        (b"abcabcbccbc.", [(0, 3), (1, 3), (2, 2), (1, 3), (0, 1)], [3, 2]),
        (b"a" * 2**20, [(0, 1), (1, 2**20 - 1)], [1]),
    ):
        assert decode.decode(file(raw, extents, *distances)) == raw
    extents = [(0, 3), (1, 3)]
    for distance, exact, wrong in (
        (0, 4, "distance of copies is 0, not 1 to 3"),
        (4, 4, "distance of copies is 4, not 1 to 3"),
        (2, 4, "digest is"),
        (3, 0, "exact features is 0, not 4"),
    ):
        with pytest.raises(FormatError, match=wrong):
            decode.decode(file(b"abcabc", extents, distance, exact=exact))


def test_palette() -> None:
    """Mapped values are numbers of the palette's values, patches included."""
    values = [2**64 - 1, 0, 2**63]
    numbers = [i * i % 4 for i in range(301)]
    bits = bytearray(38)
    for i, number in enumerate(numbers):
        bits[i // 8] |= number << i % 8
    numbers[200] ^= 2
    patch = b"\1\1\1" + b"\x08\0\0" + b"\0\0\0" + b"\1"  # a gap of eight open bits, a change of none, by 1 << 1
    column = b"\2\3" + b"\3\2" + b"".join(map(u64, values)) + b"\0\1" + patch + b"\0\0\x3f\1\0"
    raw = b"".join(u64(values[number]) for number in numbers)
    assert decode.decode(one_block(column, bytes(bits) + b"\xc8", raw)) == raw


def small_window(raw: bytes, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """Make a zstd frame with a Window_Size of 1 KiB that states its content size."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=10, write_content_size=True)
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(raw)


def test_windows() -> None:
    """A frame needs a window of the column's length."""
    base = random.Random(1).randbytes(2048)
    prefix = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    bases = record(b"BASE", b"\1" + decode.content_hash(base) + varint(len(base)) + b"\0")
    header, ranges = HEADER[:12] + u32(1), b"\1" + range_of(0, len(base), 1)
    for length in (1024, 1025):
        raw = base[-length:]
        frame = bytearray(small_window(raw, prefix))
        if frame[4] & 0x20:  # a single segment: state the window instead
            frame[4:5] = bytes([frame[4] & ~0x20, 0])
        assert zstandard.get_frame_parameters(bytes(frame)).window_size == 1024
        data = block(length, frame_of(bytes(frame), 0, ranges), bytes(frame), raw, checked=bytes(frame))
        file = file_of([(data, length)], raw, header=header, before=bases, exact=1)
        if length == 1024:
            assert decode.decode(file, [base]) == raw
        else:
            with pytest.raises(FormatError, match="window of a zstd frame is 1024, not 1025 to"):
                decode.decode(file, [base])
    text = 1000 * RAW
    with pytest.raises(FormatError, match="window of a zstd frame is 1024, not 15000 to"):
        decode.decode(one_block(frame_of(small_window(text)), small_window(text), text))


# Masks


def plain(stream: bytes, body: bytes, elements: Sequence[int], width: int = 1) -> None:
    """Check what a stream without coders decodes to, as a plain column."""
    raw = b"".join(element.to_bytes(width, "little") for element in elements)
    column = bytes([2, width.bit_length() - 1]) + stream
    assert decode.decode(one_block(column, body, raw)) == raw


def test_mask_of_bits() -> None:
    """Selected elements alone are coded, in clusters or as a list; runs and patches count only them."""
    head = b"\0\1\5" + BYTES  # map 0, bits, of 5 elements
    mask = b"\x11\x13"  # elements 0, 4, 8, 9, 12 of 13
    expected = [1, 0, 0, 0, 2, 0, 0, 0, 3, 4, 0, 0, 5]
    plain(head + b"\1\0" + BYTES, mask + bytes([1, 2, 3, 4, 5]), expected)
    # A code of one bucket of r = 2 open bits: values 1 … 4.
    plain(head + b"\0" + b"\2\0\0\2", mask + bytes([0b11_10_01_00, 0b11]), [*expected[:-1], 4])
    # A patch of selected element 3, which is element 9, by 1 << 7.
    patch = b"\1\1\7" + b"\0\3\0" + b"\0\0\0" + b"\0"
    plain(head + b"\1" + patch + BYTES, mask + bytes([1, 2, 3, 4, 5]), [*expected[:9], 0x84, 0, 0, 5])
    # A constant is no value of the elements that are not selected, and maps apply to all.
    plain(head + b"\1\0" + b"\1\x08\0\0\0\7", mask, [7 * (value > 0) for value in expected])
    plain(b"\3\1ab" + head[1:] + b"\1\0" + b"\1\x08\0\0\0\1", mask, [97 + (value > 0) for value in expected])
    plain(
        b"\2" + head[1:] + b"\1\0" + BYTES,
        mask + bytes([1, 2, 3, 4, 5]),
        [[0, 255, 1, 254, 2, 253][v] for v in expected],
    )
    # All are selected.
    plain(b"\0\1\3" + BYTES + b"\1\0" + BYTES, b"\7abc", b"abc")


def test_runs_count_selected_elements() -> None:
    """A cluster map has a byte for each 128 selected elements, behind the mask's cluster, which has its own runs."""
    n, m = 2048 + 8, 1028
    selected = [i % 2 == 0 for i in range(n)]
    assert sum(selected) == m
    clusters = [1, 0, 1, 1, 1, 1, 1, 1, 1]  # the last run has 4 elements
    stream = b"\0\1" + varint(m) + b"\1\x08\0\0\0\x55" + b"\2\0" + BYTES + BYTES + b"\1\x08\0\0\0\x99"
    coded = random.Random(1).randbytes(128)
    values = [0x99] * 128 + list(coded) + [0x99] * (m - 256)
    plain(stream, bytes(clusters) + coded, [values[i // 2] if selected[i] else 0 for i in range(n)])


def test_mask_of_bits_and_signs() -> None:
    """Signs are of all elements, and stand behind the mask's cluster; they change bit 0 of mapped values."""
    mask, signs = b"\x01\x02", b"\x03\x00"  # elements 0 and 9 of 10; elements 0 and 1 have a sign
    head = b"\1\2\2" + BYTES  # map 1: the sign is bit 0 of a mapped value
    expected = [0x8001, 0x8000, 0, 0, 0, 0, 0, 0, 0, 0x0123]
    two = b"\0\0\0\x10\0"  # a cluster of 16 raw bits, in byte planes
    plain(head + b"\1\0" + two, mask + signs + b"\x02\x46\0\2", expected, 2)
    # Signs come after patches: the patch of element 0 clears the bit that its sign sets.
    patch = b"\1\1\0" + b"\0\0\0" + b"\0\0\0" + b"\0"
    plain(head + b"\1" + patch + two, mask + signs + b"\x03\x46\0\2", expected, 2)
    # Listed: values 2 and 0x246, as numbers 1 and 0x245 of 12 open bits; then the sign.
    numbers = (1 | 0x245 << 12).to_bytes(3, "little")
    plain(head + b"\0" + b"\x0c\0\0\3", mask + signs + numbers, expected, 2)
    # A sign plane of the cluster is another thing: both change bit 0.
    plane = b"\2\1\x0e\1\0"  # bit 0 is a sign, bit 1 raw
    plain(b"\0" + head[1:] + b"\1\0" + plane, mask + signs + b"\3\1", [2, 1, 0, 0, 0, 0, 0, 0, 0, 2], 2)


def test_mask_of_gaps() -> None:
    """Gaps stand before all else; listed values behind them."""
    gaps = (3 | 0 << 4 | 9 << 8).to_bytes(2, "little")  # of 4 open bits: elements 3, 4, 14
    head = b"\0\3\3" + b"\4\0\0\2"
    expected = [0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0]
    plain(head + b"\1\0" + BYTES, gaps + bytes([1, 2, 255]), expected)
    numbers = bytes([0, 1, 254])
    plain(head + b"\0" + b"\x08\0\0\3", gaps + numbers, expected)
    # Codes of one number and no bits: elements 0, 1, 2 are all 1.
    plain(b"\0\3\3" + b"\0\0\0\0" + b"\0" + b"\0\0\0\0", b"", [1, 1, 1, 0])
    # Values of 64 bits: the largest number is 2^64 - 2.
    ones = b"\0\3\1" + b"\0\1\0\0" + b"\0" + b"\x3c\x0f\0\x08"
    plain(ones, (2**60 - 2).to_bytes(8, "little"), [0, 2**64 - 1], 8)
    with pytest.raises(FormatError, match=r"\(y \+ 1\) << 0 is 0x10000000000000000, above the width of 64 bits"):
        plain(ones, (2**60 - 1).to_bytes(8, "little"), [0, 0], 8)
    # Two buckets of a code with a bit each: 0 (an open bit of none) and 16 (elements of 2^4).
    plain(b"\0\3\2" + b"\0\0\1\x11\1" + b"\0" + b"\0\0\0\0", b"\2", [1, 0, 1])


def test_mask_of_a_context() -> None:
    """The elements of a mask are those of its context."""
    base = bytes([0x00, 0x40, 0x01, 0x41, 0x02, 0x42, 0x03])  # keys 0, 0x80, 2, 0x82, …: two contexts
    bases = record(b"BASE", b"\1" + decode.content_hash(base) + varint(len(base)) + b"\0")
    masked = b"\0\3\1" + b"\0\2\0\0" + b"\0" + b"\0\1\0\0"  # only the third is not predicted: e = 2, d = 1
    column = b"\3\0\2\1\0\1" + range_of(0, len(base), 1) + b"\1\x80" + b"\4" + masked + b"\3" + masked
    raw = bytes([0x00, 0x40, 0x01, 0x41, 0x03, 0x43, 0x03])
    data = block(len(raw), column, b"", raw, checked=b"")
    header = HEADER[:12] + u32(1)
    assert decode.decode(file_of([(data, len(raw))], raw, header=header, before=bases, exact=1), [base]) == raw


def grid(
    levels: Sequence[float],
    groups: Sequence[int],
    scales: Sequence[float],
    indices: Sequence[int],
    conversion: int = 1,
    offsets: Sequence[float] | None = None,
) -> tuple[bytes, bytes]:
    """Make a column that equals the predictions of a grid; returns its head and its bulk."""
    n, width = len(indices), 2 if conversion else 4
    head = bytes([3, width // 2, 1, 1, 4, conversion, offsets is not None, len(levels) - 1])
    head += struct.pack(f"<{len(levels)}f", *levels) + b"".join(map(varint, groups))
    head += (WORDS if offsets is None else WORDS + WORDS) + b"\0\0\1\0" + BYTES
    head += b"\0" + varint(n) + b"\0\0\1\0" + bytes([0, 8 * width, 0, 0, 0])
    return head, planes_of(scales) + planes_of(offsets or []) + bytes(indices)


WORDS = b"\0\0\1\0" + b"\0\0\0\x20\0"  # a stream of words that stand in the bulk, in byte planes


def planes_of(numbers: Sequence[float]) -> bytes:
    """Return the byte planes of up to 128 numbers."""
    return b"".join(map(bytes, zip(*(struct.pack("<f", number) for number in numbers), strict=True)))


def of_grid(column: tuple[bytes, bytes], raw: bytes) -> bytes:
    """Restore a file of one column with a grid."""
    data = block(len(raw), column[0], column[1], raw)
    return decode.decode(file_of([(data, len(raw))], raw, header=HEADER[:12] + u32(4), exact=4))


def test_grid() -> None:
    """Predictions are products of levels and the scales of groups, rounded to binary32 and then converted."""
    # Rows of three; groups of two rows and two columns. The column begins with the last element of the first row.
    column = grid([1.0, -3.0], [3, 2, 2, 2], [1.0, 0.5, 4.0, 8.0], [0, 1, 0, 1, 1, 0, 0])
    expected = [0.5, -3.0, 1.0, -1.5, -12.0, 4.0, 8.0]
    assert of_grid(column, b"".join(struct.pack("<f", x)[2:] for x in expected)) == b"".join(
        struct.pack("<f", x)[2:] for x in expected
    )
    one_row = [1, 2**40, 1, 0]
    for conversion, scale, level, product in (
        (0, 2.0**-149, 1.5, u32(2)),  # a tie, to even
        (0, 2.0**-149, 0.5, u32(0)),
        (0, 2.0**-149, -0.5, u32(1 << 31)),
        (0, 3 * 2.0**-149, 0.5, u32(2)),
        (0, 2.0**-126 - 2.0**-149, 2.0, u32(0x00FFFFFE)),
        (0, 2.0**100, -(2.0**100), u32(0xFF800000)),
        (1, 2.0**127, 1.998046875, b"\x80\x7f"),  # infinite by the conversion
        (3, 2.0**-24, 0.5, b"\0\0"),
        (3, 2.0**-24, -1.5, b"\2\x80"),
        (3, 65520.0, 1.0, b"\0\x7c"),
        (3, 0.0, -1.0, b"\0\x80"),
    ):
        assert of_grid(grid([level], one_row, [scale], [0], conversion), product) == product


def test_grid_with_offsets() -> None:
    """The offset of the group is added to the rounded product; the sum is rounded to binary32 and then converted."""
    # Rows of three; groups of two rows and two columns. The column begins with the last element of the first row.
    groups, scales = [3, 2, 2, 2], [1.0, 0.5, 4.0, 8.0]
    column = grid([1.0, -3.0], groups, scales, [0, 1, 0, 1, 1, 0, 0], offsets=[3.0, 0.25, -4.0, -0.5])
    expected = b"".join(struct.pack("<f", x)[2:] for x in [0.75, 0.0, 4.0, -1.25, -16.0, 0.0, 7.5])
    assert of_grid(column, expected) == expected
    one_row, least, largest = [1, 2**40, 1, 0], 2.0**-149, (2.0 - 2.0**-23) * 2.0**127
    for conversion, scale, level, offset, expected in (
        (0, 0.0, 1.0, 0.0, u32(0)),
        (0, 0.0, 1.0, -0.0, u32(0)),
        (0, 0.0, -1.0, 0.0, u32(0)),
        (0, 0.0, -1.0, -0.0, u32(1 << 31)),
        (0, 3.0, -1.0, 3.0, u32(0)),  # numbers that cancel
        (0, 3.0, 1.0, -3.0, u32(0)),
        (0, least, 3.0, -4 * least, u32(1 << 31 | 1)),
        (0, least, 0.5, -0.0, u32(0)),
        (0, least, -0.5, -0.0, u32(1 << 31)),
        (0, 2.0**-126, 1.0, -least, u32(0x007FFFFF)),
        (0, 2.0**-126 - least, 1.0, least, u32(0x00800000)),
        (0, 2.0**-126, 1.5, -(2.0**-126), u32(0x00400000)),
        (0, 1.0, 1.0, 2.0**-24, u32(0x3F800000)),  # ties, to even
        (0, 1.0, 1.0, 3 * 2.0**-24, u32(0x3F800002)),
        (0, 1.0, 1.0, 2.0**-24 + 2.0**-47, u32(0x3F800001)),
        (0, 1.0 + 2.0**-23, 1.0 + 2.0**-23, -1.0 - 2.0**-22, u32(0)),  # the product is rounded, too
        (0, 2.0**-75, 2.0**-75, least, u32(1)),
        (0, largest, 1.0, 2.0**102, u32(0x7F7FFFFF)),
        (0, largest, -1.0, -(2.0**103), u32(0xFF800000)),
        (0, largest, 2.0, -largest, u32(0x7F800000)),  # an infinite product
        (1, 1.0, 1.0, 2.0**-8 + 2.0**-30, b"\x80\x3f"),  # rounded twice
        (1, largest, 1.0, 0.0, b"\x80\x7f"),  # infinite by the conversion
        (1, largest, 1.0, -(2.0**120), b"\x7f\x7f"),
        (3, 1.0, 1.0, 2.0**-11 + 2.0**-30, b"\0\x3c"),
        (3, 65519.0, 1.0, 1.0, b"\0\x7c"),
        (3, 2.0**-24, 1.0, 2.0**-25, b"\2\0"),
        (3, 0.0, -1.0, 0.0, b"\0\0"),
    ):
        assert of_grid(grid([level], one_row, [scale], [0], conversion, [offset]), expected) == expected


def test_offsets_stand_between_scales_and_indices() -> None:
    """Offsets are a stream like others: here a palette is refused, and a mask selects one of them."""
    head, bulk = grid([1.0], [1, 1, 1, 0], [1.0, 1.0], [0, 0], offsets=[0.0, 2.0])
    at = 8 + 4 + 4 + len(WORDS)  # behind the scales
    raw = b"\x80\x3f\x40\x40"
    assert of_grid((head, bulk), raw) == raw
    masked = b"\0\3\1" + b"\0\1\0\0" + b"\1\0" + WORDS[4:]  # a gap of 1
    assert of_grid((head[:at] + masked + head[at + len(WORDS) :], bulk[:8] + planes_of([2.0]) + bulk[16:]), raw) == raw
    for wrong_head, wrong_bulk, wrong in (
        (head[:at] + b"\3" + head[at + 1 :], bulk, "grid: offsets: map is 3, not 0 to 2"),
        (head[:6] + b"\2" + head[7:], bulk, "grid: offsets is 2, not 0 to 1"),
        (head, bulk[:-1], "grid: indices: cluster 0: raw bits should have 2 bytes, 1 are left"),
        (head, bulk[:15], "grid: offsets: cluster 0: raw bits should have 8 bytes, 7 are left"),
        (head, bulk + b"\0", "number of bytes left over after the bulk is 1"),
        (head[:at] + masked.replace(b"\3\1", b"\3\3", 1), bulk, "grid: offsets: number of selected elements is 3"),
    ):
        with pytest.raises(FormatError, match=wrong):
            of_grid((wrong_head, wrong_bulk), raw)


@pytest.mark.parametrize(
    ("groups", "scales", "wrong"),
    [
        ([0, 1, 1, 0], 1, "elements of a row is 0, not 1 to"),
        ([2, 0, 1, 0], 1, "rows of a group is 0, not 1 to 140737488355328"),
        ([2, 1, 3, 0], 1, "columns of a group is 3, not 1 to 2"),
        ([2, 1, 2, 2], 2, "position is 2, not 0 to 1"),
        ([2, 1, 1, 1], 4, "there are 4 scales, and 2 elements"),
        ([2**48, 1, 1, 0], 1, "there are 281474976710656 scales, and 2 elements"),
        ([2**48, 1, 2**48, 2**48 - 1], 2, "position is 281474976710655, not 0 to 281474976710654"),
    ],
)
def test_wrong_groups(groups: Sequence[int], scales: int, wrong: str) -> None:
    """The fields of groups have their ranges, and there are at most as many scales as elements."""
    column = grid([1.0], groups, [1.0] * scales, [0, 0])
    with pytest.raises(FormatError, match=f"column 0: grid: {wrong}"):
        of_grid(column, b"\x80\x3f" * 2)


def test_wrong_grids() -> None:
    """Levels differ; levels, scales and offsets are finite; indices are of levels; the conversion is for the width."""

    def refused(column: tuple[bytes, bytes], wrong: str) -> None:
        with pytest.raises(FormatError, match=f"column 0: grid: {wrong}"):
            of_grid(column, b"\x80\x3f" * 2)

    groups, nan, inf = [1, 1, 1, 0], float("nan"), float("inf")
    assert of_grid(grid([1.0, 0.0, -0.0], groups, [1.0, 1.0], [0, 0]), b"\x80\x3f" * 2)
    refused(grid([1.0, 1.0], groups, [1.0, 1.0], [0, 0]), "a level is there more than once")
    refused(grid([1.0], groups, [1.0, 1.0], [0, 1]), "an index is 1, there are 1 levels")
    for column in (
        grid([1.0, nan], groups, [1.0, 1.0], [0, 0]),
        grid([1.0, -inf], groups, [1.0, 1.0], [0, 0]),
        grid([1.0], groups, [1.0, inf], [0, 0]),
        grid([1.0], groups, [nan, 1.0], [0, 0]),
        grid([1.0], groups, [1.0, 1.0], [0, 0], offsets=[0.0, -inf]),
        grid([1.0], groups, [1.0, 1.0], [0, 0], offsets=[nan, 0.0]),
    ):
        refused(column, "not all levels, scales and offsets are finite")
    for conversion, wrong in ((0, "0, the width 2"), (2, "2, the width 2"), (4, "4, not 0 to 3")):
        head, bulk = grid([1.0], groups, [1.0, 1.0], [0, 0])
        refused((head[:5] + bytes([conversion]) + head[6:], bulk), f"conversion is {wrong}")
    head, bulk = grid([1.0], groups, [1.0, 1.0], [0, 0])
    for stream, at in (("scales", 16), ("indices", 25)):
        refused((head[:at] + b"\3" + head[at + 1 :], bulk), f"{stream}: map is 3, not 0 to 2")


def test_content_hash() -> None:
    """The content hash is that of the digests of leaves of 256 KiB."""

    def stored(data: bytes) -> bytes:
        return xxh3_128_digest(data)[::-1]  # the library gives the high half first, each half big-endian

    assert decode.content_hash(b"") == stored(b"")
    assert decode.content_hash(RAW) == stored(stored(RAW))
    data = random.Random(1).randbytes(2**19 + 1)
    leaves = [data[: 2**18], data[2**18 : 2**19], data[2**19 :]]
    assert decode.content_hash(data) == stored(b"".join(stored(leaf) for leaf in leaves))
    assert decode.content_hash(data[: 2**18]) == stored(stored(data[: 2**18]))


# The command line


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run([sys.executable, "-m", "lmc.decode", *arguments], capture_output=True, text=True)


def test_command_line(tmp_path: Path) -> None:
    """A file is restored with its bases; the output is never overwritten, and nothing is left after an error."""
    path = max(VECTORS, key=lambda path: (len(bases_of(path)), path))
    output = tmp_path / "output"
    bases = [argument for base in path.parent.glob(f"{path.stem}.base*") for argument in ("-b", base)]
    assert run(path, *bases, "-o", output).returncode == 0
    assert output.read_bytes() == path.with_suffix(".raw").read_bytes()
    output.write_bytes(b"precious")
    again = run(path, *bases, "-o", output)
    assert (again.returncode, len(again.stderr.splitlines())) == (1, 1)
    assert output.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [output]


def test_command_line_errors(tmp_path: Path) -> None:
    """The status is 1, with one line, for bad and missing files, and 2 for wrong usage."""
    bad, output = tmp_path / "bad.lmc", tmp_path / "output"
    bad.write_bytes(file_of([STORED], RAW)[:-1])
    none = tmp_path / "none"
    for arguments in ([bad, "-o", output], [none, "-o", output], [bad, "-o", none / "output"]):
        refused = run(*arguments)
        assert (refused.returncode, len(refused.stderr.splitlines()), refused.stdout) == (1, 1, "")
    for arguments in ([], [bad], ["-o", output], [bad, "-o", output, "-x"]):
        assert run(*arguments).returncode == 2
    assert list(tmp_path.iterdir()) == [bad]


def test_the_output_is_on_disk_before_it_has_its_name(tmp_path: Path, on_disk: list[tuple[str, ...]]) -> None:
    """A power cut leaves the whole file under its name, or none."""
    (tmp_path / "a.lmc").write_bytes(lmc.compress(b"raw"))
    decode.main([str(tmp_path / "a.lmc"), "-o", str(tmp_path / "raw")])
    assert (tmp_path / "raw").read_bytes() == b"raw"
    assert [call[0] for call in on_disk] == ["sync"] and on_disk[0][1].startswith("raw.")
