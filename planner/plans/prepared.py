"""A query made ready to be planned: placed on cells and cut into questions, whatever the accuracy and the history."""

from __future__ import annotations

from dataclasses import dataclass

from planner.cells.workload import Placement, Recipe, Workload
from planner.duck.workbench import Workbench
from planner.history.marginals import MarginalQuestion, symmetric
from planner.history.recall import recallable, small
from planner.questions import labelled as nonlinear
from planner.questions import linear
from planner.questions.labelled import Labelled
from planner.questions.linear import Question
from planner.sql.placement import Domains, Placer
from planner.sql.query import Measured
from planner.sql.workload import workload


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """One measured query, placed: what it asks, whatever the accuracy; its tables live in one workbench."""

    measured: Measured
    placement: Placement
    linear: tuple[tuple[Question, tuple[int, ...]], ...]  # with the grouping sets of each
    recipes: tuple[Recipe, ...]
    labelled: tuple[tuple[int, int, Labelled], ...]  # with the numbers of the aggregate and of the set
    marginals: MarginalQuestion | None = None  # in place of `linear`, or beside it: what costs less is taken
    whole: MarginalQuestion | None = None  # the same question however small it is, if it is one about whole marginals

    @property
    def looked_up(self) -> list[tuple[str, str]]:
        """Return the questions, with their table, of which earlier releases are looked up one by one."""
        return [(question.digest, self.measured.table.name) for _, _, question in self.labelled]

    @property
    def tasks(self) -> int:
        return (len(self.linear) if self.marginals is None else 1) + len(self.labelled)


def prepare(measured: Measured, sandbox: Domains, bench: Workbench) -> Prepared:
    """Return a measured query on its workspaces. Depends on public things only."""
    placer = Placer(measured, sandbox, bench)
    numbered = list(enumerate(measured.aggregates))
    work = workload([(i, a) for i, a in numbered if a.traits.is_linear], placer)
    others = [(i, a) for i, a in numbered if not a.traits.is_linear]
    labelled = [(i, s, found) for i, a in others for s, found in enumerate(nonlinear.labelled(a, placer))]
    whole = symmetric(work)
    answers, cells = sum(work.placement.group_counts), work.placement.workspace.cells
    marginals = None if small(answers, cells) else whole
    questions = _questions(work, len(measured.sets)) if marginals is None or recallable(answers, cells) else ()
    return Prepared(
        measured=measured,
        placement=work.placement,
        linear=questions,
        recipes=work.recipes,
        labelled=tuple(labelled),
        marginals=marginals,
        whole=whole,
    )


def _questions(work: Workload, sets: int) -> tuple[tuple[Question, tuple[int, ...]], ...]:
    """Return the linear questions: all grouping sets as one problem, or as a few when that would be too large.

    Sets with more groups come first: what they tell about the others is known when those are planned.
    """
    if not work.functionals:
        return ()
    if linear.is_one_problem(work, range(sets)):
        return ((linear.question(work, range(sets)), tuple(range(sets))),)
    packs: list[tuple[int, ...]] = []
    for s in sorted(range(sets), key=lambda s: -work.placement.group_counts[s]):
        wider = next((i for i, pack in enumerate(packs) if linear.is_one_problem(work, (*pack, s))), None)
        if wider is None:
            packs.append((s,))
        else:
            packs[wider] = (*packs[wider], s)
    return tuple((linear.question(work, pack), pack) for pack in packs)
