"""The conversation between a worker and its outboxes, where it is another one than with tubes.

Sessions have our schema first in their search path, so nothing is qualified here.
"""

from __future__ import annotations

from typing import Final

# With the terms that had records of this partition, also of another number of partitions: p1 of P1 shares
# records with p2 of P2 exactly when p1 = p2 modulo gcd(P1, P2). Released ones, too: a term that lost its
# session is released by the next one, and has not purged what it had sent.
OUTBOX: Final = """
    SELECT adopted, wakes, (
        SELECT coalesce(jsonb_agg(jsonb_build_array(
            t.partitions, t.partition, t.epoch, extract(epoch FROM t.renewed_at + t.hold))), '[]')
        FROM tube_terms(%(tube)s) AS t
        WHERE t.ended_at IS NOT NULL
            AND mod(t.partition - %(partition)s, gcd(t.partitions, %(partitions)s)) = 0)
    FROM outbox_list() WHERE outbox = %(tube)s
"""

# Sent as one message, as marks of tubes are: see pytube/sources/queries.py. Most records have no headers: a
# NULL is read in no time, an empty array takes as long as all else of a record.
MARK_DECLARE: Final = """
    DECLARE marked_records BINARY NO SCROLL CURSOR WITH HOLD FOR
    SELECT id, date_part('epoch', create_time), kafka_topic, kafka_key, kafka_value,
        nullif(kafka_header_keys, '{}'), nullif(kafka_header_values, '{}'), partition_key, retried, held
    FROM outbox_records_mark(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(limit)s, %(floor)s)
"""
MARK_FETCH: Final = "FETCH ALL FROM marked_records"
MARK_CLOSE: Final = "CLOSE marked_records"

# Commits of the worker's sessions do not wait for the disk. This one does: a record that is back after a
# crash of Postgres would be sent again, beyond what a mode promises.
PURGE: Final = """
    SELECT outbox_records_purge(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
    FROM set_config('synchronous_commit', 'on', true)
"""

PURGE_SENT: Final = """
    SELECT outbox_records_purge_sent(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s, to_timestamp(%(until)s))
    FROM set_config('synchronous_commit', 'on', true)
"""

RESET: Final = """
    SELECT outbox_records_reset(%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(ids)s)
"""

PARK: Final = """
    SELECT outbox_records_park(
        %(tube)s, %(partitions)s, %(partition)s, %(leader_id)s, %(items)s, %(hold)s)
"""
