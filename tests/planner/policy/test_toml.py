"""Where keys stand in a TOML text: the lines found are those on which a writer put them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policy.toml import KeyPath, basic_string, line_of, locate, quoted

BLANKS = ("", "\n", "# a comment = [\n", "\n\n  # 'x\n")
SCALARS = (
    "1", "-0.5e3", "true", "inf", "2015-01-01", "2015-01-01 10:00:00", '"a # b"', "'c:\\'", '"\\"]"', "0x1F",
    '"""a\n"" [x]\n y = 1"""', "'''\n# }\n'''''", '""""q"""""', '"""\\\n  \\""" {"""', "''", '""',
)  # fmt: skip


@dataclass
class Writer:
    """Writes a document piece by piece and keeps the line on which each path was first written."""

    draw: st.DrawFn
    text: str = ""
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def note(self, path: KeyPath) -> None:
        self.lines.setdefault(path, self.text.count("\n") + 1)

    def key(self, table: KeyPath, parts: list[str]) -> KeyPath:
        """Write a dotted key in one of the ways TOML has for it."""
        path = table
        for part in parts:
            path = (*path, part)
            self.note(path)
        separator = self.draw(st.sampled_from([".", " . ", "\t."]))
        self.text += separator.join(self.draw(st.sampled_from([quoted, basic_string]))(part) for part in parts)
        return path

    def pairs(self, table: KeyPath, *, depth: int, separator: str) -> None:
        names = self.draw(st.lists(names_of_keys, max_size=3, unique=True))
        for index, name in enumerate(names):
            self.text += separator if index and separator != "\n" else ""
            below = self.draw(st.lists(names_of_keys, max_size=2))
            path = self.key(table, [name, *below])
            self.text += self.draw(st.sampled_from(["=", " = ", "\t= "]))
            self.value(path, depth=depth)
            if separator == "\n":
                self.text += self.draw(st.sampled_from(["\n", " # }]\n", "\r\n"]))
                self.text += self.draw(st.sampled_from(BLANKS))

    def value(self, path: KeyPath, *, depth: int) -> None:
        kind = self.draw(st.sampled_from(["scalar", "array", "table"])) if depth else "scalar"
        if kind == "scalar":
            self.text += self.draw(st.sampled_from(SCALARS))
        elif kind == "table":
            self.text += "{ "
            self.pairs(path, depth=depth - 1, separator=" , ")
            self.text += " }"
        else:
            self.array(path, depth=depth - 1)

    def array(self, path: KeyPath, *, depth: int) -> None:
        self.text += "[" + self.draw(st.sampled_from(BLANKS))
        for index in range(self.draw(st.integers(0, 3))):
            self.note((*path, index))
            self.value((*path, index), depth=depth)
            self.text += "," + self.draw(st.sampled_from(BLANKS))
        self.text += "]"


names_of_keys = st.one_of(
    st.sampled_from(["a", "b", "education-num", "1.5", "x y", 'q"', "]", "=", "#", "", "ü\\"]),
    st.text(st.characters(codec="utf-8"), max_size=3),
)


@st.composite
def documents(draw: st.DrawFn) -> Writer:
    """Return a document whose tables have different first keys, so that TOML lets them stand in any order."""
    writer = Writer(draw)
    writer.text += draw(st.sampled_from(BLANKS))
    for index in range(draw(st.integers(0, 3))):
        writer.text += draw(st.sampled_from(["[", "[ "]))
        path = writer.key((), [f"table{index}", *draw(st.lists(names_of_keys, max_size=2))])
        writer.text += draw(st.sampled_from(["]\n", " ] # [x]\n"])) + draw(st.sampled_from(BLANKS))
        writer.pairs(path, depth=3, separator="\n")
    return writer


@given(documents())
def test_every_key_is_found_on_the_line_where_it_was_written(document: Writer) -> None:
    tomllib.loads(document.text)
    assert locate(document.text) == document.lines


def keys_in(value: object, path: KeyPath = ()) -> set[KeyPath]:
    """Return the paths of all keys of a parsed document."""
    items = value.items() if isinstance(value, dict) else ()
    return {path} - {()} | {key for name, below in items for key in keys_in(below, (*path, name))}


pieces = st.sampled_from(["a", "b.", "c", " = ", "[a]", "[b.c]", "[", "]", "{", "}", ",", "1", "'x'", "#", "\n", '"'])


@given(st.lists(pieces, max_size=12).map("".join))
@settings(max_examples=1000)
def test_whatever_toml_accepts_has_a_line_for_each_key(text: str) -> None:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = locate(text)
    assert keys_in(document) <= lines.keys()
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


@given(st.text(st.characters(codec="utf-8")))
def test_keys_and_strings_are_written_so_that_toml_reads_them_back(text: str) -> None:
    assert tomllib.loads(f"{quoted(text)} = {basic_string(text)}") == {text: text}


def test_arrays_of_tables_stand_where_the_first_one_does() -> None:
    assert locate("\n[[a.b]]\nx = 1\n[[a.b]]\nx = 2\ny = 3\n") == {
        ("a",): 2,
        ("a", "b"): 2,
        ("a", "b", "x"): 3,
        ("a", "b", "y"): 6,
    }


def test_a_path_that_is_not_there_has_the_line_of_what_is_around_it() -> None:
    lines = locate("x = 1\n[a]\nb = { c = 1 }\n")
    assert line_of(lines, ("a", "b", "d")) == 3
    assert line_of(lines, ("a", "e")) == 2
    assert line_of(lines, ("z",)) == 1
