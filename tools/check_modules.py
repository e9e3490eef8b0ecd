#!/usr/bin/env python3
"""Fails if modules of a crate, or of the Python package, depend on each other in a circle, and prints the circles.

Files are the nodes of the graph: inline modules belong to the file that contains them. `rust_modules.py` and
`python_modules.py` define what a dependency is. In short: the use of an item, through any re-exports, depends on the
file that defines it. A parent that declares a module or re-exports its items does not depend on it, but a parent that
uses its child, which uses what the parent's file defines, is a circle. Tests are left out.

The same holds of folders: a module right below the root, with all that is below it, is one node.

A file of Rust that no other file declares fails, too: it is not compiled, and its tests do not run.
"""

import re
import sys
from collections import deque
from pathlib import Path

from python_modules import Package
from rust_modules import Crate

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "crates" / "lmc-python" / "python"


def adjacent(edges):
    """For each file its dependencies, each with one of the edges to it."""
    out = {}
    for edge in sorted(edges):
        out.setdefault(edge[0], {}).setdefault(edge[2], edge)
    return out


def paths_from(start, out):
    """The last edge of a shortest path from `start` to each file that it reaches, itself among them."""
    last, queue = {}, deque([start])
    while queue:
        for target, edge in out.get(queue.popleft(), {}).items():
            if target not in last:
                last[target] = edge
                queue.append(target)
    return last


def circles(edges):
    """The shortest circle through each strongly connected set of files, as a list of edges, and the size of the set."""
    out = adjacent(edges)
    reached = {file: paths_from(file, out) for file in sorted(out)}
    found, done = [], set()
    for file in reached:
        if file in done or file not in reached[file]:
            continue
        connected = [f for f in reached[file] if file in reached.get(f, ())]
        done.update(connected)
        best = None
        for start in sorted(connected):
            circle, at = [], start
            while not circle or at != start:
                circle.append(reached[start][at])
                at = circle[-1][0]
            if best is None or len(circle) < len(best):
                best = circle[::-1]
        found.append((best, len(connected)))
    return found


def folder_circles(root, edges):
    """What `circles` finds between the modules right below the folder `root`, as edges between their files."""

    def folder(file):
        return file.relative_to(root).with_suffix("").parts[0]

    between = {(folder(edge[0]), folder(edge[2])): edge for edge in sorted(edges, reverse=True)}
    found = circles([(a, 0, b, 0, edge) for (a, b), edge in between.items() if a != b])
    return [([named[4] for named in circle], size) for circle, size in found]


def report(name, root, edges):
    """Prints the circles of a crate or package. Returns how many there are."""
    found = [(circle, size, "files") for circle, size in circles(edges)]
    found += [(circle, size, "folders") for circle, size in folder_circles(root, edges)]
    for circle, size, what in found:
        print(f"{name}: a circle of {len(circle)} {what}, in a set of {size} of which each depends on all others")
        for file, line, target, target_line, item in circle:
            print(f"  {file}:{line} → {target}:{target_line} ({item})")
    return len(found)


def rust_edges(files):
    """The dependencies in a crate of a few files, given by their text."""
    sources = {Path(name): text for name, text in files.items()}
    edges = Crate(Path("lib.rs"), sources.get).edges()
    return {(str(a), str(b), item) for a, _, b, _, item in edges}


def python_edges(files):
    package = Package([(Path(name), text) for name, text in files.items()])
    return {(str(a), str(b), item) for a, _, b, _, item in package.edges()}


def check_itself():
    """What counts as a dependency, by example."""
    lib = "mod a; mod b; pub use a::A; pub struct Root;"
    b = {"b.rs": "pub mod c; pub use c::{C, D as E}; pub fn f() {} macro_rules! m { () => {} } pub(crate) use m;"}
    b |= {"b/c.rs": "pub struct C; pub struct D; pub const N: usize = 1;"}
    for text, expected in [
        ("pub struct A;", set()),
        ("use crate::b::f;", {("b.rs", "f")}),
        ("use crate::b::C;", {("b/c.rs", "C")}),
        ("use crate::b::{E, f as g};", {("b/c.rs", "D"), ("b.rs", "f")}),
        ("use crate::b::c;", set()),
        ("use crate::b::c; fn g() -> usize { c::N }", {("b/c.rs", "N")}),
        ("fn g() { let x = [crate::b::c::N; super::b::f()]; }", {("b/c.rs", "N"), ("b.rs", "f")}),
        ("fn g() { use crate::b::*; let c = C; }", {("b.rs", "c"), ("b/c.rs", "C")}),
        ("use crate::Root; fn g<'b>(x: &'b str) {}", {("lib.rs", "Root")}),
        ("pub use crate::b::C;", set()),
        ("pub use crate::b::C; fn g(_: C) {}", {("b/c.rs", "C")}),
        ("use crate::b::m; fn g() { m!() }", {("b.rs", "m")}),
        ('// crate::b::f()\n/* crate::b::f /* */ */ const S: &str = r#"crate::b::f"#;', set()),
        ("#[cfg(test)] mod tests { use crate::b::f; } #[cfg(test)] use crate::b::f;", set()),
        ("mod inner { use super::super::b::f; }", {("b.rs", "f")}),
        ("fn g(a: Vec<u8>) { a.len(); a.c(); a.f(); }", set()),
        ("impl crate::b::c::C { fn far(&self) {} }", {("b/c.rs", "C")}),
    ]:
        found = {(b, item) for a, b, item in rust_edges({"lib.rs": lib, "a.rs": text, **b}) if a == "a.rs"}
        if found != expected:
            sys.exit(f"the check is wrong: {text}\nfound {found}, expected {expected}")
    # A method that stands away from its type.
    files = {"lib.rs": "mod a; mod b; mod c;", "a.rs": "pub struct A;", "c.rs": "fn g(a: &crate::a::A) { a.far() }"}
    files["b.rs"] = "impl crate::a::A { pub fn far(&self) {} }"
    if ("c.rs", "b.rs", "far") not in rust_edges(files):
        sys.exit("the check is wrong: a method away from its type is not found")
    package = {"p/__init__.py": "from p.c import C, D\nE = D\n", "p/c.py": "C = D = 1\n"}
    for text, expected in [
        ("import p\np.C\np.E\n", {("p/c.py", "C"), ("p/__init__.py", "E")}),
        ("from . import C\n", {("p/c.py", "C")}),
        ("def f():\n    from .c import D\n", {("p/c.py", "D")}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .c import D\n", set()),
        ("from p import c\n", {("p/c.py", "p.c")}),
    ]:
        found = {(b, item) for a, b, item in python_edges({**package, "p/a.py": text}) if a == "p/a.py"}
        if found != expected:
            sys.exit(f"the check is wrong: {text}\nfound {found}, expected {expected}")
    if ("p/__init__.py", "p/c.py", "D") not in python_edges(package) or len(python_edges(package)) != 1:
        sys.exit("the check is wrong: a re-export is a dependency, or the use of one is not")
    edge = [("a", 1, "b", 2, "x"), ("b", 3, "c", 4, "y"), ("c", 5, "b", 6, "z")]
    if circles(edge) != [(edge[1:], 2)] or circles(edge[:2]):
        sys.exit("the check is wrong: it does not find circles")
    edge = [("a.rs", 1, "b/c.rs", 2, "x"), ("b/d.rs", 3, "a/e.rs", 4, "y"), ("b/d.rs", 5, "b/c.rs", 6, "z")]
    edge = [(Path(a), line, Path(b), target, item) for a, line, b, target, item in edge]
    if circles(edge) or folder_circles(Path(), edge) != [(edge[:2], 2)] or folder_circles(Path(), edge[1:]):
        sys.exit("the check is wrong: it does not find circles between folders")


def read(path):
    return (ROOT / path).read_text() if (ROOT / path).is_file() else None


def undeclared(folder):
    """Files below a folder with a `lib.rs` or `main.rs` that no file declares as a module: they are not compiled."""
    for path in sorted(folder.rglob("*.rs")):
        name, parent = (path.parent.name, path.parent.parent) if path.name == "mod.rs" else (path.stem, path.parent)
        if parent == folder and name in ("lib", "main"):
            continue
        at_root = [folder / "lib.rs", folder / "main.rs"]
        above = at_root if parent == folder else [parent / "mod.rs", parent.with_suffix(".rs")]
        text = "".join(file.read_text() for file in above if file.is_file())
        if not re.search(rf"^\s*(pub(\([^)]*\))? )?mod {name};", text, re.M):
            yield path.relative_to(ROOT)


def main():
    check_itself()
    found = 0
    for folder in {path.parent for path in [*ROOT.glob("crates/*/src/*.rs"), *ROOT.glob("crates/*/tests/*/main.rs")]}:
        for path in undeclared(folder):
            sys.exit(f"{path}: no file declares this module, so it is not compiled")
    roots = sorted(path.relative_to(ROOT) for path in ROOT.glob("crates/*/src/lib.rs"))
    for root in roots:
        found += report(root.parts[1], root.parent, Crate(root, read).edges())
    sources = [(path.relative_to(PYTHON), path.read_text()) for path in sorted(PYTHON.glob("lmc/**/*.py"))]
    found += report("lmc-python, Python", Path("lmc"), Package(sources).edges())
    if found:
        sys.exit(f"{found} circles")
    print(f"{len(roots)} crates and {len(sources)} Python modules without circles")


if __name__ == "__main__":
    main()
