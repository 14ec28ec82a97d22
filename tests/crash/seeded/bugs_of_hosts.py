"""Bugs that show at a sink that misbehaves, on a full disk, or when a clock is set."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

_CLOCK = "        return time.clock_gettime(time.CLOCK_BOOTTIME) - _SLEPT_BEFORE\n"

SEEDS = [
    Seed(
        "trust_by_the_wall_clock",
        "whoever sets the clock back prolongs the trust of an old leader",
        "pytube/clock.py",
        _CLOCK,
        "        return time.time() - _SLEPT_BEFORE\n",
        ("unit/test_clock.py",),
    ),
    Seed(
        "trust_outlasts_a_suspension",
        "a machine that was suspended goes on as if no time had passed",
        "pytube/clock.py",
        _CLOCK,
        "        return time.monotonic()\n",
        ("unit/test_clock.py",),
    ),
    Seed(
        "batch_outlasts_a_suspension",
        "a write that waited in the sink while the machine was suspended is begun",
        "pytube/model.py",
        "        return time.monotonic() >= self.send_before or clock.now() >= self._trusted_until\n",
        "        return time.monotonic() >= self.send_before\n",
        ("unit/test_clock.py",),
    ),
    Seed(
        "full_disk_is_the_documents_fault",
        "documents are parked because the disk is full",
        "pytube/sinks/append_file.py",
        "            raise self._unavailable(error) from error\n",
        "            raise\n",
        ("unit/test_sink_jsonl.py::test_full_disk_takes_nothing",),
    ),
    Seed(
        "full_disk_leaves_half_a_batch",
        "what fitted on the disk stays there, and its last line is torn",
        "pytube/sinks/append_file.py",
        "            if written and not (regular and _cut(fd, start, written)):\n",
        "            if written and not regular:\n",
        ("integration/test_sink_jsonl_processes.py::test_disk_that_fills_up_in_the_middle_of_a_write",),
    ),
    Seed(
        "outage_told_with_each_failure",
        "a sink that is down is told with each try",
        "pytube/worker/active_term.py",
        "        if (outage := self._outages.get(what)) is None:\n",
        "        if (outage := self._outages.get(what)) is None or event.reason:\n",
        ("unit/test_active_term.py",),
    ),
    Seed(
        "first_reason_stays",
        "while a sink is down, everybody is told why it went down, and not why it is down now",
        "pytube/sources/terms.py",
        "            _, since = self._since[what]\n",
        "            reason, since = self._since[what]\n",
        ("unit/test_active_term.py",),
    ),
    Seed(
        "put_off_is_done",
        "of a batch that was written in part, the rest is never sent again",
        "pytube/pipeline/batches.py",
        "                answers.delayed[document.key] = _checked(after)\n",
        "                answers.done.append(document.key)\n",
        ("unit/test_batches.py",),
    ),
    Seed(
        "long_answers_count",
        "results are given to documents that they are not of",
        "pytube/pipeline/batches.py",
        "    if len(results) != len(batch):\n",
        "    if len(results) < len(batch):\n",
        ("unit/test_batches.py::test_too_few_or_too_many_answers_break_the_contract",),
    ),
    Seed(
        "name_is_the_process",
        "two workers of one name are one to the database, and take each other's leases",
        "pytube/worker/queues.py",
        "            instance_id=instance_id,\n            client_id=worker.client_id,\n",
        "            instance_id=UUID(bytes=config.worker.client_id[:16].rjust(16).encode()),\n"
        "            client_id=worker.client_id,\n",
        ("unit/test_worker.py",),
    ),
]
