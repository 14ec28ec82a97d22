"""Resolves a configuration with declared documents, so that a worker can use it.

A worker takes no SQL from the database: it compiles the documents of its file, and looks there only
whether the same ones were applied. So no role that may write to pytube's tables can make it run SQL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import psycopg
from pydantic import SecretStr

from pytube.config import Config, DeclaredEnrich, EnrichConfig, SinkConfig, TubeConfig
from pytube.config.section import key_path
from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translated
from pytube.documents.companions import Companion, TubeState, companions_of, read_tubes
from pytube.documents.declared import RELATIONS, not_applied, unresolved, why_not_applied
from pytube.documents.model import Document
from pytube.errors import ConfigError, StatementFailed

_PURPOSE = "pytube documents"
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
    resolved, refused = resolve_each(config, only)
    for reason in refused.values():
        raise reason
    return resolved


def resolve_each(
    config: Config, only: Collection[str] | None = None
) -> tuple[Config, dict[str, ConfigError | StatementFailed]]:
    """As `resolve`, without the documents that it raises for: these have no tube in the configuration.

    Returns:
        The configuration, and by name of a document why it is not there.
    """
    wanted = {name for name in unresolved(config) if only is None or name in only}
    if not wanted:
        return config, {}
    # Imported late: who declares no document needs no compiler.
    from pytube.documents.catalogue import Catalogue
    from pytube.documents.compile import compile_document

    postgres = config.postgres
    documents: list[Document] = []
    refused: dict[str, ConfigError | StatementFailed] = {}
    try:
        with (
            connect_sync(postgres.only_dsn, postgres.schema_name, application_name=_PURPOSE) as connection,
            translated(),
        ):
            catalogue = Catalogue(connection)
            for name in sorted(wanted):
                try:
                    documents.append(compile_document(name, config.documents[name], catalogue))
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


def _without(config: Config, names: Collection[str]) -> Config:
    tubes = {name: tube for name, tube in config.tubes.items() if name not in names}
    documents = {name: section for name, section in config.documents.items() if name not in names}
    return config.model_copy(update={"tubes": tubes, "documents": documents})


def with_documents(config: Config, documents: Collection[Document], tubes: Mapping[str, TubeState]) -> Config:
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


def _refuse_another(document: Document, tubes: Mapping[str, TubeState]) -> list[Companion]:
    """Raise `ConfigError` unless the document is the applied one; its companions in the database."""
    tube = tubes.get(document.name)
    reason = why_not_applied(
        document.name, applied=None if tube is None else tube.declared, own=document.digest
    )
    if reason is not None:
        raise ConfigError(reason)
    companions = companions_of(document, tubes)
    for companion in companions:
        state = tubes.get(companion.name)
        followed = set() if state is None else {(one.table, one.column, one.shard) for one in state.tables}
        for shard, link in companion.relations.items():
            if (link.table, link.column, shard) not in followed:
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
