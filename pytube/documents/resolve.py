"""Resolves a configuration with declared documents, so that a worker can use it; says which are not resolved.

A worker takes no SQL from the database: it compiles the documents of its file, and looks there only
whether the same ones were applied. So no role that may write to pytube's tables can make it run SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import psycopg
from pydantic import SecretStr

from pytube.config import Config, DeclaredEnrich, EnrichConfig, SinkConfig, TubeConfig
from pytube.config.section import key_path
from pytube.db.connect import connect_sync
from pytube.db.errors import GRANTS, about, describe, how_to_let_read, translated
from pytube.documents.model import Companion, Document, Tube, companions_of, read_tubes
from pytube.errors import ConfigError, PytubeError, StatementFailed, of_host
from pytube.keys import part_parameter

RELATIONS = "relations"
"""The type of the sink of companion tubes."""
_SHOWN = 12
"""Characters of a digest that are shown."""
_SO_OFTEN = 1_000_000_000
"""Attempts after which a relation would be parked: never."""


def resolve(config: Config, only: Collection[str] | None = None) -> Config:
    """The configuration with the declared documents as tubes like any other, and with their companions.

    It opens a session of the configured role, unless there is no document.

    Args:
        config: as `pytube.config.load` gives it. Resolved documents stay as they are.
        only: names of tubes that are wanted; None: all. Other documents stay as they are.

    Raises:
        ConfigError: a document can't be made, or differs from the one applied last.
        StatementFailed: Postgres refused a part of a document.
        DatabaseUnavailable: Postgres can't be reached.
    """
    resolved, refused = resolve_each(config, only, is_to_read=False)
    for reason in refused.values():
        raise reason
    return resolved


def resolve_each(
    config: Config, only: Collection[str] | None = None, *, is_to_read: bool = True
) -> tuple[Config, dict[str, PytubeError]]:
    """As `resolve`, but without the documents that it raises for, or that the role may not read.

    These have no tube in the configuration. `is_to_read`: whether the role is to read them, as a worker's is.

    Returns:
        The configuration, and by name of a document why it is not there.
    """
    wanted = {name for name in unresolved(config) if only is None or name in only}
    if not wanted:
        return config, {}
    if config.postgres.hosts:
        return _resolve_on_hosts(config, wanted, is_to_read=is_to_read)
    # Imported late: who declares no document needs no compiler.
    from pytube.documents.catalogue import Catalogue
    from pytube.documents.compile import compile_document

    postgres = config.postgres
    documents: list[Document] = []
    refused: dict[str, PytubeError] = {}
    try:
        with (
            connect_sync(
                postgres.only_dsn, postgres.schema_name, application_name="pytube documents"
            ) as connection,
            translated(),
        ):
            catalogue = Catalogue(connection)
            for name in sorted(wanted):
                try:
                    document = compile_document(name, config.documents[name], catalogue)
                    if is_to_read:
                        _refuse_unreadable(connection, document)
                    documents.append(document)
                except ConfigError as error:
                    refused[name] = error
                except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
                    refused[name] = StatementFailed(f"document {name}: Postgres refused: {describe(error)}")
            tubes = read_tubes(connection, postgres.schema_name)
    except psycopg.Error as error:
        raise StatementFailed(f"Postgres refused a statement: {describe(error)}") from error
    for document in documents:
        try:
            config = with_documents(config, [document], tubes)
        except ConfigError as error:
            refused[document.name] = error
    return _without(config, refused), refused


def _resolve_on_hosts(
    config: Config, wanted: Collection[str], *, is_to_read: bool
) -> tuple[Config, dict[str, PytubeError]]:
    """As `resolve_each`: each host by its own catalogue. A document that one host refuses may have others."""
    found: dict[str, Config] = {}
    refused: dict[str, PytubeError] = {}
    for host in config.postgres.hosts:
        own = config.of_host(host)
        try:
            found[host], failed = resolve_each(own, wanted, is_to_read=is_to_read)
        except PytubeError as error:
            found[host], failed = _without(own, wanted), dict.fromkeys(wanted, error)
        for name, reason in failed.items():
            refused.setdefault(name, of_host(reason, host))
    return of_hosts(config, found), refused


def of_hosts(config: Config, hosts: Mapping[str, Config]) -> Config:
    """The configuration of several hosts, each of which has its own.

    Its `tubes` are all that some host has, with the sink that hosts share. The sink of a companion passes
    each host's pods to the relations of that host.
    """
    tubes = {
        name: tube
        for name, tube in config.tubes.items()
        if name not in config.documents and tube.sink.type != RELATIONS
    }
    for host, own in hosts.items():
        for name, tube in own.tubes.items():
            if tube.sink.type != RELATIONS:
                tubes.setdefault(name, tube)
                continue
            before = tubes[name].sink.options["hosts"] if name in tubes else {}
            options = {"tube": tube.sink.options["tube"], "hosts": {**before, host: tube.sink.options}}
            sink = tube.sink.model_copy(update={"options": options})
            tubes[name] = tube.model_copy(update={"sink": sink})
    return config.with_hosts(tubes, hosts)


def _refuse_unreadable(connection: psycopg.Connection, document: Document) -> None:
    """Raise `ConfigError` if the role may not read the document; it may compile it all the same.

    Whatever else stops the plan (a locked table, a function of the user that fails at planning) is for the
    reads to find: they wait and try again, and no other document is kept back.
    """
    arguments = dict.fromkeys(("ids", *map(part_parameter, range(len(document.key_columns)))))
    try:
        with connection.transaction():
            # As of a worker.
            connection.execute("SET LOCAL row_security = off; SET LOCAL lock_timeout = '2s'")
            connection.execute(b"EXPLAIN " + document.query.encode(), arguments)
    except psycopg.errors.InsufficientPrivilege as error:
        tables = [(link.table.schema, link.table.table) for link in document.links]
        found = connection.execute(GRANTS, about(error, tables)).fetchall()
        remedy = how_to_let_read(error, connection.info.user, found)
        raise ConfigError(f"document {document.name}: {describe(error)}; {remedy}") from None
    except psycopg.DatabaseError:
        if connection.closed:
            raise


def _without(config: Config, names: Collection[str]) -> Config:
    tubes = {name: tube for name, tube in config.tubes.items() if name not in names}
    documents = {name: section for name, section in config.documents.items() if name not in names}
    return config.model_copy(update={"tubes": tubes, "documents": documents})


def with_documents(config: Config, documents: Collection[Document], tubes: Mapping[str, Tube]) -> Config:
    """The configuration with these documents; `tubes` are in the database. Raises as `resolve` does."""
    sections = dict(config.tubes)
    for document in documents:
        there = _refuse_another(document, tubes)
        settings = config.tube(document.name)
        query = DeclaredEnrich(mode="query", query=document.query, digest=document.digest)
        sections[document.name] = settings.model_copy(update={"enrich": query})
        for companion in there:
            if companion.name in config.tubes or companion.name in config.outboxes:
                raise ConfigError(
                    f"key {key_path(('tube', companion.name))}: the relations of document "
                    f"{document.name} are followed by a tube of that name; take the section out, or give it "
                    "another name"
                )
            sections[companion.name] = _section_of(config, document, companion)
    return config.model_copy(update={"tubes": sections})


def _refuse_another(document: Document, tubes: Mapping[str, Tube]) -> list[Companion]:
    """Raise `ConfigError` unless the document is the applied one; its companions in the database."""
    tube = tubes.get(document.name)
    reason = why_not_applied(
        document.name, applied=None if tube is None else tube.document, own=document.digest
    )
    if reason is not None:
        raise ConfigError(reason)
    companions = companions_of(document, tubes)
    for companion in companions:
        state = tubes.get(companion.name)
        followed = set() if state is None else {(one.table, one.key, one.shard) for one in state.tables}
        for shard, link in companion.relations.items():
            if (link.table, link.by, shard) not in followed:
                raise ConfigError(
                    not_applied(document.name, f"{link.table}.{link.column} is followed by no tube of it")
                )
    # A companion without relations, too: some worker has to consume its pods.
    return [companion for companion in companions if companion.name in tubes]


def _section_of(config: Config, document: Document, companion: Companion) -> TubeConfig:
    """How a worker serves a companion."""
    worker, postgres = config.worker, config.postgres
    # A fan-out may take long, and only its own document waits for it.
    timeout = worker.session_timeout - worker.receive_deadline
    sink = SinkConfig(
        type=RELATIONS,
        request_timeout=timeout,
        sends=1,
        options={
            "dsn": SecretStr(postgres.only_dsn.get_secret_value()),
            "schema": postgres.schema_name,
            "tube": document.name,
            "digest": document.digest,
            "key_type": companion.key_type.value,
            "document_key_type": document.key_type.value,
            # As in a file, where keys are texts.
            "paths": {str(shard): link.path for shard, link in companion.relations.items()},
            "timeout": timeout,
        },
    )
    return TubeConfig(
        sink=sink,
        enrich=EnrichConfig(mode="none"),
        latency=config.tube(document.name).latency,
        attempts=_SO_OFTEN,
        on_poison="stop",
    )


# --- whether documents are resolved, and applied ----------------------------------------------------


def digest_of(config: EnrichConfig) -> str | None:
    """The digest of the declared document that the section was made of; None: of no document."""
    return config.digest if isinstance(config, DeclaredEnrich) else None


def unresolved(config: Config) -> set[str]:
    """The documents that were not compiled."""
    return {name for name in config.documents if digest_of(config.tube(name).enrich) is None}


def refuse_unresolved(config: Config, tubes: Collection[str]) -> None:
    """Raise `ConfigError` if one of the tubes is that of a document that was not compiled."""
    for name in sorted(unresolved(config)):
        if name in tubes:
            raise ConfigError(
                f"document {name!r} is declared but not compiled, which needs the catalog of the database; "
                "call pytube.documents.resolve.resolve(config), and use the config that it returns"
            )


def with_companions(config: Config, tubes: Iterable[str]) -> list[str]:
    """The tubes, each with its companions behind it: serving a document means its relations, too."""
    companions: dict[str, list[str]] = {}
    for name, tube in config.tubes.items():
        if tube.sink.type == RELATIONS:
            companions.setdefault(str(tube.sink.options.get("tube")), []).append(name)
    return list(dict.fromkeys(one for name in tubes for one in (name, *companions.get(name, ()))))


def trouble_of(tube: TubeConfig) -> Literal["sink", "source"] | None:
    """What of the tube is down where its document was changed; None: it is of no declared document."""
    if digest_of(tube.enrich) is not None:
        return "source"
    return "sink" if tube.sink.type == RELATIONS else None


def why_not_applied(tube: str, *, applied: str | None, own: str | None) -> str | None:
    """Why nothing of a tube may be delivered, in a sentence; None: its document is the applied one.

    By the digests in the database and in the configuration; None: there is no document.
    """
    if applied == own:
        return None
    if own is None:
        return (
            f"tube {tube} is that of a declared document, and the configuration of this worker has no "
            f"[document.{tube}]; give this worker the file that was applied"
        )
    difference = "none was"
    if applied is not None:
        difference = (
            f"the database has {applied[:_SHOWN]}, the file {own[:_SHOWN]}: the file has changed, or a table "
            'has, as by a new column that "*" takes in'
        )
    return not_applied(tube, difference)


def not_applied(document: str, difference: str) -> str:
    """The sentence about a document that is not the one in the database; `difference`: in what."""
    return (
        f"document {document} differs from the declaration applied last ({difference}); run `pytube apply`, "
        "or, if that is done, send this worker SIGHUP, so that it loads the file"
    )
