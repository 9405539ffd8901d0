"""Every limit of the proxy on size, time and memory, with its reason and what a client sees on either side of it.

What the format of the protocol itself allows is in proxy/wire; what an operator can set is in planner/policy/server.py.
"""

# --- who gets in -------------------------------------------------------------------------------------------

FREE_TRIES = 5
"""Failed logins of one address at one name that cost nothing. Then each waits twice as long as the last."""

LONGEST_WAIT = 60.0
"""Seconds that such a wait lasts at most: guessing is slow, and nobody is locked out for good."""

FAMILIAR_WAIT = 2.0
"""The longest wait for somebody who logged in from the same address before: others there can't shut them out."""

ELSEWHERE_TRIES = 50
"""Failed tries at one name, from all addresses that never logged in with it, before they have to wait."""

FORGET_AFTER = 900.0
"""Seconds after which a failure is forgotten."""

MAX_REMEMBERED = 10_000
"""Addresses and names whose failures are remembered. With more the oldest are forgotten, and may try afresh."""

MAX_NAME = 100
"""Characters of a name that are remembered. Longer ones are cut, and share their waits with those that begin alike."""

# --- connections -------------------------------------------------------------------------------------------

MESSAGE_SECONDS = 60.0
"""In so many seconds a message that has begun must end. A client that takes longer is disconnected."""

READ_SECONDS = 120.0
"""In so many seconds a client must take up some of what waits for it. One that does not is disconnected."""

MAX_UNREAD = 2**18
"""Bytes that are taken from a client while its statement runs. More stays in its own buffers until then."""

MAX_UNSENT = 2**16
"""Bytes that wait for the end of a pipeline before they are sent: fewer packets, and no more memory."""

THREADS = 16
"""Statements that are worked on at once. Others wait, shared fairly between analysts."""

GRACE_SECONDS = 30.0
"""Seconds that statements which are charged have to be answered in when the server ends. What is not answered then is
stored, and free when it is asked again."""

LAST_SECONDS = 5.0
"""Seconds that threads have to end in after that. The process does not wait for those that do not."""

MONITOR_SECONDS = 10.0
"""Seconds that a request for /health or /metrics may take to arrive. Then it is disconnected."""

MAX_MONITOR_BYTES = 8_192
"""Bytes of such a request. A longer one is disconnected."""

MAX_WAITING_LINES = 10_000
"""Lines of the log that may wait to be written. Further ones are dropped, and counted."""

# --- conversations -----------------------------------------------------------------------------------------

MAX_SQL = 1_000_000
"""Characters of a message with SQL. A longer one is refused."""

MAX_PORTALS = 10_000
"""Statements, and portals, that a session may keep. One more is refused."""

MAX_HELD = 256 * 2**20
"""Bytes of rows that a session may keep: of results that it is reading, and of open portals and cursors. What would be
more is refused (53200), and free when it is asked again."""

MAX_HELD_BY_ANALYST = 2 * MAX_HELD
"""The same for all sessions of an analyst together."""

ANSWER_BYTES = 64 * 2**20
"""About how many bytes kept free answers take, as rows and as they were sent. What is forgotten is planned again."""

MAX_CACHED_ROWS = 2_000
"""Rows of an answer that is kept. A longer one is worked out each time."""

MAX_CACHED_SQL = 10_000
"""Characters of a question whose answer is kept."""

MAX_SETTINGS_TEXT = 100_000
"""Characters of settings that are remembered for one session: memory is shared with the others. More is refused."""

# --- questions about the catalog ---------------------------------------------------------------------------

CATALOG_SECONDS = 60.0
"""Seconds that one statement about the catalog may take. One that takes longer is stopped, and refused."""

TYPING_SECONDS = 10.0
"""Seconds that it may take to find the types of such a statement. Then it is refused."""

MAX_CATALOG_ROWS = 1_000_000
"""Rows of one answer about the catalog. A larger one is refused."""

CATALOG_MEMORY = "1GB"
"""Memory of the catalog's DuckDB, for all analysts together. A statement that needs more fails."""

MAX_CATALOG_TEXT = 1_000_000
"""Characters that one function may make there. More is refused; DuckDB does not count them in its memory."""

MAX_SERIES = 10_000_000
"""Numbers that generate_series gives there. More is refused."""
