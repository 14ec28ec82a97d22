"""Migration operations: pytube's SQL, tubes of models, documents.

They are part of the migration's transaction. With `atomic = False` in the migration, each of their steps is a
separate transaction, as on the command line: no table is locked for long, and indexes of large tubes are
built. None of them changes models.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, LiteralString, TypeAlias

import psycopg
from django.core.exceptions import FieldDoesNotExist
from django.db import router
from django.db.migrations.operations.base import Operation, OperationCategory

from pytube.config import Config, from_values, load
from pytube.contrib.django import options, session
from pytube.db.errors import translated
from pytube.db.install import script
from pytube.db.version import installed
from pytube.declarations.apply import Declarations
from pytube.declarations.model import Kind, Plan
from pytube.declarations.survey import survey
from pytube.errors import ConfigError, PytubeError, TubesNotEmpty, UnknownTable
from pytube.model import KeyType
from pytube.outbox.admin import Outboxes
from pytube.tubes import queries
from pytube.tubes.admin import Tubes
from pytube.tubes.attachments import Wish

_log = logging.getLogger("pytube.django")

Renames: TypeAlias = Sequence[tuple[str, str]]
"""Fields, from and to, in their order."""

_TABLE: Final = """
    SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = pg_catalog.to_regclass(%s)
"""


@dataclass(frozen=True, slots=True)
class _At:
    """Where an operation stands."""

    app_label: str
    editor: Any
    """Django's schema editor."""
    state: Any
    """The models."""

    @property
    def prints(self) -> bool:
        """Whether statements are only to be printed, by `sqlmigrate`."""
        return bool(self.editor.collect_sql)

    def comment(self, text: str) -> None:
        """Print a comment."""
        self.editor.collected_sql += [f"-- {line}" for line in text.splitlines()]

    def send(self, statement: str) -> None:
        """Run a statement, or print it."""
        self.editor.execute(statement, params=None)

    def print_call(self, query: LiteralString, arguments: Mapping[str, Any]) -> None:
        """Print a call of pytube's SQL."""
        self.send(queries.text(query, options().schema, arguments))


class _Operation(Operation, ABC):  # type: ignore[misc] # Django has no types
    """Leaves models alone, and runs on pytube's database only."""

    reduces_to_sql = True
    reversible = True
    category = OperationCategory.SQL
    model_name: str | None = None
    """For routers."""

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Models stay as they are."""

    def database_forwards(self, app_label: str, schema_editor: Any, _from: Any, to_state: Any) -> None:
        """As of Django."""
        if self._is_for(app_label, schema_editor):
            self._do(_At(app_label, schema_editor, to_state))

    def database_backwards(self, app_label: str, schema_editor: Any, _from: Any, to_state: Any) -> None:
        """As of Django."""
        if self._is_for(app_label, schema_editor):
            self._undo(_At(app_label, schema_editor, to_state))

    def _is_for(self, app_label: str, schema_editor: Any) -> bool:
        alias = schema_editor.connection.alias
        hints = {} if self.model_name is None else {"model_name": self.model_name}
        return bool(alias == options().database and router.allow_migrate(alias, app_label, **hints))

    @abstractmethod
    def _do(self, at: _At) -> None:
        """Do it, or print it."""

    @abstractmethod
    def _undo(self, at: _At) -> None:
        """Undo it, or print that."""


# --- pytube's SQL -----------------------------------------------------------------------------------


class InstallTube(_Operation):
    """Installs pytube's SQL, or brings it up to date, as `pytube install` does.

    The reverse removes it once there are no tubes and outboxes. While there are any, it leaves all as it is:
    they may not be this migration's.
    """

    def __init__(self, roles: str | None = None) -> None:
        """`roles`: the prefix of the roles' names; None: the schema's name, or the earlier prefix."""
        self.roles = roles

    def describe(self) -> str:
        """For people."""
        return "Install pytube's SQL"

    def _do(self, at: _At) -> None:
        at.send(script(schema=options().schema, roles=self.roles))

    def _undo(self, at: _At) -> None:
        if at.prints:
            at.comment("Once there are no tubes and outboxes, as `pytube uninstall`")
            return
        schema = options().schema
        with session() as connection, translated():
            if installed(connection, schema) is None:
                return
            tubes = {one.tube for one in Tubes(connection, schema).list()}
            left = sorted({*tubes, *(one.outbox for one in Outboxes(connection, schema).list())})
            if left:
                _log.warning("pytube's SQL stays, with its tubes and outboxes: %s", ", ".join(left))
            else:
                at.send(script("uninstall.sql", schema))


# --- tubes of models --------------------------------------------------------------------------------


class AttachTube(_Operation):
    """Attaches the table of a model to a tube, which it makes if there is none.

    The reverse detaches the table, and drops the tube with its queue unless it has other tables: changes that
    are made meanwhile are not captured, so attaching it again takes a backfill anyway.
    """

    def __init__(
        self,
        tube: str,
        model: str,
        *,
        partitions: int | None = None,
        predicate: str | None = None,
        keys: str | None = None,
        shard: int | None = None,
        shards: int | None = None,
        id_col: str | None = None,
        columns: Sequence[str] | None = None,
        replica: bool | None = None,
        key_cols: Sequence[str] | None = None,
        shard_by: str | None = None,
    ) -> None:
        """Arguments as the options of `pytube tube create` and `tube attach`; None keeps what there is.

        Args:
            tube: its name.
            model: `Model`, of the migration's app, or `app.Model`.
            partitions: of the tube.
            predicate: of the tube, in SQL.
            keys: `bigint`, `uuid` or `text`; None: by the field that holds the ids.
            shard: the table's, or the first of them.
            shards: over how many shards the ids are spread.
            id_col: the field of the ids; this and the following take names of fields, or of columns.
            columns: an UPDATE that changes none of these makes no touch.
            replica: whether rows that logical replication writes are touched, too.
            key_cols: the fields of a key of several, in place of `id_col`.
            shard_by: the field that alone determines the shard.
        """
        self.tube, self.model = tube, model
        self.model_name = model.rpartition(".")[2].lower()
        self.partitions, self.predicate, self.keys = partitions, predicate, keys
        self.wish = Wish(shard, shards, id_col, columns, replica, key_cols, shard_by)

    def describe(self) -> str:
        """For people."""
        return f"Attach {self.model} to tube {self.tube}"

    def key(self, app_label: str) -> tuple[str, str, str]:
        """Which attachment it is: the tube, the model's app, and its name in lower case."""
        return self.tube, self.model.rpartition(".")[0] or app_label, str(self.model_name)

    def _do(self, at: _At) -> None:
        model = at.state.apps.get_model(*self.key(at.app_label)[1:])
        connection = at.editor.connection
        if at.prints:
            self._print(at, model)
            return
        table = table_of(connection, model)
        with session() as lent:
            tubes = Tubes(lent, options().schema)
            tubes.create(self.tube, self.partitions, self.predicate, self._key_type(connection, model))
            tubes.attach(self.tube, table, **asdict(self.wish_for(model)))

    def _print(self, at: _At, model: Any) -> None:
        wish, connection = self.wish_for(model), at.editor.connection
        key_type = self._key_type(connection, model)
        create = {
            "tube": self.tube,
            "partitions": self.partitions or 1,
            "predicate": self.predicate,
            "key_type": None if key_type is None else key_type.value,
        }
        attach = {
            **asdict(wish),
            "tube": self.tube,
            "table": connection.ops.quote_name(model._meta.db_table),  # noqa: SLF001 # Django's way
            "shard": wish.shard or 0,
            "shards": wish.shards or 1,
            "columns": wish.columns or [],
            "replica": bool(wish.replica),
        }
        at.comment("For a new tube and a new table; of others, options that are not given stay")
        at.print_call(queries.ENSURE_EXISTS, create)
        at.print_call(queries.ATTACH, attach)

    def _undo(self, at: _At) -> None:
        model = at.state.apps.get_model(*self.key(at.app_label)[1:])
        connection, schema = at.editor.connection, options().schema
        if at.prints:
            table = connection.ops.quote_name(model._meta.db_table)  # noqa: SLF001 # Django's way
            at.print_call(queries.DETACH, {"tube": self.tube, "table": table})
            at.comment("If no table is left in the tube")
            at.print_call(queries.DROP, {"tube": self.tube, "force": True})
            return
        table = table_of(connection, model)
        with session() as lent:
            if installed(lent, schema) is None:
                return
            tubes = Tubes(lent, schema)
            if any(one.tube == self.tube for one in tubes.list()):
                tubes.detach(self.tube, table)
                if not any(one.tube == self.tube and one.tbl for one in tubes.list()):
                    self._drop(lent, tubes)

    def _drop(self, lent: psycopg.Connection, tubes: Tubes) -> None:
        """Drop the tube, and say so if something waits in it."""
        try:
            with lent.transaction():
                tubes.drop(self.tube)
        except TubesNotEmpty as error:
            _log.warning("tube %s is dropped with its contents: %s", self.tube, error)
            tubes.drop(self.tube, force=True)

    def wish_for(self, model: Any, renames: Renames = ()) -> Wish:
        """The wish, by columns; `renames`: of fields since it was written."""
        return renamed(self.wish, lambda name: _column(model, name, renames))

    def _key_type(self, connection: Any, model: Any) -> KeyType | None:
        if self.keys is not None:
            return KeyType(self.keys)
        if self.wish.key_cols:
            return KeyType.TEXT
        meta = model._meta  # noqa: SLF001 # Django's way
        field = meta.pk
        if self.wish.id_col is not None:
            fields = [one for one in meta.concrete_fields if self.wish.id_col in (one.name, one.column)]
            field = fields[0] if fields else None
        kind = (field is not None and field.db_type(connection)) or ""
        if kind == "uuid":
            return KeyType.UUID
        return KeyType.TEXT if kind.startswith(("varchar", "text")) else None


class DetachTube(AttachTube):
    """The reverse of `AttachTube`, whose arguments it takes to undo itself."""

    def describe(self) -> str:
        """For people."""
        return f"Detach {self.model} from tube {self.tube}"

    def _do(self, at: _At) -> None:
        super()._undo(at)

    def _undo(self, at: _At) -> None:
        super()._do(at)


def renamed(wish: Wish, rename: Callable[[str], str]) -> Wish:
    """The wish with other names of its columns."""
    return replace(
        wish,
        id_col=wish.id_col and rename(wish.id_col),
        columns=None if wish.columns is None else [rename(name) for name in wish.columns],
        key_cols=None if wish.key_cols is None else [rename(name) for name in wish.key_cols],
        shard_by=wish.shard_by and rename(wish.shard_by),
    )


def table_of(connection: Any, model: Any) -> str:
    """The table of a model, `schema.table`; found by the application's search path."""
    name = connection.ops.quote_name(model._meta.db_table)  # noqa: SLF001 # Django's way
    with connection.cursor() as cursor:
        cursor.execute(_TABLE, [name])
        row = cursor.fetchone()
    if row is None:
        raise UnknownTable(
            f"the database has no table {name} of the model {model._meta.label}; "  # noqa: SLF001 # Django's
            "put the operation after CreateModel"
        )
    return str(row[0])


def renamed_field(name: str, renames: Renames) -> str:
    """The name of a field, or of its column, after renames of fields."""
    for old, new in renames:
        if name in (old, f"{old}_id"):
            name = new + name.removeprefix(old)
    return name


def _column(model: Any, name: str, renames: Renames = ()) -> str:
    """The column of a field; other names are columns already."""
    for one in dict.fromkeys((renamed_field(name, renames), name)):
        with suppress(FieldDoesNotExist):
            return str(model._meta.get_field(one).column or one)  # noqa: SLF001 # Django's way
    return name


# --- documents --------------------------------------------------------------------------------------


class Document(_Operation):
    """Applies a declared document, as `pytube apply NAME` does.

    It reads the database's foreign keys, which Django creates at the end of a migration: let it follow in a
    later one.
    """

    def __init__(
        self,
        name: str,
        section: Mapping[str, Any] | None = None,
        *,
        before: Mapping[str, Any] | None = None,
        backfill: bool = False,
    ) -> None:
        """The document of that name.

        Args:
            name: of the document, and its tube.
            section: what `[document.NAME]` says, so that the migration always does the same; None: the
                section that the file of `PYTUBE["config"]` has when the migration runs.
            before: the section of the migration that applied the document before this one; the reverse
                applies that. None: the reverse drops the document's tube with its queue.
            backfill: have workers send all documents that are new or others.
        """
        self.name, self.section, self.before, self.backfill = name, section, before, backfill

    def describe(self) -> str:
        """For people."""
        return f"Apply document {self.name}"

    def config(self, section: Mapping[str, Any] | None) -> Config:
        """The file; or a configuration of only this section."""
        if section is not None:
            return config_of({self.name: section})
        path = options().config
        if path is None:
            raise ConfigError(
                f"Document({self.name!r}) has no section: give one, or name the file in PYTUBE['config']"
            )
        return load(Path(path))

    def _do(self, at: _At) -> None:
        self._bring(at, self.config(self.section))

    def _undo(self, at: _At) -> None:
        with session() as connection:
            is_there = installed(connection, options().schema) is not None
        if is_there or at.prints:
            self._bring(at, config_of({}) if self.before is None else self.config(self.before))

    def _bring(self, at: _At, config: Config) -> None:
        """Make the database follow the document as this configuration has it, or no more."""
        schema = options().schema
        if at.prints:
            self._print(at, config)
            return
        with session() as connection:
            there = Declarations(connection, schema)
            if self.name not in config.documents and self.name not in there.there().applied(Kind.DOCUMENT):
                return
            found = self._plan(config, connection)
            if found.problem is not None:
                raise ConfigError(f"{found.problem}{_left_to_the_end(at.editor)}")
            there.check([found])
            for step in found.losses:
                _log.warning("document %s: takes away: %s", self.name, step.text)
            there.apply(found, backfill=self.backfill)

    def _plan(self, config: Config, connection: psycopg.Connection) -> Plan:
        (found,) = survey(config, connection, options().schema, [self.name], [Kind.DOCUMENT])
        return found

    def _print(self, at: _At, config: Config) -> None:
        at.comment("The statements depend on the tables, triggers and tubes of the moment. Now:")
        try:
            with session() as connection:
                found = self._plan(config, connection)
        except PytubeError as error:
            at.comment(f"not known yet: {error}")
            return
        steps = [step.text for step in found.steps]
        at.comment(f"not known yet: {found.problem}" if found.problem else "\n".join(steps))


def config_of(documents: Mapping[str, Mapping[str, Any]]) -> Config:
    """A configuration of documents alone; where they go is said in the file of the workers."""
    return from_values(
        {
            "postgres": {"dsn": ""},
            "tube": {name: {"sink": {"type": "jsonl"}} for name in documents},
            "document": documents,
        },
        "the migration",
    )


def _left_to_the_end(schema_editor: Any) -> str:
    """A hint, where the migration has statements that Django runs at its end."""
    if not schema_editor.deferred_sql:
        return ""
    return "; Django creates foreign keys at the end of a migration: put Document into a later one"
