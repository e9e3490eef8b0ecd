"""A decoder of the `.lmc` file format, written from its page (docs/format.md) alone.

It is written to be read beside the page, not to be fast; sections and names are those of the page. Each condition is
checked where its field is read: by the range that is given to `u8`, `uint` or `varint`, by `must` or by `must_be`.

    python -m lmc.decode FILE.lmc [-b BASE]... -o OUTPUT

Nothing of the package is used: a copy of this file works alone, with numpy, zstandard (RFC 8878) and xxhash (XXH3).
"""

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import zstandard
from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

Array = np.ndarray[Any, Any]
NumberCode = list[tuple[int, int, int]]  # by the next 11 bits: length of the code, lowest number, number of open bits


# 1. Conventions
class FormatError(ValueError):
    """The file breaks a rule of the page: "block 3: column 1: map is 7, not 0 to 3"."""


class LimitError(ValueError):
    """The file needs more memory than the caller allows (§6), and may be valid: raise max_size."""


@contextmanager
def at(place: str) -> Iterator[None]:
    """Name the place in the file for errors that are found inside."""
    try:
        yield
    except (FormatError, LimitError) as error:
        raise type(error)(f"{place}: {error}") from None


def must(condition: object, message: str, error: type[ValueError] = FormatError) -> None:
    """Refuse the file unless the condition holds."""
    if not condition:
        raise error(message)


def must_be(name: str, value: object, expected: object) -> None:
    """Refuse the file unless a field has the value that it has to have."""
    show = [x.hex() if isinstance(x, bytes) else str(x) for x in (value, expected)]
    must(value == expected, f"{name} is {show[0]}, not {show[1]}")


@dataclass
class Reader:
    """Reads fields from front to back; a length is compared with its limits and with the rest before it is used."""

    data: bytes
    pos: int = 0

    def left(self) -> int:
        """Return the number of bytes that were not read yet."""
        return len(self.data) - self.pos

    def take(self, length: int, name: str) -> bytes:
        """Read this many bytes."""
        must(length <= self.left(), f"{name} should have {length} bytes, {self.left()} are left")
        self.pos += length
        return self.data[self.pos - length : self.pos]

    def uint(self, size: int, name: str, low: int = 0, high: int = 2**64 - 1) -> int:
        """Read an integer of fixed width and check its range."""
        value = int.from_bytes(self.take(size, name), "little")
        must(low <= value <= high, f"{name} is {value}, not {low} to {high}")
        return value

    def u8(self, name: str, low: int = 0, high: int = 255) -> int:
        """Read a byte and check its range."""
        return self.uint(1, name, low, high)

    def one_of(self, name: str, *values: int) -> int:
        """Read a byte that has one of these values."""
        value = self.u8(name)
        must(value in values, f"{name} is {value}, not one of {', '.join(map(str, values))}")
        return value

    def varint(self, name: str, low: int = 0, high: int = 2**64 - 1) -> int:
        """Read a varint and check its range."""
        sevens = [self.u8(name)]
        while sevens[-1] >= 0x80:
            must(len(sevens) < 10, f"{name} is a varint of more than 10 bytes")
            sevens.append(self.u8(name))
        must(len(sevens) == 1 or sevens[-1] != 0, f"{name} is a varint that ends in a byte of 0")
        value = sum((bits & 0x7F) << 7 * i for i, bits in enumerate(sevens))
        must(low <= value <= high, f"{name} is {value}, not {low} to {high}")
        return value

    def string(self, name: str) -> bytes:
        """Read a varint length and that many bytes of UTF-8 (§2.3)."""
        text = self.take(self.varint(f"length of {name}"), name)
        must(text == text.decode(errors="replace").encode(), f"{name} is not UTF-8: {text[:99]!r}")
        return text

    def shown(self, name: str, others: bytes = b"") -> bytes:
        """Read a string of at most 255 bytes without control characters and some others (§2.3, §2.6)."""
        text = self.string(name)
        must(len(text) <= 255, f"{name} has {len(text)} bytes, above 255")
        must(not any(c < 0x20 or c == 0x7F or c in others for c in text), f"{name} is {text!r}: not all may be there")
        return text

    def half_bytes(self, count: int, name: str) -> list[int]:
        """Read numbers of four bits, two a byte, the first in the low bits."""
        numbers = [half for byte in self.take((count + 1) // 2, name) for half in (byte & 15, byte >> 4)]
        must(not any(numbers[count:]), f"{name}: the half-byte left over is {numbers[-1]}, not 0")
        return numbers[:count]


def unpack_zstd(frame: bytes, n: int) -> bytes:
    """§3.3: Decode a zstd frame of n bytes (n ≥ 1)."""
    try:
        must_be("content size of a zstd frame", zstandard.get_frame_parameters(frame).content_size, n)
        must(frame[4] & 0x20, "Single_Segment_flag of a zstd frame is not set")
        decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
        # Fails unless it gives the stated size; also if a dictionary is named, which is not there.
        raw = decompressor.decompress(frame, allow_extra_data=False)
        # As a stream, too: in one step libzstd takes blocks that decode to more than 2^17 bytes.
        return raw if n <= 2**17 else decompressor.decompressobj().decompress(frame)
    except zstandard.ZstdError as error:
        raise FormatError(f"a zstd frame does not decode: {error}") from None


# 2. The file
TAGS = {b"BASE": (2**24, 0), b"BLCK": (2**24, 2**25), b"INDX": (2**28, 0)}  # largest head and body
LEAF, RUN, PIECE = 2**18, 128, 2**18  # bytes, elements, elements that are worked on at a time
IDENTITY, ROTATE, ZIGZAG, PALETTE = NO_MASK, BITS, BITS_AND_SIGNS, LIST = range(4)  # maps, masks


@dataclass
class File:
    """State while the records of the file are read from front to back."""

    max_size: int
    features: int  # those that the header allows
    exact_features: int = 0  # those that the blocks needed
    bases: list[bytes] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)
    lengths: list[tuple[int, int]] = field(default_factory=list)  # record length and raw length of each block
    block_of: list[int] = field(default_factory=list)  # that of each leaf: blocks start with a leaf
    depths: list[int] = field(default_factory=list)  # of each block
    costs: list[int] = field(default_factory=list)


@np.errstate(all="ignore")  # results may be infinite (§3.8) or NaNs (§3.9)
def decode(data: bytes, bases: Sequence[bytes] = (), max_size: int = 2**32) -> bytes:
    """Restore the raw file, of max_size bytes at most. Bases are found by their contents: their order is free."""
    reader = Reader(data)
    with at("header"):  # §2.1
        must_be("magic", reader.take(8, "magic"), b"\x89LMC\r\n\x1a\n")
        must_be("version", reader.uint(2, "version"), 1)
        reader.u8("hash", 1, 1)
        reader.u8("reserved", 0, 0)
        file = File(max_size, reader.uint(4, "required features", 0, 31))
        must(file.features & 3 != 2, f"required features is {file.features}: bit 1 needs bit 0")
    if data[reader.pos : reader.pos + 4] == b"BASE":
        with at("bases"):
            read_bases(file, read_record(reader)[1], bases)
    while data[reader.pos : reader.pos + 4] == b"BLCK":
        with at(f"block {len(file.lengths)}"):
            start, (_, head, body) = reader.pos, read_record(reader)
            file.raw += (raw := decode_block(file, head, body))
            file.lengths.append((reader.pos - start, len(raw)))
    skippable, digests = 0, None
    while b"a" <= data[reader.pos : reader.pos + 1] <= b"z":
        with at(f"skippable record {skippable}"):
            tag, head, _ = read_record(reader)
            if tag == b"dIGS":
                must(digests is None, "there is more than one record of digests")
                digests = head
        skippable += 1
        must(skippable <= 64, "there are more than 64 skippable records")
    start_of_index = reader.pos
    with at("index"):
        tag, head, _ = read_record(reader)
        must_be("tag", tag, b"INDX")
        read_index(file, head)
    with at("digests"):
        if digests is not None:
            compare_digests(file, digests)
    with at("trailer"):  # §2.4
        must_be("length", reader.left(), 32)
        trailer = Reader(data[reader.pos :])
        must_be("file offset of the index record", trailer.uint(8, "offset"), start_of_index)
        must_be("length of the index record", trailer.uint(8, "length"), reader.pos - start_of_index)
        must_be("check", trailer.uint(8, "check"), xxh3_64_intdigest(trailer.data[:16]))
        must_be("magic", trailer.take(8, "magic"), b"LMCend\r\n")
    return bytes(file.raw)


def read_record(reader: Reader) -> tuple[bytes, Reader, Reader]:
    """§2.2: Read a record: tag, head and body."""
    fixed = reader.take(16, "record")
    tag, skippable = fixed[:4], b"a" <= fixed[:1] <= b"z"
    must(skippable or tag in TAGS, f"tag {tag!r} is unknown")
    must(all(0x21 <= c <= 0x7E for c in tag), f"tag {tag!r} has other bytes than 0x21 to 0x7E")
    max_head, max_body = (2**24 - 24, 0) if skippable else TAGS[tag]
    fields = Reader(fixed, 4)
    head_length, body_length = fields.uint(4, "head length", 0, max_head), fields.uint(8, "body length", 0, max_body)
    check, head = reader.uint(8, "check"), reader.take(head_length, "head")
    must_be("check", check, xxh3_64_intdigest(fixed + head))
    return tag, Reader(head), Reader(reader.take(body_length, "body"))


def read_index(file: File, reader: Reader) -> None:
    """§2.3: Read the index and compare it with the blocks."""
    must_be("raw size", reader.uint(8, "raw size"), len(file.raw))
    must_be("content hash", reader.take(16, "content hash"), content_hash(file.raw))
    must_be("exact features", reader.uint(4, "exact features"), file.exact_features)
    must_be("number of block records", reader.varint("number of block records"), len(file.lengths))
    table_length = reader.varint("length of the table", 0, 2**28)
    must(table_length <= max(2**26, file.max_size), f"table of {table_length} bytes: see --max-size", LimitError)
    table = Reader(unpack_zstd(reader.take(reader.left(), "table"), table_length))
    for i, lengths in enumerate(file.lengths):
        must_be(f"record, raw length of block {i}", (table.varint("length"), table.varint("raw length")), lengths)
    table.shown("layout")
    table.shown("writer")
    name, rank, elements, total, written_out = bytearray(), -1, 1, 0, 0  # a segment may refer to the tensor before
    count = table.varint("number of segments")
    must(count <= max(2**16, file.max_size // 2**15), f"{count} segments: see --max-size", LimitError)
    for i in range(count):
        with at(f"segment {i}"):
            written_out += 64
            same_shape, dtype = divmod(table.u8("dtype"), 0x80)
            kind = table.string("name of the dtype") if dtype == 127 else b"coded"
            must(1 <= len(kind) <= 31 and all(0x21 <= c <= 0x7E for c in kind), f"name of the dtype is {kind!r}")
            must(kind.decode() not in DTYPES, f"dtype {kind!r} has a code, but is named")
            must(dtype < len(DTYPE_BITS) or dtype == 127, f"dtype {dtype} is unknown")
            if dtype == 0:
                must(not same_shape, "bit 7 of an opaque segment is set")
                bits = 8 * table.varint("raw length", 1)
            else:
                of_element = table.varint("bits of the dtype", 1, 2**16) if dtype == 127 else DTYPE_BITS[dtype]
                shared = table.varint("shared", 0, len(name))
                must(not b"\x80" <= name[shared : shared + 1] <= b"\xbf", f"shared is {shared}, inside a character")
                name[shared:] = table.string("rest of the name")
                must(len(name) < 2**16, f"the name has {len(name)} bytes, above 2^16 - 1")
                if not same_shape:
                    rank, elements = table.varint("rank", 0, 64), 1
                    for _ in range(rank):
                        elements = product(elements, table.varint("dimension"))
                must(rank >= 0, "bit 7 of the first tensor is set")
                written_out += len(name) + 8 * rank
                bits = product(elements, of_element)
                must(bits % 8 == 0, f"a tensor of dtype {dtype} has {bits} bits, not a whole number of bytes")
            total += bits // 8
            must(written_out <= 2**28, f"segments, names and dimensions take {written_out} bytes, above 2^28")
    must_be("sum of the lengths of segments", total, len(file.raw))
    must_be("number of bytes left over after the last segment", table.left(), 0)


def product(a: int, b: int) -> int:
    """§2.3: Return the product of dimensions, or of them and the bits of an element."""
    must(a * b < 2**64, f"a product of dimensions and bits is {a * b}, above 2^64 - 1")
    return a * b


def content_hash(data: bytes | bytearray) -> bytes:
    """§2.5: Return the xxh3-128 of the digests of all leaves, stored with the low 64 bits first."""
    leaves = [xxh3_128_intdigest(data[i : i + LEAF]) for i in range(0, len(data), LEAF)]
    return xxh3_128_intdigest(b"".join(leaf.to_bytes(16, "little") for leaf in leaves)).to_bytes(16, "little")


def read_bases(file: File, reader: Reader, given: Sequence[bytes]) -> None:
    """§2.6: Read the bases record and find each base among the given ones."""
    must(file.features & 1, "bit 0 of required features is not set")
    by_hash = {content_hash(base): base for base in given}
    for i in range(1, reader.varint("number of bases", 1, 2**16) + 1):
        with at(f"base {i}"):
            digest, length = reader.take(16, "hash"), reader.varint("raw length")
            name = reader.shown("file name", b"/\\")
            must(digest in by_hash, f"it was not given: file name {name.decode()!r}, content hash {digest.hex()}")
            must_be("raw length", length, len(by_hash[digest]))
            file.bases.append(by_hash[digest])
    must_be("number of bytes left over after the bases", reader.left(), 0)


def compare_digests(file: File, reader: Reader) -> None:
    """§2.7: Read a record of digests and compare those that are SHA-256."""
    before = (0, -1)
    for _ in range(reader.varint("number of entries", 1)):
        entry = (reader.varint("whose", 0, len(file.bases)), reader.u8("algorithm"))
        must(before < entry, f"the entry {entry} follows {before}")
        before, digest = entry, reader.take(32, "digest")
        if entry[1] == 1:
            data = file.bases[entry[0] - 1] if entry[0] > 0 else file.raw
            must_be(f"SHA-256 of source {entry[0]}", digest, sha256(data).digest())
    must_be("number of bytes left over after the digests", reader.left(), 0)


# 3. Block
@dataclass
class Block:
    """The streams of a block's columns, each read from front to back, and the ranges that the columns name."""

    file: File
    head: Reader
    bulk: Reader
    lane_sets: list["LaneSet"]
    literals: Reader
    ranges: int = 0  # their number
    ranges_length: int = 0  # in bytes
    touched: set[int] = field(default_factory=set)  # blocks of this file


def decode_block(file: File, head: Reader, body: Reader) -> bytes:
    """§3.1: Decode a block."""
    must(len(file.raw) % LEAF == 0, f"it starts at {len(file.raw)}, which is not a multiple of 2^18")
    raw_length = head.varint("raw length", 1, 2**24)
    must(len(file.raw) + raw_length <= file.max_size, f"over {file.max_size} raw bytes: see --max-size", LimitError)
    must((z := head.u8("lane sets", 0, 2)) != 1, "lane sets is 1, not 0 or 2")
    word_counts = [head.uint(4, "number of words", 0, 2**24) for _ in range(z)]
    literal_count = head.uint(4, "number of literal bytes", 0, 2**24) if z > 0 else 0
    columns = head.u8("number of columns", 0, 16)
    extents, since = [(0, raw_length)] if columns == 1 else [], 0
    for _ in range(head.varint("number of extents and repeats", 0, 2**20) if columns > 1 else 0):
        if (column := head.u8("column")) == 255:
            count = head.varint("number of repeated extents", 1, len(extents) - since)
            extents += extents[-count:] * head.varint("times of a repeat", 1, (2**20 - len(extents)) // count)
            since = len(extents)
        else:
            must(column < columns and len(extents) < 2**20, f"extent {len(extents)} is of column {column} of {columns}")
            extents.append((column, head.varint("length of an extent", 1)))
    must_be("sum of the lengths of extents", sum(length for _, length in extents), raw_length)
    # 3.2 Body
    behind = 2 * sum(word_counts) + literal_count + 256 * z
    must(behind <= body.left(), f"the body has {body.left()} bytes, but bulk is followed by {behind}")
    bulk = Reader(body.take(body.left() - behind, "bulk"))
    words = [body.take(2 * count, "words") for count in word_counts]
    literals = Reader(body.take(literal_count, "literals"))
    lane_sets = [LaneSet(body.take(256, "states"), words_of_set) for words_of_set in words]
    block = Block(file, head, bulk, lane_sets, literals)
    # 3.3 Columns
    contents, lengths = [], [0] * columns
    for column, length in extents:
        lengths[column] += length
    for i, length in enumerate(lengths):
        with at(f"column {i}"):
            must(length >= 1, "its length is 0")
            contents.append(Reader(decode_column(block, length)))
    digest = head.take(16, "digest")
    head.take(8 if block.ranges > 0 else 0, "xxh3-64 of the body")  # not needed beside the digest
    for reader, what in ((head, "the head"), (bulk, "the bulk"), (literals, "the last literal that was used")):
        must_be(f"number of bytes left over after {what}", reader.left(), 0)
    for lane_set in lane_sets:
        must_be("number of words that were used", lane_set.pos, len(lane_set.words))
        must((lane_set.x == 2**16).all(), "not all lanes end at 2^16")
    raw = bytearray()
    for column, length in extents:
        raw += contents[column].take(length, "extent")
    must_be("digest", digest, content_hash(raw))
    depth = 1 + max((file.depths[i] for i in block.touched), default=-1)
    cost = raw_length + sum(file.costs[i] for i in block.touched)
    must(depth <= 8, f"depth of the block is {depth}, above 8")
    must(cost <= 2**30, f"cost of the block is {cost}, above 2^30")
    file.block_of += [len(file.depths)] * -(-raw_length // LEAF)
    file.depths.append(depth)
    file.costs.append(cost)
    return bytes(raw)


def decode_column(block: Block, length: int) -> bytes:
    """§3.3: Decode the next column, of `length` bytes."""
    head = block.head
    method = head.u8("method", 0, 3)
    if method == 0:  # stored
        return block.bulk.take(length, "stored column")
    width = 1 << head.u8("width code", 0, 3)
    must(length % width == 0, f"the column has {length} bytes, not a multiple of the width of {width} bytes")
    if method == 1:  # zstd
        frame = block.bulk.take(head.varint("length of the frame"), "frame")
        return np.frombuffer(unpack_zstd(frame, length), np.uint8).reshape(width, -1).T.tobytes()
    n = length // width
    elements = decode_stream(block, n, width, PALETTE) if method == 2 else decode_predicted(block, n, width)
    return elements.astype(f"<u{width}").tobytes()


def decode_stream(block: Block, n: int, width: int, last_map: int) -> Array:
    """§3.3.1: Decode a stream of n elements of `width` bytes, under one of the maps up to the last one."""
    head, palette = block.head, []
    map_code = head.u8("map", 0, last_map)
    if map_code == PALETTE:
        palette = [head.uint(width, "value of the palette") for _ in range(head.u8("count - 1 of the palette") + 1)]
        must(palette.count(v := max(palette, key=palette.count)) == 1, f"value {v} is in the palette more than once")
    mask = head.u8("mask", NO_MASK, LIST)
    m = n if mask == NO_MASK else head.varint("number of selected elements", 1, n)
    values, selected, signs = np.zeros(n, f"<u{width}"), np.ones(n, bool), np.zeros(n, np.uint8)
    with at("mask"):  # §3.3.2
        if mask in (BITS, BITS_AND_SIGNS):
            selected = unpack_bits(decode_cluster(block, (n + 7) // 8, 1), n) == 1
            must_be("number of selected elements", m, np.count_nonzero(selected))
        if mask == BITS_AND_SIGNS:
            signs = unpack_bits(np.frombuffer(block.bulk.take((n + 7) // 8, "signs"), np.uint8), n)
        if mask == LIST:
            selected = places(read_numbers(block, m, *read_number_codes(head, "gaps"))[0], n)
            values[selected] = changes(read_numbers(block, m, *read_number_codes(head, "values"))[0], 0, width)
    if mask != LIST:
        values[selected] = decode_clusters(block, m, width)
    return inverse_map(map_code, values ^ signs, palette)


def unpack_bits(packed: Array, n: int) -> Array:
    """Return n bits, the first in bit 0 of the first byte; those that are left over must be 0."""
    bits: Array = np.unpackbits(packed, axis=-1, bitorder="little")
    must(not bits[..., n:].any(), "unused bits of the last byte are not 0")
    return bits[..., :n]


def decode_clusters(block: Block, m: int, width: int) -> Array:
    """§3.3.1, §3.4: Decode the m selected elements of a stream from its clusters and patches."""
    head, patches = block.head, 0
    clusters = head.varint("number of clusters", 1, 16)
    if head.u8("patches", 0, 1):
        patches = head.varint("number of patches", 1, m)
        t = head.u8("t, the low bits that no patch changes", 0, 8 * width - 1)
        codes, bits_length = read_number_codes(head, "gaps", "changes")
    cluster_map = np.zeros(-(-m // RUN), np.uint8)
    if clusters > 1:
        with at("cluster map"):
            cluster_map = decode_cluster(block, len(cluster_map), 1)
            must(cluster_map.max() < clusters, f"a run is of cluster {cluster_map.max()} of {clusters}")
    values = np.zeros(m, f"<u{width}")
    for g in range(clusters):
        with at(f"cluster {g}"):
            in_cluster = np.repeat(cluster_map == g, RUN)[:m]
            values[in_cluster] = decode_cluster(block, int(in_cluster.sum()), width)
    if patches > 0:
        with at("patches"):  # §3.3.3
            gaps, numbers = read_numbers(block, patches, codes, bits_length)
            values[places(gaps, m)] ^= changes(numbers, t, width)
    return values


def places(gaps: Array, n: int) -> Array:
    """Return whether each of n elements is one of those behind gaps, which must all be there."""
    must(gaps.max() < n, f"a gap is {gaps.max()}, the stream has {n} elements")  # so their sum fits into 64 bits
    end = int(gaps.sum()) + len(gaps)
    must(end <= n, f"the last gap leads to element {end - 1}, the stream has {n}")
    there, end = np.zeros(n, bool), 0
    for i in range(0, len(gaps), PIECE):
        elements = end + np.cumsum(gaps[i : i + PIECE] + 1) - 1
        there[elements], end = True, int(elements[-1]) + 1
    return there


def changes(numbers: Array, t: int, width: int) -> Array:
    """Return (y + 1) · 2^t for each number y."""
    largest = (int(numbers.max()) + 1) << t
    must(largest < 1 << 8 * width, f"(y + 1) << {t} is {largest:#x}, above the width of {8 * width} bits")
    return in_pieces(len(numbers), lambda piece: ((numbers[piece] + 1) << t).astype(f"<u{width}"))


def read_number_codes(head: Reader, *names: str) -> tuple[list[NumberCode], int]:
    """§3.3.4: Read codes of numbers and the length of the bits under them."""
    codes: list[NumberCode] = []
    for name in names:
        with at(f"code of {name}"):
            r, first = head.u8("r", 0, 63), head.u8("first")
            count = head.u8("count - 1", 0, 255 - first) + 1
            slots = [(first, 0)] * 2**11
            if count > 1:
                slots = prefix_code(dict(enumerate(head.half_bytes(count, "code lengths"), first)), 11)
            codes.append([])
            for b, length in slots:
                open_bits = r if b < 16 else r + 2 + (b - 16) // 4
                lowest = (b if b < 16 else 4 + (b - 16) % 4) << open_bits
                must(lowest + (1 << open_bits) <= 2**64, f"bucket {b} holds numbers of more than 64 bits")
                codes[-1].append((length, lowest, open_bits))
    return codes, head.varint(f"length of the bits of {' and '.join(names)}")


def read_numbers(block: Block, count: int, codes: list[NumberCode], bits_length: int) -> Array:
    """§3.3.4: Read `count` numbers under each code from `bits_length` bytes of the bulk; a row for each code."""
    bits, pos = block.bulk.take(bits_length, "bits"), 0
    if all(length + open_bits == 0 for code in codes for length, _, open_bits in code):
        same = np.array([[code[0][1]] for code in codes], np.uint64)
        numbers, count = np.broadcast_to(same, (len(codes), count)), 0  # without memory: there may be millions
    else:
        numbers = np.empty((len(codes), count), np.uint64)
    for i in range(count):
        for row, code in zip(numbers, codes, strict=True):
            length, lowest, open_bits = code[peek(bits, pos, 11)]
            row[i] = lowest + peek(bits, pos + length, open_bits)
            pos += length + open_bits
            must(pos <= 8 * bits_length, f"the bits do not fit into their {bits_length} bytes")  # soon, not at the end
    must_be("length of the bits", bits_length, (pos + 7) // 8)
    must_be("unused bits of the last byte", peek(bits, pos, 7), 0)
    return numbers


def peek(bits: bytes, pos: int, count: int) -> int:
    """Return some bits, the first in bit 0; those behind the end are 0."""
    return (int.from_bytes(bits[pos // 8 : pos // 8 + 10], "little") >> pos % 8) & ((1 << count) - 1)


def decode_cluster(block: Block, n: int, width: int) -> Array:
    """§3.5: Decode a cluster of n elements of `width` bytes; returns their mapped values v."""
    head, w = block.head, 8 * width
    flags, z, h, k = head.u8("flags", 0, 3), head.u8("low"), head.u8("high"), head.u8("k")
    s = w - z - h - k
    must(flags & 2 == 0 or z >= 1, "there is a sign plane, and low is 0")
    coder = head.one_of("coder", NO_CODER, HUFFMAN, 7, 12)
    must(s == 0 if coder == NO_CODER else 1 <= s <= 8, f"the width of symbols is {s} bits with coder {coder}")
    constant = head.uint(width, "constant") if flags & 1 else 0
    v = np.zeros(n, f"<u{width}")
    if coder != NO_CODER:
        v |= decode_symbols(block, read_table(head, coder, s), n, s).astype(v.dtype) << (k + z)
    for runs, elements in ((n // RUN, v[: n // RUN * RUN]), (1, v[n // RUN * RUN :])):  # the partial run comes last
        if len(elements) > 0:
            read_planes(block.bulk, elements.reshape(runs, -1), z, k, flags >> 1)
    return v ^ constant


def read_planes(bulk: Reader, v: Array, z: int, k: int, sign_planes: int) -> None:
    """Read the raw bits and signs of runs of equal length into their elements; v has a row for each run."""
    runs, t = v.shape
    byte_planes, bit_planes, bit_plane_length = k // 8, k % 8 + sign_planes, (t + 7) // 8
    length_of_run = byte_planes * t + bit_planes * bit_plane_length
    planes = np.frombuffer(bulk.take(runs * length_of_run, "raw bits"), np.uint8).reshape(runs, length_of_run)
    for i in range(byte_planes):
        v |= planes[:, i * t : (i + 1) * t].astype(v.dtype) << (z + 8 * i)
    bits = unpack_bits(planes[:, byte_planes * t :].reshape(runs, bit_planes, bit_plane_length), t)
    for j in range(bit_planes):
        v |= bits[:, j].astype(v.dtype) << (0 if j == k % 8 else z + 8 * byte_planes + j)


def need_feature(block: Block, bit: int) -> None:
    """§2.1: Note that the block needs a feature."""
    must(block.file.features >> bit & 1, f"bit {bit} of required features is not set")
    block.file.exact_features |= 1 << bit


def read_ranges(block: Block) -> bytearray:
    """§3.6: Read a number of ranges and the ranges; returns their bytes, one after the other."""
    head, file = block.head, block.file
    sources: list[bytes | bytearray] = [file.raw, *file.bases]
    number, content = head.varint("number of ranges"), bytearray()
    block.ranges += number
    must(block.ranges <= 2**20, f"the block names {block.ranges} ranges or more, above 2^20")
    for i in range(number):
        with at(f"range {i}"):
            source = head.varint("source", 0, len(file.bases))
            offset, length = head.varint("offset"), head.varint("length", 1)
            end = offset + length
            need_feature(block, 0)
            if source == 0:
                need_feature(block, 1)
            must(end <= len(sources[source]), f"it ends at {end}, source {source} at {len(sources[source])}")
            block.ranges_length += length
            must(block.ranges_length <= 2**28, "the ranges of the block have more than 2^28 bytes")
            if source == 0:
                block.touched |= {*file.block_of[offset // LEAF : (end - 1) // LEAF + 1]}
            content += sources[source][offset:end]
    return content


def decode_predicted(block: Block, n: int, width: int) -> Array:
    """§3.7: Decode a predicted column of n elements of `width` bytes."""
    head, w = block.head, 8 * width
    p = decode_operand(block, n, width)
    key = (((p << 1) | (p >> (w - 1))) >> (w - 8)).astype(np.uint8)
    has_row_terms, count = divmod(head.u8("number of boundaries"), 128)
    must(has_row_terms <= count <= 15, f"number of boundaries is {count}, not {has_row_terms} to 15")
    if has_row_terms:
        with at("row terms"):
            need_feature(block, 3)
            key -= decode_row_terms(block, n, 2**48)[0]
    boundaries = list(head.take(count, "boundaries"))
    must(boundaries == sorted(set(boundaries) - {0}), f"boundaries are {boundaries}, which do not rise from 1")
    context_of = np.searchsorted(np.array(boundaries, key.dtype), key, side="right")
    e = np.zeros(n, p.dtype)
    for c in range(len(boundaries) + 1):
        with at(f"context {c}"):
            number = head.varint("number of elements")
            must_be("number of elements", number, np.count_nonzero(context_of == c))
            if number > 0:
                e[context_of == c] = decode_stream(block, number, width, ZIGZAG)
    return float_order(inverse_map(ZIGZAG, e) + float_order(p))


@at("operand")
def decode_operand(block: Block, n: int, width: int) -> Array:
    """§3.7: Decode an operand for n elements of `width` bytes; returns their predictions p."""
    if (kind := block.head.u8("kind", 0, 12)) == 4:
        return decode_grid(block, n, width)
    if kind > 8:
        need_feature(block, 4)
        return [decode_cast, decode_codes, decode_scales, decode_field][kind - 9](block, n, width)
    if kind > 4:
        need_feature(block, 3)
        return decode_terms(block, n, width) if kind == 8 else decode_step(block, n, width, kind)
    source_width, target_width = {0: (width, width), 1: (4, 2), 2: (2, 4), 3: (4, 2)}[kind]
    must(width == target_width, f"conversion is {kind}, the width {width} bytes")
    return convert(kind, read_data(block, n, source_width))


def read_data(block: Block, n: int, width: int, least: int = 1) -> Array:
    """§3.6: Read a number of ranges and the ranges, which have n elements of `width` bytes, or none if least is 0."""
    data = read_ranges(block)
    must(len(data) == n * width or least == 0 == len(data), f"an operand has {len(data)} bytes, not {n * width}")
    return np.frombuffer(data, f"<u{width}")


def read_constants(head: Reader, count: int) -> Array:
    """Read numbers of binary32, which must be finite."""
    bits = np.frombuffer(head.take(4 * count, "constants"), "<u4")
    must(are_finite(bits), "not all constants are finite")
    return number_of(bits)


@at("grid")
def decode_grid(block: Block, n: int, width: int) -> Array:
    """§3.8: Decode a grid for n elements of `width` bytes; returns their predictions p."""
    head = block.head
    need_feature(block, 2)
    conversion, has_offsets = head.u8("conversion", 0, 3), head.u8("offsets", 0, 1)
    must((conversion, width) in ((0, 4), (1, 2), (3, 2)), f"conversion is {conversion}, the width {width} bytes")
    levels = np.frombuffer(head.take(4 * head.u8("count - 1 of the levels") + 4, "levels"), "<u4")
    must(len(np.unique(levels)) == len(levels), "a level is there more than once")
    scale_count, group_of = read_groups(head, n)
    with at("scales"):
        scales = decode_stream(block, scale_count, 4, ZIGZAG)
    with at("offsets"):
        offsets = decode_stream(block, scale_count, 4, ZIGZAG) if has_offsets else scales[:0]
    with at("indices"):
        index = decode_stream(block, n, 1, ZIGZAG)
    must(are_finite(np.concatenate((levels, scales, offsets))), "not all levels, scales and offsets are finite")
    must(index.max() < len(levels), f"an index is {index.max()}, there are {len(levels)} levels")
    group = group_of(np.arange(n))
    x = rounded(number_of(scales[group]) * number_of(levels[index]))
    return convert(conversion, bits_of(rounded(x + number_of(offsets[group])) if has_offsets else x))


def read_groups(head: Reader, n: int) -> tuple[int, Callable[[Array], Array]]:
    """§3.8: Read the groups of n elements; returns how many scales there are, and what numbers each element's."""
    row = head.varint("elements of a row", 1)
    rows, columns = head.varint("rows of a group", 0, 2**48 // row), head.varint("columns of a group", 1, row)
    position = head.varint("position", 0, min(rows * row - 1, 2**48 - n))
    of_a_row = -(-row // columns)
    scale_count = -(-(position + n) // (rows * row)) * of_a_row
    must(scale_count <= n, f"there are {scale_count} scales, and {n} elements")
    return scale_count, lambda e: (position + e) // (rows * row) * of_a_row + (position + e) % row // columns


def decode_step(block: Block, n: int, width: int, kind: int) -> Array:
    """§3.9: Decode an operand of kind 5, 6 or 7 for n elements of `width` bytes; returns their predictions p."""
    must(width == 4 or (width == 2 and kind == 5), f"kind is {kind}, the width {width} bytes")
    constants = read_constants(block.head, 1 if kind == 5 else 4)
    data = [values_of(BF16 if width == 2 else F32, read_data(block, n, width)) for _ in range(1 if kind == 5 else 3)]
    if kind == 5:
        product_bits = bits_of(rounded(constants * data[0]))
        return convert(1, product_bits) if width == 2 else product_bits
    if kind == 6:
        (b, h, a, c), (v0, m0, m1) = constants, data
        g = rounded(rounded(m1 - rounded(b * m0)) * h)
        return bits_of(rounded(rounded(a * v0) + rounded(rounded(c * g) * g)))
    (a, s1, s0, e), (w0, m1, v1) = constants, data
    u = rounded(s1 * m1)
    m0 = number_of(read_data(block, n, 4, least=0))
    must((len(m0) == 0) == (s0 == 0 and not np.signbit(s0)), f"s0 is {s0}, and m0 has {len(m0)} elements")
    if len(m0) > 0:
        u = rounded(u + rounded(s0 * m0))
    return bits_of(rounded(rounded(a * w0) + rounded(u / rounded(rounded(np.sqrt(v1)) + e))))


def are_finite(bits: Array) -> bool:
    """Return whether the bits of binary32 are all those of numbers."""
    return bool((bits & 0x7F800000 != 0x7F800000).all())


# Operations of binary32 (§3.8 to §3.10) are those of binary64, which has more than twice as many bits and two: to round
# each result again is to round it once. So they are right also in a process that flushes subnormal numbers to 0.


def number_of(bits: Array) -> Array:
    """Return the values of the bits of binary32, as binary64."""
    subnormal = np.copysign(np.ldexp((bits & 0x7FFFFF).astype(float), -149), bits.view("<i4"))
    return np.where(bits & 0x7F800000 == 0, subnormal, bits.view("<f4").astype(float))


def rounded(x: Array) -> Array:
    """Return the numbers of binary32 that are nearest to binary64."""
    ulp = np.ldexp(1.0, np.maximum(np.frexp(x)[1] - 24, -149))
    nearest: Array = np.rint(x / ulp) * ulp
    return np.where(np.abs(nearest) >= 2.0**128, nearest * np.inf, nearest)


def bits_of(x: Array) -> Array:
    """Return the bits of numbers of binary32; those of every NaN are 0x7fc00000."""
    subnormal = (np.fmin(np.abs(x), 2.0**-126) * 2.0**149).astype("<u4") | (np.signbit(x).astype("<u4") << 31)
    bits = np.where(np.abs(x) < 2.0**-126, subnormal, x.astype("<f4").view("<u4"))
    return np.asarray(np.where(np.isnan(x), 0x7FC00000, bits), "<u4")


F16, BF16, F32, F8_E4M3, F8_E5M2, F8_E8M0, I8, F4 = 8, 9, 10, 13, 14, 17, 3, 18  # codes of §4
BLOCK_FIELDS = {2: (2, 16), 3: (2, 2, 16), 6: (2, 4, 16), 7: (2, 2, 4, 16), 8: (2, 32), 39: (1, 16)}  # bytes, by type


def magnitudes(exponent_bits: int, mantissa_bits: int, largest: int) -> Array:
    """Return the numbers of a float with these bits that are not negative, in the order of their bits."""
    e, m = np.divmod(np.arange(largest + 1), 2**mantissa_bits)
    last = np.maximum(e, 1) + 1 - 2 ** (exponent_bits - 1) - mantissa_bits  # the exponent of the mantissa's last bit
    return np.asarray(np.ldexp(1.0 * np.where(e > 0, m + 2**mantissa_bits, m), last))


MAGNITUDES = {F8_E4M3: magnitudes(4, 3, 0x7E), F8_E5M2: magnitudes(5, 2, 0x7B), F4: magnitudes(2, 1, 7)}
MIDDLES = {dtype: (values[1:] + values[:-1]) / 2 for dtype, values in MAGNITUDES.items()}


def values_of(dtype: int, x: Array) -> Array:
    """§3.10: Return the values of elements, as binary64."""
    if dtype == F16:
        return x.view("<f2").astype(float)
    if dtype == F8_E4M3:
        return np.asarray(np.append(MAGNITUDES[dtype], np.nan)[x & 0x7F] * np.where(x < 0x80, 1, -1))
    if dtype == F8_E8M0:
        return np.where(x < 255, np.ldexp(1.0, x.astype(int) - 127), np.nan)
    return number_of(x.astype("<u4") << 16 if dtype == BF16 else x)


def round_to(dtype: int, y: Array) -> Array:
    """§3.10: Round numbers of binary32 to a dtype; returns the elements."""
    if dtype in (F16, BF16, F32):
        return convert({F16: 3, BF16: 1, F32: 0}[dtype], bits_of(y))
    if dtype == F8_E8M0:
        return (bits_of(y) >> 23).astype("<u1")
    if dtype == I8:
        return np.where(np.isnan(y), 0, np.clip(np.rint(y), -128, 127)).astype("<i1").view("<u1")
    low, high = (np.searchsorted(MIDDLES[dtype], np.abs(y), side) for side in ("left", "right"))  # differ in ties
    sign = 1 << DTYPE_BITS[dtype] - 1
    return np.where(np.isnan(y), sign - 1, np.where(low % 2, high, low) + sign * np.signbit(y)).astype("<u1")


def round_twice(precision: int, dtype: int, y: Array) -> Array:
    """§3.10: Round numbers of binary32 to a precision, and the results to a dtype."""
    return round_to(dtype, y if precision == F32 else values_of(precision, round_to(precision, y)))


def in_pieces(count: int, of_piece: Callable[[slice], Array], length: int = PIECE) -> Array:
    """Compute an array from pieces of others, because values take 8 bytes each."""
    return np.concatenate([of_piece(slice(i, i + length)) for i in range(0, count, length)])


def decode_cast(block: Block, n: int, width: int) -> Array:
    """§3.10: Decode an operand of kind 9 for n elements of `width` bytes; returns their predictions p."""
    source, to = block.head.u8("from", F16, F32), block.head.one_of("to", F16, BF16, F32, F8_E4M3, F8_E5M2)
    must(DTYPE_BITS[to] == 8 * width, f"to is {to}, the width {width} bytes")
    must(source != to and (source, to) not in ((F32, BF16), (BF16, F32), (F32, F16)), f"from is {source}, to {to}")
    x = read_data(block, n, DTYPE_BITS[source] // 8)
    return in_pieces(n, lambda piece: round_to(to, values_of(source, x[piece])))


def decode_codes(block: Block, n: int, width: int) -> Array:
    """§3.10: Decode an operand of kind 10 for n elements of `width` bytes; returns their predictions p."""
    head = block.head
    must_be("width", width, 1)
    source, to = head.u8("from", F16, F32), head.one_of("to", I8, F8_E4M3, F8_E5M2, F4)
    operation, precision = head.u8("operation", 0, 2), head.u8("precision", F16, F32)
    dtype, f = head.one_of("dtype of the scales", F16, BF16, F32, F8_E4M3, F8_E8M0), read_constants(head, 1)
    count = 2 * n if to == F4 else n
    scale_count, group_of = read_groups(head, count)
    elements, width = read_data(block, count, DTYPE_BITS[source] // 8), DTYPE_BITS[dtype] // 8
    scales = read_data(block, scale_count, width, least=0)
    if len(scales) == 0:
        with at("scales"):
            scales = decode_stream(block, scale_count, width, ZIGZAG)

    def codes(piece: slice) -> Array:
        x = values_of(source, elements[piece])
        s = rounded(f * values_of(dtype, scales[group_of(piece.start + np.arange(len(x)))]))
        y = x / s if operation == 0 else x * (rounded(1 / s) if operation == 1 else s)
        code = round_twice(precision, to, rounded(y))
        return code[::2] | code[1::2] << 4 if to == F4 else code

    return in_pieces(count, codes)


def decode_scales(block: Block, n: int, width: int) -> Array:
    """§3.10: Decode an operand of kind 11 for n elements of `width` bytes; returns their predictions p."""
    head = block.head
    source, to = head.u8("from", F16, F32), head.one_of("to", F16, BF16, F32, F8_E4M3, F8_E8M0)
    must(DTYPE_BITS[to] == 8 * width, f"to is {to}, the width {width} bytes")
    operation, precision, f = head.u8("operation", 0, 2), head.u8("precision", F16, F32), read_constants(head, 1)
    k = head.varint("elements of a group", 1, min(2**24, 2**29 // DTYPE_BITS[source] // n))  # of 2^26 bytes at most
    x = read_data(block, n * k, DTYPE_BITS[source] // 8)
    largest = (x & (2 ** (8 * x.itemsize - 1) - 1)).reshape(n, k).max(axis=1)  # without signs, bits rise with values

    def scales(piece: slice) -> Array:
        a = values_of(source, largest[piece])
        y = 1 / rounded(f / a) if operation == 2 else a * f if operation == 1 else a / f
        return round_twice(precision, to, rounded(y))

    return in_pieces(n, scales)


def decode_field(block: Block, n: int, width: int) -> Array:
    """§3.10: Decode an operand of kind 12 for n elements of `width` bytes; returns their predictions p."""
    source, kind = block.head.u8("from", F16, F32), block.head.one_of("type of the blocks", *BLOCK_FIELDS)
    field = block.head.u8("field", 0, len(BLOCK_FIELDS[kind]) - 1)
    start, length = sum(BLOCK_FIELDS[kind][:field]), BLOCK_FIELDS[kind][field]
    must(n * width % length == 0, f"the column has {n * width} bytes, not a multiple of the field's {length}")
    x = read_data(block, 32 * (n * width // length), DTYPE_BITS[source] // 8).reshape(-1, 32)
    fields = in_pieces(
        len(x), lambda piece: encode_blocks(kind, values_of(source, x[piece]))[:, start : start + length], 2**13
    )
    return np.frombuffer(fields.tobytes(), f"<u{width}")


def encode_blocks(kind: int, x: Array) -> Array:
    """§3.10: Return the bytes of blocks of a type; x and the result have a row for each block."""
    largest = x[np.arange(len(x)), np.argmax(np.abs(x), axis=1)][:, None]  # the first one
    if kind == 39:
        e = np.maximum((bits_of(np.abs(largest)) >> 23).astype(int) - 2, 0)
        y = rounded(x * np.ldexp(1.0, 127 - e))
        code = np.searchsorted(MIDDLES[F4], np.abs(y))  # ties to the smaller magnitude
        fields = [e.astype("<u1"), nibbles(code + 8 * ((code > 0) & np.signbit(y)))]
    elif kind == 8:
        d, i = scale_and_inverse(np.abs(largest) / 127)
        y = rounded(x * i)
        nearest = np.copysign(np.floor(np.abs(y) + 0.5), y)  # ties away from 0
        fields = [d, np.where(np.isnan(y), 0, np.clip(nearest, -128, 127)).astype("<i1").view("<u1")]
    else:
        t = 31 if kind in (6, 7) else 15
        if kind in (2, 6):
            d, i = scale_and_inverse(largest / -((t + 1) // 2))
            y, fields = rounded(x * i) + (t + 2) / 2, [d]
        else:
            order = float_order(bits_of(x)).view("<i4")  # −0 is below 0
            ends = np.stack((order.min(axis=1), order.max(axis=1)))
            m, greatest = number_of(float_order(ends.view("<u4")))[:, :, None]
            d, i = scale_and_inverse(rounded(greatest - m) / t)
            y, fields = rounded(rounded(x - m) * i) + 0.5, [d, round_to(F16, m).view("<u1")]
        y = rounded(y)
        integer = np.where(np.isnan(y), 0, np.clip(np.trunc(y), 0, t)).astype("<u1")
        fields += [np.packbits(integer >> 4, axis=1, bitorder="little")] * (t == 31) + [nibbles(integer)]
    return np.concatenate(fields, axis=1) * np.isfinite(x).all(axis=1, keepdims=True)


def scale_and_inverse(d: Array) -> tuple[Array, Array]:
    """Return D as the bytes of F16, and its inverse i, which is 0 for 0."""
    d = rounded(d)
    return round_to(F16, d).view("<u1"), np.where(d == 0, 0, rounded(1 / d))


def nibbles(integers: Array) -> Array:
    """Return bytes with four bits of integer j, and as many of integer j + 16."""
    return ((integers & 15)[:, :16] | (integers & 15)[:, 16:] << 4).astype("<u1")


def decode_terms(block: Block, n: int, width: int) -> Array:
    """§3.9: Decode terms of rows and columns for n elements of `width` bytes; returns their predictions p."""
    must(width in (2, 4), f"the width is {width} bytes, not 2 or 4")
    shift = block.head.u8("shift", 0, 8 * width - 1)
    with at("terms of rows"):
        of_rows, length, position = decode_row_terms(block, n, 2**20)
    with at("terms of columns"):
        of_columns = decode_stream(block, min(length, n), 1, ZIGZAG)
    of_columns = of_columns[(position + np.arange(n)) % length] if length <= n else of_columns
    return np.asarray((of_rows.astype(f"<u{width}") + of_columns) << shift)


def decode_row_terms(block: Block, n: int, most: int) -> tuple[Array, int, int]:
    """§3.7, §3.9: Decode terms of rows; returns those of n elements, the elements of a row, and the position."""
    length = block.head.varint("elements of a row", 0, most)
    position = block.head.varint("position", 0, length - 1)
    row = (position + np.arange(n)) // length
    return decode_stream(block, int(row[-1]) + 1, 1, ZIGZAG)[row], length, position


def convert(conversion: int, x: Array) -> Array:
    """Convert elements of a source to predictions p."""
    if conversion == 1:  # F32 to BF16
        return np.asarray((x + 0x7FFF + ((x >> 16) & 1)) >> 16).astype("<u2")
    if conversion == 2:  # BF16 to F32
        return x.astype("<u4") << 16
    if conversion == 3:  # F32 to F16
        f16 = x.view("<f4").astype("<f2").view("<u2")
        return np.where(np.isnan(x.view("<f4")), 0x7E00 | ((x >> 16) & 0x8000), f16).astype("<u2")
    return x


def float_order(y: Array) -> Array:
    """Return ord(y)."""
    return np.where(y <= (low_bits := 2 ** (8 * y.itemsize - 1) - 1), y, y ^ low_bits)


# 4. Dtypes: names and bits by code
DTYPES = (
    "opaque BOOL U8 I8 U16 I16 U32 I32 F16 BF16 F32 U64 I64 F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ F8_E8M0"
    " F4 F6_E2M3 F6_E3M2 F64 C64"
).split()
DTYPE_BITS = [8, 8, 8, 8, 16, 16, 32, 32, 16, 16, 32, 64, 64, 8, 8, 8, 8, 8, 4, 6, 6, 64, 64]


def inverse_map(map_code: int, v: Array, palette: Sequence[int] = ()) -> Array:
    """§4.1: Return the elements u of mapped values v."""
    if map_code == ROTATE:
        return (v >> 1) | (v << (8 * v.itemsize - 1))
    if map_code == ZIGZAG:
        return (v >> 1) ^ -(v & 1)
    if map_code == PALETTE:
        must(v.max() < len(palette), f"a mapped value is {v.max()}, the palette has {len(palette)} values")
        return in_pieces(len(v), lambda piece: np.array(palette, v.dtype)[v[piece]])
    return v


# 5. The entropy coder
NO_CODER, HUFFMAN, ESCAPE = 0, 1, 256  # other coders are the b of rANS; the escape counts as symbol 256
Table = tuple[int, Array, Array, Array, int]  # b, the bits of a slot; symbol, freq and offset of slots; pad symbol
REFILL_ORDER = np.array(sorted(range(64), key=lambda j: (j % 4, j // 4)))


class LaneSet:
    """§5.1: 64 lanes, each a state x, and the words that they consume."""

    def __init__(self, states: bytes, words: bytes) -> None:
        """Begin with the initial states."""
        self.x = np.frombuffer(states, "<u4").astype(np.uint32)
        self.words, self.pos = np.frombuffer(words, "<u2"), 0
        must(self.x.min() >= 2**16, f"an initial state is {self.x.min()}, below 2^16")

    def decode(self, table: Table, refill: bool) -> Array:
        """Let each lane decode one symbol, and then each with x < 2^16 take the next word; returns the slots."""
        b, _, freq, offset, _ = table
        slots: Array = self.x & (2**b - 1)
        self.x = freq[slots] * (self.x >> b) + offset[slots]
        if refill:
            lanes = REFILL_ORDER[self.x[REFILL_ORDER] < 2**16]
            words = self.words[self.pos : self.pos + len(lanes)]
            must(len(words) == len(lanes), f"there are only {len(self.words)} words")
            self.x[lanes] = (self.x[lanes] << 16) | words
            self.pos += len(lanes)
        return slots


def decode_symbols(block: Block, table: Table, n: int, s: int) -> Array:
    """Decode the n symbols of a cluster, which have s bits."""
    b, symbol_of, _, _, pad = table
    must(len(block.lane_sets) == 2, "a cluster has a coder, but the block no lane sets")
    slots = np.empty((-(-n // RUN), RUN), np.uint16)  # a row for each chunk
    for i, chunk in enumerate(slots):
        chunk[:64] = block.lane_sets[i % 2].decode(table, refill=b == 12)
        chunk[64:] = block.lane_sets[i % 2].decode(table, refill=True)
    symbols = symbol_of[slots.ravel()]
    is_escape = symbols == ESCAPE
    literals = np.frombuffer(block.literals.take(int(is_escape.sum()), "literals"), np.uint8)
    must((literals < 2**s).all(), f"a literal is not less than 2^{s}")
    symbols[is_escape] = literals
    must((symbols[n:] == pad).all(), f"the padding of a chunk is not the pad symbol {pad}")
    return symbols[:n]


@at("table")
def read_table(head: Reader, coder: int, s: int) -> Table:
    """§5.3: Read the table of a cluster whose symbols have s bits."""
    first = head.u8("first")
    count = head.u8("count - 1", 0, 255 - first) + 1
    if coder == HUFFMAN:
        b, entries = 7, head.half_bytes(count + 1, "code lengths")
    else:
        b, entries = coder, [head.varint("frequency", 0, 2**coder - 1) for _ in range(count + 1)]
    all_entries = zip([*range(first, first + count), ESCAPE], entries, strict=True)
    used = {symbol: entry for symbol, entry in all_entries if entry != 0}
    symbols = [symbol for symbol in used if symbol != ESCAPE]
    must(symbols, "there is no symbol in the table")
    must(symbols[-1] < 2**s, f"symbol {symbols[-1]} is in the table, above {s} bits")
    if coder == HUFFMAN:
        slots = [(symbol, 2 ** (b - n), slot >> n) for slot, (symbol, n) in enumerate(prefix_code(used, b))]
        pad = min(symbols, key=lambda symbol: used[symbol])
    else:
        must_be("sum of the frequencies", sum(used.values()), 2**b)
        must(len(used) < 257, "all 256 symbols and the escape are in the table")
        slots = [(symbol, f, i) for symbol, f in used.items() for i in range(f)]
        pad = max(symbols, key=lambda symbol: used[symbol])
    symbol_of, freq, offset = np.array(slots, np.uint32).T
    return b, symbol_of.astype(np.uint16), freq, offset, pad


def prefix_code(lengths: dict[int, int], bits: int) -> list[tuple[int, int]]:
    """Return the symbol and code length for each slot of the table, which is indexed by `bits` bits."""
    codes = sorted((length, symbol) for symbol, length in lengths.items() if length > 0)
    must(all(length <= bits for length, _ in codes), f"a code length is {codes[-1:]}, above {bits}")
    must_be(f"the sum of 2^({bits} - length)", sum(2 ** (bits - length) for length, _ in codes), 2**bits)
    # In the order of the codes, whose first bit is the highest; in a slot it is bit 0.
    ordered = [(symbol, length) for length, symbol in codes for _ in range(2 ** (bits - length))]
    return [ordered[int(f"{slot:0{bits}b}"[::-1], 2)] for slot in range(2**bits)]


# The command line
def main(arguments: Sequence[str] | None = None) -> None:
    """Restore the raw file from an .lmc file."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("file", metavar="FILE.lmc", type=Path)
    parser.add_argument("-b", "--base", type=Path, action="append", default=[], help="a base, not compressed")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--max-size", metavar="BYTES", type=int, default=2**32, help="refuse larger files and tables")
    options = parser.parse_args(arguments)
    temporary = options.output.with_name(f"{options.output.name}.{os.getpid()}.tmp")
    try:
        must(not options.output.exists(), f"the output {options.output} exists")
        raw = decode(options.file.read_bytes(), [base.read_bytes() for base in options.base], options.max_size)
        with temporary.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(options.output)
    except (FormatError, LimitError, OSError) as error:
        temporary.unlink(missing_ok=True)
        parser.exit(1, f"{parser.prog}: {options.file}: {error}\n")


if __name__ == "__main__":
    main()
