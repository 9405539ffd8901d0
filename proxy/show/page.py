"""The page of a fidelity report: one HTML file with inline SVG, no script, nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.calls.verify.verify import Verdict
from planner.curator.fidelity import Fidelity, Finding

BAR, GAP, LABELS, WIDTH, NUMBERS = 16, 6, 190, 480, 190
"""Of a chart, in pixels: height of a bar, space between two, width of the labels, of the bars and of the numbers."""

STYLE = Path(__file__).with_suffix(".css")


def page(found: Fidelity) -> str:
    """Return the page."""
    title = f"How well {found.copy} stands for {found.original}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p class='lead'>{_lead(found)}</p>",
        _tiles(found),
        "<h2>Column by column</h2>",
        _overview(found),
        *(_column(found, column) for column in found.columns),
        *_pairs(found),
        "<h2>Every query</h2>",
        _queries(found),
        _notes(found),
    ]
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{_text(title)}</title>\n<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _number(value: float | None) -> str:
    """Return a number with four digits, or all before the point if that is short.

    >>> [_number(v) for v in (12345.678, 0.012345, 3.0, None, 2.5e7, 1.2345678e10)]
    ['12,346', '0.01235', '3', '–', '25,000,000', '1.235e+10']
    """
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _lead(found: Fidelity) -> str:
    share = found.holds / found.decided if found.decided else 0.0
    return (
        f"Of {found.decided} answers on the synthetic table, <b>{found.holds} ({share:.0%}) are within their "
        f"tolerance</b> of the protected data, by decisions that together are {found.epsilon:g}-differentially "
        "private. True answers are not shown, and were not released."
    )


def _tiles(found: Fidelity) -> str:
    off = found.decided - found.holds
    tiles = [
        ("hold", _number(found.holds), "answers hold"),
        ("off", _number(off), "answers do not"),
        ("", _number(len(found.findings)), "queries"),
        *([("off", _number(found.refused), "queries not asked")] if found.refused else []),
        ("", f"{found.epsilon:g}", "ε for everyone, in all"),
        ("", f"{float(found.cost):.2g}", "ρ charged"),
    ]
    cells = "".join(
        f"<div class='tile {kind}'><b>{value}</b><span>{label}</span></div>" for kind, value, label in tiles
    )
    return f"<div class='tiles'>{cells}</div>"


def _share(findings: Sequence[Finding]) -> float | None:
    decided = sum(finding.decided for finding in findings)
    return sum(finding.holds for finding in findings) / decided if decided else None


def _overview(found: Fidelity) -> str:
    """Return a table: each column against each kind of question, with the part of the answers that hold."""
    kinds = [kind for kind in ("count", "sum", "avg", "median") if any(f.proposal.kind == kind for f in found.findings)]
    names = {"count": "distribution", "avg": "average"}
    head = "".join(f"<th>{names.get(kind, kind)}</th>" for kind in kinds)
    rows = []
    for column in found.columns:
        own = found.of_column(column)
        cells = "".join(_badge([f for f in own if f.proposal.kind == kind]) for kind in kinds)
        paired = [f for f in found.pairs if column in f.proposal.columns]
        link = f"<a href='#{_anchor(column)}'>{_text(column)}</a>"
        rows.append(f"<tr><th scope='row'>{link}</th>{cells}{_badge(paired)}</tr>")
    heads = f"<thead><tr><th></th>{head}<th>with others</th></tr></thead>"
    return _table("grid", heads, rows)


def _badge(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<td class='none'>·</td>"
    share = _share(findings)
    if share is None:
        return "<td class='none' title='not decided'>–</td>"
    kind = "hold" if share == 1 else "off" if share < 0.5 else "part"
    holds, decided = (sum(getattr(f, name) for f in findings) for name in ("holds", "decided"))
    shown = ("holds" if share == 1 else "off") if decided == 1 else f"{holds} of {decided}"
    return f"<td class='{kind}'>{shown}</td>"


def _anchor(column: str) -> str:
    return "c-" + "".join(letter if letter.isalnum() else "-" for letter in column)


def _column(found: Fidelity, column: str) -> str:
    parts = [_figure(finding) for finding in found.of_column(column)]
    return f"<section id='{_anchor(column)}'><h3>{_text(column)}</h3>{''.join(parts)}</section>"


def _pairs(found: Fidelity) -> Iterator[str]:
    if found.pairs:
        yield "<h2>Two columns together</h2>"
        yield "<p>A copy may have every column right, and not how they go together.</p>"
        for finding in found.pairs:
            title = _text(finding.proposal.title)
            share = _share([finding])
            told = "not decided" if share is None else f"{finding.holds} of {finding.decided} hold"
            yield f"<details><summary>{title} <em>{told}</em></summary>{_figure(finding)}</details>"


def _figure(finding: Finding) -> str:
    if finding.refused is not None:
        return f"<p class='none'>{_text(finding.proposal.title)}: not asked, {_text(finding.refused)}</p>"
    bars = finding.proposal.kind == "count"
    caption = f"{finding.proposal.title}, ± {_number(finding.tau)}"
    picture = _bars(finding.verdicts) if bars else _interval(finding.verdicts[0])
    return f"<figure><figcaption>{_text(caption)}</figcaption>{picture}</figure>"


def _bars(verdicts: Sequence[Verdict]) -> str:
    """Return a bar for each group, as long as its synthetic count, with a whisker for what is tolerated."""
    top = max((verdict.high or 0.0 for verdict in verdicts), default=1.0) or 1.0
    height = len(verdicts) * (BAR + GAP) + GAP
    parts = []
    for row, verdict in enumerate(verdicts):
        y = GAP + row * (BAR + GAP)
        label = " · ".join("NULL" if value is None else str(value) for value in verdict.group.values())
        parts.append(f"<g class='{_kind(verdict)}'><title>{_text(_told(verdict, label))}</title>")
        parts.append(f"<text class='label' x='{LABELS - 8}' y='{y + BAR - 4}'>{_text(_shortened(label))}</text>")
        if verdict.synthetic is not None:
            low, high, end = (_x(value, top) for value in (verdict.low, verdict.high, verdict.synthetic))
            middle = y + BAR / 2
            parts.append(f"<rect x='{LABELS}' y='{y}' width='{max(end - LABELS, 1):.1f}' height='{BAR}' rx='2'/>")
            parts.append(
                f"<path class='whisker' d='M{low:.1f} {middle}H{high:.1f}M{low:.1f} {y + 4}v8M{high:.1f} {y + 4}v8'/>"
            )
            told = f"{_mark(verdict)} {_number(verdict.synthetic)}"
            parts.append(f"<text class='number' x='{high + 8:.1f}' y='{y + BAR - 4}'>{told}</text>")
        parts.append("</g>")
    width = LABELS + WIDTH + NUMBERS
    return f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img'>{''.join(parts)}</svg>"


def _x(value: float | None, top: float) -> float:
    return LABELS + max(0.0, min(value or 0.0, top)) / top * WIDTH


def _interval(verdict: Verdict) -> str:
    """Return one number on a line, with the interval that was decided about."""
    if verdict.synthetic is None or verdict.low is None or verdict.high is None:
        return f"<p class='none'>{_text(verdict.why)}</p>"
    low, high = min(verdict.low, 0.0) if verdict.low < 0 else 0.0, verdict.high * 1.15 if verdict.high > 0 else 1.0
    left, right, at = (
        LABELS + (value - low) / (high - low) * WIDTH for value in (verdict.low, verdict.high, verdict.synthetic)
    )
    width, height = LABELS + WIDTH + NUMBERS, 34
    title = _text(_told(verdict, "the answer"))
    return (
        f"<svg viewBox='0 0 {width} {height}' width='{width}' height='{height}' role='img'><g class='{_kind(verdict)}'>"
        f"<title>{title}</title><path class='axis' d='M{LABELS} 17H{LABELS + WIDTH}'/>"
        f"<rect x='{left:.1f}' y='10' width='{max(right - left, 2):.1f}' height='14' rx='3'/>"
        f"<circle cx='{at:.1f}' cy='17' r='4'/>"
        f"<text class='label' x='{LABELS - 8}' y='21'>{_mark(verdict)} {_number(verdict.synthetic)}</text>"
        f"<text class='number' x='{LABELS + WIDTH + 8}' y='21'>{_number(verdict.low)} … {_number(verdict.high)}</text>"
        "</g></svg>"
    )


def _kind(verdict: Verdict) -> str:
    return "none" if verdict.decision is None else "hold" if verdict.decision else "off"


def _mark(verdict: Verdict) -> str:
    """Return a sign beside the colour, for those who can't tell colours apart."""
    return {"hold": "✓", "off": "✗", "none": "?"}[_kind(verdict)]


def _told(verdict: Verdict, label: str) -> str:
    told = {"hold": "within", "off": "not within", "none": "not decided:"}[_kind(verdict)]
    low, answer, high = map(_number, (verdict.low, verdict.synthetic, verdict.high))
    return f"{label}: synthetic {answer}, the truth is {told} {low} … {high}"


def _shortened(label: str) -> str:
    return label if len(label) <= 28 else f"{label[:27]}…"


def _queries(found: Fidelity) -> str:
    rows = []
    for finding in found.findings:
        first = finding.verdicts[0] if finding.verdicts else None
        names = ", ".join(dict.fromkeys(v.decider for v in finding.verdicts if v.decider is not None))
        least = max((v.least_tau or 0.0 for v in finding.verdicts), default=None)
        told = f"{finding.holds} of {finding.decided}" if finding.refused is None else _text(finding.refused)
        rows.append(
            f"<tr><td><details><summary>{_text(finding.proposal.title)}</summary>"
            f"<code>{_text(finding.proposal.sql)}</code></details></td>"
            f"<td>{told}</td><td class='right'>{_number(finding.tau)}</td><td class='right'>{_number(least)}</td>"
            f"<td>{_text(names) or '–'}</td><td class='right'>{first.epsilon if first else 0:.3g}</td>"
            f"<td class='right'>{float(finding.cost):.2g}</td></tr>"
        )
    heads = ("query", "hold", "τ", "least τ", "decided by", "ε", "ρ charged")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return _table("list", f"<thead><tr>{head}</tr></thead>", rows)


def _table(kind: str, heads: str, rows: Sequence[str]) -> str:
    """Return a table that can be moved sideways by itself where the screen is narrow."""
    return f"<div class='wide'><table class='{kind}'>{heads}<tbody>{''.join(rows)}</tbody></table></div>"


def _notes(found: Fidelity) -> str:
    rows = () if found.compared is None else (f"Compared are {_text(found.compared)}.",)
    notes = (
        *rows,
        f"Each answer was checked against an interval of ± τ: {found.tau:.0%} of the largest answer of its query (of "
        "the column's range, for averages and medians), or the least τ that its budget can tell, where that is larger.",
        f"Decisions are drawn at random. At the least τ, a decision is wrong with probability {found.delta:g} when the "
        "answer is exact, and when it is off by 2 τ. Near τ itself it is close to a coin's. For averages and medians "
        "that is so if the protected table has at least as many rows as the synthetic one, unless earlier releases "
        "tell how many it has; for medians, R2T and SVT if its values are spread alike. In a smaller table they are "
        "wrong more often.",
        f"Each query got an equal part of ε = {found.epsilon:g}; its groups are different people, so they share it. "
        "What earlier releases tell already was not paid for again.",
        "To ask about a single answer: <code>noisegate verify</code>.",
    )
    return f"<h2>How to read this</h2><ul>{''.join(f'<li>{note}</li>' for note in notes)}</ul>"
