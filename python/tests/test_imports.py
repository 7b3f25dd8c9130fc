"""No module imports another that imports it, by however many steps, at its top or inside a function."""

from __future__ import annotations

import ast
import pathlib

import reprise

SOURCE = pathlib.Path(reprise.__file__).parent


def modules(folder: pathlib.Path, package: str) -> dict[str, pathlib.Path]:
    """The modules of a package, by name. A package is its __init__, which the modules below it may import from."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join([package, *(part for part in parts if part != "__init__")])] = path
    return found


def imports(name: str, path: pathlib.Path, known: dict[str, pathlib.Path]) -> set[str]:
    """The modules of `known` that a module imports, itself left out."""
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [above, node.module]))
            for alias in node.names:  # of a package its module of that name, if there is one
                below = f"{module}.{alias.name}"
                found.add(below if below in known else module)
    return (found & known.keys()) - {name}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of a circle, the first one again at the end; none if there is none."""
    done: set[str] = set()

    def walk(path: list[str]) -> list[str]:
        for module in sorted(graph[path[-1]]):
            if module in path:
                return [*path[path.index(module) :], module]
            if module not in done and (found := walk([*path, module])):
                return found
        done.add(path[-1])
        return []

    return next((found for module in sorted(graph) if (found := walk([module]))), [])


def test_no_circle_of_imports() -> None:
    known = modules(SOURCE, "reprise")
    graph = {name: imports(name, path, known) for name, path in known.items()}
    assert len(graph) > 40 and "reprise.parts.client" in graph["reprise.parts"]
    assert "reprise.ray" in graph["reprise.address"], "imports inside functions count"
    assert circle(graph) == []


def test_a_circle_is_found(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import B\n")
    (tmp_path / "b.py").write_text("def f():\n    from . import c\n")
    (tmp_path / "c.py").write_text("import p.a\n")
    (tmp_path / "d.py").write_text("from .a import A\n")
    known = modules(tmp_path, "p")
    graph = {name: imports(name, path, known) for name, path in known.items()}
    assert circle(graph) == ["p.a", "p.b", "p.c", "p.a"]
    assert circle({**graph, "p.c": set()}) == []
