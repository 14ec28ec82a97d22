"""Bugs on the way of a record from an outbox to Kafka."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

SEEDS = [
    Seed(
        "record_purged_before_delivery",
        "records are deleted as soon as they are marked",
        "pytube/worker/outbox_worker.py",
        "        self.machine.add(records)\n",
        "        self.machine.add(records)\n"
        "        self._done |= {record.id: record.created for record in records}\n",
        ("unit/test_outbox_worker.py::test_nothing_is_purged_before_kafka_has_it",),
    ),
    Seed(
        "record_sent_without_trust",
        "records are sent after the right to send has lapsed",
        "pytube/worker/outbox_worker.py",
        "            if not (self._outgoing.has_room and self._active_term.is_trusted):\n",
        "            if not self._outgoing.has_room:\n",
        ("unit/test_outbox_worker.py::test_what_is_held_when_trust_lapses_waits",),
    ),
    Seed(
        "transaction_without_trust",
        "a deposed leader begins a transaction, which fences the one of its successor",
        "pytube/outbox/transactions.py",
        "        self._may_send = may_send\n",
        "        self._may_send = lambda: True\n",
        ("unit/test_outbox_transactions.py::test_without_the_right_to_send_no_transaction_begins",),
    ),
    Seed(
        "order_lost_after_a_failure",
        "a key goes on behind a record that was not written",
        "pytube/outbox/records.py",
        "return self.broken is None and not (self.parking or self.held or self.refused or self.resting)",
        "return not (self.parking or self.held or self.refused or self.resting)",
        ("unit/test_outbox_inflight.py",),
    ),
    Seed(
        "window_forgets_what_is_not_purged",
        "a crash repeats more of a key than a window",
        "pytube/outbox/inflight.py",
        "        if self._rules.repeats and records:\n",
        "        if not self._rules.repeats and records:\n",
        ("unit/test_outbox_inflight.py",),
    ),
    Seed(
        "compaction_drops_the_newest",
        "of the records of a key that wait the oldest is sent",
        "pytube/outbox/inflight.py",
        "        for record in reversed(lane.waiting):\n",
        "        for record in lane.waiting:\n",
        ("unit/test_outbox_inflight.py::test_compaction_keeps_the_newest_of_those_that_wait",),
    ),
    Seed(
        "receipt_without_what_was_replaced",
        "after a crash a record follows the newer one that had replaced it, and stays",
        "pytube/outbox/records.py",
        "        return [record.id for record in self.records()] + self.replaced\n",
        "        return [record.id for record in self.records()]\n",
        ("unit/test_outbox_transactions.py::test_the_receipt_has_what_compaction_has_replaced",),
    ),
    Seed(
        "transactional_id_not_taken",
        "a zombie's transaction is not ended before its successor begins",
        "pytube/outbox/transactions.py",
        "        producer.init_transactions(self._clients.timeout)\n",
        "",
        ("unit/test_outbox_transactions.py",),
    ),
    Seed(
        "lost_commit_counts_as_failed",
        "a transaction whose answer was lost is sent twice",
        "pytube/outbox/transactions.py",
        "                return {} if self._last_receipt == self._next_offset else _all(chunks, failure)\n",
        "                return _all(chunks, failure)\n",
        ("unit/test_outbox_transactions.py",),
    ),
    Seed(
        "outbox_floor_above_the_last",
        "a full mark moves the floor beyond records that it did not return",
        "pytube/outbox/source.py",
        "            last = None if len(records) < limit else records[-1].id\n",
        "            last = None\n",
        ("unit/test_outbox_source.py",),
    ),
    Seed(
        "outbox_floor_passes_what_is_settled",
        "a record that is committed late is never seen",
        "pytube/outbox/source.py",
        "            self._floor.advance(last, seq, max(seq, provisional))\n",
        "            self._floor.advance(last, 1 << 62, 1 << 62)\n",
        ("unit/test_outbox_source.py",),
    ),
    Seed(
        "records_without_a_fence",
        "a deposed leader marks and purges records",
        "sql/outbox/records.sql",
        "    PERFORM tube_private_hold_term(outbox, partitions, partition, leader_id);\n",
        "",
        ("sql/test_outbox_records.py::test_what_is_no_term_of_the_outbox_is_refused",),
    ),
    Seed(
        "parked_record_is_marked",
        "a record that was set aside is sent again and again",
        "sql/outbox/records.sql",
        "AND r.leader_id IS DISTINCT FROM $1%3$s'\n        ' AND r.id <=",
        "AND r.leader_id IS DISTINCT FROM $1'\n        ' AND r.id <=",
        ("sql/test_outbox_parked.py::test_a_parked_record_stays_where_it_is_and_no_mark_returns_it",),
    ),
]
