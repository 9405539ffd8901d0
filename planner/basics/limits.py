"""Every limit of the planner on size, time and memory, with its reason and what a user sees on either side of it.

A number that only chooses between two ways to the same answer stays where it is used. What is said of a limit in
docs/limits.md is compared with this module by tests/test_limits_page.py.
"""

# --- what a curator writes ---------------------------------------------------------------------------------

MAX_POLICY_BYTES = 8 * 2**20
"""A list of some hundred thousand values fits, and takes seconds to read. A larger policy is refused."""

MAX_KEY_PARTS = 32
"""The time that tomllib takes grows with the square of a key's parts. A policy with a longer key is refused."""

MAX_COUNT = 2**53
"""Such numbers are exact as floats. A policy that states more rows, of a table or of a unit, is refused."""

MAX_GRID = 2**60
"""Grid indices, and a little arithmetic with them, fit 64 bits. A finer step between bounds is refused."""

MAX_VALUES = 2**20
"""A column with more values is never written out one by one: it can be summed, and told apart from NULL, but not
grouped or compared."""

# --- what an analyst writes --------------------------------------------------------------------------------

MAX_TOKENS = 10_000
"""A statement of more words, numbers and signs takes too long to plan, and is refused."""

MAX_DIGITS = 1_000
"""Python takes the square of the digits to read a number. One with more is refused."""

MAX_PARAMETERS = 65_535
"""The protocol counts parameters in 16 bits. A $n beyond is refused: no client could give it a value."""

MAX_GROWTH, ALWAYS_ALLOWED = 4, 10_000
"""When names are replaced by what they stand for, a query may become so many times as large as it was written, and
have so many parts in any case, which takes about a second. Beyond, it is refused as too large."""

MAX_SETS = 256
"""Each grouping set is placed by itself. A SELECT with more is refused, and can be asked in pieces."""

MAX_MEASURES = 12
"""A cell has two corners for each summed column, 4,096 in all. Sums of more columns in one SELECT are refused."""

MIN_SETTING, MAX_SETTING = 1e-9, 1e18
"""An accuracy, or a cost, outside this range means nothing. A setting, or an argument, beyond it is refused."""

# --- expressions on public things --------------------------------------------------------------------------

MAX_TEXT = 10_000
"""Characters of a constant, or of what one function makes of others: with 2,048 rows at a time that is 20 MB, which
DuckDB does not count in its memory. What would be longer is refused."""

MAX_COMPARED = 255
"""Characters of each of two texts whose distance is found, which takes as many steps as their product. Longer ones
are refused."""

MAX_PATTERN = 1_000
"""Characters of a regular expression. A longer one, or one that is no constant, is refused."""

MAX_JOINED = 32
"""Arguments of concat: a macro is declared for each number of them. With more the function is unknown."""

MAX_MADE = 100
"""Calls in one statement that make texts: 2 GB if each makes the longest there may be. More are refused."""

SANDBOX_SECONDS = 60.0
"""Seconds that one expression may take on public and noisy data. What takes longer is stopped, and refused if it was
not paid for; if it was, it is stored, and free in a simpler form."""

SANDBOX_MEMORY = "2GB"
"""Memory of DuckDB for all analysts together. A question that needs more fails, at no cost."""

MAX_ANSWER_ROWS = 1_000_000
"""Rows of one answer: they are held in memory until the client has read them. A larger answer is refused."""

# --- questions on cells ------------------------------------------------------------------------------------

MAX_CELLS = 2**20
"""Combinations of what a question tells apart in its columns, and of these with public joins. A larger question is
refused: it would take gigabytes. Up to it, planning takes seconds."""

MAX_SUM_BITS = 80
"""Grid indices, or their squares, of at most so many bits: sums over 2^40 rows then fit any engine's 128. A sum of
larger numbers is refused; a coarser step would do."""

SMALLEST_VALUE, LARGEST_VALUE = 1e-60, 1e60
"""What one record adds must lie between these in size, so that variances fit a float. Else the question is
refused."""

ROW_BITS = 40
"""A table is taken to have at most 2^40 rows. Arithmetic that could pass 63 bits with so many uses wider integers."""

MAX_UNITS = 2**62 - 1
"""Largest cost that an account can hold, in units. A question so accurate that it costs more is refused before it
could overflow."""

MAX_COST_TABLE = 2**20
"""Entries of the largest table that is formed to find the dearest cell. Beyond, the maximum is bounded from above:
the gate then refuses earlier than it had to. Shares of a round on more cells are charged to who releases it."""

MAX_JOINT = 2**14
"""Up to so many answers, overlapping grouping sets are one problem; more are cut into a few, and cost a little
more."""

MAX_COEFFICIENTS = 2**24
"""Coefficients of the answers of one problem: 128 MB. Grouping sets with more are cut into several problems, and a
SELECT that has four times as many in one set is refused."""

MAX_FIT_WORK = 2**32
"""Operations of a step that fits a strategy, a third of a second. Grouping sets beyond are cut into several
problems."""

# --- what is known -----------------------------------------------------------------------------------------

MAX_POINTS = 4096
"""Points of the largest chart: a matrix on it has 128 MB. What was released on more is brought as far as it fits, so
that a question may pay for what is known in part. A question with more points is cut into boxes, and EXPLAIN says
so."""

MAX_ASKED = 512
"""Answers that are planned against the history as one problem, in about a second. A question with more is cut into
pieces, each planned with what those before it will tell, and EXPLAIN says so."""

MAX_CHART_ENTRIES = 2**24
"""Coefficients that the answers of a question have on one chart: 128 MB. A question of more than 512 answers that has
more is looked at slice by slice, and one with more covariances than a quarter of it draws on its own releases only."""

OWN_POINTS = 128
"""A question that is too large for one chart is cut into boxes of so many points: each is then a small problem."""

SLICE_POINTS = 1_024
"""What is known of such a box is brought onto a chart of so many points at most; finer releases are summed."""

MAX_SLICES = 1_024
"""More boxes would take minutes. A question of more than about 130,000 points that does not count whole marginals
draws on its own earlier releases only, and EXPLAIN says that it is measured on its own."""

SMALL_MARGINALS = 384
"""Up to so many counts of whole marginals are always planned against the whole history; more, part by part if that
costs no more."""

MAX_EVEN = 512
"""Points, and answers, for which it is worked out what charges the dearest cell least, as a round would. Beyond, a
SELECT may leave the budget a little higher than a round of it would have."""

MAX_RANGE = 2**24
"""Range of grid indices of a sum that is shared with others: beyond, rounding would add up over very many records. A
sum of a longer range draws on its own earlier releases only."""

MAX_MARGINAL_WORK = 2**28
"""Cells of grouping sets times their parts: some seconds to put answers together. Beyond, whole marginals are planned
as any other counts."""

MAX_FOLDED = 512
"""Cells of a part of a marginal that is brought to small questions. What a larger part tells is not used there."""

MAX_COMMON = 256
"""Points on which EXPLAIN works out what the common mechanism and its residual would cost. Beyond, it does not say
so."""

HISTORY_BYTES = 128 * 2**20
"""About how many bytes what is known may take while it is kept, for all tables. What is forgotten is worked out
again: an answer takes longer, and is the same."""

READY_BYTES = 64 * 2**20
"""About how many bytes queries may take that stay compiled and placed. What is forgotten is compiled again."""

CACHE_ENTRIES = 8_000_000
"""Numbers in the cache of data vectors, 64 MB. What is forgotten is read from the source again."""

# --- functions in FROM -------------------------------------------------------------------------------------

MAX_ANALYSES = 16
"""A choice looks at pairs of analyses. One among more is refused."""

MAX_DEVIATIONS = 100.0
"""No noise is ever so many times its deviation. A larger `deviations` is refused."""

MAX_VERIFIED_GROUPS = 384
"""Each group is a decision of its own, with a release of its own. A query of more groups can't be verified."""

MAX_LISTED_VALUES = 512
"""For columns of so many values EM_med is among the deciders that are compared. For more it is used if it is asked
for."""

MIN_EPSILON, MAX_EPSILON = 1e-6, 100.0
"""The epsilon of a decision. Less decides nothing, more protects nobody: both are refused."""

MAX_ROUND_NAME = 200
"""Characters of the name of a round. A longer one is refused."""

MAX_ROUND_ROWS = 512
"""Answers that are planned as one problem on one chart. Larger rounds that do not fit into blocks are cut, and tell
no bound; a single question with more is planned by itself."""

MAX_DENSE = 1024
"""Points up to which questions about whole marginals are planned as rows of one problem; beyond, part by part."""

MAX_ORBITS = MAX_POINTS
"""Cells that a round may tell apart and be one problem: what is released for all of them has to find room on a
chart."""

MAX_ROUND_WORK = 2**33
"""Operations of a step of the solver: with some 2,000 answers that differ all steps take about a minute. Larger
rounds are cut, cost more, and tell no bound."""

MAX_KNOWN = 2048
"""Points on which earlier releases are added up for a round. What speaks of more is left out, and with it the
bound."""

MAX_ROUND_ENTRIES = 2**23
"""Entries of an array of a round's rows on points, 64 MB. Rounds with more are cut."""

MAX_IDENTITY_CELLS = 2048
"""Cells that the mechanism identity counts one by one. A round with more is refused with it; others are not."""

MAX_SHARED = 512
"""Points on which a mechanism shares a given rho among analysts. Beyond, all errors are scaled alike."""

# --- waiting -----------------------------------------------------------------------------------------------

BUSY_SECONDS = 30
"""How long a charge waits for other gates on the same ledger. Then the question is refused, unpaid."""

IDLE_SECONDS = 15
"""How long a gate may do nothing inside a transaction before the server of its ledger ends it, since it may have been
paused. Its question is refused, unpaid."""

SILENT_SECONDS = 45
"""After so long without a word from the server of a ledger the connection is taken to be lost, and made anew."""

RECOVER_SECONDS = 10
"""How long that server has to come back after a commit of unknown outcome. Then the gate says that it does not know
whether the question was paid for; asking again tells."""
