"""Bugs of leadership, of floors and of sleep, in Python."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

_LEADERSHIP = "pytube/worker/leadership.py"

SEEDS = [
    Seed(
        "trust_from_receipt",
        "trust lasts as long as the answer was under way, and a deadline",
        "pytube/worker/database.py",
        "                active_term.confirm_renewal(sent_at)\n",
        "                active_term.confirm_renewal(clock.now())\n",
        ("unit/test_database.py",),
    ),
    Seed(
        "renewal_that_failed_counts",
        "a renewal that was refused counts",
        "pytube/worker/database.py",
        "            if present.get(leader_id):\n",
        "            if leader_id in by_id:\n",
        ("unit/test_database.py",),
    ),
    Seed(
        "trust_after_acquire",
        "the first trust counts from the answer of the acquire",
        _LEADERSHIP,
        "deadline=tube.limits.receive_deadline, sent_at=sent_at,",
        "deadline=tube.limits.receive_deadline, sent_at=clock.now(),",
        ("unit/test_leadership.py",),
    ),
    Seed(
        "proof_before_epoch",
        "the epoch is read after the right was proved, so an overtaken candidate wins",
        _LEADERSHIP,
        "        epoch = await terms.read_epoch(pool, tube.name, tube.partitions, partition)\n"
        "        await self._claim.prove()\n",
        "        await self._claim.prove()\n"
        "        epoch = await terms.read_epoch(pool, tube.name, tube.partitions, partition)\n",
        ("unit/test_leadership.py",),
    ),
    Seed(
        "no_take_over_wait",
        "a new leader begins while the old one's last write is under way",
        _LEADERSHIP,
        "            if left <= 0:\n",
        "            if left >= 0:\n",
        ("unit/test_leadership.py",),
    ),
    Seed(
        "release_with_an_unanswered_write",
        "the next leader does not wait for a write that may still come",
        _LEADERSHIP,
        "            if not active_term.unanswered:\n                await self._release_unreleased()\n",
        "            await self._release_unreleased()\n",
        ("unit/test_leadership.py",),
    ),
    Seed(
        "either_proof_will_do",
        "one of the two proofs of leadership is enough",
        "pytube/worker/active_term.py",
        "        return min(self._renewed_at, self.claim.proven_at())",
        "        return max(self._renewed_at, self.claim.proven_at())",
        ("unit/test_active_term.py",),
    ),
    Seed(
        "reset_without_floor",
        "pods that were given back lie below the floor, and wait for the next term",
        "pytube/sources/pods.py",
        "        self.floors.lower(seqs)\n",
        "",
        ("unit/test_source_pods.py",),
    ),
    Seed(
        "floor_from_the_last_seq",
        "a pod that commits late lies below the floor",
        "pytube/sources/floors.py",
        "        floor = provisional if exhausted else min(provisional, pods[-1].seq)\n",
        "        floor = provisional if exhausted else pods[-1].seq\n",
        ("unit/test_floors.py",),
    ),
    Seed(
        "floors_outlive_their_version",
        "what a transaction wrote that stayed open for long lies below the floors when it commits",
        "pytube/sources/floors.py",
        "        if provisional_version != self._version:\n",
        "        if provisional_version < self._version:\n",
        ("unit/test_floors.py",),
    ),
    Seed(
        "settled_floors_follow_the_provisional_seq",
        "the floors to go back to are as high as the provisional ones",
        "pytube/sources/floors.py",
        "        if self._settled_floors[pod_class] == self._floors[pod_class]:\n",
        "        if limit:\n",
        ("unit/test_floors.py",),
    ),
    Seed(
        "version_never_changes",
        "nobody is told that a long transaction is over",
        "pytube/sources/settled.py",
        "            self.provisional_version = next(_versions)\n            self._recompute()\n",
        "            self._recompute()\n",
        ("isolation/test_settled_of_workers.py",),
    ),
    Seed(
        "nobody_woken_for_a_late_commit",
        "a worker in deep sleep passes a late commit by, and is not told when that is known",
        "pytube/worker/database.py",
        "                version = settled.provisional_version\n                self._wake_all()\n",
        "                version = settled.provisional_version\n",
        ("integration/test_late_commit.py",),
    ),
    Seed(
        "settled_by_snapshot_xmax",
        "the xid is one more than the last that ended, though later ones run",
        "pytube/sources/queries.py",
        '"SELECT pg_current_xact_id()::text"',
        '"SELECT pg_snapshot_xmax(pg_current_snapshot())::text"',
        ("isolation/test_settled_of_workers.py",),
    ),
    Seed(
        "seq_after_xid",
        "a seq that was drawn after the xid counts as settled",
        "pytube/sources/settled.py",
        "        xid = str(await self._session.value(queries.SETTLE_XID))\n",
        "        xid = str(await self._session.value(queries.SETTLE_XID))\n"
        "        drawn = await self._drawn()\n",
        ("isolation/test_settled_of_workers.py",),
    ),
    Seed(
        "sleeper_after_the_quiet_check",
        "a writer between the check and the row wakes nobody",
        "pytube/worker/poller.py",
        "        if not self._asleep:\n",
        "        if not self._asleep and self._active_term.sleeps:\n",
        ("unit/test_poller.py",),
    ),
]
