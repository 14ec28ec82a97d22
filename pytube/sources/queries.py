"""The whole conversation between a worker and its tubes, statement by statement.

Sessions have pytube's schema first in their search path, so nothing is qualified here.
"""

from __future__ import annotations

import re
from typing import Final

from pytube.backfill import queries as backfills
from pytube.enrich.statements import ROOTS

_TERM: Final = "%(tube)s, %(partitions)s, %(partition)s, %(leader_id)s"
"""The first arguments of all that is fenced; see `pytube.sources.terms.Term.arguments`."""

# --- terms (pytube.sources.terms) ---------------------------------------------------------------

# Changes when the server was restarted, has recovered from a crash, or is another one: then the last
# commits of sessions that do not wait for the disk may be lost. (A crash resets all statistics.) So it does
# when the database was restored: then its sequence is another one, and may be behind.
INCARNATION: Final = """
    SELECT concat_ws(' ', pg_postmaster_start_time(), to_regclass('tube_seq')::oid,
        (SELECT stats_reset FROM pg_stat_archiver))
"""

# Whether the server was replaced or restored; the answer is for the first who finds it.
SOURCE_CHECK: Final = "SELECT tube_source_check(%(seen_seq)s, %(note)s)"
SOURCE_NOTE: Final = "SELECT tube_source_note(%(tube)s)"

PARTITIONS: Final = "SELECT tube, partitions FROM tube_registry WHERE tube = ANY(%(tubes)s)"

# Shards of companions are numbers of relations, which stay on their host.
SHARDS: Final = """
    SELECT DISTINCT a.tube, a.shard, a.shards
    FROM tube_attachment AS a JOIN tube_registry AS r ON r.tube = a.tube
    WHERE a.tube = ANY(%(tubes)s) AND r.companion_of IS NULL
"""

SYNC: Final = "SELECT tube_sync()"
FIT_INDEX: Final = "SELECT tube_index_fit()"

SINK_NOTE: Final = "SELECT wanted, emptied_at::text, is_new, is_over FROM tube_sink_note(%(tube)s, %(held)s)"
SINK_MARKS: Final = """
    SELECT s.tube, s.mark, s.source FROM tube_sink_list() AS s WHERE s.mark IS NOT NULL
"""
SINKS_MADE: Final = "SELECT s.tube FROM tube_sink_list() AS s WHERE NOT s.makes"

LAST_EPOCH: Final = "SELECT last_epoch FROM tube_registry WHERE tube = %(tube)s"

LEADER_EPOCH: Final = "SELECT tube_leader_epoch(%(tube)s, %(partitions)s, %(partition)s)"

LEADER_ACQUIRE: Final = f"""
    SELECT tube_leader_acquire(
        {_TERM}, %(instance_id)s, %(client_id)s,
        %(expected_epoch)s, %(election)s, %(hold)s, %(lease)s),
        (SELECT key_type::text FROM tube_registry WHERE tube = %(tube)s),
        tube_pause_reason(%(tube)s, %(partitions)s, %(partition)s)
"""  # noqa: S608 # of a constant

LEADER_RENEW: Final = f"SELECT tube_leader_renew({_TERM})"

# Of hundreds of terms nearly all are renewed, with nothing more to say: they have no row. FULL, so that the
# function is called even without terms: its failure shows a worker that this server has become read-only.
LEADERS_RENEW: Final = """
    SELECT t.leader_id, r.renewed, r.paused, r.step
    FROM unnest(%(leader_ids)s::uuid[]) AS t (leader_id)
    FULL JOIN tube_leaders_renew(NULL, %(leader_ids)s::uuid[], %(troubles)s) AS r USING (leader_id)
    WHERE (r.renewed AND r.paused IS NULL AND r.step IS NULL) IS NOT TRUE
"""
LEADER_RELEASE: Final = f"SELECT tube_leader_release({_TERM})"

FAILING_NOTE: Final = """
    SELECT tube_failing_note(%(tube)s, %(partition)s, %(reason)s, %(terms)s, %(seconds)s)
"""

LEADER_WAIT: Final = f"SELECT extract(epoch FROM tube_leader_wait({_TERM}))::float8"  # noqa: S608 # of a constant

LEASE_TICKS: Final = """
    SELECT tube, partitions, instances, free, mine, rank
    FROM tube_lease_ticks(%(tubes)s, %(instance_id)s, %(client_id)s, %(ttl)s)
"""

KAFKA_REPORT: Final = "SELECT tube_kafka_report(%(instance_id)s, %(client_id)s, %(unreachable)s)"

LEASE_LEAVE: Final = "SELECT tube_lease_leave(%(tube)s, %(instance_id)s)"

# What each process sees of the partitions of tubes: who leads them, whether the leader can deliver, how late
# they are. A leader that is lost is none.
PLACES: Final = """
    SELECT tube, s.partition, CASE WHEN NOT l.lost THEN l.instance_id END,
        l.sink_down IS NULL AND l.source_down IS NULL,
        coalesce(extract(epoch FROM clock_timestamp() - s.inc_min_ts)::float8, 0), s.inc_min_seq
    FROM tube_stats() AS s LEFT JOIN tube_leaders() AS l USING (tube, partition)
    WHERE tube = ANY(%(tubes)s)
"""

# --- pods (pytube.sources.pods) -----------------------------------------------------------------

# A mark, which also purges finished pods, is sent as one message of these five. The cursor is WITH HOLD: the
# pods are marked and the locks gone when COMMIT ends, before the first row is sent. A worker that is stopped
# while it reads them holds nothing that a new leader would wait for. (date_part gives a double at once;
# extract makes a numeric first.)
MARK_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
MARK_DECLARE: Final = f"""
    DECLARE marked_pods BINARY NO SCROLL CURSOR WITH HOLD FOR
    SELECT seq, op, shard, ids, payload, date_part('epoch', ts)
    FROM tube_pods_mark(
        {_TERM}, %(limit)s,
        %(floor)s, %(backfill_floor)s, %(exclude_backfill)s, %(seqs)s)
"""  # noqa: S608 # of a constant
# For tubes with keys of another type than bigint.
MARK_KEYS_DECLARE: Final = f"""
    DECLARE marked_pods BINARY NO SCROLL CURSOR WITH HOLD FOR
    SELECT seq, op, shard, keys, payload, date_part('epoch', ts)
    FROM tube_pods_mark(
        {_TERM}, %(limit)s,
        %(floor)s, %(backfill_floor)s, %(exclude_backfill)s, %(seqs)s)
"""  # noqa: S608 # of a constant
MARK_COMMIT: Final = "COMMIT"
MARK_FETCH: Final = "FETCH ALL FROM marked_pods"
MARK_CLOSE: Final = "CLOSE marked_pods"

PURGE: Final = f"SELECT tube_pods_purge({_TERM}, %(seqs)s)"
RESET: Final = f"SELECT tube_pods_reset({_TERM}, %(seqs)s)"
PARK: Final = f"SELECT tube_pods_park({_TERM}, %(items)s, %(most)s)"
FAIL: Final = f"SELECT tube_pods_fail({_TERM}, %(items)s)"

STOP: Final = f"SELECT tube_pods_stop({_TERM}, %(why)s, %(reason)s, %(items)s)"
UNPARK: Final = f"SELECT tube_pods_unpark({_TERM}, %(shards)s, %(ids)s)"

# The keys that have failed: the ones to send again with their attempts and the seconds until the next one,
# and the parked ones.
FAILED_KEYS: Final = """
    (SELECT shard, id, attempts, extract(epoch FROM next_at - clock_timestamp())::float8
    FROM tube_attempt
    WHERE tube = %(tube)s AND shard %% %(partitions)s = %(partition)s
    LIMIT %(limit)s)
    UNION ALL
    (SELECT shard, id, NULL, NULL
    FROM tube_parked
    WHERE tube = %(tube)s AND shard %% %(partitions)s = %(partition)s AND id IS NOT NULL
    LIMIT %(limit)s)
"""

# Which of these keys are parked, and were not retried by an operator since.
STILL_PARKED: Final = """
    SELECT p.shard, p.id
    FROM unnest(%(shards)s::integer[], %(ids)s::text[]) AS k (shard, id)
    JOIN tube_parked AS p ON p.tube = %(tube)s AND p.shard = k.shard AND md5(p.id) = md5(k.id) AND p.id = k.id
    WHERE p.retried_at IS NULL
"""

# --- steps --------------------------------------------------------------------------------------

STEP_TAKE: Final = f"""
    SELECT seq, extract(epoch FROM ts)::float8, shard, key
    FROM tube_step_take({_TERM}, %(step)s)
"""  # noqa: S608 # of a constant
STEP_END: Final = f"SELECT tube_step_end({_TERM}, %(step)s, %(outcome)s, %(error)s)"

# --- control pods -------------------------------------------------------------------------------
BACKFILL_TAKE: Final = f"SELECT tube_backfill_take({_TERM}, %(shard)s, %(seq)s)"
SWEEP_READY: Final = f"SELECT tube_sweep_ready({_TERM}, %(shard)s, %(seq)s)"
SWEEP_BACKLOG: Final = "SELECT waiting FROM tube_backfill_pressure(%(tube)s, %(most)s)"
SWEEP_TOUCH: Final = f"SELECT tube_sweep_touch({_TERM}, %(shard)s, %(ids)s)"
SWEEP_END: Final = f"SELECT tube_sweep_end({_TERM}, %(shard)s, %(seq)s)"

# --- the settled seq (pytube.sources.settled) ---------------------------------------------------

SETTLE_SEQ: Final = "SELECT tube_settle_seq()"
SETTLE_XID: Final = "SELECT pg_current_xact_id()::text"
SETTLE_DONE: Final = "SELECT tube_settle_done(%(xid)s::xid8)"
SETTLE_WRITERS: Final = "SELECT tube_settle_writers(NULL)::text[]"

# --- sleeping (pytube.sources.wakeup) -----------------------------------------------------------

CHANNELS: Final = "SELECT tube_channel(tube), tube FROM unnest(%(tubes)s::text[]) AS tube"
NOTIFY: Final = "SELECT pg_notify(%s, %s), tube_wakes(), pg_notification_queue_usage() < 0.5"
"""As writers do, and whether they would: see tube_private_may_notify in sql/capture/put.sql."""
SLEEP: Final = f"SELECT tube_sleep({_TERM})"
WAKE: Final = "SELECT tube_wake(%(tube)s, %(partition)s, %(leader_id)s)"

# --- samples (pytube.worker.samples) ----------------------------------------------------------

SAMPLE_AGES: Final = """
    SELECT s.tube, extract(epoch FROM clock_timestamp() - s.ended_at)::float8
    FROM tube_sample AS s WHERE s.tube = ANY(%(tubes)s)
"""
TUBE_LAG: Final = """
    SELECT extract(epoch FROM clock_timestamp() - min(l.since))::float8
    FROM tube_load(1) AS l WHERE l.tube = %(tube)s
"""
SAMPLED: Final = "SELECT tube_sampled(%(tube)s, %(checked)s, %(differing)s, %(undecided)s, %(detail)s)"

# --- what a worker's role needs -----------------------------------------------------------------

_STATEMENTS = [text for name, text in dict(globals()).items() if name.isupper() and isinstance(text, str)]
_TEXT = "\n".join([*_STATEMENTS, ROOTS, *backfills.OF_WORKERS])

FUNCTIONS: Final = frozenset(re.findall(r"\b(tube_[a-z_]+)\(", _TEXT))
"""pytube's functions that a worker calls, read off the statements that it sends."""

TABLES: Final = frozenset(re.findall(r"\b(?:FROM|JOIN) (tube_[a-z_]+)\b(?!\()", _TEXT)) | {"tube_version"}
"""pytube's tables that a worker reads."""
