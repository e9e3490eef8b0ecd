#!/usr/bin/env python3
"""The demonstration behind ./demo: demo.py LMC

Saves three states of a training run into a store, beside the sizes of zstd and of XOR with the state before, restores
them, and damages a copy of the store. It shows no speeds: files of 3 MB would show those of starting programs and of
waiting for the disk. `bench/run` measures speeds.
"""

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

TESTDATA = Path(__file__).resolve().parent.parent / "testdata"
STEPS = (300, 301, 310)
MIDDLE = 301
TENSOR = "model.blocks.1.qkv.weight"
BAR = 48  # characters of a bar that stands for the raw size


def stop(message):
    sys.exit(f"demo: {message}")


def run(*command, cwd=None, exits=0, data=None):
    """Runs a command and returns its output; shows its message and stops when its exit code is not `exits`."""
    done = subprocess.run([str(c) for c in command], capture_output=True, cwd=cwd, input=data)
    if done.returncode != exits:
        stop(f"{' '.join(map(str, command))} exits {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done


def table(heading, rows):
    """Prints rows of strings: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    for row in [heading, ["-" * w for w in widths], *rows]:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  " + "  ".join(cells).rstrip())


class Safetensors:
    """Where the tensors of a safetensors file are."""

    def __init__(self, data):
        (length,) = struct.unpack("<Q", data[:8])
        self.body = 8 + length
        header = json.loads(data[8 : self.body])
        self.tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}

    def span(self, name):
        """First byte of a tensor, and the byte after its last."""
        begin, end = self.tensors[name]["data_offsets"]
        return self.body + begin, self.body + end

    def groups(self):
        """First byte, byte after the last, and bytes of an element of each tensor."""
        width = {"BF16": 2, "F32": 4}
        return [(*self.span(name), width[entry["dtype"]]) for name, entry in self.tensors.items()]


def grouped(data, groups):
    """The bytes of each tensor, all first bytes of its elements first, then all second bytes and so on."""
    out = bytearray(data)
    for begin, end, width in groups:
        out[begin:end] = b"".join(data[begin + i : end : width] for i in range(width))
    return bytes(out)


def xor(a, b):
    """Two strings of bytes of one length, XORed as one long integer each."""
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def zstd(data, *options):
    return run("zstd", "-q", "-c", *options, data=data).stdout


def xored(states, i):
    """State i as `zstd -3` of its grouped XOR with the state before; the first one has none before it."""
    data = states[i] if i == 0 else xor(states[i], states[i - 1])
    return zstd(grouped(data, Safetensors(states[i]).groups()), "-3")


def size_of(folder):
    """Bytes of all files below a folder."""
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def weights(state):
    """A safetensors file of a state's bf16 weights alone."""
    source = Safetensors(state)
    header, body = {}, b""
    for name, entry in source.tensors.items():
        if name.startswith("model."):
            begin, end = source.span(name)
            header[name] = entry | {"data_offsets": [len(body), len(body) + end - begin]}
            body += state[begin:end]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


class Run:
    """Snapshots of a training run, each a file of the same name in a folder of its step; `store` names their store."""

    def __init__(self, lmc, work, store, name, states):
        self.lmc, self.work, self.store, self.name, self.states = lmc.resolve(), work, work / store, name, states
        for step, state in zip(STEPS, states, strict=True):
            file = work / f"step{step}" / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(state)

    def shown(self, *arguments, exits=0):
        """Runs lmc, and prints the command and its output."""
        print(f"\n$ lmc {' '.join(arguments)}")
        done = run(self.lmc, *arguments, cwd=self.work, exits=exits)
        for line in (done.stdout + done.stderr).decode().splitlines():
            print(textwrap.fill(line, 78, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
        return done

    def objects(self):
        """The data objects of the store."""
        return {f.relative_to(self.store) for f in (self.store / "data").rglob("*") if f.is_file()}

    def save(self):
        """Saves every snapshot; returns the bytes of each in every way."""
        sizes, earlier = [], set()
        for i, step in enumerate(STEPS):
            before = size_of(self.store)
            done = self.shown("snapshot", "save", self.store.name, f"step{step}/{self.name}", "--step", str(step))
            self.begins_anew = b"without a base" in done.stdout + done.stderr
            objects = self.objects()
            self.newest, earlier = objects - earlier, objects
            others = [len(zstd(self.states[i], "-3")), len(xored(self.states, i))]
            sizes.append([len(self.states[i]), *others, size_of(self.store) - before])
        return sizes

    def restore(self):
        """Restores every snapshot, and compares every byte."""
        for step, state in zip(STEPS, self.states, strict=True):
            back = self.work / f"{self.store.name}-{step}"
            run(self.lmc, "-q", "snapshot", "restore", self.store, "--at", step, "-o", back)
            if (back / self.name).read_bytes() != state:
                stop(f"step {step}: what lmc restores differs from the state")

    def show_sizes(self, sizes):
        total = [sum(column) for column in zip(*sizes, strict=True)]
        print()
        rows = [[f"step {step}"] + [f"{n:,}" for n in row] for step, row in zip(STEPS, sizes, strict=True)]
        table(["", "raw", "zstd -3", "XOR + zstd -3", "lmc"], [*rows, ["all"] + [f"{n:,}" for n in total]])
        print()
        names = ["raw", "zstd -3", "XOR + zstd", "lmc"]
        for step, row in zip(STEPS, sizes, strict=True):
            for label, name, n in zip([f"step {step}", "", "", ""], names, row, strict=True):
                bar = "#" * max(1, round(BAR * n / row[0]))
                print(f"  {label:8} {name:10} {bar:{BAR}} {100 * n / row[0]:5.1f} %")
            print()

    def read_back(self):
        """Restores the middle snapshot, and one tensor of it."""
        middle = STEPS.index(MIDDLE)
        self.shown("snapshot", "restore", self.store.name, "--at", str(MIDDLE), "-o", "back", "-v")
        if (self.work / "back" / self.name).read_bytes() != self.states[middle]:
            stop(f"step {MIDDLE}: the restored file differs")
        print(f"  {len(self.states[middle]):,} bytes, every one as it was")
        self.shown("snapshot", "restore", self.store.name, "--at", str(MIDDLE), "--tensor", TENSOR, "-o", "w.bin")
        begin, end = Safetensors(self.states[middle]).span(TENSOR)
        if (self.work / "w.bin").read_bytes() != self.states[middle][begin:end]:
            stop(f"{TENSOR}: differs from the original's")
        print(f"  {end - begin:,} bytes, those at {begin:,} of the original file")
        self.shown("snapshot", "verify", self.store.name, "--deep")

    def damage(self):
        """Flips a bit of the newest snapshot in a copy of the store, which verification must find."""
        shutil.copytree(self.store, self.work / "damaged")
        file = max((self.work / "damaged" / f for f in self.newest), key=lambda f: f.stat().st_size)
        data = bytearray(file.read_bytes())
        at = len(data) // 2
        data[at] ^= 1
        file.chmod(0o644)
        file.write_bytes(data)
        print(f"\nIn a copy of the store, one bit of byte {at:,} of this file is flipped:")
        print(f"  {file.relative_to(self.work)}")
        done = self.shown("snapshot", "verify", "damaged", "--deep", exits=1)
        if not done.stderr.strip():
            stop("verify says nothing about the flipped bit")
        print(f"  exit code {done.returncode}")
        print("\nThe snapshots before it are whole:")
        self.shown("snapshot", "verify", "damaged", "--deep", "--at", str(MIDDLE))


STATES = f"""
1. The snapshots of a training run, saved one after the other

A small GPT in training, after {STEPS[0]}, {STEPS[1]} and {STEPS[2]} steps (see testdata/README.md):
bf16 weights, fp32 master weights and both moments of AdamW."""

ANEW = f"""  Step {STEPS[-1]} is stored without a base: a delta over nine steps of the optimizer would
  save less than an eighth, which is not worth a longer restore.
"""

WEIGHTS = """  XOR: with the snapshot before, bytes of elements grouped by significance.
  lmc: all that the save adds to the store's directory. Every snapshot was
  restored from it, and every byte compared.

2. The bf16 weights alone, as others would fetch them"""

TENSORS = "3. The snapshot in the middle, and one tensor of it"

DAMAGE = """
4. One flipped bit"""

NEXT = """
5. What to type next

  cargo install --path crates/lmc-cli      # lmc with all that users need
  lmc snapshot save runs/7 CHECKPOINT --step 1000
  lmc snapshot list runs/7
  lmc snapshot restore runs/7 --at 1000 -o back
  lmc compress model.safetensors           # one file, without a store
  lmc help snapshot
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lmc", type=Path)
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    if not shutil.which("zstd"):
        stop("needs zstd, the program, to compare with: install it and run this again")
    start = time.perf_counter()
    states = [(TESTDATA / f"gpt-step{step}-state.safetensors").read_bytes() for step in STEPS]
    with tempfile.TemporaryDirectory(prefix="lmc-demo-") as work:
        print(STATES)
        whole = Run(args.lmc, Path(work), "run", "state.safetensors", states)
        whole.show_sizes(whole.save())
        if whole.begins_anew:
            print(ANEW)
        whole.restore()
        print(WEIGHTS)
        alone = Run(args.lmc, Path(work), "weights", "model.safetensors", [weights(state) for state in states])
        alone.show_sizes(alone.save())
        alone.restore()
        print(TENSORS)
        whole.read_back()
        print(DAMAGE)
        whole.damage()
    print(NEXT)
    print(f"The demonstration took {time.perf_counter() - start:.1f} s.")


if __name__ == "__main__":
    main()
