"""The house is as its pages say: rooms of a size to walk through, and a place for everything that is added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import (
    GRAPH,
    MODULES,
    PACKAGES,
    ROOMS,
    ROOT,
    import_graph,
    longest_chain,
    modules_in,
    rings,
    sentence,
    within,
)

WHERE = (ROOT / "docs" / "design" / "where-things-go.md").read_text(encoding="utf-8")
PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[A-Z]+\.md")


def items(text: str) -> list[tuple[str, str]]:
    """Return the numbered items of a page, each with the section that it stands in."""
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, rest = section.partition("\n")
        found += [(title, item) for item in re.split(r"^\d+\. ", rest, flags=re.MULTILINE)[1:]]
    return found


ITEMS = items(WHERE)


def quoted(item: str) -> tuple[list[str], list[str]]:
    """Return the paths that an item has in backquotes, and the names."""
    words = re.findall(r"`([^`]+)`", item)
    return [word for word in words if PATH.fullmatch(word)], [word for word in words if re.fullmatch(r"\w+", word)]


def text_of(path: Path) -> str:
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.mark.parametrize(("section", "item"), ITEMS, ids=[f"{section}: {item[:40]}" for section, item in ITEMS])
def test_what_an_item_names_stands_in_the_files_that_it_names(section: str, item: str) -> None:
    paths, names = quoted(item)
    assert not [path for path in paths if not (ROOT / path).exists()]
    text = "\n".join(text_of(ROOT / path) for path in paths)
    assert not [name for name in names if not re.search(rf"\b{name}\b", text)], section


def test_a_name_that_stands_nowhere_is_seen() -> None:
    paths, names = quoted("`planner/system.py`: its columns in `TYPES`, and `Nonsense`.")
    assert (paths, names) == (["planner/system.py"], ["TYPES", "Nonsense"])
    assert "Nonsense" not in text_of(ROOT / paths[0])
    assert len(ITEMS) > 50


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_is_larger_than_can_be_seen_at_a_glance(room: str) -> None:
    assert len(modules_in(ROOMS[room])) <= 15


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_in_one_line_what_it_holds(module: str) -> None:
    if module.rpartition(".")[2] != "__main__":
        assert sentence(MODULES[module]).endswith((".", "?"))


LONGEST_CHAIN = {"mechanisms": 8}
"""How many modules of a package may stand in a row, each importing the next; 20 in the others."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_chain_of_imports_in_a_package_is_long(package: str) -> None:
    chain = longest_chain(within(package))
    assert len(chain) <= LONGEST_CHAIN.get(package, 20), " -> ".join(chain)


def test_no_modules_need_each_other() -> None:
    assert rings(GRAPH) == []


def test_planted_imports_are_seen_wherever_they_hide() -> None:
    texts = {"a": "import b", "b": "def f():\n    from c import d", "c": "", "e": "import c, b.x"}
    assert longest_chain(import_graph(texts)) == ["a", "b", "c"]
    up = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import A\n"
    assert rings(import_graph(texts | {"c": up})) == [["a", "b", "c"]]


def test_rings_and_chains_are_those_of_the_graph() -> None:
    graph = {"top": {"a"}, "a": {"b", "low"}, "b": {"a", "c"}, "c": {"low"}, "low": set[str]()}
    assert rings(graph) == [["a", "b"]]
    assert longest_chain(graph) == ["top", "a", "c", "low"]
