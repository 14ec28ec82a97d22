"""Lines of the log besides the events of `pytube.events`: for the reference, and a test that compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Line(NamedTuple):
    """When a line is logged, and what to do about it."""

    level: str
    """Several separated by commas."""

    fields: str
    """Besides `host`, `tube`, and `partition`; separated by spaces."""

    when: str
    remedy: str = ""


LINES: Final[Mapping[str, Line]] = {
    "answering_failed": Line(
        "error",
        "",
        "A bug of pytube in the answer to a scrape or a health check",
        "report it",
    ),
    "backfill_stuck": Line(
        "warning",
        "backfill reason",
        "A backfill that was left to workers can't continue; it is retried. Without `backfill`: "
        "the worker could not check for backfills. Once",
        "follow the reason",
    ),
    "claims_paused": Line(
        "warning, error",
        "reason",
        "The worker claims no partitions, because it can't ask Postgres (`lease`), or Postgres was away "
        "for `session_timeout` (`neli`)",
        "bring Postgres up",
    ),
    "claims_resumed": Line("info", "failures", "The worker claims partitions again"),
    "config_unchanged": Line("info", "", "SIGHUP asked for the file, and it has no changes"),
    "election_not_joined": Line(
        "warning",
        "reason",
        "The worker could not join the election of a created tube, or leave a dropped one's; it "
        "retries. Once",
        "follow the reason",
    ),
    "election_restarted": Line("error", "", "The thread of the election failed, and restarts", "report it"),
    "enriching_unchecked": Line(
        "warning",
        "reason remedy",
        "At its start the worker could not check how a table's documents are read, because it is locked",
        "follow `remedy`",
    ),
    "group_answers": Line("info", "", "The Kafka group takes this worker in as a member again"),
    "group_lost": Line(
        "info",
        "partitions",
        "The Kafka group dropped this worker. It keeps its partitions until another worker acquires them",
    ),
    "group_not_left": Line(
        "warning", "seconds", "The worker stopped, but Kafka did not let it leave the group in time"
    ),
    "group_silent": Line(
        "warning",
        "reason",
        "Kafka answers, but the coordinator of its group has not taken this worker in for the session "
        "timeout, so the worker leads nothing new. Once",
        "see the log of the broker that coordinates the group, and restart that broker",
    ),
    "handover_late": Line(
        "warning",
        "",
        "A partition was not handed over within `drain_limit`, and is given up",
        "often: the sink is slow",
    ),
    "host_not_served": Line(
        "warning",
        "reason remark",
        "A host that was down at the start is back, but can't be served; it is retried",
        "follow the reason",
    ),
    "host_served": Line("info", "", "The host is served from now on"),
    "index_build_started": Line(
        "info", "partitions", "`tube create` builds the index for another number of partitions", "wait"
    ),
    "index_drop_started": Line("info", "index reason", "A command drops an index that is not needed"),
    "index_left": Line(
        "warning",
        "partitions reason",
        "`tube create` or `outbox create` does not build the index: the role doesn't own the table",
        "none: a worker builds it once the table is small; or run the command as the role in the reason",
    ),
    "kafka_down": Line(
        "warning",
        "bootstrap_servers reason",
        "The worker can't reach a Kafka cluster that it needs",
        "bring Kafka up, or fix the way there; leave the workers alone",
    ),
    "kafka_topic_not_compacted": Line(
        "warning",
        "topic policy",
        "The topic of a sink `kafka` loses documents after its retention",
        "set `cleanup.policy=compact` on it",
    ),
    "kafka_topic_not_described": Line(
        "warning",
        "topic reason",
        "The sink may not read whether its topic is compacted",
        "grant DESCRIBE_CONFIGS on it",
    ),
    "kafka_up": Line(
        "info", "bootstrap_servers seconds", "The worker reaches the cluster again, after `seconds`"
    ),
    "leader_topic_changed": Line("info", "topic partitions", "The leader topic was created or widened"),
    "leader_topic_narrow": Line(
        "error",
        "topic has needs reason remedy",
        "The partitions beyond the topic's width have no leader",
        "run `remedy`",
    ),
    "leading_failed": Line(
        "error", "", "A bug of pytube in one partition, which is offered again", "report it"
    ),
    "lease_not_left": Line(
        "warning",
        "reason",
        "The worker stopped without releasing its leases; others get them after `session_timeout`",
    ),
    "librdkafka_said": Line("debug", "kind severity text passed_over", "A message of the Kafka client"),
    "listening_failed": Line(
        "warning", "reason", "Postgres does not let the worker listen, so it polls. Once", "follow the reason"
    ),
    "lock_awaited": Line(
        "warning",
        "reason",
        "`tube attach` or `detach` waits for the lock of a table; the reason names the session that has it",
        "wait, or end that transaction",
    ),
    "notifications_missing": Line(
        "info",
        "reason remedy",
        "The worker polls every 2 to 250 ms instead of being woken",
        "none, or follow `remedy`",
    ),
    "page_failed": Line("error", "path", "A bug of pytube in a page of `pytube web`", "report it"),
    "postgres_said": Line(
        "warning, info, debug", "text", "A message of Postgres to a command or a worker", "read it"
    ),
    "reason_changed": Line(
        "warning",
        "what reason seconds",
        "`what` (`sink`, `source`, or `topic NAME`) is still down after `seconds`, now for another reason",
        "as for `sink_down`, `source_down`, `topic_down`",
    ),
    "redis_may_evict": Line(
        "warning",
        "server reason",
        "With full memory, Redis may drop the keys that refuse late writes",
        "set `maxmemory-policy` to `noeviction`",
    ),
    "redis_may_lose": Line(
        "warning",
        "server reason",
        "Redis keeps no log of its writes: a crash loses acknowledged writes",
        "turn `appendonly` on, or backfill after a crash",
    ),
    "redis_unchecked": Line(
        "warning",
        "server reason",
        "Redis does not let the sink read INFO",
        "allow INFO, or check both yourself",
    ),
    "sample_failed": Line("error", "", "A bug of pytube in a sample of `pytube web`", "report it"),
    "sample_not_compared": Line(
        "warning",
        "reason",
        "A scheduled sample could not be compared; it starts again within a minute. Once",
        "follow the reason",
    ),
    "session_refused": Line(
        "error",
        "reason",
        "A pooler on the way to Postgres gives the worker no session. Once",
        "follow the reason",
    ),
    "settling_failed": Line(
        "warning",
        "reason",
        "No seq can be settled, so each poll begins at the oldest pod. Once",
        "follow the reason",
    ),
    "shard_shared": Line(
        "error",
        "reason",
        "Two hosts have tables in the same shard of the tube",
        "give each host its own shards",
    ),
    "sink_ahead": Line(
        "warning",
        "reason",
        "The sink holds an epoch that this database has not issued; nothing is sent",
        "after a restore: `pytube tube rebase`, as in the runbook",
    ),
    "sink_mark_unread": Line(
        "warning",
        "reason",
        "The sink takes documents, but the worker can't read its mark, so it would not notice a loss",
        "grant the right that the reason names",
    ),
    "sink_not_open": Line(
        "warning",
        "reason remark",
        "The sink has been unreachable since the worker started, which retries at least every 30 s. "
        "Once for each reason",
        "bring the sink up",
    ),
    "sink_not_slow": Line(
        "info", "batch_documents requests", "The sink has taken the full load for a minute"
    ),
    "sink_note_unwritten": Line(
        "warning",
        "reason",
        "The sink takes documents but no note of their source, so a source that was reset may go unnoticed",
        "grant the rights in the reason and restart the worker, or leave it",
    ),
    "sink_opened": Line("info", "", "The sink is open now"),
    "sink_slow": Line(
        "warning",
        "reason batch_documents requests setting remark",
        "The sink answers late, or puts documents off. The worker sends less: `requests` batches of "
        "`batch_documents`. Once",
        "change `setting`, raise `request_timeout`, or relieve the sink",
    ),
    "source_unchecked": Line(
        "warning",
        "reason",
        "The worker could not check whether the source has changed",
        "follow the reason",
    ),
    "tables_not_followed": Line(
        "warning",
        "reason",
        "Attached tables changed, and the worker can't follow, or a related table became the root table. "
        "`status` and `doctor` show it, too",
        "follow the reason",
    ),
    "term_failed": Line(
        "warning",
        "reason",
        "A term could not begin, or ended with an error; it is retried. Once",
        "follow the reason",
    ),
    "transform_slow": Line(
        "warning",
        "shard id seconds",
        "The transforms of one document blocked the process for `seconds`. Once a minute",
        "make them faster",
    ),
    "tube_dropped": Line(
        "warning", "remark", "The tube is gone; it is served again when it is back", "none, if intended"
    ),
    "tube_found": Line("info", "partitions", "The tube was created, or is back; it is served"),
    "user_code_raised": Line(
        "warning",
        "call reason",
        "Your sink, transform, or `on_event` raised; with the stack trace. The same fault once a minute",
        "fix the code; `parked` and `sink_down` name the effect on documents",
    ),
    "worker_ended_at_once": Line("warning", "signal", "It was the second signal; nothing is lost"),
    "worker_late": Line(
        "warning",
        "reason",
        "The worker gets too little processor time, or has too much to do: answers of sinks wait in it. Once",
        "raise its CPU limit, move it to a less busy machine, or start another worker",
    ),
    "worker_stopping": Line(
        "info", "signal remark", "A signal asked the worker to stop", "wait; a second signal ends it at once"
    ),
}
"""By name. Lines about a bug of pytube have a stack trace."""
