"""pytube in the migrations of an application that has Alembic.

An `env.py` that imports this module has `op.install_tube`, `op.create_tube`, `op.attach_tube` and their
opposites; its autogenerate compares the tubes in `target_metadata.info["pytube"]` with the database.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, LiteralString

import sqlalchemy as sa
from alembic.autogenerate import comparators, renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import UpgradeOps
from alembic.runtime.migration import MigrationContext
from alembic.util import DispatchPriority
from psycopg import sql
from pydantic import ValidationError

from pytube.config.names import TableName, quoted, table_name
from pytube.config.section import key_path
from pytube.config.tubes import Attached, AttachmentConfig, TubeDeclaration, attachments
from pytube.db.install import script
from pytube.db.version import installed_by, needed, state
from pytube.errors import ConfigError, InvalidShard, SchemaMismatch
from pytube.tubes import queries

KeyType = Literal["bigint", "uuid", "text"]

_log = logging.getLogger("alembic.autogenerate.pytube")
"""Is shown where Alembic's own findings are."""

# --- for context.configure ------------------------------------------------------------------------


def include_name(name: str | None, type_: str, _parents: object, *, schema: str = "tube") -> bool:
    """Whether a name is none of pytube's: for `context.configure(include_name=include_name)`."""
    return type_ != "schema" or name not in (schema, _capture_schema(schema))


def sync_tubes(ctx: MigrationContext, **_: object) -> None:
    """Have capture follow each revision: for `context.configure(on_version_apply=sync_tubes)`.

    Does nothing where pytube is not installed, or the role may not attach tables; or where it is a superuser,
    and another role may have put code into the schema.
    """
    schema = _schema_of(ctx.opts)
    body = sql.SQL(
        "BEGIN IF EXISTS (SELECT FROM ({}) AS s (is_there, stranger) WHERE is_there AND stranger IS NULL) "
        "AND EXISTS (SELECT FROM pg_catalog.pg_proc AS p JOIN pg_catalog.pg_namespace AS n "
        "ON n.oid = p.pronamespace WHERE n.nspname = {} AND p.proname = 'tube_sync' "
        "AND pg_catalog.has_function_privilege(p.oid, 'EXECUTE')) THEN PERFORM {}(); END IF; END"
    ).format(state(schema), schema, sql.Identifier(schema, "tube_sync"))
    ctx.execute(_text(sql.SQL("DO {}").format(body.as_string()).as_string()))


def _schema_of(opts: Mapping[str, Any]) -> str:
    """The schema that `env.py` gives to `context.configure` as `pytube_schema`."""
    return str(opts.get("pytube_schema", "tube"))


# --- operations -----------------------------------------------------------------------------------


@Operations.register_operation("install_tube")
@Operations.register_operation("uninstall_tube")
@Operations.register_operation("create_tube")
@Operations.register_operation("drop_tube")
@Operations.register_operation("attach_tube")
@Operations.register_operation("detach_tube")
class TubeOp(MigrateOperation):
    """An operation of pytube's: its name, its arguments, and the operation that takes it back."""

    def __init__(self, name: str, undo: TubeOp | None = None, **arguments: Any) -> None:
        self.name = name
        self.undo = undo
        self.arguments = arguments

    def reverse(self) -> TubeOp:
        """The operation that takes it back."""
        if self.undo is None:
            raise NotImplementedError(f"{self.name} can't be reversed: the earlier state is not known")
        return TubeOp(self.undo.name, self, **self.undo.arguments)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """For `alembic check`."""
        return (self.name, *self.given.values())

    @property
    def given(self) -> dict[str, Any]:
        """The arguments that are not left out."""
        return {
            name: value
            for name, value in self.arguments.items()
            if value is not None and value is not False and (name, value) != ("schema", "tube")
        }

    @classmethod
    def install_tube(cls, operations: Operations, schema: str = "tube", roles: str | None = None) -> None:
        """Install pytube's SQL into `schema`, or bring it to the version of this package.

        `roles` is the prefix of the roles' names; None: the schema's name, or the earlier prefix.
        """
        operations.invoke(cls("install_tube", schema=schema, roles=roles))

    @classmethod
    def uninstall_tube(cls, operations: Operations, schema: str = "tube", *, force: bool = False) -> None:
        """Remove all but the roles; `force`: also while tables are attached, or tubes hold pods."""
        operations.invoke(cls("uninstall_tube", schema=schema, force=force))

    @classmethod
    def create_tube(
        cls,
        operations: Operations,
        tube: str,
        partitions: int = 1,
        predicate: str | None = None,
        key_type: KeyType | None = None,
        schema: str = "tube",
    ) -> None:
        """Make a tube, or change it; `predicate`: None keeps that of an existing tube, '' removes it."""
        given: dict[str, Any] = {"partitions": partitions, "predicate": predicate, "key_type": key_type}
        operations.invoke(cls("create_tube", tube=tube, **given, schema=schema))

    @classmethod
    def drop_tube(
        cls, operations: Operations, tube: str, *, force: bool = False, schema: str = "tube"
    ) -> None:
        """Drop a tube; `force`: also while tables are attached to it, pods wait or documents are parked."""
        operations.invoke(cls("drop_tube", tube=tube, force=force, schema=schema))

    @classmethod
    def attach_tube(
        cls,
        operations: Operations,
        tube: str,
        table: str,
        *,
        key: str | list[str] | None = None,
        shard: int | None = None,
        shards: int | None = None,
        shard_by: str | None = None,
        columns: list[str] | None = None,
        replica: bool = False,
        schema: str = "tube",
    ) -> None:
        """Attach a table to a tube, or change how it is attached: an option left out returns to its default.

        The options are as in `[tube.NAME.tables."schema.table"]` of `pytube.toml`.
        """
        options = {"key": key, "shard": shard, "shards": shards, "shard_by": shard_by, "columns": columns}
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        (how,) = attachments({table: AttachmentConfig(replica=replica, **given)})
        operations.invoke(_attach(tube, how, schema))

    @classmethod
    def detach_tube(cls, operations: Operations, tube: str, table: str, schema: str = "tube") -> None:
        """Detach `schema.table` from a tube; its pods stay."""
        operations.invoke(cls("detach_tube", tube=tube, table=_written(table_name(table)), schema=schema))


def _attach(tube: str, how: Attached, schema: str, undo: TubeOp | None = None) -> TubeOp:
    return TubeOp(
        "attach_tube",
        undo,
        tube=tube,
        table=_written(how.table),
        key=how.key[0] if len(how.key) == 1 else list(how.key) or None,
        shard=how.shard,
        shards=how.shards,
        shard_by=how.shard_by,
        columns=sorted(how.columns) or None,
        replica=how.replica,
        schema=schema,
    )


def _written(table: TableName) -> str:
    """A table as people write it."""
    return ".".join(name if re.fullmatch("[a-z_][a-z0-9_]*", name) else quoted(name) for name in table)


_STATEMENTS: Final = {
    "create_tube": queries.ENSURE_EXISTS,
    "drop_tube": queries.DROP,
    "attach_tube": queries.ATTACH,
    "detach_tube": queries.DETACH,
}


@Operations.implementation_for(TubeOp)
def _run(operations: Operations, operation: TubeOp) -> None:
    given = dict(operation.arguments)
    schema = given["schema"]
    match operation.name:
        case "install_tube":
            _run_script(operations, script(schema=schema, roles=given.get("roles")))
        case "uninstall_tube":
            _run_script(operations, script("uninstall.sql", schema, force=given.get("force", False)))
        case name:
            if name == "attach_tube":
                key = given.pop("key")
                is_several = isinstance(key, list)
                given |= {"id_col": None if is_several else key, "key_cols": key if is_several else None}
            operations.execute(_text(queries.text(_STATEMENTS[name], schema, {"force": False, **given})))


@renderers.dispatch_for(TubeOp)
def _render(context: AutogenContext, operation: TubeOp) -> list[str]:
    given = operation.given
    positional = [repr(given.pop(name)) for name in ("tube", "table") if name in given]
    named = [f"{name}={value!r}" for name, value in given.items()]
    lines = [f"{context.opts['alembic_module_prefix']}{operation.name}({', '.join(positional + named)})"]
    if operation.name == "attach_tube":
        tube, table = (shlex.quote(operation.arguments[name]) for name in ("tube", "table"))
        lines.append(f"# Then send the rows that are there: pytube backfill start {tube} --table {table}")
    return lines


# --- SQL, which runs now, or is printed for later -------------------------------------------------


def _text(statement: str) -> sa.TextClause:
    """A statement that has no parameters."""
    return sa.text(statement.replace(":", r"\:"))


def _run_script(operations: Operations, text: str) -> None:
    """Run one statement as it is, as SQLAlchemy would look for parameters in it; or print it."""
    if operations.migration_context.as_sql:
        operations.migration_context.impl.static_output(text)
        return
    try:
        operations.get_bind().exec_driver_sql(text, execution_options={"no_parameters": True})
    except sa.exc.DBAPIError as error:
        error.statement = None  # thousands of lines, which would be part of the message
        raise


def _capture_schema(schema: str) -> str:
    """As `whose.sql` names it."""
    name = f"{schema}_capture"
    return name if len(name.encode()) < 64 else f"capture_{hashlib.md5(schema.encode()).hexdigest()}"  # noqa: S324


# --- autogenerate ---------------------------------------------------------------------------------

_THERE: LiteralString = """
    SELECT l.tube, l.partitions, l.predicate, l.key_type::text, n.nspname::text, c.relname::text,
        coalesce(l.key_cols, ARRAY[l.id_col])::text[], l.shard, l.shards, coalesce(l.columns, '{{}}')::text[],
        l.replica, l.root, l.shard_by::text
    FROM {s}.tube_list() WITH ORDINALITY AS l
    LEFT JOIN pg_catalog.pg_class AS c ON c.oid = l.tbl
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE l.companion_of IS NULL
    ORDER BY l.ordinality
"""


@dataclass
class _There:
    """A tube of the database."""

    settings: dict[str, Any]
    """As of `create_tube`."""
    tables: dict[TableName, Attached] = field(default_factory=dict)


@comparators.dispatch_for("schema", priority=DispatchPriority.LAST)
def _compare(context: AutogenContext, upgrade: UpgradeOps, _schemas: object) -> None:
    """Add what leads from the database to the declared tubes.

    Other tubes are left alone, and named: `pytube.toml` or another application may declare them.
    """
    declared = _declared(context)
    if not declared:
        return
    assert context.connection is not None
    schema = _schema_of(context.opts)
    there = _read_there(context.connection, schema)
    for name, tube in declared.items():
        now = None if there is None else there.get(name)
        # Before their tables are dropped, and after they are made.
        upgrade.ops[:0] = _detached(name, tube, now, schema)
        upgrade.ops += [*_changed(name, tube, now, schema), *_attached(name, tube, now, schema)]
    for name in sorted((there or {}).keys() - declared.keys()):
        _log.info("Left alone tube %r, which target_metadata does not declare; op.drop_tube drops it", name)
    if there is None:
        upgrade.ops.insert(0, TubeOp("install_tube", TubeOp("uninstall_tube", schema=schema), schema=schema))


def _declared(context: AutogenContext) -> dict[str, TubeDeclaration]:
    """The tubes in `target_metadata.info["pytube"]`, by the keys that `[tube.NAME]` of `pytube.toml` has."""
    metadata = context.metadata
    found: dict[str, TubeDeclaration] = {}
    for one in [metadata] if isinstance(metadata, sa.MetaData) else metadata or ():
        for name, section in one.info.get("pytube", {}).items():
            try:
                found[name] = TubeDeclaration.model_validate(section)
            except ValidationError as error:
                faults = [f"{key_path((name, *fault['loc']))}: {fault['msg']}" for fault in error.errors()]
                raise ConfigError(f'target_metadata.info["pytube"]: {"; ".join(faults)}') from None
    return found


def _read_there(connection: sa.Connection, schema: str) -> dict[str, _There] | None:
    """The tubes by name; None: pytube is not installed."""
    version = installed_by(lambda query: connection.execute(_text(query.as_string())).fetchall(), schema)
    if version is None:
        return None
    if version != needed():
        raise SchemaMismatch(
            f"the SQL in the schema {schema!r} is of version {version}, and this package needs {needed()}; "
            "run a revision with op.install_tube(), or `pytube upgrade`"
        )
    found: dict[str, _There] = {}
    rows = connection.execute(_text(queries.within(_THERE, schema).as_string()))
    for tube, partitions, predicate, key_type, place, relation, key, shard, shards, columns, *rest in rows:
        settings = {"partitions": partitions, "predicate": predicate or "", "key_type": key_type}
        there = found.setdefault(tube, _There(settings))
        if relation is not None:
            name = TableName(place, relation)
            there.tables[name] = Attached(name, tuple(key), shard, shards, frozenset(columns), *rest)
    return found


def _detached(name: str, tube: TubeDeclaration, now: _There | None, schema: str) -> Iterator[TubeOp]:
    """The tables that are no longer declared, the related ones before their root."""
    declared = {one.table for one in attachments(tube.tables)}
    for one in reversed(list(now.tables.values()) if now else []):
        if one.table not in declared:
            undo = _attach(name, one, schema)
            yield TubeOp("detach_tube", undo, tube=name, table=_written(one.table), schema=schema)


def _changed(name: str, tube: TubeDeclaration, now: _There | None, schema: str) -> Iterator[TubeOp]:
    """The tube itself."""
    was = {"partitions": 1, "predicate": "", "key_type": "bigint"} if now is None else now.settings
    wanted: dict[str, Any] = {
        "partitions": tube.partitions or was["partitions"],
        "predicate": (tube.predicate or "").strip(),
        "key_type": tube.key_type or was["key_type"],
    }
    if now is None:
        undo = TubeOp("drop_tube", tube=name, schema=schema)
        wanted["predicate"] = wanted["predicate"] or None
        yield TubeOp("create_tube", undo, tube=name, **wanted, schema=schema)
    elif wanted != was:
        undo = TubeOp("create_tube", tube=name, **was, schema=schema)
        yield TubeOp("create_tube", undo, tube=name, **wanted, schema=schema)


def _attached(name: str, tube: TubeDeclaration, now: _There | None, schema: str) -> Iterator[TubeOp]:
    """The tables that are new, or attached in another way."""
    for one in attachments(tube.tables):
        was = None if now is None else now.tables.get(one.table)
        if was is None:
            undo = TubeOp("detach_tube", tube=name, table=_written(one.table), schema=schema)
            yield _attach(name, one, schema, undo)
            continue
        if was.root and not one.root:
            raise InvalidShard(
                f'target_metadata.info["pytube"]: {_written(one.table)} is the root table of its shards in '
                f"tube {name!r}: put it first, or detach it in an earlier revision"
            )
        # A key that is left out stays.
        key: dict[str, Any] = {} if one.key else {"key": was.key, "shard_by": was.shard_by}
        wanted = replace(one, root=was.root, **key)
        if wanted != was:
            yield _attach(name, wanted, schema, _attach(name, was, schema))
