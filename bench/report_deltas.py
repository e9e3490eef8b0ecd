"""The section on deltas of docs/benchmarks.md."""

from textwrap import fill

from bars import delta_row
from markdown import LEVELS, number, peers_table, percent, smallest_in_bold, table

# General-purpose codecs: name, level, and their use of the old file.
GENERAL = [("zstd", "1", "xor"), ("zstd", "19", "xor"), ("bzip2", "9", "xor"), ("zstd", "3", "prefix")]


def size_table(deltas: dict) -> str:
    """Sizes of every pair by every codec."""
    headings = ["", "bytes", "changed", "H", "lmc fast", "default", "max", "default, × H", "no base", "XOR, lmc"]
    headings += ["ZipNN", "z4ai", "OpenZL", "zstd -1", "zstd -19", "bzip2", "patch-from"]
    rows = []
    for s in deltas["sizes"]:
        found = [delta_row(s, level=level) for level in LEVELS]
        found += [delta_row(s, given="nothing"), delta_row(s, given="xor")]
        ratios = [r["ratio"] for r in found]
        sampled = [False] * len(ratios)
        ratios += [s["packages"][p] / s["raw_size"] for p in ("ZipNN", "z4ai", "OpenZL")]
        sampled += [False] * 3
        for codec, level, given in GENERAL:
            both = [r for r in s["results"] if (r["codec"], r["level"], r["given"]) == (codec, level, given)]
            ratios.append(min(r["ratio"] for r in both))
            sampled.append(both[0]["sampled"])
        text = smallest_in_bold(ratios, sampled)
        over = found[1]["of_entropy"]
        text.insert(3, "—" if over is None else f"{over:.3f}")
        entropy = s["entropy"]["of_raw"]
        share = f"{100 * s['changed']:.1f} %"
        rows.append([s["name"], f"{s['raw_size']:,}", share, f"{100 * entropy:.{2 if entropy >= 0.01 else 3}f}", *text])
    whats: dict[str, list[str]] = {}
    for s in deltas["sizes"]:
        whats.setdefault(s["what"], []).append(s["name"])
    items = [f"* {'; '.join(names)}: {what}" for what, names in whats.items()]
    return table(headings, rows) + "\n" + "".join(fill(i, 120, subsequent_indent="  ") + "\n" for i in items)


def speed_table(measured: list[dict]) -> str:
    """One and two threads side by side: GB/s, and in brackets the ratio to memcpy with as many threads."""
    rows = []
    for m in measured:
        for level in LEVELS:
            row = [m["name"], m["dtype"], level, f"{100 * m['changed']:.1f} %", f"{m['raw_size'] / 1e6:,.0f} MB"]
            for way in ("compress", "decompress"):
                for threads in (1, 2):
                    s = delta_row(m, level=level, threads=threads)[way]
                    row.append(f"{number(s['gb_per_s'])} ({number(s['of_memcpy'])})")
            rows.append(row)
    headings = ["", "", "level", "changed", "", "in, 1 thread", "in, 2 threads", "out, 1 thread", "out, 2 threads"]
    return table(headings, rows, left=3)


def isa_table(measured: dict) -> str:
    rows = []
    for r in measured["results"]:
        row = [r["level"], r["isa"], percent(r["ratio"])]
        for way in ("compress", "decompress"):
            row += [number(r[way]["gb_per_s"]), number(r[way]["of_memcpy"])]
        rows.append(row)
    headings = ["level", "", "of raw", "in GB/s", "× memcpy", "out GB/s", "× memcpy"]
    title = f"{measured['name']}, {measured['raw_size'] / 1e6:,.0f} MB, one thread\n\n"
    return title + table(headings, rows, left=2)


def section(results: dict) -> str:
    deltas = results["deltas"]
    peers = "\n".join(peers_table(m, f"{m['file']}: {m['dtype']}") for m in deltas["peers"])
    isas = "\n".join(map(isa_table, deltas["isas"]))
    return f"""## Deltas

A new file given an old one. Speeds count only the bytes of the new file; the old file is in memory.

*Changed*: the share of elements whose bits differ from the old file. *H*: the entropy of the floats given the exponents
of the old ones, per cent of the whole file. It is the entropy of the number of representable values from old to new,
counted for each exponent over all tensors of a dtype, without any cost for tables or heads. For fp32 it is the entropy
of that number's length and first eight bits, plus the bits below. A codec that uses more than the one old element can
be below H: `lmc` is below it where weights follow from master weights, and where tensors are smaller without the base.

### Sizes of deltas

Per cent of raw, whole files. *No base*: level default without the old file. *XOR, lmc*: level default on the exclusive
or. zstd and bzip2: on the exclusive or, the smaller of as is and grouped. ZipNN, z4ai, OpenZL (byte planes of the
exclusive or): the elements of each dtype separately, without the file's header; z4ai also the whole file. *Patch-from*:
`zstd --patch-from`, level 3, long mode, by the library. `*`: a sample. Bold: the smallest, samples excluded.

{size_table(deltas)}
### Speed of deltas

GB/s, and in brackets the ratio to memcpy with the same number of threads. Elements of one dtype, repeated to the given
size, in the new and the old file alike.

{speed_table(deltas["speed"] + deltas["buffers"])}
{isas}
### Deltas beside ZipNN, z4ai and OpenZL

One thread, in turns, on the same bytes, which are not repeated.

{peers}"""
