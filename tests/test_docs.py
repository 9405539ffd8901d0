"""Whatever README and docs show is run: commands, Python, SQL and policies, each page from top to bottom.

A page runs in a folder of its own that looks like a clone: `noisegate/data` and `examples` are there. What is
printed is compared with what the page shows by its shape: numbers may differ, words may not. After a change,
`python -m tests.test_docs` writes the outputs and the generated parts of all pages anew; read the difference.
`python -m tests.test_docs generated` writes the generated parts alone, which takes a second.

- console: lines after `$ ` are commands, `> ` goes on with the last one, `…` stands for any lines. A command
  that fails says `error: …`, or is followed by `$ echo $?`. `noisegate serve … &` runs until the page ends.
- python: runs in one namespace for the page; a text block below it is what it prints.
- sql: runs on the bundled table; a statement below `-- refused: 42501` is refused with that SQLSTATE.
- toml: is loaded as a policy, completed where it shows only a part, or as a round if it has queries;
  `# noisegate.toml` in its first line says where it is stored for the commands that follow.
- A block below a line `*Not run by the tests: …*` is not run; the line says why.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import noisegate
from planner import system
from planner.basics import errors
from planner.curator import round_file
from planner.gate import Gate
from planner.plans import settings
from planner.policy import columns as declared
from planner.policy import file as policy
from planner.policy import server as listening
from proxy.errors import BY_CLASS, DatabaseError
from proxy.show import render
from tests import house
from tests.conftest import copy_adult

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
EXCUSE = re.compile(r"^\*Not run by the tests: (.+)\*$")
RUN = ("console", "python", "sql", "toml")
TABLE = """
[tables.people]
source = "people.csv"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
"""


# --- pages -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is where its fence stands, `excuse` why it is not run."""

    language: str
    body: str
    line: int = 0
    excuse: str | None = None

    def __str__(self) -> str:
        return f"```{self.language}\n{self.body}```\n"


Part = str | Block


def parts(text: str) -> Iterator[Part]:
    """Yield the prose and the blocks of a page in order; joined they are the page."""
    prose, body, language, start, before = "", "", None, 0, ""
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if language is None and line.startswith("```"):
            yield prose
            prose, body, language, start = "", "", line[3:].strip(), number
        elif language is not None and line.rstrip() == "```":
            found = EXCUSE.match(before)
            yield Block(language, body, start, found[1] if found else None)
            language, before = None, ""
        elif language is not None:
            body += line
        else:
            prose += line
            before = line.strip() or before
    assert language is None, f"the block of line {start} does not end"
    yield prose


def read(page: Path) -> list[Part]:
    return list(parts(page.read_text(encoding="utf-8")))


def blocks(page: Path) -> list[Block]:
    return [part for part in read(page) if isinstance(part, Block)]


# --- running them ------------------------------------------------------------------------------------------


class Reader:
    """Does what a reader of one page does, in the current folder."""

    def __init__(self, gate: Gate) -> None:
        self.session = gate.session("ann")
        self.namespace: dict[str, Any] = {"__name__": "page"}
        self.code = 0
        self.servers: list[subprocess.Popen[str]] = []

    def run(self, found: list[Part]) -> list[Part]:
        """Return the parts of the page with the outputs as they are now."""
        try:
            return self._run(found)
        finally:
            for server in self.servers:
                server.terminate()
                server.communicate(timeout=60)

    def _run(self, found: list[Part]) -> list[Part]:
        done: list[Part] = []
        printed: str | None = None  # by the Python block above
        for part in found:
            if isinstance(part, str):
                done.append(part)
                continue
            if part.language == "text" and printed is not None:
                done.append(replace(part, body=printed))
                printed = None
                continue
            assert not printed, f"line {part.line}: a text block with this was expected above:\n{printed}"
            printed = None
            if part.excuse is None and part.language == "console":
                done.append(replace(part, body=self.console(part)))
                continue
            if part.excuse is None and part.language in RUN:
                printed = getattr(self, part.language)(part)
            done.append(part)
        assert not printed, f"a text block with this was expected at the end:\n{printed}"
        return done

    def console(self, block: Block) -> str:
        commands = re.findall(r"^\$ (.*\n(?:> .*\n)*)", block.body, flags=re.MULTILINE)
        assert commands, f"line {block.line}: a console block has lines that start with $"
        transcript = ""
        for command, following in zip(commands, [*commands[1:], ""], strict=True):
            output = self.command(command.replace("\n> ", "\n").rstrip("\n"))
            asked = following.strip() == "echo $?"
            assert self.code == 0 or asked or output.startswith("error:"), f"{command}{output}exit code {self.code}"
            transcript += f"$ {command}{_shown(output)}"
        return transcript

    def command(self, text: str) -> str:
        if text == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        words = shlex.split(text)
        if words[0] == "cd":
            os.chdir(words[1])
            return ""
        before, pipe, last = text.rpartition(" | ")
        if pipe and last.startswith("noisegate "):
            stdin = subprocess.run(["bash", "-c", before], capture_output=True, text=True, check=True).stdout
            return self._called(lambda: noisegate.main(shlex.split(last)[1:]), stdin=stdin)
        if words[:2] == ["noisegate", "serve"] and words[-1] == "&":
            return self._serve(words[1:-1])
        if words[0] == "noisegate":
            return self._noisegate(words[1:])
        if words[0] == "python":
            return self._called(lambda: _program(words[1:]))
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
        self.code = done.returncode
        return done.stdout + done.stderr

    def _serve(self, words: list[str]) -> str:
        """Start a server and return what it prints until it listens: its last line says how to connect."""
        command = [sys.executable, "-m", "noisegate", *words]
        places = {"cwd": Path.cwd(), "env": {**os.environ, "PYTHONPATH": str(ROOT)}}
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **places)
        self.servers.append(server)
        assert server.stdout is not None
        return server.stdout.readline() + server.stdout.readline()

    def _noisegate(self, words: list[str]) -> str:
        if ">" not in words:
            return self._called(lambda: noisegate.main(words))
        place = words.index(">")
        file = Path(words[place + 1])
        with file.open("w", encoding="utf-8") as stdout:
            return self._called(lambda: noisegate.main(words[:place]), stdout=stdout)

    def _called(self, call: Callable[[], int], *, stdin: str = "", stdout: Any = None) -> str:
        """Return what a call prints: to a terminal of 100 columns, but without colours."""
        output = io.StringIO()
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(stdout or output):
            before, sys.stdin = sys.stdin, io.StringIO(stdin)
            try:
                self.code = call()
            except SystemExit as stop:
                self.code = int(stop.code or 0)
            finally:
                sys.stdin = before
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.getvalue())

    def python(self, block: Block) -> str:
        code = compile("\n" * block.line + block.body, "page", "exec")

        def run() -> int:
            exec(code, self.namespace)
            return 0

        return _shown(self._called(run))

    def sql(self, block: Block) -> None:
        for statement in re.split(r";[ \t]*\n", block.body):
            refused = re.search(r"^-- refused: (\w{5})$", statement, flags=re.MULTILINE)
            code = re.sub(r"--[^\n]*", "", statement).strip()
            if not code:
                continue
            sqlstate, message = None, ""
            try:
                self.session.execute(code)
            except errors.Refusal as refusal:
                sqlstate, message = refusal.sqlstate, refusal.message
            assert sqlstate == (refused[1] if refused else None), f"{code}\n{message}"

    def toml(self, block: Block) -> None:
        first = re.match(r"# (\S+\.toml)\n", block.body)
        body = block.body
        if not first:
            body = body if "[budget]" in body else f"[budget]\nepsilon = 1\ndelta = 1e-9\n{body}"
            body = body if "[tables." in body else body + TABLE
        with tempfile.TemporaryDirectory() as folder:
            file = Path(first[1]) if first else Path(folder, "noisegate.toml")
            file.write_text(body, encoding="utf-8")
            for source in re.findall(r'^source = "([^"#]+)', body, flags=re.MULTILINE):
                if not first:
                    (file.parent / source).touch()
            (round_file.load if "[queries." in body else policy.load)(file)


def _program(words: list[str]) -> int:
    before, sys.argv = sys.argv, words
    try:
        runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = before
    return 0


def _shown(output: str) -> str:
    """Return the output as a page shows it: no blanks at the ends of lines, no empty lines around."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    while lines and not lines[0]:
        del lines[0]
    return "".join(f"{line}\n" for line in lines)


def shape(text: str) -> str:
    """Return what must be the same whatever the noise: words, with numbers and lines of a table levelled."""
    text = re.sub(r"\S*/noisegate-\S*", "PATH", text)
    text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.+]+", "#", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "HASH", text)
    text = re.sub(r"SCRAM-SHA-256\$[^\"]*", "SCRAM", text)
    text = re.sub(r"-?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", "#", text)
    text = re.sub(r"\((?:# … #)\)|± #", "± #", text)  # an interval that is cut off at a bound
    text = re.sub(r"[─-]{2,}", "--", text)
    return re.sub(r"[ \t]+", " ", text).strip()


def same_shape(shown: str, found: str) -> bool:
    """Return whether the output has the shape that is shown, where a line … stands for any lines."""
    pieces = [re.escape(piece) for piece in re.split(r"\n ?…(?:\n|$)", shape(shown))]
    return re.fullmatch("\n(?:.*\n)*".join(pieces) if len(pieces) > 1 else pieces[0], shape(found)) is not None


# --- the test of every page --------------------------------------------------------------------------------


@contextlib.contextmanager
def adult_gate() -> Iterator[Gate]:
    """Yield a gate on the bundled table that can't run out of budget, for blocks of SQL."""
    with tempfile.TemporaryDirectory() as folder:
        file = copy_adult(Path(folder))
        text = file.read_text(encoding="utf-8")
        rows = "rows = 32_561\n[tables.adult.columns]"
        text = text.replace("epsilon = 2.0", "epsilon = 500.0").replace("[tables.adult.columns]", rows)
        file.write_text(text, encoding="utf-8")
        gate = Gate.open(file)
        try:
            yield gate
        finally:
            gate.close()


@contextlib.contextmanager
def clone() -> Iterator[None]:
    """Make the current folder one that has what a page may refer to, and the terminal a plain one."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "noisegate" / "data").mkdir(parents=True)
        copy_adult(Path(folder) / "noisegate" / "data")
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        os.environ |= {"FORCE_COLOR": "1", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with adult_gate() as gate:
        yield gate


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_does_what_it_shows(page: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "PATIENCE", 3600.0)  # no spinner, however slow the machine
    shown = read(page)
    with clone():
        found = Reader(gate).run(shown)
    for before, after in zip(shown, found, strict=True):
        if isinstance(before, Block) and isinstance(after, Block):
            assert same_shape(before.body, after.body), (
                f"{page.name}:{before.line} shows\n{before.body}\nbut it is\n{after.body}"
            )


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_block_is_run_or_says_why_not(page: Path) -> None:
    above: Part = ""
    for part in read(page):
        if isinstance(part, Block):
            assert part.language in (*RUN, "text"), f"{page.name}:{part.line}: a block of language {part.language!r}"
        above = part
    assert isinstance(above, str)


def test_make_has_the_targets_that_pages_name() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for page in PAGES:
        assert set(re.findall(r"\bmake ([a-z]+)[`\n]", page.read_text(encoding="utf-8"))) <= set(targets)


def test_a_difference_in_words_is_seen_and_one_in_numbers_is_not() -> None:
    assert same_shape("n\n10 ± 50", "n\n-12,345.5 ± 50")
    assert same_shape("a\n…\nz", "a\nb\nc\nz")
    assert not same_shape("error: no", "error: yes")
    assert not same_shape("a\nb", "a\nb\nc")


# --- generated parts ---------------------------------------------------------------------------------------


def _lines(*rows: str) -> str:
    return "".join(f"{row}\n" for row in rows)


def error_table() -> str:
    """Return the table of all refusals, from planner.basics.errors and proxy.errors."""
    rows = []
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.Refusal) and kind is not errors.Refusal:
            about = (kind.__doc__ or "").strip().splitlines()
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()
            python = BY_CLASS.get(kind.sqlstate[:2], DatabaseError).__name__
            rows.append(f"| `{kind.sqlstate}` | {about[0] if about else f'{name}.'.capitalize()} | `{python}` |")
    return _lines("| SQLSTATE | meaning | Python |", "|---|---|---|", *sorted(rows))


def command_names() -> list[str]:
    return re.findall(r"^    ([a-z]+) ", _help(), flags=re.MULTILINE)


def _help(*words: str) -> str:
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        noisegate.main([*words, "--help"])
    return output.getvalue()


def help_texts() -> str:
    """Return the help of the command line and of each command."""
    found = [f"## noisegate {name}\n\n```text\n{_help(name)}```\n" for name in command_names()]
    return "\n".join([f"```text\n{_help()}```\n", *found])


def system_tables() -> str:
    """Return the columns of the system tables."""
    rows = [
        f"| `{table}` | {', '.join(f'`{column}`' for column in columns)} |" for table, columns in system.TYPES.items()
    ]
    return _lines("| table | columns |", "|---|---|", *rows)


GENERATED: dict[str, Callable[[], str]] = {
    "errors": error_table,
    "help": help_texts,
    "system tables": system_tables,
    "rooms": house.room_table,
    "figures": house.figures,
}
MARK = re.compile(r"(<!-- generated: ([a-z ]+) -->\n)(.*?)(<!-- end -->\n)", flags=re.DOTALL)


def generated(text: str) -> str:
    """Return the page with its generated parts as they are now."""
    return MARK.sub(lambda found: f"{found[1]}\n{GENERATED[found[2]]()}\n{found[4]}", text)


def test_generated_parts_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    marks = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        marks |= {found[2] for found in MARK.finditer(text)}
        assert generated(text).split() == text.split(), f"{page.name}: run python -m tests.test_docs generated"
    assert marks == set(GENERATED)


# --- completeness ------------------------------------------------------------------------------------------


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_every_command_is_documented() -> None:
    text = page("reference/command-line.md")
    assert command_names()
    assert all(f"## noisegate {name}\n" in text for name in command_names())


def test_every_key_of_a_policy_is_documented() -> None:
    keys = {*policy.COLUMN_KEYS, *declared.DOMAIN_KEYS, "source", "public", "synthetic_of", "epsilon", "delta"}
    keys |= {"error", "confidence", "share", "password", "url", "sql", *listening.KEYS}
    keys |= {key for names in policy.TABLE_KEYS.values() for key in names if key != "columns"}
    text = page("reference/policy.md")
    assert not [key for key in keys if f"| `{key}` |" not in text]
    assert not [section for section in policy.SECTIONS if f"[{section}" not in text]


def test_every_setting_is_documented() -> None:
    text = page("reference/sql.md")
    assert not [name for name in settings.names() if f"| `{name}` |" not in text]


def test_every_public_name_of_python_is_documented() -> None:
    text = page("reference/python.md")
    assert not [name for name in noisegate.__all__ if f"`{name}" not in text]
    for kind in (noisegate.Connection, noisegate.Cursor):
        members = [name for name in dir(kind) if not name.startswith("_") and name not in noisegate.__all__]
        assert not [name for name in members if f"`{name}" not in text]


# --- links -------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("text", TEXTS, ids=[str(text.relative_to(ROOT)) for text in TEXTS])
def test_links_lead_somewhere(text: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (text.parent / name).resolve() if name else text
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("text", TEXTS, ids=[str(text.relative_to(ROOT)) for text in TEXTS])
def test_modules_that_are_named_exist(text: Path) -> None:
    named = re.findall(
        r"`((?:noisegate|proxy|planner|mechanisms|tests|benchmarks|examples|docs)/[\w./-]*)`",
        text.read_text(encoding="utf-8"),
    )
    assert not [name for name in named if not (ROOT / name).exists()]


def test_every_page_is_reached_from_the_index() -> None:
    listed = re.findall(r"\]\(([^)#\s]+\.md)", page("index.md"))
    reached = {(ROOT / "docs" / name).resolve() for name in listed}
    assert {path for path in PAGES if path.name not in ("README.md", "index.md")} <= reached


def test_the_picture_is_small() -> None:
    pictures = [*(ROOT / "docs").rglob("*.svg")]
    assert pictures
    assert all(picture.stat().st_size < 100_000 for picture in pictures)


def regenerate() -> None:
    """Write the generated parts of all pages anew."""
    os.environ["COLUMNS"] = "80"
    for file in PAGES:
        text = file.read_text(encoding="utf-8")
        file.write_text(generated(text), encoding="utf-8")


def rewrite() -> None:
    """Write the outputs and generated parts of all pages anew."""
    os.environ["COLUMNS"] = "80"
    render.PATIENCE = 3600.0
    with adult_gate() as gate:
        for file in PAGES:
            print(file.relative_to(ROOT))
            text = generated(file.read_text(encoding="utf-8"))
            shown = list(parts(text))
            with clone():
                found = Reader(gate).run(shown)
            kept = [
                old if isinstance(old, Block) and isinstance(new, Block) and same_shape(old.body, new.body) else new
                for old, new in zip(shown, found, strict=True)
            ]
            file.write_text("".join(map(str, kept)), encoding="utf-8")


if __name__ == "__main__":
    regenerate() if sys.argv[1:] == ["generated"] else rewrite()
