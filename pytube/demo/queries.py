"""What the demonstration asks Postgres. The search path has our schema first, then `public`."""

from __future__ import annotations

from typing import Final

SEQ: Final = "SELECT last_value FROM tube_seq"

ROWS: Final = """
    SELECT (SELECT count(*) FROM pgbench_accounts) + (SELECT count(*) FROM pgbench_tellers)
        + (SELECT count(*) FROM pgbench_branches)
"""

FIGURES: Final = """
    SELECT (SELECT last_value FROM tube_seq), count(*), coalesce(sum(cardinality(ids)), 0)::bigint,
        coalesce(extract(epoch FROM clock_timestamp() - min(ts)), 0)::float8
    FROM {tube}
"""

LEADERS: Final = "SELECT partition, client_id, epoch FROM tube_leaders(%(tube)s) ORDER BY partition"

TERMS: Final = """
    SELECT client_id, partition, epoch, extract(epoch FROM acquired_at)::float8,
        extract(epoch FROM coalesce(ended_at, clock_timestamp()) - acquired_at)::float8,
        coalesce(outcome, 'leads')
    FROM tube_terms(%(tube)s)
    ORDER BY acquired_at, epoch
"""

PARKED: Final = "SELECT count(*) FROM tube_park_list(%(tube)s, 1000)"

# The shard is worked out here anew, so that a mistake in ours would be seen.
ACCOUNTS: Final = "SELECT (aid %% 16)::integer, aid::bigint, row_to_json(r)::text FROM pgbench_accounts AS r"
TELLERS: Final = "SELECT 16, tid::bigint, row_to_json(r)::text FROM pgbench_tellers AS r"
BRANCHES: Final = "SELECT 17, bid::bigint, row_to_json(r)::text FROM pgbench_branches AS r"

PROBE: Final = "UPDATE pgbench_tellers SET filler = %(filler)s WHERE tid = %(teller)s"
