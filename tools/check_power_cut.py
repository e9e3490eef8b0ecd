#!/usr/bin/env python3
"""Cuts the power at every moment of `lmc snapshot save`, `prune` and `gc` on a store on disk, and of `lmc follow`, as
far as a model can.

    check_power_cut.py LMC [WORK]

The commands run under strace. From the calls that change files, this program builds the possible contents of a disk
after each call, runs lmc on them, and compares the restored files with the saved ones. For a directory that follows a
store, it compares the files below `current`; then the directory must be able to follow to the newest snapshot.

The model: synced data survive. The contents of a file are on disk if the file was synced after they were written;
otherwise all of them are, or none, or the first half. A name is added to a directory, or removed, if that directory was
synced afterwards; otherwise every change since then is applied or not, independently, except that the two halves of a
rename go together. A directory whose own name is lost loses its contents, too. This is less than POSIX allows (garbage
in unsynced files) and more than common file systems do (they keep the order of names). The method is that of Pillai et
al., "All file systems are not created equal", OSDI 2014.

To test this check itself, calls of fsync are then left out of one trace: it must find that a snapshot is lost.
"""

import hashlib
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = (
    "openat,mkdir,mkdirat,write,pwrite64,writev,pwritev,rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,"
    "fsync,fdatasync,ftruncate,symlink,symlinkat"
)
AT = r"(?:AT_FDCWD(?:<[^>]*>)?, )?"
CREATED = re.compile(rf'openat\({AT}"([^"]*)", [A-Z_|]*O_CREAT[A-Z_|]*, \d+\) += \d')
MADE = re.compile(rf'mkdir(?:at)?\({AT}"([^"]*)", \d+\) += 0')
RENAMED = re.compile(rf'rename(?:at|at2)?\({AT}"([^"]*)", {AT}"([^"]*)"(?:, \w+)?\) += 0')
LINKED = re.compile(rf'link(?:at)?\({AT}"([^"]*)", {AT}"([^"]*)"(?:, \w+)?\) += 0')
SYMLINKED = re.compile(rf'symlink(?:at)?\("([^"]*)", {AT}"([^"]*)"\) += 0')
REMOVED = re.compile(rf'(?:unlink(?:at)?|rmdir)\({AT}"([^"]*)"(?:, \w+)?\) += 0')
# As when a whole directory is removed.
REMOVED_IN = re.compile(r'unlinkat\(\d+<([^>]*)>, "([^"]*)", \w+\) += 0')
WRITTEN = re.compile(r"(?:p?writev?(?:64)?|ftruncate)\(\d+<([^>]*)>.*\) += \d")
SYNCED = re.compile(r"f(?:data)?sync\(\d+<([^>]*)>\) += 0")
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")


class File:
    """Contents, and whether they have reached the disk."""

    def __init__(self, content, synced):
        self.content, self.synced = content, synced


class Link:
    """A symbolic link, which is written with its name."""

    def __init__(self, target):
        self.target = target


class Directory:
    """Names on the disk, and changes of them that are not synced: lists of (name, its new node)."""

    def __init__(self, path):
        self.path, self.names, self.pending = path, {}, []


class Disk:
    """The files under a directory: as processes see them, and as they are on the disk."""

    def __init__(self, root):
        self.root = root
        self.seen = {root: Directory(root)}
        for path in sorted(root.rglob("*")):
            if path.is_symlink():
                node = Link(path.readlink())
            else:
                node = Directory(path) if path.is_dir() else File(path.read_bytes(), True)
            self.seen[path] = node
            self.seen[path.parent].names[path.name] = node

    def within(self, text):
        path = Path(text)
        return path if self.root in path.parents or path == self.root else None

    def move(self, path, to):
        """Renames; the contents of a directory move with it."""
        inside = {p: self.seen.pop(p) for p in [*self.seen] if path in p.parents}
        self.change((path, None), (to, self.seen[path]))
        self.seen.update({to / p.relative_to(path): node for p, node in inside.items()})

    def change(self, *changes):
        """Changes of names that happen together, in one directory: (path, its new node)."""
        for path, node in changes:
            if node is None:
                self.seen.pop(path, None)
            else:
                self.seen[path] = node
        self.seen[changes[0][0].parent].pending.append([(path.name, node) for path, node in changes])

    def forget(self, path):
        """Assumes that a process created a directory, did not sync it, and ended."""
        parent = self.seen[path.parent]
        parent.pending.append([(path.name, parent.names.pop(path.name))])

    def sync(self, path):
        node = self.seen[path]
        if isinstance(node, File):
            node.synced = True
            return
        for changes in node.pending:
            apply(node.names, changes)
        node.pending.clear()

    def write(self, to, choose):
        """Writes the contents of the disk to a directory; `choose` decides which unsynced changes are applied."""

        def put(directory, at):
            at.mkdir()
            names = dict(directory.names)
            for changes in directory.pending:
                if choose() > 0:
                    apply(names, changes)
            for name, node in names.items():
                if isinstance(node, Directory):
                    put(node, at / name)
                elif isinstance(node, Link):
                    (at / name).symlink_to(node.target)
                else:
                    content = node.content
                    part = 1 if node.synced else choose()
                    (at / name).write_bytes(content[: int(len(content) * part)])

        put(self.seen[self.root], to)


def apply(names, changes):
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def calls(log):
    """The calls of a trace, each where it ended."""
    unfinished = {}
    for line in log.read_text().splitlines():
        process, call = line.split(None, 1)
        if call.endswith("<unfinished ...>"):
            unfinished[process] = call.removesuffix("<unfinished ...>")
        elif resumed := RESUMED.match(call):
            yield unfinished.pop(process).rstrip() + resumed[1]
        else:
            yield call


def step(disk, call, contents, fsync):
    """Applies a call to a disk; returns whether it changed anything."""
    if (m := CREATED.match(call)) and (path := disk.within(m[1])):
        if path not in disk.seen:
            disk.change((path, File(contents.pop(0), False)))
            return True
    elif (m := MADE.match(call)) and (path := disk.within(m[1])):
        disk.change((path, Directory(path)))
        return True
    elif (m := RENAMED.match(call)) and (path := disk.within(m[1])):
        to = disk.within(m[2])
        assert path.parent == to.parent, call
        disk.move(path, to)
        return True
    elif (m := SYMLINKED.match(call)) and (path := disk.within(m[2])):
        disk.change((path, Link(m[1])))
        return True
    elif (m := LINKED.match(call)) and (path := disk.within(m[1])):
        disk.change((disk.within(m[2]), disk.seen[path]))
        return True
    elif (m := REMOVED.match(call)) and (path := disk.within(m[1])):
        disk.change((path, None))
        return True
    elif (m := REMOVED_IN.match(call)) and (path := disk.within(m[1])):
        disk.change((path / m[2], None))
        return True
    elif (m := WRITTEN.match(call)) and (path := disk.within(m[1])):
        disk.seen[path].synced = False
        return True
    elif fsync and (m := SYNCED.match(call)) and (path := disk.within(m[1])):
        disk.sync(path)
        return True
    return False


def contents_of(disk, log):
    """The contents of each file that a trace creates, in that order; unknown if the file is gone in the end."""
    names, created = {}, []
    for call in calls(log):
        if (m := CREATED.match(call)) and disk.within(m[1]) and Path(m[1]) not in disk.seen and m[1] not in names:
            names[m[1]] = len(created)
            created.append(b"gone")
        elif m := RENAMED.match(call):
            for name in [n for n in names if n == m[1] or n.startswith(m[1] + "/")]:
                names[m[2] + name.removeprefix(m[1])] = names.pop(name)
        elif (m := LINKED.match(call)) and m[1] in names:
            names[m[2]] = names[m[1]]
        elif (m := REMOVED.match(call)) and m[1] in names:
            del names[m[1]]
    for name, number in names.items():
        created[number] = Path(name).read_bytes()
    return created


class Check:
    def __init__(self, lmc, work):
        self.lmc, self.work, self.root = lmc, work, work / "root"
        self.store = self.root / "runs" / "7"
        self.root.mkdir()
        self.states = 0

    def run(self, *args):
        return self.lmc_run("snapshot", *args)

    def lmc_run(self, *args):
        return subprocess.run([self.lmc, *map(str, args)], capture_output=True, text=True, check=False)

    def trace(self, *args):
        """Runs a command of `lmc snapshot` under strace; the trace."""
        return self.lmc_trace("snapshot", *args)

    def lmc_trace(self, *args):
        log = self.work / "trace"
        strace = ["strace", "-f", "-y", "-s", "0", "-o", log, "-e", f"trace={CALLS}"]
        subprocess.run([*strace, self.lmc, *args], check=True)
        return log

    def restored(self, store):
        """The snapshots of a store: step and file. Fails if the store cannot be read."""
        listed = self.run("list", store, "--json")
        if listed.returncode != 0 and re.search("no such directory|no store here", listed.stderr):
            return {}
        assert listed.returncode == 0, listed.stderr
        found = {}
        out = self.work / "out"
        for line in listed.stdout.splitlines():
            number = json.loads(line)["step"]
            restored = self.run("restore", store, "--at", number, "-o", out, "-f")
            assert restored.returncode == 0, restored.stderr
            found[number] = (out / "model").read_bytes()
        return found

    def cut(self, disk, log, was, becomes, fsync=True):
        """Cuts the power after each call of a trace that began with `disk`, given the snapshots before and after it."""
        for left, acknowledged, call in self.lefts(disk, log, fsync):
            found = self.restored(left / self.store.relative_to(self.root))
            for n in was.keys() | becomes.keys() | found.keys():
                allowed = [becomes.get(n)] if acknowledged else [was.get(n), becomes.get(n)]
                assert found.get(n) in allowed, f"step {n} after {call or 'the end'}"

    def cut_follower(self, disk, log, store, was, becomes, fsync=True):
        """The same for a directory that follows, given the files of the versions before and after it."""
        for left, acknowledged, call in self.lefts(disk, log, fsync):
            found = files_in(left / "m" / "current")
            assert found in ([becomes] if acknowledged else [was, becomes]), f"after {call or 'the end'}: {[*found]}"
            next_time = self.lmc_run("follow", store, left / "m", "--once")
            assert next_time.returncode == 0, next_time.stderr
            assert files_in(left / "m" / "current") == becomes, f"next time after {call or 'the end'}"

    def lefts(self, disk, log, fsync):
        """The possible states of a disk after each call of a trace, and whether that call was the last one."""
        contents = contents_of(disk, log)
        known = set()
        for number, call in enumerate([*calls(log), None]):
            acknowledged = call is None
            if not acknowledged and not step(disk, call, contents, fsync):
                continue
            dice = random.Random(number)
            for some in ([0], [1], [0.5], [0, 0.5, 1], [0, 1]):
                left = self.work / "left"
                shutil.rmtree(left, ignore_errors=True)
                disk.write(left, lambda some=some, dice=dice: dice.choice(some))
                state = (acknowledged, digest(left))
                if state in known:
                    continue
                known.add(state)
                self.states += 1
                yield left, acknowledged, call


def files_in(directory):
    """The files below a directory by name; none if it is missing."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def digest(directory):
    """A digest of all names and contents."""
    state = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        state.update(f"{path}\n".encode())
        if path.is_file():
            state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.digest()


def main():
    lmc = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as work:
        check = Check(lmc, Path(work).resolve())
        still = random.Random(0).randbytes(15_000)
        saved = {}
        file = check.work / "model"

        def save(n):
            content = still + random.Random(n + 1).randbytes(15_000)
            file.write_bytes(content)
            disk, was = Disk(check.root), dict(saved)
            log = check.trace("save", str(check.store), str(file), "--step", str(n), "--base", "previous")
            saved[n] = content
            return disk, log, was

        for n in range(3):
            check.cut(*save(n), saved)
        print(f"save: {check.states} states")
        for n in range(3, 8):
            save(n)
        disk, was = Disk(check.root), dict(saved)
        log = check.trace("prune", str(check.store), "--keep-last", "1", "--yes")
        saved = {7: saved[7]}
        check.cut(disk, log, was, saved)
        print(f"prune: {check.states} states")
        subprocess.run(["find", check.store, "-exec", "touch", "-d", "3 days ago", "{}", "+"], check=True)
        disk = Disk(check.root)
        log = check.trace("gc", str(check.store))
        assert len(list(check.store.glob("data/*/*"))) == 1, "it collects"
        check.cut(disk, log, saved, saved)
        print(f"gc: {check.states} states")
        # The directory exists, but may not be synced.
        directory = check.store / "snapshots/9007/199/254/739"
        directory.mkdir()
        disk, log, was = save(1000)
        disk.forget(directory)
        check.cut(disk, log, was, saved)
        print(f"save into another's directory: {check.states} states")
        try:
            disk, log, was = save(1001)
            check.cut(disk, log, was, saved, fsync=False)
        except AssertionError as lost:
            print(f"without fsync: {lost}")
        else:
            sys.exit("without fsync nothing is lost: the check checks nothing")
        follow(check)


def follow(check):
    """Versions that follow each other: a file that changes, and one that does not; both."""
    store, root = check.work / "followed", check.work / "followers"
    (root / "m").mkdir(parents=True)
    model = check.work / "files"
    (model / "sub").mkdir(parents=True)
    contents = [random.Random(n).randbytes(15_000) for n in range(5)]
    before = None
    for n, (a, b) in enumerate([(0, 1), (2, 1), (3, 4), (0, 1)]):
        files = {"a": contents[a], "sub/b": contents[b]}
        for name, content in files.items():
            (model / name).write_bytes(content)
        assert check.run("save", store, model, "--step", n).returncode == 0
        disk = Disk(root)
        log = check.lmc_trace("-q", "follow", str(store), str(root / "m"), "--once")
        # The first save writes its marker twice, and this check would know only the last contents.
        if n in (1, 2):
            check.cut_follower(disk, log, store, before, files)
            print(f"follow: {check.states} states")
        before, last = files, (disk, log, store, before, files)
    try:
        check.cut_follower(*last, fsync=False)
    except AssertionError as lost:
        print(f"without fsync: {lost}")
    else:
        sys.exit("without fsync no version is lost: the check checks nothing")


if __name__ == "__main__":
    main()
