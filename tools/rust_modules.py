"""The files of a Rust crate and the items that they name of each other: `check_modules.py` searches it for cycles.

This reads only text, without expansion of macros or inference of types. Every path is resolved as the compiler
would, through `use`, re-exports and globs, to the file that defines the item: its last segment that is found in a
module. It follows that:

* `mod child;` is no dependency, nor is a re-export (`pub use child::Item`) whose name the file itself does not use.
* A path that ends at a module is none either; `module::Item` is a dependency on the item's file.
* Methods are not resolved, since a type that has them is named somewhere. The exceptions are those in `impl` blocks
  outside the file of their type: a call of one depends on the file of that block if the calling file names the type,
  or if it depends on a file that does and no other function of the crate has that name.
* Methods of traits are not resolved either: a caller depends on the type and the trait, not on the file of the `impl`
  block.
* Code under `#[cfg(test)]` is left out; other conditions are taken as true.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<string>[bc]?r(?P<fence>\#*)".*?"(?P=fence)|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])')
  | (?P<lifetime>'\w+)
  | (?P<name>(?:r\#)?[A-Za-z_]\w*)
  | (?P<number>\d\w*)
  | (?P<mark>::|->|=>|.)
    """,
    re.X | re.S,
)
OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
# Words that may precede the keyword of an item.
QUALIFIERS = {"pub", "const", "unsafe", "async", "extern", "default"}
ENDS_AT_SEMICOLON = {"use", "const", "static", "type"}
DEFINES = {"fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "macro_rules"}


@dataclass(frozen=True)
class Token:
    text: str
    line: int
    is_name: bool = False


def tokens(text):
    """Code without comments, literals and lifetimes."""
    out, at, line = [], 0, 1
    while at < len(text):
        if text.startswith("/*", at):
            depth, end = 1, at + 2
            while depth:
                mark = re.compile(r"/\*|\*/").search(text, end)
                depth, end = depth + (1 if mark[0] == "/*" else -1), mark.end()
        else:
            match = TOKEN.match(text, at)
            end = match.end()
            if match.lastgroup == "name":
                out.append(Token(match[0].removeprefix("r#"), line, True))
            elif match.lastgroup == "mark":
                out.append(Token(match[0], line))
            elif match.lastgroup in ("string", "number"):
                out.append(Token("0", line))
        line += text.count("\n", at, end)
        at = end
    return out


def closing(code, at):
    """The index behind the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i].text in OPEN) - (code[i].text in CLOSE)
        if depth == 0:
            return i + 1
    raise ValueError(f"line {code[at].line}: {code[at].text} is not closed")


@dataclass
class Use:
    path: tuple[str, ...]
    line: int
    exported: bool


@dataclass
class Module:
    file: Path
    parent: "Module | None" = None
    children: dict[str, list["Module"]] = field(default_factory=dict)
    uses: dict[str, list[Use]] = field(default_factory=dict)
    globs: list[Use] = field(default_factory=list)
    # Names that it defines, and where: names within functions and types among them, which does no harm.
    defines: dict[str, int] = field(default_factory=dict)
    macros: set[str] = field(default_factory=set)
    # Items, each with the `use` declarations within it.
    bodies: list[tuple[list[Token], dict[str, list[Use]]]] = field(default_factory=list)
    # The type of each inherent `impl` block, and the functions in it, with whether they are visible outside.
    impls: list[tuple[tuple[str, ...], list[tuple[Token, bool]]]] = field(default_factory=list)

    def walk(self):
        yield self
        for modules in self.children.values():
            for module in modules:
                yield from module.walk()

    def is_within(self, module):
        return self is module or (self.parent is not None and self.parent.is_within(module))


def use_tree(code, at, prefix, exported):
    """What the tree of a `use` declaration names, pairs of a name (None for a glob) and a `Use`; the index behind."""
    path, found = list(prefix), []
    while True:
        token = code[at]
        if token.text == "{":
            at += 1
            while code[at].text != "}":
                more, at = use_tree(code, at, path, exported)
                found += more
                at += code[at].text == ","
            return found, at + 1
        if token.text == "*":
            return [(None, Use(tuple(path), token.line, exported))], at + 1
        if token.is_name:
            path.append(token.text)
        at += 1
        if code[at].text == "::":
            at += 1
            continue
        if path[-1] == "self" and len(path) > 1:
            path.pop()
        name = path[-1]
        if code[at].text == "as":
            name, at = code[at + 1].text, at + 2
        return [(name, Use(tuple(path), token.line, exported))], at


class Crate:
    """The modules of a crate. `read` gives a file's text, or None where there is no such file."""

    def __init__(self, root, read):
        self.read = read
        self.root = Module(root)
        self.load(self.root, root.parent)

    def load(self, module, folder):
        text = self.read(module.file)
        if text is None:
            raise FileNotFoundError(module.file)
        try:
            self.items(module, tokens(text), folder)
        except (ValueError, IndexError) as e:
            raise ValueError(f"{module.file}: {e}") from e

    def items(self, module, code, folder):
        """Reads the items of a module. `folder`: where the files of its children are."""
        at, tested, start = 0, False, 0
        while at < len(code):
            token = code[at]
            if token.text == "#":
                end = closing(code, at + 1 + (code[at + 1].text == "!"))
                tested |= [t.text for t in code[at + 1 : end]] == ["[", "cfg", "(", "test", ")", "]"]
                at = end
                continue
            first, exported = at, token.text == "pub"
            while code[at].text in QUALIFIERS and not (code[at].text == "const" and code[at + 1].text != "fn"
                                                       and code[at + 1].text not in QUALIFIERS):
                at += 1
                if code[at].text == "(" and code[at - 1].text == "pub":
                    at = closing(code, at)
                at += code[at].text == "0"  # the ABI
            kind = code[at].text
            end = self.end(code, at, kind)
            if not tested:
                self.item(module, code, start, first, at, end, exported, folder)
            at, tested, start = end, False, end

    @staticmethod
    def end(code, at, kind):
        """The index behind an item."""
        while at < len(code):
            if code[at].text == ";":
                return at + 1
            if code[at].text in OPEN:
                braces = code[at].text == "{"
                at = closing(code, at)
                if braces and kind not in ENDS_AT_SEMICOLON:
                    return at
            else:
                at += 1
        return at

    def item(self, module, code, start, first, at, end, exported, folder):
        kind, name = code[at].text, code[at + 1].text if at + 1 < end else ""
        if kind == "use":
            self.declare(module.uses, module.globs, use_tree(code, at + 1, (), exported)[0])
            return
        if kind == "mod":
            module.defines[name] = code[at].line
            inline = code[at + 2].text == "{"
            child = Module(module.file, module)
            module.children.setdefault(name, []).append(child)
            if inline:
                self.items(child, code[at + 3 : end - 1], folder / name)
                return
            child.file = folder / f"{name}.rs"
            if self.read(child.file) is None:
                child.file = folder / name / "mod.rs"
            self.load(child, folder / name)
            return
        body = code[start:end]
        if kind == "impl":
            self.implementation(module, code[at + 1 : end])
        uses, plain, i = {}, [], 0
        while i < len(body):
            if body[i].text in DEFINES and i + 1 < len(body):
                named = body[i + 1 + (body[i + 1].text == "!")]
                if named.is_name:
                    module.defines.setdefault(named.text, named.line)
                    if body[i].text == "macro_rules":
                        module.macros.add(named.text)
            if body[i].text == "use" and i + 1 < len(body) and (body[i + 1].is_name or body[i + 1].text == "::"):
                found, i = use_tree(body, i + 1, (), False)
                self.declare(uses, module.globs, found)
                continue
            plain.append(body[i])
            i += 1
        module.bodies.append((plain, uses))

    @staticmethod
    def declare(uses, globs, found):
        for name, use in found:
            if name is None:
                globs.append(use)
            else:
                uses.setdefault(name, []).append(use)

    @staticmethod
    def implementation(module, code):
        """Notes an inherent `impl` block, whose tokens are `code`."""
        at, depth = 0, 0
        if code[0].text == "<":
            while True:
                depth += (code[at].text == "<") - (code[at].text == ">")
                at += 1
                if depth == 0:
                    break
        head = at
        while code[at].text not in ("{", "for"):
            at += 1
        if code[at].text == "for":
            return
        path = []
        while code[head].is_name or code[head].text == "::":
            if code[head].is_name:
                path.append(code[head].text)
            head += 1
        functions, exported = [], False
        for token, after in zip(code[at:], code[at + 1 :], strict=False):
            if token.text == "fn":
                functions.append((after, exported))
            exported = (exported or token.text == "pub") and token.text not in ("{", "}", ";")
        module.impls.append((tuple(path), functions))

    # Names.

    def lookup(self, module, name, seen, local=None, last=False):
        """What `name` may be in a module: `(Module, None)` for a module, `(Module, name)` for an item of one."""
        key = (id(module), name)
        if key in seen:
            return []
        seen = seen | {key}
        found = []
        for use in (local or {}).get(name, []) or module.uses.get(name, []):
            if use.path != (name,):
                found += self.resolve(module, use.path, seen)
        if not found or not last:
            found = [(child, None) for child in module.children.get(name, [])] or found
        if not found and name in module.defines:
            found = [(module, name)]
        if not found:
            for glob in module.globs:
                for target, item in self.resolve(module, glob.path, seen):
                    if item is None and target is not module:
                        found += self.lookup(target, name, seen, last=last)
        return found

    def resolve(self, module, path, seen=frozenset(), local=None):
        """The items, and their modules, that a path in `module` may mean."""
        first, rest = path[0], path[1:]
        if first in ("crate", "self", "super"):
            here = [(self.root if first == "crate" else module if first == "self" else module.parent, None)]
        else:
            here = self.lookup(module, first, seen, local, last=not rest)
        while rest:
            if rest[0] == "super":
                here, rest = [(m.parent, None) for m, item in here if item is None], rest[1:]
                continue
            there = []
            for target, item in here:
                if item is not None:
                    there.append((target, item))
                else:
                    # An item that is not found is defined there by a macro.
                    there += self.lookup(target, rest[0], seen, last=len(rest) == 1) or [(target, rest[0])]
            here, rest = there, rest[1:]
        return here

    # Dependencies.

    def edges(self):
        """Dependencies between files: `(file, line, file, line, name)`."""
        modules = list(self.root.walk())
        found = set()

        def add(module, line, targets):
            for target, item in targets:
                if item is not None and target.file != module.file:
                    found.add((module.file, line, target.file, target.defines.get(item, 1), item))

        for module in modules:
            for use in [u for uses in module.uses.values() for u in uses if not u.exported]:
                add(module, use.line, self.resolve(module, use.path))
            for glob in module.globs:
                if not glob.exported:
                    targets = self.resolve(module, glob.path)
                    add(module, glob.line, [(t, item or next(iter(t.defines), None)) for t, item in targets])
            for body, local in module.bodies:
                for uses in local.values():
                    for use in uses:
                        add(module, use.line, self.resolve(module, use.path))
                for path, line in self.paths(body):
                    add(module, line, self.meaning(module, path, local))
        self.methods(modules, found)
        return found

    @staticmethod
    def paths(body):
        """Paths in code, and their lines. A call of a macro is a path that ends with `!`."""
        i = 0
        while i < len(body):
            if not body[i].is_name or (i and body[i - 1].text in (".", "::")):
                i += 1
                continue
            line, path = body[i].line, [body[i].text]
            while i + 2 < len(body) and body[i + 1].text == "::" and body[i + 2].is_name:
                i += 2
                path.append(body[i].text)
            i += 1
            if len(path) == 1 and i + 1 < len(body) and body[i].text == "!" and body[i + 1].text in OPEN:
                path.append("!")
            yield tuple(path), line

    def meaning(self, module, path, local):
        if path[-1] == "!":
            name = path[0]
            # Macros are in scope in the modules that follow within the one that defines them.
            while module and name not in module.macros and name not in module.uses:
                module = module.parent
            return self.resolve(module, (name,), local=local) if module else []
        if len(path) == 1:
            # A declaration that is not exported is an edge already; `self` and `crate` alone are none.
            exported = [u for u in module.uses.get(path[0], []) if u.exported]
            in_globs = path[0] not in module.uses and path[0] not in module.children and path[0] not in module.defines
            if not exported and not (in_globs and module.globs):
                return []
        return self.resolve(module, path, local=local)

    def methods(self, modules, found):
        away = {}
        for module in modules:
            for path, functions in module.impls:
                for target, item in self.resolve(module, path):
                    if item is not None and target.file != module.file:
                        for f, exported in functions:
                            place = (f.line, target.file, item)
                            away.setdefault(f.text, []).append((module, self.root if exported else module, *place))
        functions = Counter(
            b.text
            for module in modules
            for body, _ in module.bodies
            for a, b in zip(body, body[1:], strict=False)
            if a.text == "fn"
        )
        named = {(edge[0], edge[2], edge[4]) for edge in found}
        reached = reachable(found)
        for module in modules:
            for body, _ in module.bodies:
                for i, token in enumerate(body[2:-1], 2):
                    owner, before, after = body[i - 2].text, body[i - 1].text, body[i + 1].text
                    if token.text not in away or before not in (".", "::") or after not in ("(", "::"):
                        continue
                    for home, visible_in, line, type_file, type_name in away[token.text]:
                        if before == "::" and owner not in ("Self", type_name):
                            continue
                        is_known = (module.file, type_file, type_name) in named
                        is_unique = functions[token.text] == 1 and type_file in reached.get(module.file, ())
                        if home.file != module.file and module.is_within(visible_in) and (is_known or is_unique):
                            found.add((module.file, token.line, home.file, line, token.text))


def reachable(edges):
    """The dependencies of each file, direct or not."""
    direct = {}
    for edge in edges:
        direct.setdefault(edge[0], set()).add(edge[2])
    reached = {}
    for file in direct:
        found, pending = set(), [file]
        while pending:
            new = direct.get(pending.pop(), set()) - found
            found |= new
            pending += new
        reached[file] = found
    return reached
