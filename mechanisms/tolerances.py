"""Every tolerance of the mathematics, with its reason: one name for one meaning.

None of them touches privacy: what a release costs is worked out in whole numbers from the rows that are released
(`planner.questions.linear`), whatever a solver took for rounding. They decide when an answer counts as free, when
two directions count as one, and where a search ends. The margins of exact noise and of deciders are not here but
beside the proofs that need them, and how far and how often a solver steps is in its own module.
"""

# --- is a target met? ----------------------------------------------------------------------------------------

MET = 1 + 1e-9
"""A variance up to this times its target meets it. Below it an answer is free, or a plan is good enough; above it
more is released. Variances are sums of some thousand products, each right to 1e-16: rounding stays a hundred
times smaller."""

AIM = 1 - 1e-9
"""What is planned without a margin of its own aims at this part of its targets, so that it meets them as computed."""

SPARE = 1e-6
"""Of a target, by how much new rows do better than asked beside what is known: for rounding in the solver, and on
the grid that rows are released on. It makes a plan dearer by about as much."""

JUST_MET = 1e-10
"""A row whose variance is within this part of what it may have is just met: what it needs can't be taken away.
Smaller than MET, so that taking away never makes a target unmet."""

LIMIT_SPARE = 1e-10
"""So much less than allowed is released by plans that keep within limits, so that no cell passes its own by
rounding."""

RISE = 1e-6
"""By this part may the dearest cell pay more for that the cells below it pay less: a search for levels does not end
exactly at the level that was found before."""

NO_DEARER = 1 + 2e-6
"""The same once its rows are scaled to what they tell as they stand, which is another rounding of that size."""

# --- which directions are there? -----------------------------------------------------------------------------

OUTSIDE = 1e-6
"""A row whose part outside the known row space is shorter than this fraction of it is inside: the part is rounding.
Rows that are released on a grid leave the row space they were planned in by that much. If the part counted as a
new direction, all that such a row tells would go into it."""

HARDLY = 1e-10
"""A direction that is known so many times less well than the best one is rounding as well. A row may open a
direction by so little that rounding turns it; rows that tell what is really there, and come later, then leave it,
and open another one beside it that nothing is known of."""

RANK = 1e-8
"""What a row adds to the others is rounding if it is shorter than this fraction of the row: half of the digits."""

RANK_OF_LONGEST = 1e-14
"""The same as a fraction of the longest row, whose own rounding is so large."""

SPANNED = 1e-4
"""A power of the resolvent adds a direction to the subspace of a large join if more than this part of it is new: a
shorter one would be mostly rounding, and costs of the join change by less than its square."""

FULL_RANK = 1e-10
"""A Gram matrix whose eigenvalues are not further apart than this surely has full rank; beyond, a rank is looked
for."""

SAME_DIRECTION = 1e-8
"""Directions of two row spaces with a cosine above one minus this are the same: an angle of 1e-4, which is what is
left of the digits of a difference of projections."""

PARALLEL = 1e-14
"""Rows whose cosine is within this of one are parallel: rounding of a sum of squares."""

EIGENVALUE_CUT = 1e-8
"""Eigenvalues of an information matrix below this fraction of the largest are rounding when whole mechanisms are
compared: their rows have been whitened, which squares condition numbers."""

# --- what is rounding in a matrix? ---------------------------------------------------------------------------

FAINT = 1e-12
"""Information below this part of the largest is rounding: a thousand times what eigenvalues are known to."""

UNKNOWN = 1e-7
"""Of what is needed, this much counts as known about directions that nothing is known about, so that information can
be inverted; the targets are met by rows that are made longer at the end. Also the least weight that a search of
levels begins with, for the same reason."""

WHITE = 1e-13
"""Of the best-known direction, this much is added to what is known about all before a Cholesky factor is taken: the
least that keeps it positive."""

ROOTS = 1e-8
"""Roots of eigenvalues are known up to this part of the largest: eigenvalues are, to its square. Bounds are lowered
by as much, so that they stay below all costs."""

SINGULAR = 1e-13
"""Singular values are known up to this part of the largest, when they are taken of the matrix itself."""

SQUARES = 1e-14
"""Eigenvalues of a matrix times its transpose are known up to this part of the largest: some hundred roundings."""

TINY = 1e-15
"""Below this part of the largest, numbers that are divided by are taken to be this large: only so as not to
overflow."""

ENTRY = 1e-12
"""An entry smaller than this part of what it is a difference of is nothing but rounding: people who all have one
value."""

CONSTANT = 1e-9
"""Released rows that change along an axis by less than this part of their largest entry are constant there."""

INDEFINITE = 1e-9
"""Matrices that should add up to one say nothing if their sum has eigenvalues this far apart."""

WEIGHT_FLOOR = 1e-9
"""Weights of rows and cells stay above this part of their sum, or of the largest, so that none is lost to rounding
on the way of a search: the bound loses no more than this."""

LEAST_ALONE = 1e-9
"""No row alone costs less than this fraction of releasing it: rounding must not make it free."""

MULTIPLIER_FLOOR = 1e-14
"""The same for multipliers of whole marginals, relative to the largest: numbers, of which no matrix is inverted."""

START_RIDGE = 1e-9
"""Of its largest entry, this much is added to a matrix that only gives a search its start, so that it can be
inverted."""

# --- where does a bisection end? -----------------------------------------------------------------------------

BISECTED = 1e-10
"""A scale that is looked for between two others is found when these differ by less: a tenth of what MET forgives."""

JUST_ABOVE = 1 + 1e-12
"""A scale that is known in closed form is raised by this, so that what it gives meets its targets as computed."""

MOST_TAKEN = 1 - 1e-9
"""Of what may be taken away no more than this is, so that what is left can be inverted."""

# --- how right are sums? -------------------------------------------------------------------------------------

FLOAT_SUM = 2.0**-48
"""Relative rounding error that sums of floating-point numbers may have; intervals are made wider by it."""
