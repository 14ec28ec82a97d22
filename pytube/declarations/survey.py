"""All declared tubes and outboxes of a file, each compared with the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import psycopg
from psycopg import errors

from pytube.config import Config, OutboxConfig, TubeConfig
from pytube.db.errors import describe
from pytube.declarations import outboxes, tubes
from pytube.declarations.apply import Declarations, There
from pytube.declarations.catalogue import declared_outbox, declared_tube
from pytube.declarations.model import Kind, Plan, Refused
from pytube.documents.steps import renamed_note
from pytube.errors import ConfigError, UsageError


def names_of(config: Config, there: There) -> Mapping[Kind, Sequence[str]]:
    """The names of the declared ones, in the order of the file; last, the ones no longer declared."""
    declared: dict[Kind, list[str]] = {
        Kind.TUBE: [name for name, section in config.tubes.items() if section.declared],
        Kind.OUTBOX: [name for name, section in config.outboxes.items() if section.declared],
    }
    applied = {
        Kind.TUBE: [name for name, one in there.tubes.items() if one.applied is not None],
        Kind.OUTBOX: [name for name, one in there.outboxes.items() if one.applied is not None],
    }
    for kind, names in applied.items():
        # The plan of a document covers its tube.
        left = {*names} - {*declared[kind], *config.documents}
        declared[kind] += sorted(left)
    return declared


def survey(
    config: Config, declarations: Declarations, names: Collection[str] = ()
) -> Sequence[Plan | Refused]:
    """What `apply` would do about each of them, tubes first; `names`: of some; none: all."""
    there = declarations.there()
    return [
        _one(config, declarations, there, kind, name)
        for kind, found in names_of(config, there).items()
        for name in found
        if not names or name in names
    ]


def _one(config: Config, declarations: Declarations, there: There, kind: Kind, name: str) -> Plan | Refused:
    sections: Mapping[str, TubeConfig | OutboxConfig] = config.tubes if kind is Kind.TUBE else config.outboxes
    section = sections.get(name)
    try:
        match section:
            case TubeConfig() if section.declared:
                return _tube(declarations, there, name, section)
            case OutboxConfig() if section.declared:
                return declarations.plan_outbox(declared_outbox(name, section), there)
    except (ConfigError, UsageError) as error:
        return Refused(kind, name, str(error))
    except (psycopg.ProgrammingError, psycopg.DataError, psycopg.NotSupportedError) as error:
        if isinstance(error, errors.InsufficientPrivilege):
            raise
        return Refused(kind, name, f"{kind}.{name}: Postgres refused: {describe(error)}; correct it")
    if kind is Kind.TUBE:
        return tubes.farewell(there.tubes[name], stays=section is not None)
    return outboxes.farewell(there.outboxes[name], stays=section is not None)


def _tube(declarations: Declarations, there: There, name: str, section: TubeConfig) -> Plan:
    now = there.tubes.get(name)
    tube = declared_tube(name, section, now, declarations.connection, declarations.schema)
    found = declarations.plan_tube(tube, there)
    if not (renamed := there.renamed.get(name)):
        return found
    return replace(found, notes=(*found.notes, renamed_note(renamed)))
