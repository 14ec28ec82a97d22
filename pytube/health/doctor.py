"""The doctor: looks at all that a worker needs, in order of what depends on what, and says what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg

from pytube.config import Config, SinkConfig
from pytube.config.names import leader_name
from pytube.counts import say_count
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.declarations.model import Kind, Plan, State
from pytube.declarations.survey import survey
from pytube.documents.resolve import resolve, unresolved
from pytube.errors import ConfigError, PooledSession, PytubeError, how_to_install, on_host, page
from pytube.health import captured, queues, server
from pytube.health.backfills import check_backfills
from pytube.health.findings import Check, Level, Look, fail, ok, refused, warn, with_host
from pytube.health.fleet import place
from pytube.logs import Logger, UserFaults, heard
from pytube.outbox.clients import outbox_clients, outbox_cluster
from pytube.sinks import build_sink, open_existing
from pytube.transforms import Transforms

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from pytube.kafka.clients import Producers

_BROKER_TIMEOUT = 5.0
_COMMON = {"log_level": 0, "socket.timeout.ms": int(_BROKER_TIMEOUT * 1000)}


def examine(config: Config, origin: str = "postgres.dsn") -> Iterator[Check]:
    """Every finding, as it is made. Does not raise: what fails is a finding.

    Nothing is said about tubes where they could not be looked at. Of several hosts each is looked at, and
    named. What a worker refuses when it starts is the last finding: a worker is made, and opens nothing.
    """
    config, documents = _with_documents(config)
    partitions: dict[str | None, Mapping[str, int]] = {}
    reported: dict[str, str] = {}
    failing: set[str] = set()
    for host in config.hosts:
        there: dict[str, int] = {}
        for check in _examine_host(config.of_host(host), origin, there):
            reported[check.subject] = f"{reported.get(check.subject, '')}\n{check.finding}"
            if check.level is Level.FAIL:
                failing.add(check.subject)
            yield _of_host(host, check)
        partitions[host] = there
    if documents is not None and not any(subject.startswith(DOCUMENT) for subject in failing):
        yield documents  # else it was said of the one at fault
    if len(config.hosts) > 1:
        yield from queues.check_shards(config)
    failed: set[str] = set()
    for check in _examine_targets(config, partitions, reported):
        if check.level is Level.FAIL:
            failed.add(check.finding)
        yield check
    start = check_start(config)
    if start.finding not in failed:
        yield start


def _with_documents(config: Config) -> tuple[Config, Check | None]:
    """The configuration with its declared documents compiled; why they can't be."""
    if not config.documents:
        return config, None
    try:
        resolved = resolve(config)
    except ConfigError as error:
        return config, refused("documents", str(error), "correct it")
    except PytubeError as error:
        return config, fail("documents", f"were not looked at: {error}", "see above: Postgres")
    return resolved, None


def _of_host(host: str | None, check: Check) -> Check:
    return replace(with_host(check, host), subject=f"{place(host)}{check.subject}")


def _examine_targets(
    config: Config, partitions: Mapping[str | None, Mapping[str, int]], reported: Mapping[str, str]
) -> Iterator[Check]:
    """What documents and records are sent to, whatever host they come from, and what elections need.

    `reported`: the findings of hosts, by subject.
    """
    for name, tube in config.tubes.items():
        check, loss = check_sink(name, tube.sink, config.hosts), f"documents of {name}"
        if check.level is not Level.OK and loss in reported:
            # An index in the place of pytube's could be opened; then it would stay.
            check = replace(check, remedy=f"see above: {loss}; if this is still said then: {check.remedy}")
        yield check
        if tube.transforms:
            yield check_transforms(name, tube.transforms)
    for check in check_brokers(config, partitions):
        servers, dead, _ = check.finding.partition(_DEAD)
        # Workers have reported the same: then it is one fault, and has one line.
        if not (dead and f"Kafka at {servers} can't be used" in reported.get("Kafka", "")):
            yield check


def _examine_host(config: Config, origin: str, partitions: dict[str, int]) -> Iterator[Check]:
    """Check one host; `partitions` gets the numbers of its tubes and outboxes."""
    tubes: dict[str, int] | None = None
    dsn, schema = config.postgres.only_dsn.get_secret_value(), config.postgres.schema_name
    try:
        with connect_sync(dsn, schema, application_name="pytube doctor") as connection, translated():
            yield ok("Postgres", f"{_where(connection)} answers ({origin})")
            yield server.check_pooler(connection)
            yield from server.check_server(connection)
            installed = server.check_version(connection, schema)
            yield installed
            there = installed.level is Level.OK
            yield server.check_rights(connection, schema)
            if there:
                yield server.check_sequence(connection, schema)
                tubes = queues.read_partitions(connection, schema, "tube")
            if tubes is not None:
                partitions |= tubes | (queues.read_partitions(connection, schema, "outbox") or {})
                for subject, check in _OF_QUEUES.items():
                    try:
                        yield from check(Look(connection, schema, config))
                    except psycopg.errors.InsufficientPrivilege:
                        yield warn(subject, "were not looked at, as this role may not", "see above: rights")
            yield server.check_connections(connection)
            yield from server.check_settings(connection)
            yield from server.check_transactions(connection)
            yield from server.check_slots(connection)
            yield from server.check_wake(connection)
    except PooledSession as error:
        yield refused("pooler", str(error))
    except PytubeError as error:
        yield fail("Postgres", f"{error} ({origin})", "correct postgres.dsn, or start the server")
    except psycopg.Error as error:
        yield fail("Postgres", f"it refused: {describe(error)}", "see the server's log")
    if tubes is not None:
        yield from queues.check_tubes(config, tubes)
        names = tubes.keys() - unresolved(config)
        yield from queues.check_sources(config, [name for name in config.tubes if name in names])


def _where(connection: psycopg.Connection) -> str:
    info = connection.info
    return f"database {info.dbname} at {info.host}:{info.port}, as {info.user},"


# --- what the file declares ---------------------------------------------------------------

DOCUMENT = "document "
"""The subject of a finding begins with it, and ends with the name."""
_LOOK = "run `pytube plan`, then `pytube apply`"
_RESEND = "run `pytube plan`, then `pytube apply --backfill`"


def check_documents(look: Look) -> Iterator[Check]:
    """Drift between the file, the applied declaration, and the links; missing indexes."""
    for one in survey(look.config, look.connection, look.schema, kinds=(Kind.DOCUMENT,)):
        subject = f"{DOCUMENT}{one.name}"
        if one.problem is not None:
            yield refused(subject, one.problem)
            continue
        applied = f"applied; it follows {say_count(len(one.followed), 'link')}"
        yield _state(subject, one, applied, drift="its set of links", look=_RESEND)
        for index in one.missing_indexes:
            statement, _, reason = index.partition(";  -- ")
            yield warn(f"indexes of {one.name}", f"one is missing {reason}: whole tables are read", statement)


def check_declarations(look: Look) -> Iterator[Check]:
    """Drift of tubes and outboxes: between the file, the applied declaration, and the database."""
    for one in survey(look.config, look.connection, look.schema, kinds=(Kind.TUBE, Kind.OUTBOX)):
        subject = f"declared {one.kind} {one.name}"
        if one.problem is not None:
            yield refused(subject, one.problem)
        else:
            yield _state(subject, one, "applied", drift="it", look=_LOOK)


def _state(subject: str, plan: Plan, applied: str, *, drift: str, look: str) -> Check:
    """The finding; `applied`, `drift` and `look` are the words for this kind."""
    match plan.state:
        case State.APPLIED:
            return ok(subject, applied)
        case State.NEW:
            return fail(subject, "the file declares it, but it was not applied", look)
        case State.CHANGED:
            finding = "the file's declaration differs from the applied one"
            return fail(subject, finding, f"{look}; or use the file that was applied")
        case State.DRIFTED:
            steps = "; ".join(step.text for step in plan.steps)
            missed = ", which makes workers resend all documents, as changes were missed"
            return fail(
                subject,
                f"{drift} was changed since it was applied; missing: {steps}",
                f"{_LOOK}{missed if plan.missed_changes else ''}",
            )
        case _:
            finding = "it was applied, but the file no longer declares it"
            return warn(subject, finding, "run `pytube apply --prune`, if no other file declares it")


_OF_QUEUES: Final[dict[str, Callable[[Look], Iterator[Check]]]] = {
    "leaders": queues.check_delivery,
    "ids": queues.check_ids,
    "owners": captured.check_capture,
    "backfills": check_backfills,
    "partitions": queues.check_reach,
    "outboxes": queues.check_outboxes,
    "documents": check_documents,
    "declarations": check_declarations,
}
"""By the subject of the finding where this role may not look."""


# --- sinks ------------------------------------------------------------------------------


def check_sink(tube: str, config: SinkConfig, hosts: Sequence[str | None] = (None,)) -> Check:
    """Open the sink of a tube, which some hosts feed, without making anything there, and close it."""
    subject = f"sink of {tube}"
    try:
        with heard("pytube.sinks") as warned:
            missing = asyncio.run(_open_and_close(config))
    except ConfigError as error:
        return fail(subject, str(error), f'correct [tube."{tube}".sink]')
    except TimeoutError:
        finding = f"{config.type} did not open within {config.request_timeout:g} s"
        return fail(subject, finding, "see that it is up and can be reached from here")
    except PytubeError as error:
        return fail(subject, str(error), "see that it is up and can be reached from here")
    except Exception as error:  # noqa: BLE001 - a sink may be anybody's code
        finding = f"{config.type} failed to open: {type(error).__name__}: {error}"
        return fail(subject, finding, "see the sink's documentation")
    if missing is None and not warned:
        return ok(subject, f"{config.type} opens")
    return warn(subject, *(_warned(config, warned) if missing is None else _missing(tube, missing, hosts)))


def _missing(tube: str, missing: str, hosts: Sequence[str | None]) -> tuple[str, str]:
    """A finding, and what to do."""
    fill = " && ".join(on_host(f"pytube backfill start {tube}", host) for host in hosts)
    return (
        f"{missing}; a worker makes it for a tube that is new, or is filled again",
        f"start a worker: pytube worker --tube {tube}; after a loss: {fill}",
    )


def _warned(config: SinkConfig, warned: Sequence[tuple[str, Mapping[str, object]]]) -> tuple[str, str]:
    """As `_missing`, of what the sink has warned of."""
    said = (f"{fields.get('server', config.type)}: {fields.get('reason', event)}" for event, fields in warned)
    events = ", ".join(dict.fromkeys(event for event, _ in warned))
    return f"{config.type} opens, but {'; '.join(said)}", f"see {events} in {page('events.md')}"


def check_transforms(tube: str, targets: Sequence[str]) -> Check:
    """Import the transforms of a tube; none is called."""
    subject = f"transforms of {tube}"
    log = Logger("pytube.doctor", tube=tube)
    try:
        Transforms.load(targets, tube, log, UserFaults(log))
    except ConfigError as error:
        return fail(subject, str(error), f'correct [tube."{tube}"]')
    return ok(subject, f"{', '.join(targets)}: there, and not called")


async def _open_and_close(config: SinkConfig) -> str | None:
    """What a worker would have to make first; None: it was open."""
    sink = build_sink(config.type, config.options, request_timeout=config.request_timeout, parts=config.parts)
    try:
        async with asyncio.timeout(config.request_timeout):
            return await open_existing(sink)
    finally:
        await sink.close()


# --- Kafka: the broker of the elections, and the brokers of outboxes --------------------

_DEAD = " does not answer: "
"""Between the servers of a cluster and the reason."""


def check_brokers(config: Config, partitions: Mapping[str | None, Mapping[str, int]]) -> Iterator[Check]:
    """Whether the brokers of the elections and of the outboxes answer; each cluster is asked once.

    An outbox needs its broker whatever the election. `partitions`: of each host, how many each existing tube
    and outbox has.
    """
    try:
        import confluent_kafka  # noqa: F401 # is it there?
    except ImportError:
        if config.election_kind != "lease":
            yield fail("broker", "confluent-kafka is not installed", how_to_install("kafka"))
        yield from _check_outbox_brokers(config, {})
        return
    answered: dict[str, str | None] = {}
    """Why a cluster, by bootstrap servers and options, does not answer; None: it does."""
    if config.election_kind == "lease":
        yield ok("election", "by leases in Postgres, without a broker")
    else:
        yield from _check_election(config, partitions, answered)
    yield from _check_outbox_brokers(config, answered)


def _check_election(
    config: Config,
    partitions: Mapping[str | None, Mapping[str, int]],
    answered: dict[str, str | None],
) -> Iterator[Check]:
    """Whether the broker can hold the elections of the configured tubes and outboxes."""
    from confluent_kafka import KafkaException

    from pytube.kafka.clients import Clients

    assert config.kafka is not None
    servers = config.kafka.bootstrap_servers
    clients = Clients(
        servers, config.kafka.options, where="[kafka] options", log=Logger("pytube.kafka"), common=_COMMON
    )
    try:
        admin = clients.admin()
    except ConfigError:
        # The error may repeat the value of an option, which may be a secret.
        remedy = "check the names and values in kafka.options against librdkafka's CONFIGURATION.md"
        yield fail("broker", "librdkafka refuses an option of [kafka]", remedy)
        return
    cluster = _cluster(servers, config.kafka.options)
    try:
        metadata = admin.list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        answered[cluster] = text = clients.reason or error.args[0].str()
        remedy = "start it, or correct kafka.bootstrap_servers and kafka.options"
        yield fail("broker", f"{servers}{_DEAD}{text}", remedy)
        return
    answered[cluster] = None
    yield ok("broker", f"{servers} answers")
    for host, there in partitions.items():
        of_host = config.of_host(host)
        if config.kafka.shared_partitions is not None:
            shared = leader_name(of_host.worker.installation)
            width = config.kafka.shared_partitions
            yield _of_host(host, _check_topic(admin, metadata, "all tubes", shared, width))
            continue
        for name in (*config.tubes, *config.outboxes):
            if name in there:
                topic = of_host.leader_topic(name)
                yield _of_host(host, _check_topic(admin, metadata, name, topic, there[name]))
    yield _check_timeout(admin, metadata, config.worker.session_timeout)


def _cluster(servers: str, options: Mapping[str, Any]) -> str:
    return json.dumps([servers, options], sort_keys=True, default=str)


def _check_topic(admin: AdminClient, metadata: Any, name: str, topic: str, wanted: int) -> Check:
    """Whether the leader topic of a tube is there, wide enough, or could be made."""
    subject = f"topic of {name}"
    found = metadata.topics.get(topic)
    width = len(found.partitions) if found is not None else 0
    there = f"{topic} has {say_count(width, 'partition')}" if width else f"{topic} is missing"
    if width >= wanted:
        return ok(subject, there)
    if metadata.controller_id < 0:
        return warn(
            subject,
            f"{there}, and this broker creates topics with its default number of partitions",
            f"see that new topics have at least {say_count(wanted, 'partition')}",
        )
    refusal = _refusal(admin, topic, width, wanted)
    if refusal is None:
        return ok(subject, f"{there}; a worker will give it {wanted}")
    return fail(
        subject,
        f"{there}; it needs {wanted}, and this principal may not change it ({refusal})",
        f"give it {say_count(wanted, 'partition')}, or allow pytube's principal to create and alter it",
    )


def _refusal(admin: AdminClient, topic: str, width: int, wanted: int) -> str | None:
    """Why the broker would not make or widen the topic; None when it would."""
    from confluent_kafka import KafkaException
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    limits: dict[str, Any] = {"validate_only": True, "request_timeout": _BROKER_TIMEOUT}
    if width:
        futures = admin.create_partitions([NewPartitions(topic, wanted)], **limits)
    else:
        new = NewTopic(topic, num_partitions=wanted, replication_factor=-1)
        futures = admin.create_topics([new], **limits)
    for future in futures.values():
        try:
            future.result(timeout=2 * _BROKER_TIMEOUT)
        except KafkaException as error:
            return str(error.args[0].str())
    return None


def _check_timeout(admin: AdminClient, metadata: Any, ours: float) -> Check:
    """Whether the broker accepts the worker's session timeout, in seconds."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin._config import ConfigResource

    subject = "session timeout"
    try:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(metadata.brokers))))
        answers = admin.describe_configs([resource], request_timeout=_BROKER_TIMEOUT)
        settings = next(iter(answers.values())).result(timeout=2 * _BROKER_TIMEOUT)
        least = int(settings["group.min.session.timeout.ms"].value) / 1000
        most = int(settings["group.max.session.timeout.ms"].value) / 1000
    except (KafkaException, KeyError, StopIteration):
        return ok(subject, f"{ours:g} s; the broker does not report the range it accepts")
    if least <= ours <= most:
        return ok(subject, f"{ours:g} s")
    return fail(
        subject,
        f"worker.session_timeout is {ours:g} s, and the broker takes {least:g} to {most:g} s",
        "change it, or the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
    )


def _check_outbox_brokers(config: Config, answered: dict[str, str | None]) -> Iterator[Check]:
    groups: dict[str, list[str]] = {}
    for name in config.outboxes:
        groups.setdefault(_cluster(*outbox_cluster(config, name)), []).append(name)
    for cluster, names in groups.items():
        subject = f"broker of {', '.join(names)}"
        try:
            kafka = outbox_clients(config, names[0])
            if answered.get(cluster) is not None:
                continue  # the check of the election has said so
            if cluster not in answered:
                answered[cluster] = _ask(kafka)
        except ConfigError as error:
            yield fail(subject, str(error), f'correct [outbox."{names[0]}"]')
            continue
        if (text := answered[cluster]) is None:
            yield ok(subject, f"{kafka.bootstrap_servers} answers; topics of records were not looked at")
        else:
            remedy = "start it, or correct bootstrap_servers and the options; records wait until it answers"
            yield fail(subject, f"{kafka.bootstrap_servers}{_DEAD}{text}", remedy)


def _ask(kafka: Producers) -> str | None:
    from confluent_kafka import KafkaException

    try:
        kafka.admin().list_topics(timeout=_BROKER_TIMEOUT)
    except KafkaException as error:
        return kafka.say(error.args[0])
    return None


# --- the worker itself ------------------------------------------------------------------


def check_start(config: Config) -> Check:
    """Whether a worker can be made: with the packages and options that it needs. It opens nothing."""
    from pytube.worker import Worker  # late: it takes as long to load as the rest of the doctor

    if not (config.tubes or config.outboxes):
        return warn(
            "worker",
            "nothing is configured to be served, so none was tried",
            'add a section [tube."NAME"] with its sink, or [outbox."NAME"]',
        )
    if unresolved(config):
        return fail("worker", "was not tried, as documents can't be compiled", "see above: documents")
    try:
        worker = Worker(config)
    except ConfigError as error:
        return fail("worker", str(error), "fix this: a worker would exit with this error as it starts")
    asyncio.run(worker.stop())
    listens = (
        "" if config.worker.listen is None else f"; whether {config.worker.listen} is free was not tried"
    )
    return ok("worker", f"can be made as configured: packages and options{listens}")
