"""What `noisegate check` looks at beyond the text of the policy: do sources have the columns, do views compile?

Only the schemas of sources are read, never a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from planner.basics.errors import Mistake, PolicyRefusal, Refusal, SourceFailed, WrongColumns
from planner.duck.sandbox import Sandbox
from planner.policy.file import Policy, load, refusal
from planner.policy.toml import KeyPath, line_of, locate
from planner.shared import catalog
from planner.sources.source import open_source


def check(path: str | Path) -> Policy:
    """Return the policy in the file, or raise PolicyRefusal with every mistake of it, its sources and its views."""
    policy = load(path)
    lines = locate(policy.path.read_bytes().decode("utf-8-sig"))
    found = [*_sources(policy), *_views(policy)]
    if found:
        mistakes = [Mistake(line_of(lines, where), ".".join(map(str, where)), text) for where, text in found]
        raise refusal(Path(path), mistakes)
    return policy


def _sources(policy: Policy) -> Iterator[tuple[KeyPath, str]]:
    for table in policy.tables.values():
        if table.kind != "protected":
            continue
        try:
            open_source(table).close()
        except WrongColumns as wrong:
            for column, text in wrong.columns.items():
                yield ("tables", table.name, "columns", column), text
        except SourceFailed as failure:
            yield ("tables", table.name, "source"), failure.message


def _views(policy: Policy) -> Iterator[tuple[KeyPath, str]]:
    try:
        catalog(policy, Sandbox(policy.tables))
    except PolicyRefusal as refused:
        yield from ((tuple(mistake.where.split(".")), mistake.text) for mistake in refused.mistakes)
    except Refusal as refused:
        yield ("tables",), refused.message
