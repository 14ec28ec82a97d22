"""Bugs on the way of a key from its pod to the sink."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

SEEDS = [
    Seed(
        "purge_before_acknowledge",
        "pods are deleted as soon as they are marked",
        "pytube/worker/tube_worker.py",
        "        control = self.machine.add(items)\n",
        "        control = self.machine.add(items)\n"
        "        await self._source.purge([pod.seq for pod in items])\n",
        ("unit/test_partition_worker.py::test_nothing_is_purged_before_it_is_acknowledged",),
    ),
    Seed(
        "pod_done_with_its_first_key",
        "a pod is done before the last of its keys is",
        "pytube/pipeline/inflight.py",
        "        done = [seq for seq, count in counts.items() if left[seq] == count]\n",
        "        done = list(counts)\n",
        ("unit/test_inflight.py",),
    ),
    Seed(
        "coalesce_after_enrich_began",
        "a touch is absorbed by a key whose row was read before it",
        "pytube/pipeline/inflight.py",
        "                if key not in shard.blocked:\n"
        "                    self._blocked += 1\n"
        "                shard.blocked[key] = _join(shard.blocked.get(key), seq)\n",
        "                flight = next(flight for flight in shard.flights if key in flight)\n"
        "                flight[key] = _join(flight[key], seq)\n",
        ("unit/test_inflight.py",),
    ),
    Seed(
        "blocked_key_flies",
        "a key is in two sends at once",
        "pytube/pipeline/inflight.py",
        "            if key in flying:\n",
        "            if key in shard.blocked:\n",
        ("unit/test_inflight.py",),
    ),
    Seed(
        "token_after_enrich",
        "a row that was read later bears the lower token",
        "pytube/worker/delivery.py",
        "            token = self._active_term.next_token()\n"
        "            await fault(Point.BEFORE_ENRICH)\n"
        "            documents, tables = await self._read(outcome, groups, token)\n",
        "            documents, tables = await self._read(outcome, groups, Token(0, 0))\n"
        "            documents.token = token = self._active_term.next_token()\n",
        ("unit/test_delivery.py",),
    ),
    Seed(
        "send_without_trust",
        "a batch is sent though the right to send lapsed while it was read",
        "pytube/worker/delivery.py",
        "trusted_until())\n        if batch.has_lapsed():\n",
        "trusted_until())\n        if batch is None:\n",
        ("unit/test_delivery.py::test_nothing_is_sent_when_trust_lapses_between_the_read_and_the_send",),
    ),
    Seed(
        "sent_again_while_the_first_may_come",
        "a write without an answer is sent again before it can't come late",
        "pytube/worker/delivery.py",
        "        self._active_term.unanswered.add(batch)\n        await self._sink.abandon(batch)\n",
        "        self._active_term.unanswered.add(batch)\n",
        ("unit/test_delivery.py::test_a_send_without_an_answer_is_abandoned_before_its_delivery_ends",),
    ),
    Seed(
        "cancelled_write_is_forgotten",
        "a write that was cut off counts as over",
        "pytube/worker/delivery.py",
        "            self._active_term.unanswered.add(batch)\n            raise\n",
        "            raise\n",
        ("unit/test_delivery.py::test_a_send_that_is_cancelled_is_in_the_air_until_it_is_abandoned",),
    ),
    Seed(
        "missing_row_is_no_delete",
        "a row that is gone stays at the sink",
        "pytube/worker/delivery.py",
        "                documents.add(shard, known, map(read.bodies.get, known))\n",
        "                documents.add(shard, list(read.bodies), read.bodies.values())\n",
        ("unit/test_delivery.py::test_a_row_that_is_gone_is_deleted",),
    ),
    Seed(
        "stale_of_a_later_term_is_done",
        "an old leader purges what the sink refused",
        "pytube/pipeline/batches.py",
        "    if newer == ours:\n",
        "    if newer >= ours:\n",
        ("unit/test_batches.py",),
    ),
    Seed(
        "stale_of_an_epoch_issued_again_is_done",
        "a database that was restored issues an epoch again, and another term's write passes for this one's",
        "pytube/pipeline/batches.py",
        "    if newer == ours:\n",
        "    if newer.epoch == ours.epoch:\n",
        ("unit/test_batches.py",),
    ),
    Seed(
        "short_answers_count",
        "documents without an answer are done",
        "pytube/pipeline/batches.py",
        "    if len(results) != len(batch):\n",
        "    if len(results) > len(batch):\n",
        ("unit/test_batches.py",),
    ),
    Seed(
        "done_before_park",
        "a rejected key is purged, and not set aside when the process dies then",
        "pytube/worker/tube_worker.py",
        "        await fault(Point.BEFORE_PARK)\n",
        "        self._finish(flight, by_shard(letter.key for letter in dead))\n        return\n",
        ("unit/test_partition_worker_troubles.py::test_a_rejected_key_is_parked_before_its_pod_is_purged",),
    ),
    Seed(
        "drain_purges_for_another_term",
        "a worker that the sink has fenced purges and gives back all the same",
        "pytube/worker/tube_worker.py",
        "            if isinstance(failure, NotLeader):\n                raise failure\n",
        "            del failure\n",
        (
            "unit/test_partition_worker_end.py::test_a_drain_that_finds_a_later_term_at_the_sink_purges_nothing",
        ),
    ),
    Seed(
        "slow_rows_for_ever",
        "a row whose read always takes too long is tried without end",
        "pytube/worker/delivery.py",
        "        alive = breaker.succeeded_at > self._slow_since.get(outcome.flight, begun)\n",
        "        alive = False\n",
        ("unit/test_delivery.py::test_a_read_that_takes_too_long_is_at_fault_if_others_succeeded_since",),
    ),
    Seed(
        "unsent_is_forgotten",
        "what could not be sent is never sent again",
        "pytube/worker/tube_worker.py",
        "                self.machine.put_back(flight, by_shard(keys))\n",
        "                del keys\n",
        ("unit/test_partition_worker_retries.py::test_a_source_that_cannot_be_read_is_waited_for",),
    ),
    Seed(
        "answers_wait_for_a_sink_that_is_down",
        "what was answered is not done while the rest of its delivery waits for the sink",
        "pytube/worker/delivery.py",
        "probes=probes and not index)\n",
        "probes=True)\n",
        ("unit/test_delivery.py::test_what_was_answered_is_not_kept_back_by_a_circuit_that_opened_since",),
    ),
    Seed(
        "unsent_is_done",
        "pods are purged whose documents nobody has sent",
        "pytube/worker/tube_worker.py",
        "                self.machine.put_back(flight, by_shard(keys))\n",
        "                self._finish(flight, by_shard(keys))\n",
        ("unit/test_partition_worker_troubles.py",),
    ),
    Seed(
        "read_before_it_may_be_sent",
        "after an outage, rows are sent as they were before it",
        "pytube/worker/delivery.py",
        "            if not (probes or self.is_up):",
        "            if groups is None:",
        ("unit/test_delivery.py::test_what_does_not_probe_reads_nothing_while_the_sink_is_down",),
    ),
    Seed(
        "waiting_keys_are_read_at_the_gate",
        "what waits for a slow sink takes up no touches, and is sent again",
        "pytube/worker/tube_worker.py",
        "self._deliverer.held_up[pod_class]:\n",
        "self._deliverer.held_up is None:\n",
        (
            (
                "unit/test_partition_worker_troubles.py"
                "::test_while_one_waits_at_the_gate_others_take_up_touches_before_they_are_read"
            ),
        ),
    ),
    Seed(
        "slow_rows_of_others",
        "a read that took too long hours ago uses up the attempt of another row",
        "pytube/worker/delivery.py",
        "self._slow_since.get(outcome.flight, begun)",
        "min(self._slow_since.values(), default=begun)",
        ("unit/test_delivery.py",),
    ),
    Seed(
        "put_off_is_sent_at_once",
        "a sink that asks for a pause is given none",
        "pytube/pipeline/retry_queue.py",
        "        if not groups or groups[0][0] > now:\n",
        "        if not groups:\n",
        ("unit/test_retry_queue.py",),
    ),
    Seed(
        "attempts_of_earlier_flights_count",
        "a document is parked for failures that it had weeks ago",
        "pytube/worker/tube_worker.py",
        "        self._retries.forget((shard, key) for shard, ids in groups.items() for key in ids)\n",
        "        pass\n",
        ("unit/test_partition_worker_retries.py",),
    ),
]
