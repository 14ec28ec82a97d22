"""What `status` and `doctor` say is wrong: the true reason, once, with a remedy that works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Literal
from uuid import UUID

import pytest

from pytube.health.findings import Kind, Level
from pytube.health.fleet import Back, Complaint, Count, Hindrance, HostSample, Partition, Process, Queue
from pytube.health.troubles import pace, troubles
from pytube.health.watcher import FleetWatcher
from pytube.outbox.admin import RestingTopic
from pytube.outbox.records import NO_ANSWER

LOCKED = "public.orders is locked by pid 7; if that session is not needed: SELECT pg_terminate_backend(7)"

TUBE = Partition(
    kind="tube",
    name="t",
    partition=0,
    waiting=Count(0),
    leader="me",
    epoch=1,
    leads_for=60.0,
    renewed_ago=1.0,
    state="leads",
)
OUTBOX = replace(TUBE, kind="outbox", name="o")


def refusal(tube: str, worker: str, reason: str) -> Complaint:
    return Complaint(tube, "refused", "", worker, reason, datetime.now(UTC), datetime.now(UTC))


def said(*partitions: Partition, hindered: Sequence[Hindrance] = ()) -> list[str]:
    """The lines of `status`."""
    return [str(one) for one in troubles([HostSample(None, partitions=partitions, hindered=hindered)])]


def queue_of(falls_by: float | None, **changes: Any) -> Queue:
    """One that is a minute behind."""
    late = replace(
        TUBE,
        waiting=Count(900),
        backfill=Count(100),
        documents=Count(5000, is_estimate=True),
        lag=60.0,
        **changes,
    )
    return Queue("tube", "t", [late, TUBE], falls_by=falls_by)


@pytest.mark.parametrize(
    ("queue", "begins"),
    [
        (
            queue_of(50.0),
            "catching up: the backlog falls by about 50 documents a second; at this pace all of it",
        ),
        (queue_of(-7.5), "falling behind: about 7.5 documents a second more are written than delivered"),
        (queue_of(0.0), None),
        (queue_of(None), None),
        (queue_of(50.0, state="sink down"), None),
        (Queue("tube", "t", [TUBE], falls_by=50.0), None),
    ],
)
def test_a_queue_that_is_behind_catches_up_or_does_not(queue: Queue, begins: str | None) -> None:
    said = pace(queue)
    assert (said is None) == (begins is None)
    if said is not None and begins is not None:
        assert said.startswith(begins)
        ends = "(~5000 documents, in 1000 pods) is delivered in about 100.0 s"
        assert (ends in said) == said.startswith("catching up")


def test_a_pace_counts_documents_and_not_pods() -> None:
    """One pod has 250, or one, and each document takes as long."""

    def left(documents: int, pods: int) -> Queue:
        row = replace(TUBE, waiting=Count(pods), documents=Count(documents), lag=60.0, deleted=254_000 - pods)
        return Queue("tube", "t", [row])

    looks = [left(1_250_000, 254_000), left(1_236_200, 253_945), left(1_222_400, 240_145)]
    assert [after.falls_since(before, 3.0) for before, after in pairwise(looks)] == [4600.0, 4600.0]


@pytest.mark.parametrize(
    ("kind", "paces"), [("tube", (-900.0, None, 100.0)), ("outbox", (-900.0, -600.0, 100.0))]
)
def test_a_pace_is_not_said_of_writes_that_have_ended(
    kind: Literal["tube", "outbox"], paces: tuple[float | None, ...]
) -> None:
    """Of 1000 documents a second until the eighth second, and 100 delivered all the time.

    Postgres counts the records of an outbox, and is late: the last seconds say nothing.
    """
    watcher = FleetWatcher([])

    def look(second: int) -> float | None:
        written, sent = 1_000 * min(second, 8), 100 * second
        row = replace(TUBE, documents=Count(written - sent), lag=60.0, inserted=written, deleted=sent)
        return watcher._with_rates(Queue(kind, "t", [row]), float(second)).falls_by

    found = [look(second) for second in range(21)]
    assert found[:3] == [None] * 3, "too few are seen"
    assert (found[8], found[11], found[20]) == paces


def test_what_is_locked_is_not_said_to_catch_up() -> None:
    locked = Hindrance("t", 1, "locked", LOCKED, 4.0)
    assert pace(queue_of(50.0), [locked]) is None
    assert pace(queue_of(50.0), [replace(locked, tube="other")]) is not None


def test_a_sink_that_is_down_since_it_was_emptied_is_to_be_filled_again() -> None:
    down = replace(TUBE, state="sink down", sink_down="the index is gone", sink_down_for=4.0)
    for row, remedy in ((down, "pytube sink check"), (replace(down, sink_emptied_for=5.0), "backfill start")):
        (one,) = [one for one in troubles([HostSample(None, [row])]) if one.partitions]
        assert remedy in one.remedy
        assert ("sink check" in one.remedy) == (row is down)


def test_a_sink_that_is_being_filled_again_asks_for_no_second_backfill() -> None:
    row = replace(TUBE, state="sink down", sink_down="gone", sink_down_for=4.0, sink_emptied_for=5.0)
    row = replace(row, sink_down="gone, and there was one: restore it, or run `pytube backfill start t`")
    cases: list[tuple[Literal["under way", "finished"], str]] = [
        ("under way", "a backfill is under way that fills it again"),
        ("finished", "a backfill has filled it again"),
    ]
    for refill, said in cases:
        found = troubles([HostSample(None, [replace(row, refill=refill)])])
        assert len(found) == 2
        for one in found:
            text = f"{one.finding}: {one.remedy}"
            assert said in text
            assert "pytube backfill status t" in text
            assert "backfill start" not in text
    assert all("pytube backfill start t" in one.remedy for one in troubles([HostSample(None, [row])]))


def test_an_outage_says_when_the_next_try_is_due() -> None:
    sink = replace(TUBE, state="sink down", sink_down="refused", sink_down_for=26.0, sink_tried_in=12.0)
    (line,) = said(sink, replace(sink, partition=1, sink_tried_in=9.0))
    assert line.startswith("t partitions 0, 1: sink down for 26.0 s, tried again in 9.0 s: refused; more: ")
    source = replace(TUBE, state="source down", source_down="denied", source_down_for=3.0, source_tried_in=-1)
    assert said(source)[0].startswith("t partition 0: source down for 3.0 s, tried again now: denied; ")


ME = UUID("01234567-89ab-4cde-8f01-23456789abcd")
MINE = Process("0123456789ab", "1")
LED = replace(TUBE, leader="shop-1", instance_id=ME)


def test_a_worker_that_hangs_is_named_before_its_partitions_are_taken_over() -> None:
    silent = [replace(LED, partition=number, renewed_ago=12.0, runs_out_in=3.0) for number in (0, 1)]
    (found,) = troubles([HostSample(None, silent, processes=[MINE])])
    assert (found.level, found.subject) == (Level.WARN, "worker shop-1")
    assert str(found).startswith(
        "worker shop-1 is alive, but has renewed nothing for 12.0 s: in 3.0 s, another worker may take over "
        "its partitions (t partitions 0, 1); its sessions are still open (application_name: … 0123456789ab …)"
    )
    assert ": find out on its machine why it hangs, or kill it with SIGKILL: no change is lost" in str(found)
    assert troubles([HostSample(None, silent)]) == [], "no session: it was killed, and its terms run out"
    slow = replace(LED, renewed_ago=12.0, runs_out_in=48.0)
    assert troubles([HostSample(None, [slow], processes=[MINE])]) == [], "it renews every 12 s"


def test_a_worker_that_hangs_and_whose_partitions_are_lost_is_told_of_once() -> None:
    lost = replace(LED, state="lost", renewed_ago=20.0, runs_out_in=-5.0)
    (found,) = troubles([HostSample(None, [lost], processes=[MINE])])
    assert "its leader shop-1 no longer renews its term, though its sessions are still open" in str(found)
    (found,) = troubles([HostSample(None, [lost])])
    assert "sessions" not in str(found)


def test_a_worker_that_hangs_is_named_after_its_partitions_were_taken_over() -> None:
    former = Process("0123456789ab", "1", silent_for=20.0, client_id="shop-1", fenced_ago=4.0)
    (found,) = troubles([HostSample(None, [TUBE], processes=[former])])
    assert "worker shop-1 is alive, but has renewed nothing for 20.0 s: other workers have taken" in str(
        found
    )
    assert troubles([HostSample(None, [TUBE], processes=[replace(former, silent_for=1.0)])]) == []


def test_a_change_of_tables_that_workers_can_not_follow_is_told_of_once() -> None:
    reason = "shop.log belongs to ann, who has to agree (Run as ann: SELECT tube.tube_sync();)"
    both = [replace(refusal("t", worker, reason), use="unfollowed") for worker in ("shop-1", "shop-2")]
    (found,) = troubles([HostSample(None, [TUBE], complaints=both)])
    assert (found.level, found.subject) == (Level.WARN, "tables of t")
    assert str(found).startswith(
        f"t: attached tables were changed, and a worker warns: {reason}: do what the"
    )


def test_an_unreachable_kafka_is_told_with_its_remedy() -> None:
    down = replace(refusal("t", "shop-1", "refused"), use="delivery", bootstrap_servers="k:9092")
    (found,) = troubles([HostSample(None, [TUBE], complaints=[down])])
    assert "nothing is delivered there for: t: bring it up, or find out from the workers' machines" in str(
        found
    )


def resting(reason: str, name: str = "news") -> Partition:
    topic = RestingTopic(name, reason, records=1, since=4.0, tried_in=3.0, park=False)
    return replace(OUTBOX, resting=[topic])


def test_a_topic_that_is_missing_is_to_be_created() -> None:
    """Kafka is up: to bring it up is no remedy."""
    for reason in ("Unable to produce message: Local: Unknown topic", "Broker: Unknown topic or partition"):
        (line,) = said(resting(reason))
        assert line.startswith("o partition 0: topic news has taken nothing for 4.0 s"), line
        assert "create the topic" in line
        assert "pytube outbox park o --topic news" in line
        assert "bring Kafka up" not in line


def test_a_topic_that_rests_for_another_reason_is_not_to_be_created() -> None:
    (line,) = said(resting("Broker: Topic authorization failed"))
    assert "create the topic" not in line
    assert "fix the cause that the reason names" in line
    assert "pytube outbox park o --topic news sets them aside" in line


def test_a_remedy_can_be_pasted_into_a_shell() -> None:
    (line,) = said(resting("Local: Invalid argument", "bad topic!"))
    assert "--topic 'bad topic!' sets" in line


def test_what_waits_is_told_before_it_is_late() -> None:
    free = replace(TUBE, state="free", leader=None)
    late = replace(free, waiting=Count(4000, is_estimate=True), documents=Count(1_000_000), lag=9.2)
    (line,) = said(late)
    assert "; pods queued there: about 4000 with 1000000 documents, the oldest for 9.2 s: start a" in line
    (line,) = said(free)
    assert "t: no worker leads partition 0; nothing is queued there: start a worker" in line


def test_parked_records_have_a_number() -> None:
    def parked(*counts: Count) -> str:
        (line,) = said(*(replace(OUTBOX, parked=count, parked_error="no") for count in counts))
        return line

    assert parked(Count(1)).startswith("o: 1 record parked, one of them: no: ")
    assert parked(Count(300), Count(1)).startswith("o: 301 records parked, one of them: no: ")
    assert parked(Count(1000, is_least=True), Count(1)).startswith("o: 1001+ records parked, ")


def test_records_that_wait_behind_a_failed_one_did_not_fail() -> None:
    rows = [
        replace(OUTBOX, parked=Count(482), parked_failed=300, parked_behind=182, parked_error="no."),
        replace(OUTBOX, parked=Count(1), parked_failed=1, parked_behind=0, parked_error="no."),
    ]
    (line,) = said(*rows)
    assert line.startswith(
        "o: 483 records parked (301 failed, 182 wait behind); the latest error: no: pytube"
    )
    assert "discard o --topic TOPIC, or ID by ID; the records behind are then sent" in line
    assert "later records" not in line
    (line,) = said(replace(rows[0], parked=Count(2), parked_failed=1, parked_behind=1))
    assert "(1 failed, 1 waits behind)" in line
    assert "for a record that can't be repaired: pytube outbox parked discard o ID; the records" in line


def test_a_retry_that_comes_after_later_records_is_told() -> None:
    parked = replace(OUTBOX, parked=Count(2), parked_failed=2, parked_error="no", parked_overtaken=1)
    (line,) = said(parked)
    assert "retry o --all; records of keys that are not held (on_poison" in line
    (line,) = said(replace(parked, parked_overtaken=0))
    assert "on_poison" not in line


def test_a_topic_that_is_due_is_not_tried_in_0_ms() -> None:
    topic = RestingTopic("news", "no", records=1, since=4.0, tried_in=0.0, park=False)
    (line,) = said(replace(OUTBOX, resting=[topic]))
    assert "for 4.0 s, about to be tried again, records held for it: 1" in line


def test_while_kafka_is_back_nobody_is_to_start_another_worker() -> None:
    """The one that waits for the election is alive: its session is there."""
    free = replace(TUBE, state="free", leader=None, waiting=Count(845), lag=86.8)
    back = Back("t", "shop-2", "0123456789ab", 4.0)
    here = HostSample(None, [free], processes=[Process("0123456789ab", "1")], back=[back])
    (found,) = troubles([here])
    assert found.level is Level.WARN
    assert "start no other worker: Kafka has been back for 4.0 s" in str(found)
    assert "about to give them to worker shop-2" in str(found)
    for sample in (replace(here, processes=[]), replace(here, back=[replace(back, tube="other")])):
        (found,) = troubles([sample])
        assert found.level is Level.FAIL
        assert "start a worker: pytube worker --tube t" in str(found)


def test_a_worker_that_runs_and_refuses_a_tube_is_told_with_its_reason() -> None:
    free = replace(TUBE, state="free", leader=None, waiting=Count(3), lag=86.8)
    reason = "permission denied for schema shop; grant wrk the missing right"
    refused = [refusal("t", "shop-1", reason), refusal("t", "shop-2", reason), refusal("u", "shop-1", "no")]
    (found,) = troubles([HostSample(None, [free], complaints=refused)])
    assert found.level is Level.FAIL
    assert f"; workers shop-1, shop-2 can't serve it: {reason}: do what the reason says" in str(found)
    assert "start a worker" not in str(found)
    assert not troubles([HostSample(None, [TUBE], complaints=refused)]), "another worker leads it"
    (found,) = troubles([HostSample(None, [replace(TUBE, leader="shop-2")], complaints=refused)])
    assert (found.kind, found.level) == (Kind.CONFIG_REFUSED, Level.WARN)
    said = f"t: worker shop-2 does not serve all of it as the file says: {reason}: do what the reason"
    assert str(found).startswith(said)
    only = HostSample(None, [free, replace(free, name="u")], complaints=refused).only(
        lambda one: one.name == "u"
    )
    assert [one.tube for one in only.complaints] == ["u"]


def test_a_companion_without_a_leader_is_a_matter_of_its_tube() -> None:
    """No file has a section for it."""
    free = replace(TUBE, state="free", leader=None)
    links = replace(free, name="t_relations", companion_of="t")
    late = replace(links, waiting=Count(3), lag=86.8)
    (found,) = troubles([HostSample(None, [free, late])])
    assert (found.level, found.name) == (Level.FAIL, "t")
    assert "no worker leads partition 0, and partition 0 of t_relations; pods queued there: 3" in str(found)
    assert "pytube worker --tube t;" in str(found)
    (found,) = troubles([HostSample(None, [free, links])])
    assert (found.level, found.name) == (Level.WARN, "t")
    (found,) = troubles([HostSample(None, [replace(free, lag=86.8), links])])
    assert (found.level, found.name) == (Level.FAIL, "t")
    for rows in ([TUBE, late], [late]):
        (found,) = troubles([HostSample(None, rows, complaints=[refusal("t", "shop-1", "no")])])
        assert (found.level, found.name) == (Level.FAIL, "t_relations")
        assert "worker shop-1 can't serve it: no" in str(found)
        (found,) = troubles([HostSample(None, rows)])
        assert "pytube worker --tube t;" in str(found)
        assert "[tube.t]" in str(found)


def test_a_leader_that_is_lost_is_told_with_what_to_do() -> None:
    (line,) = said(replace(TUBE, state="lost", renewed_ago=20.0))
    assert "lost for 20.0 s" in line
    assert "start a worker: pytube worker --tube t" in line
    assert "if the lost one hangs, kill it" in line


def test_what_is_parked_is_mended_before_it_is_retried() -> None:
    (line,) = said(replace(TUBE, parked=Count(1), parked_error="no."))
    assert ", one of them: no: pytube park list" in line
    assert line.index("pytube park list t") < line.index("fix the cause") < line.index("pytube park retry")


def test_what_a_transform_refused_is_retried_by_workers_that_have_its_new_code() -> None:
    (line,) = said(replace(TUBE, parked=Count(1), parked_error="transform shop:slim raised KeyError: 'a'"))
    assert line.index("fix the cause") < line.index("restart the workers") < line.index("pytube park retry t")


def test_a_record_that_no_retry_can_send_may_be_discarded() -> None:
    """Nobody can mend the headers of a record, so `retry` alone would park it again and again."""
    (line,) = said(replace(OUTBOX, parked=Count(1), parked_error="its headers have 1 name and 2 values"))
    assert "pytube outbox parked list o" in line
    assert "pytube outbox parked retry o --all" in line
    assert "pytube outbox parked discard o ID" in line


def test_what_is_parked_is_told_with_how_to_mend_it() -> None:
    def line(error: str, count: int = 1) -> str:
        (found,) = said(replace(OUTBOX, parked=Count(count), parked_error=error))
        return found

    assert "UPDATE of kafka_header_keys" in line("its headers have 1 name and 2 values")
    large = line(
        "the record is larger than message.max.bytes, which is 1000000: key, value and headers have 2"
    )
    assert "[outbox.o.kafka_options]" in large
    assert "SIGHUP" in large
    assert "restart" not in large
    assert "max.message.bytes" in large
    refused = line("the broker refuses the record: Broker: Message size too large")
    assert "raise max.message.bytes of the topic" in refused
    assert "discard o --topic TOPIC" in line("anything", 2)


def test_a_topic_that_rests_is_told_once_for_all_partitions() -> None:
    topic = RestingTopic("t", "Broker: Unknown topic or partition", 7, 14.0, 3.0, park=False)
    rows = [
        replace(OUTBOX, resting=[topic]),
        replace(OUTBOX, partition=1, resting=[replace(topic, records=5, since=15.0, tried_in=1.0)]),
    ]
    (line,) = said(*rows)
    assert line.startswith("o partitions 0, 1: topic t has taken nothing for 15.0 s, tried again in 1")
    assert "records held for it: 12: Broker: Unknown topic" in line
    assert "create the topic" in line
    assert (
        "pytube outbox park o --topic t sets them aside, and later records of their keys may overtake them"
        in line
    )


def test_what_had_no_answer_is_not_to_be_parked() -> None:
    topic = RestingTopic("t", f"{NO_ANSWER}: Local: Message timed out", 7, 14.0, 3.0, park=False)
    (line,) = said(replace(OUTBOX, resting=[topic]))
    assert "park" not in line
    assert "leader" in line


def test_a_locked_table_is_told_once_and_asks_for_no_grant() -> None:
    """A read that waited for longer than `answer_timeout` makes the source down, for the same lock."""
    reason = f"rows for tube 't' can't be read: no answer within 15 s ({LOCKED})"
    row = replace(TUBE, state="source down", source_down=reason, source_down_for=28.0)
    locked = Hindrance("t", 0, "locked", LOCKED, 43.0)
    found = troubles([HostSample(None, partitions=[row], hindered=[locked])])
    more = "more: docs/errors.md#table-locked"
    assert [str(one) for one in found] == [f"t partition 0: waits for a lock for 43.0 s: {LOCKED}; {more}"]
    assert found[0].level is Level.FAIL, "nothing is read"
    assert "GRANT" not in found[0].remedy


def test_a_source_that_is_down_for_another_reason_is_told_beside_a_lock() -> None:
    locked = Hindrance("t", 0, "locked", LOCKED, 43.0)
    denied = replace(TUBE, state="source down", source_down="permission denied", source_down_for=28.0)
    assert len(said(denied, hindered=[locked])) == 2
    other = replace(denied, partition=1, source_down=f"no answer ({LOCKED})")
    assert len(said(other, hindered=[locked])) == 2, "the lock is not known to hold that partition up"


def test_a_lock_that_holds_up_one_partition_is_a_warning_where_others_are_read() -> None:
    locked = [Hindrance("t", number, "locked", LOCKED, 3.0) for number in (0, 1)]
    found = troubles([HostSample(None, partitions=[TUBE, replace(TUBE, partition=1)], hindered=locked)])
    assert [(one.level, one.partitions) for one in found] == [(Level.WARN, (0, 1))]
