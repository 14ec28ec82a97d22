"""Which role may do what: `test_roles.py` compares it with Postgres."""

from __future__ import annotations

from tests.helpers.capture import TUBE
from tests.helpers.outbox_sql import OUTBOX

ADMIN, WORKER, WRITER, MONITOR = "tube_admin", "tube_worker", "tube_writer", "tube_monitor"
OWNER, BYSTANDER = "tube_owner", "bystander"
ROLES = (ADMIN, WORKER, WRITER, MONITOR)

ADMINISTERS = {ADMIN}
SERVES = {ADMIN, WORKER}
LOOKS_ON = {ADMIN, WORKER, MONITOR}
TOUCHES = {ADMIN, WRITER}
FILLS = {ADMIN, WORKER, WRITER}
LOOKS_AT_LISTS = {ADMIN, WORKER, WRITER, MONITOR}
ANYBODY = {*ROLES, BYSTANDER}


def by_callers(*groups: tuple[set[str], str]) -> dict[str, set[str]]:
    """The callers of each function that a text names."""
    return {name: callers for callers, names in groups for name in names.split()}


FUNCTIONS = by_callers(
    (
        ADMINISTERS,
        """
        outbox_adopt outbox_drop outbox_ensure_absent outbox_ensure_exists outbox_index_sql
        outbox_parked_drop outbox_retry outbox_topic_park tube_applied_attached tube_applied_set
        tube_attempts_reset tube_backfill_command tube_backfill_create tube_backfill_schedule
        tube_companion_ensure tube_document_declare tube_drop tube_ensure_absent tube_ensure_exists
        tube_index_sql tube_leader_rebase tube_park_drop tube_park_retry tube_pause tube_pods_ack
        tube_pods_retry tube_resume tube_seq_advance tube_step_ask tube_step_cancel tube_step_state
        tube_table_ensure_attached tube_table_ensure_detached
        """,
    ),
    (
        SERVES,
        """
        outbox_identity outbox_records_mark outbox_records_mark_around outbox_records_park
        outbox_records_park_topic outbox_records_purge outbox_records_purge_sent outbox_records_reset
        outbox_topics_rest tube_backfill_chunk tube_backfill_collect tube_backfill_holders
        tube_backfill_join tube_backfill_lock tube_backfill_note tube_backfill_pressure
        tube_backfill_range tube_backfill_split tube_backfill_step1 tube_backfill_step2
        tube_backfill_step3 tube_backfill_take tube_backfill_tidy tube_backfill_unlock tube_channel
        tube_document_touch tube_failing_note tube_index_fit tube_kafka_report tube_leader_acquire
        tube_leader_epoch tube_leader_release tube_leader_renew tube_leader_wait tube_leaders_renew
        tube_lease_leave tube_lease_tick tube_lease_ticks tube_pause_reason tube_pods_delete
        tube_pods_fail tube_pods_mark tube_pods_park tube_pods_purge tube_pods_reset tube_pods_sql
        tube_pods_stop tube_pods_unpark tube_sampled tube_settle_done tube_settle_writers tube_sink_accept
        tube_sink_note tube_sleep tube_source_check tube_source_note tube_step_end tube_step_take
        tube_stream_purge tube_sweep_end tube_sweep_ready tube_sweep_touch tube_sync tube_verified tube_wake
        tube_wakes
        """,
    ),
    (
        LOOKS_ON,
        """
        outbox_parked outbox_resting outbox_stats tube_applied tube_audit_list tube_backfill_list
        tube_backfill_waiting tube_documents tube_failing_list tube_hindered_list tube_id_column
        tube_ids_waiting tube_instances tube_kafka_back tube_kafka_unreachable tube_keys_waiting
        tube_leaders tube_load tube_park_count tube_park_list tube_pause_list tube_pods_count
        tube_pods_list tube_pods_of tube_relations_waiting tube_sink_list tube_stats tube_terms
        tube_unverified_list
        """,
    ),
    (
        TOUCHES,
        """
        outbox_stash outbox_stash_many outbox_stash_many_bytea tube_job_begin tube_job_done
        tube_job_finish tube_job_forget
        """,
    ),
    (
        FILLS,
        """
        tube_as_caller tube_audit_add tube_job_units tube_keys_as_caller tube_keys_put tube_pods_insert
        tube_pods_put
        """,
    ),
    (
        LOOKS_AT_LISTS,
        """
        outbox_list tube_companions tube_delivered_channel tube_delivered_parked tube_delivered_watch
        tube_job_list tube_list tube_settle_holders tube_settle_left tube_settle_seq tube_undelivered
        """,
    ),
    (
        ANYBODY,
        """
        tube_key_part tube_key_types tube_shard_of
        """,
    ),
) | {
    # generated for the tube and the table of the tests
    f"{TUBE}_touch": TOUCHES,
    "item_touch": ANYBODY,  # it only calls the next one
    "tube_touch_…": {WRITER},  # and the owner of the table
    "es-live_item_put_…": set(),  # the owner of the table
    "es-live_item_capture_…": set(),
    "es-live_item_passes_…": set(),
}
"""Who may call what, beside its owner; all but `tube_private_…`. A number in a name is written as …."""

PRIVATE = by_callers(
    (
        ADMINISTERS,
        """
        tube_private_adopt tube_private_adoption_rights tube_private_attach tube_private_begin_attach
        tube_private_drop_outbox tube_private_drop_parked tube_private_ensure_tube tube_private_is_root
        tube_private_key_label tube_private_open_schema tube_private_outbox_wake
        tube_private_refuse_table tube_private_require tube_private_set_predicate
        """,
    ),
    (
        SERVES,
        """
        tube_private_begin_around tube_private_begin_change tube_private_begin_collect
        tube_private_begin_mark tube_private_begin_range tube_private_begin_split tube_private_begin_step3
        tube_private_begin_sync tube_private_briefly tube_private_bring_in_line
        tube_private_capture_schema tube_private_close_capture tube_private_end_collect
        tube_private_end_range tube_private_end_split
        tube_private_end_step3 tube_private_lock_parked tube_private_open_capture tube_private_owner_ddl
        tube_private_patiently tube_private_predicate_columns tube_private_put_parked
        tube_private_refuse_predicate tube_private_refuse_renamed
        tube_private_refuse_touch tube_private_run_owner_ddl tube_private_stale_attachments
        tube_private_store tube_private_try_predicate
        """,
    ),
    (
        LOOKS_ON,
        """
        tube_private_outbox_figures tube_private_outbox_parts tube_private_page_runs
        """,
    ),
    (
        TOUCHES,
        """
        tube_private_check_messages tube_private_outbox_target tube_private_stash tube_private_stash_one
        """,
    ),
    (
        ANYBODY,
        """
        tube_private_elsewhere tube_private_fits tube_private_is_replaced tube_private_may_read
        tube_private_see_ddl
        """,
    ),
)
"""Those of the others that a role may call."""

OWNERS: dict[str, str] = {
    "item_touch": "postgres",
    "es-live_item_capture_…": "postgres",
    "es-live_item_passes_…": "postgres",
}
"""Whose functions are not `tube_owner`'s: those of the table belong to its owner."""


INVOKERS = {
    # an owner of a table agrees to what is done with it by doing it
    "tube_ensure_exists",
    "tube_private_attach",
    "tube_private_briefly",
    "tube_private_bring_in_line",
    "tube_private_patiently",
    "tube_private_refuse_predicate",
    "tube_private_refuse_touch",
    "tube_private_run_owner_ddl",
    "tube_private_refuse_renamed",
    "tube_private_try_predicate",
    "tube_sync",
    "tube_table_ensure_attached",
    # who reads a table may read it
    "tube_backfill_collect",
    "tube_backfill_range",
    "tube_backfill_split",
    "tube_backfill_step3",
    # the query of a fan-out has the rights of its caller
    "tube_as_caller",
    "tube_keys_as_caller",
    "tube_pods_insert",
    # an outbox's table may be somebody else's: only who has rights on it uses them
    "outbox_adopt",
    "outbox_drop",
    "outbox_ensure_absent",
    "outbox_parked_drop",
    "outbox_records_mark",
    "outbox_records_mark_around",
    "outbox_records_park",
    "outbox_records_park_topic",
    "outbox_records_purge",
    "outbox_records_purge_sent",
    "outbox_records_reset",
    "outbox_stash",
    "outbox_stash_many",
    "outbox_stash_many_bytea",
    "outbox_stats",
    "tube_private_check_messages",
    "tube_private_open_schema",
    "tube_private_outbox_figures",
    "tube_private_page_runs",
    "tube_private_stash",
    "tube_private_stash_one",
    # reads catalogs only, which anybody may
    "tube_id_column",
    # they answer for the owner whose function calls them
    "tube_private_fits",
    "tube_private_may_read",
    # whoever runs DDL owns the partition that gets triggers
    "tube_private_follow_ddl",
    # inlined wherever they are used
    "tube_key_part",
    "tube_shard_of",
    "es-live_item_passes_…",
    # it only calls one that looks at who calls
    "item_touch",
}

UNPINNED = {
    # bound when they were made, and inlined
    "tube_key_part",
    "tube_shard_of",
    "es-live_item_passes_…",
    "item_touch",
    # in each writer's statement: they name all in full, since a path of their own would cost a microsecond
    "es-live_item_capture_…",
    "es-live_item_put_…",
}

SHORTER = {
    # they call nothing of ours by its name
    "tube_private_refuse_touch",
    "tube_private_run_owner_ddl",
}
"""Functions with a search path without our schema."""

READS: dict[str, set[str]] = {
    "tube_version": {WORKER, WRITER, MONITOR},
    "tube_registry": {WORKER, MONITOR},
    "tube_attachment": {WORKER, MONITOR},
    "tube_attempt": {WORKER, MONITOR},
    "tube_parked": {WORKER, MONITOR},
    "tube_outbox_parked": {WORKER, MONITOR},
    "tube_outbox_retry": {WORKER},
    "tube_backfill": {WORKER, MONITOR},
    "tube_sample": {WORKER, MONITOR},
    TUBE: {WORKER},
    OUTBOX: {WORKER},
}
"""Who may read a table, beside the admin, who may read all; nobody may write one, beside what follows."""

MESSAGE = {
    "create_time",
    "kafka_topic",
    "kafka_key",
    "kafka_value",
    "kafka_header_keys",
    "kafka_header_values",
    "partition_key",
}
COLUMNS: dict[tuple[str, str, str], set[str]] = {
    (TUBE, WRITER, "INSERT"): {"op", "shard", "ids", "payload"},
    (TUBE, WORKER, "INSERT"): {"op", "shard", "ids", "payload"},
    (TUBE, ADMIN, "INSERT"): {"op", "shard", "ids", "payload"},
    (OUTBOX, WRITER, "INSERT"): MESSAGE,
    (OUTBOX, ADMIN, "INSERT"): MESSAGE,
    (OUTBOX, WRITER, "SELECT"): {"id"},
    (OUTBOX, WORKER, "UPDATE"): {"leader_id"},
    (OUTBOX, MONITOR, "SELECT"): {
        "id",
        "create_time",
        "kafka_topic",
        "kafka_key",
        "partition_key",
        "leader_id",
    },
}
"""Who may do what to some columns only."""

DELETES = {(OUTBOX, WORKER, "DELETE"), (OUTBOX, ADMIN, "DELETE")}
