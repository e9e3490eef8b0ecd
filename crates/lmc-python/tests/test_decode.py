"""Tests of `lmc.decode`: valid files decode, and whatever else the bytes are ends in FormatError or LimitError.

Vectors are made by `cargo run -p lmc-testing --example vectors -- FOLDER`; LMC_VECTORS says where that is. There,
NAME.lmc restores to NAME.raw, with NAME.base1, NAME.base2, … as its bases. So it does in testdata/format1, which is
committed; the files in testdata/format1/bad.json break one rule each, and are the tests of single rules.
"""

import fnmatch
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmc
import pytest
import zstandard
from lmc import decode
from lmc.decode import FormatError, LimitError
from xxhash import xxh3_64_intdigest

VECTORS = sorted(Path(os.environ.get("LMC_VECTORS", "vectors")).glob("*.lmc"))
EXHAUSTIVE = os.environ.get("LMC_TEST_DEPTH") == "release"
SMALL = sorted(VECTORS, key=lambda path: path.stat().st_size)[: 40 if EXHAUSTIVE else 8]
FLIPS = 200 if EXHAUSTIVE else 20  # random ones for each vector
TEST_DATA = Path(__file__).parents[3] / "testdata"
FORMAT1 = TEST_DATA / "format1"
LISTED = dict(line.split("  ")[::-1] for line in (FORMAT1 / "SHA256SUMS").read_text("ascii").splitlines())
GOOD = [FORMAT1 / name for name in LISTED if name.endswith(".lmc")]
BAD = {entry["name"]: entry for entry in json.loads((FORMAT1 / "bad.json").read_bytes())}
VALID = [*VECTORS, *GOOD]
HOSTILE = ["blocks", "dimensions", "dimensions-written-out", "extents", "list", "names", "segments"]
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


@pytest.mark.parametrize("path", VALID, ids=name_of)
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
    del there["SHA256SUMS"], there["README.md"], there["frozen.txt"], there["run.py"]
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == LISTED
    assert len(GOOD) >= 100
    assert len(BAD) >= 200


# Vectors of what decoders may leave out.
REQUIRED = [name for name, vector in BAD.items() if "optional" not in vector]
# More segments than this decoder reads unless it is told to: it would take a minute.
MANY = {"dimensions-above", "segments-above"}


@pytest.mark.parametrize("name", REQUIRED)
def test_format1_bad(name: str) -> None:
    """Each file that breaks a rule is refused."""
    file, bases = bytes.fromhex(BAD[name]["file"]), [bytes.fromhex(base) for base in BAD[name]["bases"]]
    with pytest.raises(LimitError if name in MANY else FormatError):
        decode.decode(file, bases, max_size=2**25)


def run_vectors(decoder: str, only: str) -> tuple[int, list[str]]:
    """Run the program that tests the decoders of others; returns its status and its lines."""
    command = [sys.executable, str(FORMAT1 / "run.py"), "--decoder", decoder, "--only", only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines()


def test_run() -> None:
    """It passes the decoder of the package, with bases too, and fails decoders that are wrong."""
    decoder = f"{sys.executable} -m lmc.decode FILE -o OUT -b BASE"
    assert run_vectors(decoder, "base*") == (0, ["3 of 3 valid files restored", *refused(0, 0)])
    assert run_vectors(decoder, "bad/base*s*") == (0, ["0 of 0 valid files restored", *refused(count("base*s*"), 0)])
    # One that accepts everything, one that ends by a signal, and one that refuses everything.
    accepting = f"{sys.executable} -c 'import sys; open(sys.argv[2], \"w\")'"
    status, lines = run_vectors(accepting, "*empty")
    assert status == 1
    assert "base-empty is restored to other bytes" in lines
    assert any(line.startswith("bad/range-empty is not refused (status 0") for line in lines)
    assert run_vectors(f"{sys.executable} -c 'import os; os.abort()'", "bad/range-empty")[0] == 1
    status, lines = run_vectors("false", "*empty")
    assert status == 1
    assert "empty is not restored (status 1)" in lines
    assert not any(line.startswith("bad/") for line in lines)
    assert run_vectors("no-such-decoder", "empty")[0] == 2
    assert run_vectors("false", "no-such-vector")[0] == 2


def count(pattern: str) -> int:
    """Return the number of broken files with such a name."""
    return sum(fnmatch.fnmatchcase(name, pattern) for name in BAD)


def refused(broken: int, optional: int) -> list[str]:
    """Return the last lines of the program."""
    return [f"{broken} of {broken} broken files refused", f"{optional} of {optional} files of optional parts"]


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


@pytest.mark.parametrize("path", VALID, ids=name_of)
def test_random_flips(path: Path) -> None:
    """As above, for some bits of every vector, with the checks set right."""
    data, bases, raw = path.read_bytes(), bases_of(path), path.with_suffix(".raw").read_bytes()
    choose = random.Random(path.stem)
    for _ in range(FLIPS):
        changed = bytearray(data)
        changed[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
        refused_or_same(with_checks(changed, data), bases, raw)


@pytest.mark.parametrize("path", VALID, ids=name_of)
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


# Files that claim more than they have


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


def block(length: int, column: bytes, body: bytes, raw: bytes | None = None) -> bytes:
    """Make a block of one column without lanes."""
    digest = decode.content_hash(body if raw is None else raw)
    return record(b"BLCK", varint(length) + b"\0\1" + column + digest, body)


def zstd(raw: bytes, content_size: bool = True, window_log: int = 0) -> bytes:
    """Make a zstd frame."""
    parameters = zstandard.ZstdCompressionParameters(write_content_size=content_size, window_log=window_log)
    return zstandard.ZstdCompressor(compression_params=parameters).compress(raw)


def frame_of(frame: bytes) -> bytes:
    """Make a zstd column."""
    return b"\1\0" + varint(len(frame))


def file_of(
    blocks: Sequence[tuple[bytes, int]],
    raw: bytes,
    *,
    header: bytes = b"\x89LMC\r\n\x1a\n\1\0\1" + bytes(5),
    before: bytes = b"",
    between: bytes = b"",
    segments: bytes | None = None,
) -> bytes:
    """Make a file of block records and their raw lengths."""
    table = b"".join(varint(len(data)) + varint(length) for data, length in blocks)
    table += string(b"raw") + string(b"test")
    table += b"\1\0" + varint(sum(length for _, length in blocks)) if segments is None else segments
    head = u64(len(raw)) + decode.content_hash(raw) + u32(0)
    head += varint(len(blocks)) + varint(len(table)) + zstd(table, window_log=27 if len(table) > 2**21 else 0)
    file = header + before + b"".join(data for data, _ in blocks) + between
    place = u64(len(file)) + u64(24 + len(head))
    return file + record(b"INDX", head) + place + u64(xxh3_64_intdigest(place)) + b"LMCend\r\n"


RAW = b"Some raw bytes."
STORED = (block(len(RAW), b"\0", RAW), len(RAW))
HEADER = file_of([], b"")[:16]
EVERY = b"\1\x08\0\0\0\xff"  # a cluster of bytes 255: flags, low, high, k, coder, constant
ZEROS = b"\0\0\1\0\0\x08\0\0\0"  # a stream of bytes 0: map, mask, clusters, patches, cluster


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
    every_feature, data = HEADER[:12] + u32(31), varint(2**6) + whole * 2**6  # of 2^24 bytes
    terms = b"\1\0" + ZEROS  # for every element
    residuals = [varint(2**24 // width) + b"\0\0\1\0\0" + bytes([8 * width]) + bytes(3) for width in (1, 2, 4)]
    half, end = u32(0x3F000000), b"\0" + residuals[0]
    predicted = (
        b"\3\2\7" + b"\1" * 16 + data * 4 + b"\0" + residuals[2],
        b"\3\1\x08\0" + terms + ZEROS + b"\0" + residuals[1],
        b"\3\0\0" + data + b"\x81" + terms + b"\1" + residuals[0] + b"\0",
        b"\3\0\x0a\x0a\x12\0\x0a\x0a" + half + b"\1\1\1\0" + (varint(2**9) + whole * 2**9) * 2 + end,  # F4
        b"\3\0\x0b\x09\x11\0\x0a" + half + b"\1" + varint(2**7) + whole * 2**7 + end,
        b"\3\0\x0c\x0a\x27\1" + varint(2**9) + whole * 2**9 + end,
    )
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
        file_of([leaf, (block(2**24, b"\3\0\0" + ranges, b""), 2**24)], b"", header=own),
        *(file_of([leaf, (block(2**24, column, b""), 2**24)], b"", header=every_feature) for column in predicted),
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


@pytest.mark.parametrize("name", HOSTILE)
def test_small_files_at_the_limits_need_little_memory(name: str) -> None:
    """Files that expand to as much as the format allows are restored, or refused, within 112 MiB of memory."""
    program = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from lmc import decode\n"
        "def most():\n"
        "    return int(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])\n"
        "before = most()\n"
        "try:\n"
        "    decode.decode(Path(sys.argv[1]).read_bytes(), max_size=2**24)\n"
        "    print('restored', most() - before)\n"
        "except decode.LimitError:\n"
        "    print('refused', most() - before)\n"
    )
    path = VECTORS[0].parent / "hostile" / f"{name}.lmc"
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    outcome, most = run.stdout.split()
    assert outcome == ("restored" if name in ("extents", "list", "names") else "refused")
    assert int(most) <= 112 << 10


def test_limits() -> None:
    """A file that is larger than the caller allows is not said to break a rule; tables have 2^26 bytes in any case."""
    with pytest.raises(LimitError, match="block 0: over 14 raw bytes: see --max-size"):
        decode.decode(file_of([STORED], RAW), max_size=14)
    tensor = b"\2\0" + string(bytes(2**16 - 1)) + b"\1\0"  # with a long name
    segments = varint(1026) + b"\0" + varint(len(RAW)) + tensor * 1025
    with pytest.raises(LimitError, match="index: table of 671[0-9]{5} bytes: see --max-size"):
        decode.decode(file_of([STORED], RAW, segments=segments), max_size=2**26)
    assert decode.decode(file_of([STORED], RAW, segments=segments)) == RAW


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
