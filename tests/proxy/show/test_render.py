"""Answers look right to people and programs, and progress only to people."""

import io
import json
import re
import threading
import time
from fractions import Fraction

import pytest
from rich.console import Console

from planner.duck.relations import OutputColumn
from planner.plans.result import Result
from proxy.show.render import ASCII, ProgressLine, as_csv, as_json, measured_text, print_result, value_text


def result_of(types: dict[str, str], row: tuple[object, ...], interval: tuple[float, float] | None = None) -> Result:
    columns = tuple(OutputColumn(name, kind) for name, kind in types.items())
    bounds = tuple(interval if kind != "VARCHAR" else None for kind in types.values())
    return Result(columns=columns, rows=[row], intervals=[bounds], cost=Fraction(0), tag="SELECT 1", plan=None)


def test_a_terminal_gets_signs_and_a_pipe_gets_ascii() -> None:
    result = result_of({"sex": "VARCHAR", "n": "BIGINT"}, ("Female", 10_771), (10_721.0, 10_821.0))
    texts = []
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True, legacy_windows=False)
        print_result(console, result)
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert "10,771 ± 50" in texts[0]
    assert texts[1] == "sex    |             n\n-------+--------------\nFemale | 10,771 +/- 50\n"


def test_control_characters_never_reach_a_terminal() -> None:
    result = result_of({"a\x1b[2J": "VARCHAR"}, ("\x1b]0;x\x07[bold]",))
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True, width=100)
        print_result(console, result)
        text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
        assert "\x1b" not in text
        assert "\\x1b]0;x\\x07[bold]" in text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (413, (363.0, 463.0), "413 ± 50"),
        (413, (362.99999, 463.00001), "413 ± 50"),
        (-3, (-53.2, 47.2), "-3 ± 51"),
        (31_412_163, (21_612_163.0, 41_212_163.0), "31,412,163 ± 9,800,000"),
        (38.58164, (38.15164, 39.01164), "38.58 ± 0.43"),
        (0.000123456, (0.000113456, 0.000133456), "0.000123 ± 0.000010"),
        (5, (5.0, 5.0), "5 ± 0"),
        (37.0, (35.0, 48.0), "37.0 (35.0 … 48.0)"),
        (10, (0.4, 13.2), "10 (0 … 14)"),
        (1.5, (float("-inf"), float("inf")), "1.5 ± ∞"),
        (None, (0.0, 1.0), "NULL"),
        (1994, None, "1994"),
        ("Male", None, "Male"),
    ],
)
def test_a_number_stands_beside_its_interval(value: object, interval: tuple[float, float] | None, text: str) -> None:
    assert measured_text(value, interval) == text


def test_signs_are_spelt_out_in_ascii() -> None:
    assert measured_text(1.5, (1.0, 2.0), signs=ASCII) == "1.50 +/- 0.50"
    assert measured_text(37, (35.0, 48.0), signs=ASCII) == "37 (35 to 48)"


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "nan"), (1e20, "1e+20"), (0.1 + 0.2, "0.3")])
def test_a_float_is_shown_to_six_digits(value: float, text: str) -> None:
    assert value_text(value) == text


def test_repeated_names_stay_apart_for_programs() -> None:
    columns = (OutputColumn("count", "BIGINT"), OutputColumn("count", "BIGINT"))
    result = Result(
        columns=columns, rows=[(1, 2)], intervals=[((0.0, 2.0), None)], cost=Fraction(0), tag="SELECT 1", plan=None
    )
    assert json.loads(as_json(result, intervals=True)) == [
        {"count": 1, "count_low": 0.0, "count_high": 2.0, "count_2": 2}
    ]
    assert as_csv(result, intervals=False) == "count,count_2\n1,2\n"


def test_json_has_no_values_that_json_does_not_know() -> None:
    result = result_of({"a": "DOUBLE"}, (float("nan"),))
    assert json.loads(as_json(result, intervals=False)) == [{"a": None}]


def test_an_answer_without_rows_keeps_its_header() -> None:
    result = Result(
        columns=(OutputColumn("a", "BIGINT"),), rows=[], intervals=[], cost=Fraction(0), tag="SELECT 0", plan=None
    )
    assert as_csv(result, intervals=True) == "a\n"
    assert as_json(result, intervals=True) == "[]"
    console = Console(file=io.StringIO())
    print_result(console, result)
    assert console.file.getvalue() == "a\n-\n"  # type: ignore[attr-defined]


def waiting_on(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is written while something waits, with the first second taken as over at once."""
    monkeypatch.setattr("proxy.show.render.PATIENCE", 0.0)
    console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True)
    with ProgressLine(console, "opening") as waiting:
        waiting.step("reading")
        deadline = time.monotonic() + 10
        while terminal and "reading" not in console.file.getvalue() and time.monotonic() < deadline:  # type: ignore[attr-defined]
            threading.Event().wait(0.01)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading" in waiting_on(True, monkeypatch)
    assert waiting_on(False, monkeypatch) == ""


def test_what_is_quick_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.show.render.PATIENCE", 3600.0)
    console = Console(file=io.StringIO(), force_terminal=True)
    with ProgressLine(console, "opening") as waiting:
        waiting.step("reading")
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
