"""The system check: is the database as migrations and `pytube.toml` declare it?

It runs where Django checks databases: `manage.py check --database ALIAS`, and before `manage.py migrate`. It
does not report what migrations that are still to run will change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 # Django's name
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connections
from django.db.migrations import DeleteModel, RenameField, RenameModel
from django.db.migrations.loader import MigrationLoader

from pytube.config import Config, load
from pytube.contrib.django import Options, options, session
from pytube.contrib.django.operations import (
    AttachTube,
    DetachTube,
    Document,
    InstallTube,
    Renames,
    config_of,
    renamed,
    renamed_field,
    table_of,
)
from pytube.db.version import check
from pytube.declarations.model import Plan, State
from pytube.declarations.survey import survey
from pytube.errors import PytubeError, SchemaMismatch
from pytube.tubes.admin import Tubes

_DRIFT, _NOT_CHECKED, _SQL = "pytube.W001", "pytube.W002", "pytube.W003"
_SETTING = "pytube.E001"


def check_database(databases: Collection[str] | None = None, **_: Any) -> Sequence[CheckMessage]:
    """Warnings about drift, and about checks that could not be made."""
    try:
        given = options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id=_SETTING)]
    if given.database not in connections:
        return [Error(f"PYTUBE['database'] is {given.database!r}, which DATABASES has not", id=_SETTING)]
    if given.database not in (databases or ()):
        return []
    found: list[CheckMessage] = []
    try:
        found.extend(_checked(given))
    except ImproperlyConfigured as error:
        found.append(Error(str(error), id=_SETTING))
    except (PytubeError, DatabaseError, InterfaceError) as error:
        found.append(_not_checked("the database", error))
    return found


def _not_checked(what: str, error: Exception) -> CheckMessage:
    reason = " ".join(str(error).split())
    return Warning(f"{what} was not checked for drift: {reason}", id=_NOT_CHECKED)


def _checked(given: Options) -> Iterator[CheckMessage]:
    declared = _Declared()
    declared.read(MigrationLoader(connections[given.database]))
    # Before the session, in whose search path a tube comes before a table of the same name.
    places = {key: _place(key, given) for key in declared.attached}
    with session() as connection:
        try:
            check(connection, given.schema)
        except SchemaMismatch as error:
            if not declared.installs:
                hint = "Run `pytube install`, or write a migration with InstallTube()."
                yield Warning(str(error), hint=hint, id=_SQL)
            return
        tubes = Tubes(connection, given.schema)
        yield from _settings(declared, tubes)
        for key, attach in declared.attached.items():
            yield from _attachment(key, attach, declared.renames.get(key, ()), places[key], tubes)
        yield from _documents(declared, connection, given)


@dataclass(slots=True)
class _Declared:
    """What migrations declare."""

    attached: dict[tuple[str, str, str], AttachTube] = field(default_factory=dict)
    """By tube, app and model, by the names that they have now."""
    renames: dict[tuple[str, str, str], list[tuple[str, str]]] = field(default_factory=dict)
    """By the same: the fields that were renamed since, from and to."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Partitions and predicates of tubes, as the last migration that gave them."""
    documents: dict[str, Document] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Documents that migrations which are still to run will change."""
    installs: bool = False
    """Whether one of those installs the SQL."""

    def read(self, loader: MigrationLoader) -> None:
        """All migrations, in an order that their dependencies allow."""
        keys = dict.fromkeys(
            key for leaf in loader.graph.leaf_nodes() for key in loader.graph.forwards_plan(leaf)
        )
        for key in keys:
            for operation in loader.get_migration(*key).operations:
                if key in loader.applied_migrations:
                    self._applied(key[0], operation)
                elif isinstance(operation, Document):
                    self.pending.add(operation.name)
                elif isinstance(operation, InstallTube):
                    self.installs = True

    def _applied(self, app_label: str, operation: Any) -> None:
        match operation:
            case DetachTube():
                self.attached.pop(operation.key(app_label), None)
                if not any(tube == operation.tube for tube, *_ in self.attached):
                    self.settings.pop(operation.tube, None)
            case AttachTube():
                self.attached[operation.key(app_label)] = operation
                self.renames.pop(operation.key(app_label), None)
                settings = self.settings.setdefault(operation.tube, {})
                if operation.partitions is not None:
                    settings["partitions"] = operation.partitions
                if operation.predicate is not None:
                    settings["predicate"] = operation.predicate.strip()
            case Document():
                self.documents[operation.name] = operation
            case RenameField() | RenameModel() | DeleteModel():
                self._followed(app_label, operation)

    def _followed(self, app_label: str, operation: Any) -> None:
        """Attachments are of models by the names that these have now."""
        match operation:
            case RenameField():
                for key in self._of(app_label, operation.model_name_lower):
                    self.renames.setdefault(key, []).append((operation.old_name, operation.new_name))
            case RenameModel():
                for key in self._of(app_label, operation.old_name_lower):
                    new = key[0], app_label, operation.new_name_lower
                    self.attached[new], self.renames[new] = self.attached.pop(key), self.renames.pop(key, [])
            case DeleteModel():
                for key in self._of(app_label, operation.name_lower):
                    del self.attached[key]

    def _of(self, app_label: str, model: str) -> list[tuple[str, str, str]]:
        """The attachments of a model, by its name in lower case."""
        return [key for key in self.attached if key[1:] == (app_label, model)]


# --- tubes of models --------------------------------------------------------------------------------


def _place(key: tuple[str, str, str], given: Options) -> tuple[Any, str] | Exception:
    """The model and its table; or why they are not known."""
    try:
        model = apps.get_model(*key[1:])
        return model, table_of(connections[given.database], model)
    except (LookupError, PytubeError) as error:
        return error


def _settings(declared: _Declared, tubes: Tubes) -> Iterator[CheckMessage]:
    there = {one.tube: one for one in tubes.list()}
    for tube, wanted in declared.settings.items():
        if tube not in there:
            continue  # its tables are missed below
        now = {"partitions": there[tube].partitions, "predicate": there[tube].predicate or ""}
        found = [
            f"{name} {now[name] or 'none'} -> {value or 'none'}"
            for name, value in wanted.items()
            if value != now[name]
        ]
        if found:
            text = f"tube {tube} has other settings than a migration declares"
            yield Warning(text, hint=f"`pytube tube create` changes it: {'; '.join(found)}.", id=_DRIFT)


def _changes(
    tubes: Tubes, attach: AttachTube, renames: Renames, model: Any, table: str
) -> Sequence[str] | None:
    """How the table is attached otherwise than it was declared, before some fields were renamed.

    Until capture has followed, which workers see to, the tube has the names of before.
    """
    now = attach.wish_for(model, renames)
    found = tubes.changes(attach.tube, table, now)
    if found and renames:
        before = renamed(now, lambda name: renamed_field(name, [pair[::-1] for pair in reversed(renames)]))
        found = tubes.changes(attach.tube, table, before) and found
    return found


def _attachment(
    key: tuple[str, str, str],
    attach: AttachTube,
    renames: Renames,
    place: tuple[Any, str] | Exception,
    tubes: Tubes,
) -> Iterator[CheckMessage]:
    tube, app_label, name = key
    try:
        if isinstance(place, Exception):
            raise place
        model, table = place
        found = _changes(tubes, attach, renames, model, table)
    except (LookupError, PytubeError) as error:
        yield _not_checked(f"{app_label}.{name} in tube {tube}", error)
        return
    if found is None:
        hint = (
            f"Run `pytube tube attach {tube} {table}` with the migration's options, then "
            f"`pytube backfill start {tube} --table {table}`."
        )
        text = f"{table} is not attached to tube {tube}, as a migration declares: its changes are missed"
        yield Warning(text, hint=hint, id=_DRIFT)
    elif found:
        text = f"{table} is attached to tube {tube} in another way than a migration declares"
        yield Warning(text, hint=f"`pytube tube attach` changes it: {'; '.join(found)}.", id=_DRIFT)


# --- documents, and all that the file declares ------------------------------------------------------


def _documents(declared: _Declared, connection: psycopg.Connection, given: Options) -> Iterator[CheckMessage]:
    ours = {
        name: one.section
        for name, one in declared.documents.items()
        if one.section is not None and name not in declared.pending
    }
    if given.config is not None:
        try:
            config = load(Path(given.config))
            if config.postgres.schema_name != given.schema:
                text = (
                    f"{given.config} has the schema {config.postgres.schema_name!r}, and PYTUBE['schema'] is "
                    f"{given.schema!r}; let them be the same"
                )
                yield Error(text, id=_SETTING)
                return
            yield from _drift(config, connection, given, declared.pending)
        except PytubeError as error:
            yield _not_checked(given.config, error)
    elif ours:
        for name in ours:
            yield from _drift(config_of(ours), connection, given, declared.pending, [name])


def _drift(
    config: Config,
    connection: psycopg.Connection,
    given: Options,
    pending: Collection[str],
    names: Collection[str] = (),
) -> Iterator[CheckMessage]:
    for plan in survey(config, connection, given.schema, names):
        if plan.state is not State.APPLIED and plan.name not in pending:
            yield Warning(_said(plan), hint=_hint(plan), id=_DRIFT)


def _said(plan: Plan) -> str:
    if plan.problem is not None:
        return f"{plan.subject} can't be applied: {plan.problem}"
    if plan.state is State.GONE:
        return f"{plan.subject} was applied, and the file no longer declares it"
    steps = "; ".join(step.text for step in plan.steps)
    return f"{plan.subject} is not as it is declared; to be done: {steps}"


def _hint(plan: Plan) -> str:
    if plan.problem is not None:
        return "Correct it in the file, or by a migration with another Document."
    if plan.state is State.GONE:
        return "`pytube plan` shows what `pytube apply --prune` would do; or put it back into the file."
    return (
        f"`pytube plan {plan.name}` shows more; `pytube apply {plan.name}` does it, with a file that has it."
    )
