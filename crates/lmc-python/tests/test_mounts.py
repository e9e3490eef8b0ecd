"""File systems that lack something: each output is written in the next weaker way, and nothing is left over."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import lmc
import lmc.numpy
import numpy as np
import pytest
from conftest import weights
from safetensors.numpy import load_file, save_file

pytestmark = pytest.mark.mount

LACKING = ("links", "attributes", "rename", "sync")
REAL = {"exfat": (("mkfs.exfat",), "mount.exfat-fuse"), "ntfs": (("mkfs.ntfs", "-q", "-F"), "ntfs-3g")}


class CannotMountError(Exception):
    pass


def if_mounted(test):
    """Where nothing can be mounted, the test passes; with LMC_REQUIRE_MOUNT it fails."""

    @functools.wraps(test)
    def tried(*args, **names):
        try:
            test(*args, **names)
        except CannotMountError as e:
            if "LMC_REQUIRE_MOUNT" in os.environ:
                raise
            print(f"skipped: cannot mount: {e}")

    return tried


@contextmanager
def mounted(kind, place):
    """A directory on a file system of FUSE: one that lacks something, or a real one of 8 MiB."""
    mount, log, device = place / kind, place / f"{kind}.log", None
    mount.mkdir()
    if kind in REAL:
        make, program = REAL[kind]
        image = place / f"{kind}.image"
        with open(image, "wb") as file:
            file.truncate(8 << 20)
        if not all(map(shutil.which, (make[0], program))):
            raise CannotMountError(f"no {make[0]} or {program}")
        subprocess.run([*make, image], check=True, capture_output=True)
        if kind == "exfat" and os.geteuid() == 0:  # root's has to be a device
            device = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True)
            if device.returncode:
                raise CannotMountError(device.stderr)
        command = [program, device.stdout.strip() if device else image, mount]
    else:
        root = place / f"{kind}.root"
        root.mkdir()
        command = [sys.executable, Path(__file__).with_name("lacking.py"), root, mount, kind]
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        while not os.path.ismount(mount):
            if process.poll():
                raise CannotMountError(log.read_text())
            time.sleep(0.02)
        yield mount
    finally:
        if os.path.ismount(mount):
            subprocess.run(["fusermount3", "-u", mount], check=True)
        process.wait()
        if device:
            subprocess.run(["losetup", "-d", device.stdout.strip()], check=True)


def command(args, at, **options):
    return subprocess.Popen([sys.executable, "-m", "lmc", *args], cwd=at, stderr=subprocess.PIPE, text=True, **options)


def run(args, at):
    process = command(args.split(), at)
    said = process.communicate()[1]
    return process.returncode, said


def good(args, at):
    code, said = run(args, at)
    assert code == 0, f"{args}: {said}"
    return said


def names(directory):
    return sorted(os.listdir(directory))


@pytest.fixture
def place(tmp_path):
    """A directory with a model, a later one, and a directory to mount at."""
    for i, name in enumerate(("m", "n")):
        tensors = {"a": weights(40_000) * np.float32(1 + i / 1000), "z": np.zeros((64, 64), np.float32)}
        save_file(tensors, tmp_path / f"{name}.safetensors")
    return tmp_path


@if_mounted
@pytest.mark.parametrize("kind", [*LACKING, *REAL])
def test_the_command_writes(place, kind):
    raw, later = ((place / f"{name}.safetensors").read_bytes() for name in "mn")
    with mounted(kind, place) as mount:
        said = good(f"compress m.safetensors -o {kind}/a.lmc", place)
        weaker = {"attributes": "mode, owner and times", "rename": "cannot rename", "sync": "cannot sync"}
        assert weaker.get(kind, "") in said
        first = (mount / "a.lmc").read_bytes()
        assert lmc.decompress(first) == raw
        code, said = run(f"compress n.safetensors -o {kind}/a.lmc", place)
        assert (code, (mount / "a.lmc").read_bytes()) == (1, first)
        assert "exists; -f overwrites it" in said
        good(f"compress -f n.safetensors -o {kind}/a.lmc", place)
        assert lmc.decompress((mount / "a.lmc").read_bytes()) == later
        good(f"decompress {kind}/a.lmc -o {kind}/back", place)
        good(f"decompress -f {kind}/a.lmc -o {kind}/back", place)
        assert (mount / "back").read_bytes() == later
        good(f"cat {kind}/a.lmc z -o {kind}/z", place)
        assert (mount / "z").read_bytes() == bytes(64 * 64 * 4)
        good(f"unpack m.safetensors -o {kind}/u", place)
        good(f"analyze m.safetensors n.safetensors --html {kind}/page.html", place)
        good(f"compress {kind}/back", place)
        assert names(mount) == ["a.lmc", "back", "back.lmc", "page.html", "u", "z"]


@if_mounted
@pytest.mark.parametrize("kind", [*LACKING, *REAL])
def test_a_store(place, kind):
    raw, later = ((place / f"{name}.safetensors").read_bytes() for name in "mn")
    with mounted(kind, place) as mount:
        good(f"snapshot save {kind}/s m.safetensors --step 1", place)
        good(f"snapshot save {kind}/s n.safetensors --step 2", place)
        assert run(f"snapshot save {kind}/s m.safetensors --step 2", place)[0] == 1
        good(f"snapshot verify {kind}/s --deep", place)
        good(f"snapshot restore {kind}/s -o {kind}/r --at 1", place)
        assert (mount / "r/m.safetensors").read_bytes() == raw
        good(f"snapshot prune {kind}/s --keep-last 1", place)
        good(f"snapshot export {kind}/s {kind}/s.tar", place)
        good(f"snapshot copy {kind}/s.tar {kind}/t", place)
        good(f"snapshot restore {kind}/t -o {kind}/r", place)
        assert (mount / "r/n.safetensors").read_bytes() == later
        files = [name for store in "st" for _, _, found in os.walk(mount / store) for name in found]
        assert files and not [name for name in files if "#" in name or "tmp" in name]


@if_mounted
def test_large_objects_are_written_from_front_to_end(place):
    large = np.random.default_rng(0).bytes(40 << 20)  # several parts
    (place / "large").write_bytes(large)
    with mounted("rename", place) as mount:
        good("snapshot save rename/s large --step 1", place)
        good("snapshot restore rename/s -o rename/r", place)
        assert (mount / "r/large").read_bytes() == large


@if_mounted
@pytest.mark.parametrize("kind", ["links", "rename", "exfat"])
def test_of_many_who_save_a_step_one_wins(place, kind):
    with mounted(kind, place):
        good(f"snapshot save {kind}/s m.safetensors --step 1", place)
        writers = [command(f"snapshot save {kind}/s n.safetensors --step 2".split(), place) for _ in range(4)]
        ended = [(w.communicate()[1], w.returncode) for w in writers]
        assert sorted(code for _, code in ended) == [0, 1, 1, 1], ended
        good(f"snapshot verify {kind}/s --deep", place)


@if_mounted
@pytest.mark.parametrize("kind", [*LACKING, *REAL])
def test_the_api_writes(place, kind):
    raw = (place / "m.safetensors").read_bytes()
    tensors = load_file(place / "m.safetensors")
    with mounted(kind, place) as mount, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each promise is mentioned once in a process
        lmc.numpy.save_file(tensors, mount / "a.lmc")
        lmc.numpy.save_file(tensors, mount / "a.lmc")
        assert np.array_equal(lmc.numpy.load_file(mount / "a.lmc")["a"], tensors["a"])
        lmc.compress_file(place / "m.safetensors", mount / "b.lmc")
        lmc.decompress_file(mount / "b.lmc", mount / "b")
        with pytest.raises(FileExistsError):
            lmc.decompress_file(mount / "b.lmc", mount / "b", overwrite=False)
        assert (mount / "b").read_bytes() == raw
        store = lmc.Store.create(mount / "s")
        store.save_files({"m": raw}, step=1)
        store.restore(mount / "r")
        assert (mount / "r/m").read_bytes() == raw
        assert names(mount) == ["a.lmc", "b", "b.lmc", "r", "s"]


@if_mounted
@pytest.mark.parametrize("kind", ["rename", "exfat"])
def test_what_cannot_be_kept_is_refused(place, kind):
    good("snapshot save s m.safetensors --step 1", place)
    (place / "versions/step1").mkdir(parents=True)
    shutil.copy(place / "m.safetensors", place / "versions/step1")
    with mounted(kind, place):
        code, said = run(f"follow s {kind}/followed --once", place)
        assert (code, "has no symbolic links" in said) == (1, True), said
        if kind == "rename":
            code, said = run(f"publish t versions --once --settle 0 --interchange {kind}/versions", place)
            assert (code, "cannot rename directories" in said) == (1, True), said


@if_mounted
@pytest.mark.parametrize("kind", ["links", "exfat"])
def test_a_signal_leaves_nothing(place, kind):
    with mounted(kind, place) as mount:
        for number in (signal.SIGTERM, signal.SIGABRT, signal.SIGPWR):
            process = command(["compress", "-", "-o", f"{kind}/a.lmc"], place, stdin=subprocess.PIPE)
            while not names(mount) and process.poll() is None:
                time.sleep(0.01)
            process.send_signal(number)
            process.communicate()
            assert (process.returncode, names(mount)) == (-number, [])


@if_mounted
@pytest.mark.parametrize("kind", ["space", *REAL])
def test_no_space(place, kind):
    (place / "large").write_bytes(np.random.default_rng(0).bytes(9 << 20))
    with mounted(kind, place) as mount:
        before = names(mount)
        for args in (f"compress large -o {kind}/a.lmc", f"snapshot save {kind}/s large --step 1"):
            code, said = run(args, place)
            assert (code, "no space left on device" in said.lower()) == (1, True), (args, said)
        assert names(mount) in (before, [*before, "s"])
        assert not [name for _, _, found in os.walk(mount / "s") for name in found if name != "lmc-store.json"]
