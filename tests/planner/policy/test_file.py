"""The policy file: what a good one means, and every mistake of a bad one with its line."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from planner.basics.errors import Mistake, PolicyRefusal
from planner.policy.domain import Domain
from planner.policy.file import Analyst, Budget, Defaults, Policy, Server, budget_cap, load
from planner.policy.ledger import Remote
from planner.policy.location import located
from planner.policy.passwords import scram_verifier
from planner.policy.table import Column, Table

VERIFIER = scram_verifier("secret", iterations=1, salt=b"0123456789abcdef")

EXAMPLE = f"""
[budget]                      # for the whole deployment, over all analysts together
epsilon = 2.0
delta = 1e-9

[defaults]
error = 50                    # 95 % half-width of a count, unless the analyst says otherwise

[analysts.alice]
share = 0.5
password = "{VERIFIER}"
[analysts.bob]
[analysts.carol]

[server]
port = 5433
auth = "scram"

[ledger]
url = "noisegate.ledger.sqlite"

[tables.people]
source = "people.parquet"
privacy_unit = "row"
rows = 32_561
[tables.people.columns]
age       = {{ type = "integer", min = 0, max = 110 }}
sex       = {{ values = ["F", "M"] }}
region    = {{ values = ["North", "South"], other = "Other", nullable = true }}
joined    = {{ type = "date", min = "2015-01-01", max = "2026-12-31" }}
seen      = {{ type = "timestamp", min = 2015-01-01, max = "2015-01-02 00:00:00", step = "15 minutes" }}
income    = {{ type = "integer", min = 0, max = 500_000, role = "measure" }}
score     = {{ type = "float", min = 0, max = 1, step = 0.01 }}
smoker    = {{ type = "boolean" }}
note      = {{ hidden = true }}
"education-num" = {{ type = "integer", values = [1, 2, 3] }}

[tables.visits]
source = "visits.csv"
privacy_unit = "patient"
max_rows_per_unit = 5
population = "patients"
[tables.visits.columns.day]
type = "date"
min = 2020-01-06
max = 2020-12-28
step = "1 week"

[tables.people_synth]
source = "people_synth.parquet"
synthetic_of = "people"

[tables.regions]
source = "store.duckdb#main.regions"
public = true

[views.adults]
sql = "SELECT * FROM people WHERE age >= 18"
"""

POLICIES = Path(__file__).parents[1] / "policies"

GOOD = """\
[budget]
epsilon = 1
delta = 1e-6
[tables.people]
source = "people.csv"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
"""


def write(folder: Path, text: str) -> Path:
    for name in ("people.parquet", "people.csv", "visits.csv", "people_synth.parquet", "store.duckdb"):
        (folder / name).touch()
    policy = folder / "noisegate.toml"
    policy.write_text(text, encoding="utf-8")
    return policy


def mistakes_in(folder: Path, text: str) -> tuple[Mistake, ...]:
    with pytest.raises(PolicyRefusal) as refused:
        load(write(folder, text))
    assert refused.value.mistakes
    return refused.value.mistakes


def column_mistakes(folder: Path, entry: str) -> list[str]:
    """Return what is wrong with the column `c = { entry }`, once its line was checked."""
    mistakes = mistakes_in(folder, f"{GOOD}c = {{ {entry} }}\n")
    assert {(mistake.line, mistake.where) for mistake in mistakes} == {(8, "tables.people.columns.c")}
    return [mistake.text for mistake in mistakes]


def domain_of(folder: Path, entry: str) -> Domain | None:
    return load(write(folder, f"{GOOD}c = {{ {entry} }}\n")).tables["people"].columns["c"].domain


def test_a_good_policy_means_what_it_says(tmp_path: Path) -> None:
    policy = load(write(tmp_path, EXAMPLE))
    domains = {
        "age": Domain(type="integer", low=0, high=110, step=1),
        "sex": Domain(type="text", values=("F", "M")),
        "region": Domain(type="text", values=("North", "South"), other="Other", nullable=True),
        "joined": Domain(type="date", low=dt.date(2015, 1, 1), high=dt.date(2026, 12, 31), step=1),
        "seen": Domain(
            type="timestamp",
            low=dt.datetime(2015, 1, 1),
            high=dt.datetime(2015, 1, 2),
            step=dt.timedelta(minutes=15),
        ),
        "income": Domain(type="integer", low=0, high=500_000, step=1),
        "score": Domain(type="float", low=Decimal(0), high=Decimal(1), step=Decimal("0.01")),
        "smoker": Domain(type="boolean", values=(False, True)),
        "education-num": Domain(type="integer", values=(1, 2, 3)),
    }
    columns = {
        name: Column(name, domain=domain, measure=name == "income", type=domain.type)
        for name, domain in domains.items()
    }
    weeks = Domain(type="date", low=dt.date(2020, 1, 6), high=dt.date(2020, 12, 28), step=7)
    assert policy == Policy(
        path=tmp_path / "noisegate.toml",
        budget=Budget(2.0, 1e-9),
        defaults=Defaults(error=50.0, confidence=0.95),
        analysts={
            "alice": Analyst("alice", share=Fraction(1, 2), password=VERIFIER),
            "bob": Analyst("bob", share=Fraction(1, 4)),
            "carol": Analyst("carol", share=Fraction(1, 4)),
        },
        server=Server(host="127.0.0.1", port=5433, auth="scram"),
        ledger=tmp_path / "noisegate.ledger.sqlite",
        tables={
            "people": Table(
                name="people",
                source=str(tmp_path / "people.parquet"),
                size=32_561,
                columns=columns | {"note": Column("note", hidden=True)},
            ),
            "visits": Table(
                name="visits",
                source=str(tmp_path / "visits.csv"),
                population="patients",
                unit="patient",
                max_rows_per_unit=5,
                columns={"day": Column("day", domain=weeks, type="date"), "patient": Column("patient")},
            ),
            "people_synth": Table(
                name="people_synth",
                source=str(tmp_path / "people_synth.parquet"),
                kind="synthetic",
                synthetic_of="people",
            ),
            "regions": Table(name="regions", source=f"{tmp_path}/store.duckdb#main.regions", kind="public"),
        },
        views={"adults": "SELECT * FROM people WHERE age >= 18"},
    )


def test_the_order_of_declaration_is_kept(tmp_path: Path) -> None:
    policy = load(write(tmp_path, EXAMPLE))
    assert list(policy.tables) == ["people", "visits", "people_synth", "regions"]
    assert list(policy.tables["people"].columns)[:3] == ["age", "sex", "region"]


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    policy = load(write(tmp_path, GOOD))
    assert policy.analysts == {"analyst": Analyst("analyst", share=Fraction(1))}
    assert policy.defaults == Defaults(50.0, 0.95)
    assert policy.server == Server(host="127.0.0.1", port=5433, auth="scram", certificate=None, key=None)
    assert policy.ledger == tmp_path / "noisegate.ledger.sqlite"
    assert policy.views == {}


def test_paths_are_relative_to_the_policy_and_not_to_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    policy = load("../noisegate.toml")
    assert policy.path.is_absolute()
    assert Path(policy.tables["people"].source).samefile(tmp_path / "people.csv")


def test_the_cap_is_the_rho_of_the_budget(tmp_path: Path) -> None:
    cap = budget_cap(load(write(tmp_path, GOOD.replace("1e-6", "1e-9"))))
    assert isinstance(cap, Fraction)
    assert math.isclose(cap, 0.014973057673588523, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("a#b/people.csv", ("a#b/people.csv", None)),
        ("a#b/store.duckdb#s.t", ("a#b/store.duckdb", "s.t")),
        ("store.duckdb", ("store.duckdb", None)),
    ],
)
def test_a_hash_sign_names_a_table_only_after_a_duckdb_file(source: str, parts: tuple[str, str | None]) -> None:
    assert (located(source).place, located(source).inner) == parts


def test_a_ledger_in_postgresql_has_its_schema_and_a_marker_beside_the_policy(tmp_path: Path) -> None:
    url = "postgresql://gate@db.example.org:6432/ledger?sslmode=require"
    for text, schema, marker in (
        (f'url = "{url}"', "noisegate", tmp_path / "noisegate.ledger.born"),
        (f'url = "{url}#survey"\nmarker = "/var/lib/born"', "survey", Path("/var/lib/born")),
        ('url = "postgresql://?service=ledger"', "noisegate", tmp_path / "noisegate.ledger.born"),
        ('url = "postgresql://"', "noisegate", tmp_path / "noisegate.ledger.born"),
    ):
        found = load(write(tmp_path, f"{GOOD}\n[ledger]\n{text}\n")).ledger
        assert isinstance(found, Remote)
        assert (found.schema, found.marker) == (schema, marker)
        assert "gate@" not in found.name


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('url = "postgresql://gate:secret@db/ledger"', "url must not hold a password"),
        ('url = "postgresql://db/ledger#Not A Schema"', "url must be postgresql://"),
        ('url = "postgresql://db:port/ledger"', "url must be postgresql://"),
        ('url = "postgresql://db/ledger?nonsense=1"', "url must be postgresql://"),
        ('url = "ledger.sqlite"\nmarker = "born"', "marker is for ledgers in PostgreSQL"),
    ],
)
def test_a_wrong_ledger_is_told_without_repeating_it(tmp_path: Path, text: str, mistake: str) -> None:
    (found,) = mistakes_in(tmp_path, f"{GOOD}\n[ledger]\n{text}\n")
    assert mistake in found.text
    assert "secret" not in found.text


def test_every_mistake_is_found_in_one_run_with_its_line(tmp_path: Path) -> None:
    text = (POLICIES / "wrong.toml").read_text(encoding="utf-8")
    expected = [
        f"wrong.toml:{number}: {mistake.replace('FOLDER', str(tmp_path))}"
        for number, line in enumerate(text.splitlines(), start=1)
        for mistake in line.partition("#! ")[2].split(" ;; ")
        if mistake
    ]
    mistakes = mistakes_in(tmp_path, text)
    assert sorted(mistake.render("wrong.toml") for mistake in mistakes) == sorted(expected)
    assert [mistake.line for mistake in mistakes] == sorted(mistake.line or 0 for mistake in mistakes)


def test_a_refusal_reads_as_one_line_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD.replace(", max = 110", "").replace("1e-6", "1"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyRefusal) as refused:
        load("noisegate.toml")
    assert refused.value.message.splitlines() == [
        "noisegate.toml:3: budget: delta must lie between 0 and 1, both excluded, got 1",
        "noisegate.toml:7: tables.people.columns.age: max is missing; "
        "a bound must be public knowledge, not read off the data",
    ]
    assert refused.value.sqlstate == "F0000"


def test_an_empty_file_lacks_a_budget_and_tables(tmp_path: Path) -> None:
    assert {(mistake.line, mistake.where) for mistake in mistakes_in(tmp_path, "")} == {
        (1, "budget"),
        (1, "tables"),
    }


def test_a_plain_password_is_never_repeated(tmp_path: Path) -> None:
    mistakes = mistakes_in(tmp_path, GOOD + '[analysts.ann]\npassword = "correct horse"\n')
    assert "correct horse" not in str(mistakes)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[budget]\nepsilon = \n", 2),
        ("[budget]\nepsilon = 1\nepsilon = 2\n", 3),
        ("[budget]\nx = '''\n\n", 3),
        ("[budget\n", 1),
        ("x = " + "[" * 5000, None),
        ("x = " + "9" * 5000, None),
    ],
)
def test_what_is_not_toml_is_one_mistake_with_its_line(tmp_path: Path, text: str, line: int | None) -> None:
    (mistake,) = mistakes_in(tmp_path, text)
    assert mistake.line == line
    assert mistake.text.startswith(("is not TOML: ", "can't be read: it is nested", "can't be read: a number has too"))


def test_a_missing_file_a_folder_and_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"[budget]\nepsilon = 1 # gr\xfc\xdfe\n")
    for path, message in [
        (tmp_path / "none.toml", f"{tmp_path}/none.toml: can't be read: no such file or directory"),
        (tmp_path, f"{tmp_path}: can't be read: is a directory"),
        (latin, f"{latin}:2: is not UTF-8 text"),
    ]:
        with pytest.raises(PolicyRefusal) as refused:
            load(path)
        assert refused.value.message == message


def test_a_byte_order_mark_and_carriage_returns_are_accepted(tmp_path: Path) -> None:
    policy = write(tmp_path, "")
    policy.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(policy).budget == Budget(1.0, 1e-6)


def mistaken_columns() -> list[tuple[str, list[str]]]:
    """Return the pairs of columns.txt: a column's declaration, and what is wrong with it."""
    _, *cases = (POLICIES / "columns.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [(entry, [text.strip() for text in texts]) for entry, *texts in map(str.splitlines, cases)]


@pytest.mark.parametrize(("entry", "texts"), mistaken_columns())
def test_a_mistaken_column_is_told_what_is_wrong(tmp_path: Path, entry: str, texts: list[str]) -> None:
    assert column_mistakes(tmp_path, entry) == texts


def test_a_column_without_anything_is_told_what_there_is(tmp_path: Path) -> None:
    (text,) = column_mistakes(tmp_path, "")
    assert text.startswith("a domain is missing: a type with min and max, or values, or hidden = true; ")


@pytest.mark.parametrize(
    ("entry", "domain"),
    [
        ("values = [3, 1, 2]", Domain(type="integer", values=(3, 1, 2))),
        ("values = [true]", Domain(type="boolean", values=(True,))),
        ("values = [2015-01-31]", Domain(type="date", values=(dt.date(2015, 1, 31),))),
        ('type = "date", values = ["2015-01-31"]', Domain(type="date", values=(dt.date(2015, 1, 31),))),
        ('values = ["", " "]', Domain(type="text", values=("", " "))),
        ('type = "integer", min = 5, max = 5', Domain(type="integer", low=5, high=5, step=1)),
        (
            'type = "float", min = -0.3, max = 0.3, step = 0.1, nullable = true',
            Domain(type="float", low=Decimal("-0.3"), high=Decimal("0.3"), step=Decimal("0.1"), nullable=True),
        ),
        (
            'type = "date", min = 2015-01-01, max = 2015-01-15, step = 7',
            Domain(type="date", low=dt.date(2015, 1, 1), high=dt.date(2015, 1, 15), step=7),
        ),
    ],
)
def test_a_column_declares_its_domain(tmp_path: Path, entry: str, domain: Domain) -> None:
    assert domain_of(tmp_path, entry) == domain


def test_a_privacy_unit_needs_no_domain_but_may_have_one(tmp_path: Path) -> None:
    unit = 'source = "people.csv"\nprivacy_unit = "id"\nmax_rows_per_unit = 3\nrow_key = "line"\n'
    text = GOOD.replace('source = "people.csv"\n', unit)
    assert load(write(tmp_path, text)).tables["people"].columns["id"] == Column("id")
    assert load(write(tmp_path, text)).tables["people"].row_key == "line"
    typed = load(write(tmp_path, text + 'id = { type = "integer" }\n')).tables["people"]
    assert typed.columns["id"] == Column("id", type="integer")
    hidden = load(write(tmp_path, text + "id = { hidden = true }\n")).tables["people"]
    assert hidden.columns["id"] == Column("id", hidden=True)
    (mistake,) = mistakes_in(tmp_path, text + "ID = { hidden = true }\n")
    assert "differ only in case" in mistake.text


def test_a_public_table_may_state_types_without_bounds(tmp_path: Path) -> None:
    public = '[tables.regions]\nsource = "visits.csv"\npublic = true\ncolumns.code = { type = "text" }\n'
    regions = load(write(tmp_path, GOOD + public)).tables["regions"]
    assert regions.columns == {"code": Column("code", type="text")}
    (mistake,) = mistakes_in(tmp_path, GOOD + public + 'columns.n = { type = "integer", min = 1 }\n')
    assert mistake.text.startswith("max is missing")


def test_a_table_is_not_public_and_synthetic_at_once(tmp_path: Path) -> None:
    both = '[tables.s]\nsource = "visits.csv"\npublic = true\nsynthetic_of = "people"\n'
    assert "not both" in mistakes_in(tmp_path, GOOD + both)[0].text


def test_shares_that_leave_nothing_are_refused(tmp_path: Path) -> None:
    (mistake,) = mistakes_in(tmp_path, GOOD + "[analysts]\nann.share = 1\nbob = {}\n")
    assert (mistake.line, mistake.text) == (10, "the other shares leave nothing for bob")


def test_shares_are_exact(tmp_path: Path) -> None:
    tenths = "".join(f"a{i}.share = 0.1\n" for i in range(10))
    policy = load(write(tmp_path, f"{GOOD}[analysts]\n{tenths}"))
    assert sum(analyst.share for analyst in policy.analysts.values()) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_trust_is_accepted_on_a_loopback_host(tmp_path: Path, host: str) -> None:
    server = f'[server]\nhost = "{host}"\nauth = "trust"\n'
    assert load(write(tmp_path, GOOD + server)).server.auth == "trust"


def test_a_certificate_comes_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    texts = [m.text for m in mistakes_in(tmp_path, GOOD + '[server]\ncertificate = "cert.pem"\n')]
    assert texts == ["certificate and key are given together or not at all"]
    both = GOOD + '[server]\ncertificate = "cert.pem"\nkey = "cert.pem"\n'
    assert load(write(tmp_path, both)).server.key == tmp_path / "cert.pem"
    assert "is not a file" in mistakes_in(tmp_path, both.replace('key = "cert', 'key = "none'))[0].text


@pytest.mark.parametrize("section", ["tables", "views"])
def test_a_name_that_hides_postgresqls_catalog_is_refused(tmp_path: Path, section: str) -> None:
    (tmp_path / "noisegate.toml").write_text(f'[{section}.pg_class]\nsql = "SELECT 1"\n', encoding="utf-8")
    with pytest.raises(PolicyRefusal, match="names that begin with pg_ are PostgreSQL's own"):
        load(tmp_path / "noisegate.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (".".join("a" * 20_000) + " = 1", "a key has more than 32 parts"),
        ("x = [" + '"value",' * 1_100_000 + "]", "it has more than 8 MB"),
    ],
)
def test_a_policy_that_would_take_minutes_to_read_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "noisegate.toml").write_text(f"\n{text}\n", encoding="utf-8")
    with pytest.raises(PolicyRefusal, match=complaint):
        load(tmp_path / "noisegate.toml")
