"""The house as it stands: its rooms, its modules and which imports which, all kinds of imports included."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("noisegate", "proxy", "planner", "mechanisms")


def name_of(path: Path) -> str:
    """Return the dotted name of a module or package."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
ROOMS = {name: path.parent for name, path in MODULES.items() if path.name == "__init__.py"}


def sentence(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def modules_in(folder: Path) -> list[Path]:
    """Return the modules of a folder, without those of the folders in it."""
    return sorted(path for path in folder.glob("*.py") if path.name not in ("__init__.py", "__main__.py"))


def import_graph(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Return which modules each of them imports: at once, when it is needed, or for types alone."""
    return {name: {each for each in _imports(text, texts) if each != name} for name, text in texts.items()}


def _imports(text: str, modules: Collection[str]) -> set[str]:
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {each if each in modules else node.module for each in full.values()}
    return found.intersection(modules)


GRAPH = import_graph({name: path.read_text(encoding="utf-8") for name, path in MODULES.items()})


def within(package: str) -> dict[str, set[str]]:
    """Return the imports between the modules of one package."""
    inside = {name for name in GRAPH if name.partition(".")[0] == package}
    return {name: GRAPH[name] & inside for name in inside}


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the modules that import each other, in whatever number of steps."""
    reach = {name: _reached(name, graph) for name in graph}
    found = {frozenset({name, *(other for other in reach[name] if name in reach[other])}) for name in graph}
    return sorted(sorted(ring) for ring in found if len(ring) > 1)


def _reached(name: str, graph: dict[str, set[str]]) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        for other in graph[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """Return the longest chain of imports, from the top down; modules of one ring count as one."""
    home = {name: ring[0] for ring in rings(graph) for name in ring}
    below: dict[str, set[str]] = {home.get(name, name): set() for name in graph}
    for name, others in graph.items():
        below[home.get(name, name)] |= {home.get(other, other) for other in others} - {home.get(name, name)}
    chains: dict[str, list[str]] = {}

    def chain(name: str) -> list[str]:
        if name not in chains:
            chains[name] = [name, *max((chain(other) for other in sorted(below[name])), key=len, default=[])]
        return chains[name]

    return max((chain(name) for name in sorted(below)), key=len)


def room_table() -> str:
    """Return the rooms in a table: how many modules each has, and what it says of itself."""
    rows = ["| room | modules | what is in it |", "|---|---|---|"]
    for package in PACKAGES:
        for name in [name for name in ROOMS if f"{name}.".startswith(f"{package}.")]:
            count = len(modules_in(ROOMS[name]))
            rows.append(f"| `{name.replace('.', '/')}/` | {count} | {sentence(ROOMS[name] / '__init__.py')} |")
    return "".join(f"{row}\n" for row in rows)


def figures() -> str:
    """Return what can be counted: modules, the largest room, the longest chain of imports."""
    sizes = Counter({name: len(modules_in(folder)) for name, folder in ROOMS.items()})
    largest, most = sizes.most_common(1)[0]
    links, ring = sum(map(len, GRAPH.values())), sum(len(ring) for ring in rings(GRAPH))
    chains = ", ".join(f"`{package}/` {len(longest_chain(within(package)))}" for package in PACKAGES)
    rows = [
        f"- {len(MODULES)} modules in {len(ROOMS)} rooms, {links} imports between them;",
        f"- the largest room, `{largest.replace('.', '/')}/`, has {most} modules;",
        f"- modules in the longest chain of imports inside each package: {chains};",
        f"- through all packages, from the top to the bottom: {len(longest_chain(GRAPH))};",
        f"- {ring or 'no'} modules are in a ring, in which each needs the others.",
    ]
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    for name, path in MODULES.items():
        print(f"{name}: {sentence(path)}")
