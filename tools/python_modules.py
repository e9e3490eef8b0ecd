"""The modules of a Python package and the names that they use of each other: `check_modules.py` searches it for cycles.

Every import counts, including those within functions, except those under `TYPE_CHECKING`. A name is resolved through
the re-exports of packages to the module that assigns it. Importing a module is a dependency on it; importing a package
is one on the modules that define the names used, since its `__init__.py` runs before any module in it anyway. A name
that `__init__.py` imports and does not use is a re-export, not a dependency.
"""

import ast
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Module:
    name: str
    file: Path
    tree: ast.Module
    # What a name stands for: a module, or a name of a module; and the line of the import.
    imports: dict[str, list[tuple[str, str | None, int]]] = field(default_factory=dict)

    @property
    def is_package(self):
        return self.file.name == "__init__.py"


class Package:
    """The modules of a package. `sources`: files, relative to the folder that holds the package, and their texts."""

    def __init__(self, sources):
        self.modules = {}
        for file, text in sources:
            parts = file.with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.modules[name] = Module(name, file, ast.parse(text, str(file)))
        for module in self.modules.values():
            self.read_imports(module)

    def read_imports(self, module):
        pending = [module.tree]
        while pending:
            node = pending.pop()
            if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING":
                pending += node.orelse
                continue
            if isinstance(node, ast.Import):
                for alias in node.names:
                    target = alias.name if alias.asname else alias.name.split(".")[0]
                    self.bind(module, alias.asname or target, target, None, node.lineno)
                    if not alias.asname and target != alias.name:
                        self.bind(module, f"{alias.name} imported", alias.name, None, node.lineno)
            elif isinstance(node, ast.ImportFrom):
                source = node.module or ""
                if node.level:
                    parts = module.name.split(".")
                    above = parts[: len(parts) - node.level + module.is_package]
                    source = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    name = alias.asname or alias.name
                    if alias.name == "*":
                        self.bind(module, f"{source} *", source, None, node.lineno)
                    elif f"{source}.{alias.name}" in self.modules:
                        self.bind(module, name, f"{source}.{alias.name}", None, node.lineno)
                    else:
                        self.bind(module, name, source, alias.name, node.lineno)
            pending += ast.iter_child_nodes(node)

    def bind(self, module, name, target, item, line):
        if target in self.modules:
            module.imports.setdefault(name, []).append((target, item, line))

    def defining(self, target, item, seen=frozenset()):
        """The names of the modules that define an item of a module."""
        bound = self.modules[target].imports.get(item, [])
        if (target, item) in seen or not bound:
            child = f"{target}.{item}"
            return [child] if child in self.modules else [target]
        seen = seen | {(target, item)}
        return [m for there, name, _ in bound for m in (self.defining(there, name, seen) if name else [there])]

    def attribute(self, module, node):
        """The module that a dotted name leads to, and the name in it; `(None, None)` if it is none of this package."""
        if isinstance(node, ast.Name):
            for target, item, _ in module.imports.get(node.id, []):
                if item is None:
                    return target, None
        elif isinstance(node, ast.Attribute):
            target, item = self.attribute(module, node.value)
            if target and item is None:
                child = f"{target}.{node.attr}"
                return (child, None) if child in self.modules else (target, node.attr)
        return None, None

    def edges(self):
        """Dependencies between files: `(file, line, file, line, name)`."""
        found = set()

        def add(module, line, target, name):
            if target != module.name:
                there = self.modules[target]
                found.add((module.file, line, there.file, self.line_of(there, name), name or there.name))

        for module in self.modules.values():
            used = {n.id for n in ast.walk(module.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            for name, bound in module.imports.items():
                for target, item, line in bound:
                    if module.is_package and name not in used:
                        continue
                    if item is not None:
                        for there in self.defining(target, item):
                            add(module, line, there, item)
                    elif not self.modules[target].is_package:
                        add(module, line, target, None)
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Attribute):
                    target, item = self.attribute(module, node)
                    if target and item:
                        for there in self.defining(target, item):
                            add(module, node.lineno, there, item)
        return found

    @staticmethod
    def line_of(module, name):
        for node in module.tree.body:
            names = [getattr(node, "name", None)]
            for target in getattr(node, "targets", [getattr(node, "target", None)]):
                names.append(getattr(target, "id", None))
            if name and name in names:
                return node.lineno
        return 1
