"""noisegate verify and noisegate fidelity: formats, files of queries, exit codes, and a page that stands alone.

Decisions that are asserted are wrong with probability below 1e-8 each, by their closed forms.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import noisegate
from planner.basics.errors import BadValue, UnknownTable
from planner.calls.verify.verify import COLUMNS
from planner.curator.fidelity import Fidelity, _round_width, fidelity, propose
from planner.gate import Gate
from proxy.cli import batch
from proxy.show.page import page
from tests.planner.gates import open_gate, write
from tests.proxy.clients.fetch import BROWSER, NODE

YOUNG = "SELECT count(*) FROM adult_synth WHERE age < 30"
HOURS = "SELECT sex, avg(hours) FROM adult_synth GROUP BY sex"


def run(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command beside the bundled tables; return its exit code, stdout and stderr."""
    policy = str(folder / "adult.toml")
    try:
        code = noisegate.main([arguments[0], policy, *arguments[1:], "--analyst", "ann"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def folder(adult_policy: Path) -> Path:
    return adult_policy.parent


# --- verify ------------------------------------------------------------------------------------------------


def test_a_decision_goes_to_stdout_and_its_cost_to_stderr(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(folder, capsys, "verify", YOUNG, "--tau", "5%", "--epsilon", "0.05")
    assert code == 0
    assert re.search(r"^true +\| EM_count \|", out, flags=re.MULTILINE)
    assert err == "1 within tau; 1 row, cost 0.56 % of the budget, left 99.44 %\n"
    _, again, err = run(folder, capsys, "verify", YOUNG, "--tau", "5%", "--epsilon", "0.05")
    assert again == out
    assert "free" in err


def test_groups_formats_and_explain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--tau", "2", "--epsilon", "0.1", "--format", "json")
    code, out, err = run(folder, capsys, "verify", HOURS, *options, "--explain")
    assert code == 0
    assert [row["decision"] for row in json.loads(out)] == [None, None]
    assert err == "2 undecided; nothing was spent\n"
    _, out, err = run(folder, capsys, "verify", HOURS, *options)
    rows = {row["sex"]: row for row in json.loads(out)}
    assert list(rows["Male"]) == ["sex", *COLUMNS]
    assert (rows["Female"]["decision"], rows["Male"]["decision"]) == (False, True)
    assert err.startswith("1 within tau, 1 not; 2 rows, cost ")
    _, out, _ = run(folder, capsys, "verify", HOURS, *options[:-1], "csv")
    assert out.startswith(f"sex,{','.join(COLUMNS)}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((YOUNG, "--epsilon", "0.1"), "--tau is missing"),
        ((YOUNG, "--tau", "5"), "--epsilon is missing"),
        (("--tau", "5", "--epsilon", "0.1"), "SQL is missing"),
        ((YOUNG, "--file", "x.sql", "--tau", "5", "--epsilon", "0.1"), "and not both"),
        ((YOUNG, "--tau", "5", "--epsilon", "much"), "must be a number above 0"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = run(folder, capsys, "verify", *arguments)
    assert code == 2
    assert message in err


def test_a_refusal_points_into_the_query_that_was_given(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT sum(agee) FROM adult_synth WHERE sex = 'Male'"
    code, out, err = run(folder, capsys, "verify", sql, "--tau", "5", "--epsilon", "0.1")
    assert (code, out) == (1, "")
    first, line, marks, *_ = err.splitlines()
    assert first == "error: there is no column agee"
    assert line == f"LINE 1: {sql}"
    assert marks.index("^") == line.index("agee")
    code, _, err = run(folder, capsys, "verify", YOUNG, "--tau", "5", "--epsilon", "9")
    assert code == 3
    assert "only rho=" in err


def test_a_file_is_verified_to_its_end_with_a_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "queries.sql"
    file.write_text(
        f"{YOUNG};\n-- tau: 2, epsilon: 0.1\n-- epsilon = 0.1\n{HOURS};\nSELECT max(age) FROM adult_synth;\n"
        "SELECT count(*) FROM adult_synth WHERE education = '-- tau: 7' -- decider: EM_count\n;",
        encoding="utf-8",
    )
    code, out, err = run(
        folder, capsys, "verify", "--file", str(file), "--tau", "5%", "--epsilon", "0.05", "--format", "json"
    )
    assert code == 1
    rows = json.loads(out)
    assert [row["query"] for row in rows] == [1, 2, 2, 3, 4]
    assert [row["decision"] for row in rows[:3]] == [True, False, True]
    assert [row["epsilon"] for row in rows[:3]] == [0.05, 0.1, 0.1]
    assert rows[1]["group"] == "sex = Female"
    assert rows[3]["error"] == "max depends on a single person"
    assert rows[4]["decider"] == "free"  # no such level of education
    assert err.startswith("4 queries, 1 refused: 3 within tau, 1 not, 1 undecided; cost rho ")
    code, out, _ = run(folder, capsys, "verify", "--file", str(file), "--tau", "5%", "--epsilon", "0.05")
    assert code == 1
    assert "sex = Female" in out
    file.write_text(f"-- decider: lm_COUNT\n{YOUNG}", encoding="utf-8")
    code, out, _ = run(folder, capsys, "verify", "--file", str(file), "--tau", "5%", "--epsilon", "0.06")
    head, _, row = out.splitlines()
    assert [name.strip() for name in head.split("|")] == ["query", *batch.SHOWN]  # no group, no error
    assert row.split("|")[2].strip() == "LM_count"
    file.write_text(f"-- decider: em\n{YOUNG};\n{HOURS};\n-- decider: r2t\n{YOUNG}", encoding="utf-8")
    options = ("--tau", "5%", "--epsilon", "0.05", "--decider", "LM", "--explain", "--format", "json")
    code, out, _ = run(folder, capsys, "verify", "--file", str(file), *options)
    found = json.loads(out)
    assert [row["decider"] for row in found] == ["EM_count", "LM_avg", "LM_avg", None]
    assert found[-1]["error"] == "r2t can't decide about a count"


def test_what_is_compared_and_what_is_taken_for_granted_is_said_below_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "copy.parquet", "SELECT (i % 10)::INTEGER AS age FROM range(3000) AS r(i)")
    open_gate(
        tmp_path, "SELECT i // 4 AS who, (i % 10)::INTEGER AS age FROM range(4000) AS r(i)",
        columns='age = { type = "integer", min = 0, max = 9 }', table='privacy_unit = "who"\nmax_rows_per_unit = 3',
        rest='[tables.copy]\nsource = "copy.parquet"\nsynthetic_of = "people"\n',
    ).close()  # fmt: skip
    compared = "compared: at most 3 rows of each who in people, and all rows of copy, which has no column who"
    arguments = ["--tau", "5%", "--epsilon", "0.5", "--explain"]
    assert noisegate.main(["verify", str(tmp_path / "policy.toml"), "SELECT median(age) FROM copy", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(compared) for line in lines)
    assert "provided: values in people are spread as in copy" in lines
    assert any("nothing released tells how many" in line for line in lines)
    (tmp_path / "queries.sql").write_text("SELECT count(*) FROM copy", encoding="utf-8")
    assert (
        noisegate.main(["verify", str(tmp_path / "policy.toml"), "--file", str(tmp_path / "queries.sql"), *arguments])
        == 0
    )
    assert compared in capsys.readouterr().out.splitlines()


def test_a_file_needs_queries_and_values_for_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "queries.sql"
    file.write_text("-- nothing\n", encoding="utf-8")
    assert run(folder, capsys, "verify", "--file", str(file))[0] == 1
    file.write_text(f"{YOUNG};\n-- tau: 100\n{YOUNG}", encoding="utf-8")
    code, out, _ = run(folder, capsys, "verify", "--file", str(file), "--epsilon", "0.05", "--format", "json")
    assert code == 1
    assert [row["error"] for row in json.loads(out)] == ["tau is missing", None]
    assert run(folder, capsys, "verify", "--file", str(folder / "nowhere.sql"))[0] == 1


def test_options_in_comments_belong_to_one_query() -> None:
    found = batch.read("-- tau: 5%\nSELECT 1; SELECT '-- tau: 3'; /* x */ SELECT 2 -- decider: LM_sum\n")
    assert [(one.sql, dict(one.options)) for one in found] == [
        ("SELECT 1", {"tau": "5%"}),
        ("SELECT '-- tau: 3'", {}),
        ("SELECT 2", {}),
    ]


# --- fidelity ----------------------------------------------------------------------------------------------

PEOPLE = """SELECT ['F', 'M'][1 + i % 2] AS sex, (i // 2 % 90)::INTEGER AS age,
    ['a <b>', 'c&d', NULL][1 + i % 3] AS city, (i % 251) / 100.0 AS height,
    DATE '2015-01-01' + CAST(i % 3000 AS INTEGER) AS joined, i % 3 = 0 AS active,
    (i % 1000) * 1000 AS wealth FROM range(30000) AS r(i)"""
COPY = f"SELECT * REPLACE (CASE WHEN i.age < 30 THEN 'F' ELSE i.sex END AS sex) FROM ({PEOPLE}) AS i"
DOMAINS = """sex = { values = ["F", "M"] }
age = { type = "integer", min = 0, max = 110 }
city = { values = ["a <b>", "c&d"], nullable = true }
height = { type = "float", min = 0, max = 2.5, step = 0.01 }
joined = { type = "date", min = "2015-01-01", max = "2024-12-31" }
active = { type = "boolean" }
wealth = { type = "integer", min = 0, max = 9_000_000, role = "measure" }
secret = { hidden = true }"""
REST = '[tables.copy]\nsource = "copy.parquet"\nsynthetic_of = "people"\n'


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gate, Fidelity]]:
    folder = tmp_path_factory.mktemp("fidelity")
    write(folder / "copy.parquet", COPY)
    people = f"SELECT *, 'x' AS secret FROM ({PEOPLE})"
    gate = open_gate(folder, people, columns=DOMAINS, rest=REST)
    yield gate, fidelity(gate.session(), "copy", epsilon=20.0)
    gate.close()


def test_queries_are_proposed_for_every_column_and_for_pairs(found: tuple[Gate, Fidelity]) -> None:
    proposals = propose(found[0], "copy")
    kinds = {(proposal.kind, proposal.columns) for proposal in proposals}
    assert {("count", (name,)) for name in ("sex", "age", "city", "height", "joined", "active")} <= kinds
    assert {(kind, ("age",)) for kind in ("sum", "avg", "median")} <= kinds
    assert {("sum", ("wealth",)), ("avg", ("wealth",))} <= kinds  # too large to be written out
    assert ("median", ("wealth",)) not in kinds
    assert {("count", ("sex", "city")), ("count", ("sex", "active")), ("count", ("city", "active"))} <= kinds
    assert all("secret" not in proposal.sql for proposal in proposals)


def test_where_the_copy_is_wrong_it_does_not_hold_and_elsewhere_it_does(found: tuple[Gate, Fidelity]) -> None:
    _, report = found
    assert not [finding.refused for finding in report.findings if finding.refused]
    for finding in report.findings:
        assert finding.decided == len(finding.verdicts) > 0
        wrong = "sex" in finding.proposal.columns
        assert (finding.holds < finding.decided) == wrong, finding.proposal


def test_all_decisions_stay_within_the_epsilon_given(found: tuple[Gate, Fidelity]) -> None:
    gate, report = found
    paid = [max(verdict.epsilon for verdict in finding.verdicts) for finding in report.findings]
    assert sum(paid) <= report.epsilon * (1 + 1e-9)
    assert gate.ledger.spent("default") <= report.cost * 2**50
    assert report.cost > 0
    again = fidelity(gate.session(), "copy", epsilon=20.0)
    assert again.cost == 0
    assert again.findings[0].verdicts == report.findings[0].verdicts


def test_a_table_that_is_not_synthetic_and_too_small_an_epsilon_are_refused(found: tuple[Gate, Fidelity]) -> None:
    session = found[0].session()
    for name in ("people", "nobody"):
        with pytest.raises(UnknownTable, match="there is no synthetic table"):
            fidelity(session, name, epsilon=1.0)
    with pytest.raises(BadValue, match="too little"):
        fidelity(session, "copy", epsilon=1e-6)


class Strict(HTMLParser):
    """Reads a page and refuses what would fetch something, run something, or is not closed."""

    EMPTY = ("meta", "link", "br", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = dict(attributes)
        assert tag not in ("script", "link", "img", "iframe", "object", "embed", "base")
        assert not [name for name in names if name.startswith("on") or name in ("src", "srcset", "action", "data")]
        self.seen.add(tag)
        self.ids |= {names["id"] or ""} if "id" in names else set()
        if "href" in names:
            assert (names["href"] or "").startswith("#")
            self.links.add((names["href"] or "")[1:])
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.EMPTY:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_without_scripts_or_anything_from_elsewhere(found: tuple[Gate, Fidelity]) -> None:
    text = page(found[1])
    reader = Strict()
    reader.feed(text)
    reader.close()
    assert not reader.open
    assert {"style", "svg", "table", "details", "figure"} <= reader.seen
    assert reader.links <= reader.ids
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"https?://|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    assert "a &lt;b&gt;" in text
    assert "<b>'" not in text


def test_the_pictures_are_well_formed_and_show_every_group(found: tuple[Gate, Fidelity]) -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(found[1]), flags=re.DOTALL)
    assert len(pictures) == len(found[1].findings)
    bars = 0
    for picture in pictures:
        tree = ET.fromstring(picture)
        assert {group.get("class") for group in tree.iter("g")} <= {"hold", "off", "none"}
        bars += len([*tree.iter("rect")])
    assert bars == sum(len(finding.verdicts) for finding in found[1].findings)


def test_ranges_have_round_widths() -> None:
    assert [_round_width(width, 1) for width in (0.2, 1, 6.1, 9.5, 8333.3)] == [1, 1, 10, 10, 10_000]
    assert _round_width(6.1, 3) == 12


@pytest.mark.slow
def test_fidelity_writes_its_page_and_says_what_it_cost(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = folder / "page.html"
    code, out, err = run(folder, capsys, "fidelity", "adult_synth", "--epsilon", "0.2", "--out", str(target))
    assert (code, out) == (0, "")
    assert re.fullmatch(r".*page\.html: \d+ of \d+ decisions hold; \d+ queries, cost rho [\d.e-]+\n", err)
    assert "<svg" in target.read_text(encoding="utf-8")
    code, _, err = run(folder, capsys, "fidelity", "adult", "--epsilon", "0.2")
    assert code == 1
    assert "there is no synthetic table adult" in err
    code, _, err = run(folder, capsys, "fidelity", "adult_synth", "--epsilon", "0.2", "--out", str(folder / "no" / "x"))
    assert code == 1


@pytest.mark.skipif(NODE is None or not BROWSER.exists(), reason="no browser: python -m tests.proxy.clients.fetch")
def test_a_browser_shows_the_page_whole_on_any_screen_and_fetches_nothing(
    found: tuple[Gate, Fidelity], tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    target.write_text(page(found[1]), encoding="utf-8")
    look = Path(__file__).parents[1] / "clients" / "look.mjs"
    done = subprocess.run([str(NODE), look, BROWSER, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    screens = json.loads(done.stdout)
    for seen in screens:
        assert seen["fetched"] == [f"file://{target}"]
        assert seen["complaints"] == []
        assert seen["title"] in seen["text"]
        assert len(seen["pictures"]) == len(found[1].findings)
        assert all(width > 100 and height > 10 and not outside for width, height, outside in seen["pictures"])
        assert (seen["overflow"] <= 0, seen["dead"]) == (True, 0)
        assert len(set(seen["colours"])) == 2
    assert screens[1]["colours"] != screens[2]["colours"]
