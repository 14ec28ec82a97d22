r"""Runs pytube's SQL files as psql does, without psql.

A page (`install.sql`, `uninstall.sql`) names files in lines of `\ir`; nothing else of it is read here, and
this module does what the files in `sql/psql/` do. All other files are plain SQL with variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, LiteralString

import psycopg
from psycopg import sql
from pydantic import SecretStr

from pytube.db.connect import connect_sync
from pytube.db.errors import describe, translate, translated
from pytube.db.version import VERSION_TABLE, installed, needed, refuse_newer, sql_dir
from pytube.errors import PytubeError, UsageError, how_to_install

ROLES = ("owner", "admin", "worker", "writer", "monitor")

Progress = Callable[[int, int, str], object]
Migrate = Callable[[psycopg.Connection, str, str], None]

_INCLUDED = re.compile(r"^\\ir +(\S+)$", re.MULTILINE)
_VARIABLE = re.compile(
    r"""
      --[^\n]* | '(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | :(?P<quote>['"])(?P<name>\w+)(?P=quote)
    """,
    re.VERBOSE | re.DOTALL,
)
"""A variable, or a stretch in which psql looks for none. Block comments and E'' do not occur in the files."""


_FOUND: Final = ("roles", "capture", *(f"role_{kind}" for kind in ROLES))
"""The variables that `whose.sql` finds out, in the order of `names` below, which `format` puts in."""

_ONE: LiteralString = """\
DO {body};
"""
_BODY: LiteralString = """
DECLARE
    path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
    file pg_catalog.text;
    names pg_catalog.text[];
    message pg_catalog.text;
    detail pg_catalog.text;
    hint pg_catalog.text;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    PERFORM set_config('pytube.install_schema', {schema}, true),
        set_config('pytube.install_roles', {roles}, true),
        set_config('pytube.install_force', {force}, true);
{steps}
    PERFORM set_config('search_path', path, true);
    RAISE NOTICE '%', pg_catalog.current_setting('pytube.install_report');
EXCEPTION WHEN OTHERS THEN
    -- Without the context, which has the whole file.
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true); -- again: it was rolled back
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, MESSAGE = message,
        DETAIL = concat_ws(E'\\n', nullif(detail, ''), 'In ' || file),
        HINT = coalesce(nullif(hint, ''), 'Nothing was changed.');
END
"""
_NAMES: LiteralString = """
    names := ARRAY[current_setting('pytube.install_roles'), current_setting('pytube.install_capture')]
        || ARRAY(SELECT current_setting('pytube.install_roles') || '_' || k.kind
            FROM unnest({kinds}::text[]) WITH ORDINALITY AS k (kind, place) ORDER BY k.place);
"""
_RUN: LiteralString = """
    file := {file};
    EXECUTE {text};
"""
_RUN_FILLED: LiteralString = """
    file := {file};
    EXECUTE format({text}, VARIADIC names);
"""
_RUN_ONCE: LiteralString = """
    file := {file};
    IF (SELECT coalesce(max(version_num), '') < {revision} FROM ONLY {table}) THEN
        EXECUTE {text};
    END IF;
"""


class ScriptError(PytubeError):
    """An SQL file failed; the message names the file, and the line where Postgres says where it was."""


def contents(page: str) -> list[str]:
    """The files that a page names, in order."""
    return _INCLUDED.findall(_read(page))


def script(
    page: str = "install.sql", schema: str = "tube", roles: str | None = None, *, force: bool = False
) -> str:
    """A page as one statement of SQL, for any client; arguments as of `run_page`.

    All or nothing: a transaction, or part of the caller's, whose settings it leaves as they are. A notice
    reports. Making it needs no database.
    """
    files = dict.fromkeys(file for file in contents(page) if not file.startswith("psql/"))
    steps = [_step(file, schema) for file in files]
    steps.insert(1, _filled(_NAMES, kinds=list(ROLES)))  # by whose.sql
    given = {"schema": schema, "roles": roles or "", "force": str(force)}
    body = _filled(_BODY, **given, steps=sql.SQL("\n".join(steps)))
    return _filled(_ONE, body=_dollars(body))


def _step(file: str, schema: str) -> str:
    """Runs a file within the statement; a migration unless it is recorded."""
    text = _read(file)
    variables: dict[str, str | int] = {"schema": schema, "version": needed()}
    if any(f":{quote}{name}{quote}" in text for name in _FOUND for quote in "'\""):
        variables |= {name: place for place, name in enumerate(_FOUND, 1)}
        text = substituted(text.replace("%", "%%"), variables, file)
        return _filled(_RUN_FILLED, file=file, text=_dollars(text))
    code = _dollars(substituted(text, variables, file))
    folder, _, name = file.rpartition("/")
    if folder != "migrations":
        return _filled(_RUN, file=file, text=code)
    table = sql.Identifier(schema, VERSION_TABLE)
    return _filled(_RUN_ONCE, file=file, text=code, revision=name.split("_")[0], table=table)


def _filled(template: LiteralString, **values: str | list[str] | sql.Composable) -> str:
    """The template with values as literals."""
    return sql.SQL(template).format(**values).as_string()


def _dollars(text: str) -> sql.SQL:
    """A literal in which people can read the text."""
    tag = "pytube"
    while f"${tag}$" in text:
        tag += "_"
    return sql.SQL(f"${tag}${text}${tag}$")


def run_page(
    connection: psycopg.Connection,
    files: Sequence[str],
    schema: str,
    *,
    roles: str | None = None,
    force: bool | None = None,
    migrate: Migrate | None = None,
    progress: Progress | None = None,
) -> str:
    """Run the files of a page, one transaction from `psql/begin.sql` on; returns a report in a line or two.

    The search path of the connection is changed. `migrate` brings the tables to a revision that is missing;
    without it, the revision's file is run. `force`: of `uninstall.sql`; None: the page installs.

    Raises:
        ScriptError: Postgres refused a statement.
        PytubeError: the type of an error that the SQL raised, or of a lost connection.
    """
    settings = {
        "search_path": "pg_catalog, pg_temp",
        "pytube.install_schema": schema,
        "pytube.install_roles": roles or "",
        "pytube.install_force": str(bool(force)),
        "pytube.install_report": "",
    }
    for name, value in settings.items():
        connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])
    variables = {"schema": schema, "version": needed()}
    with ExitStack() as stack:
        for number, file in enumerate(files):
            if progress is not None:
                progress(number, len(files), file)
            folder, _, name = file.rpartition("/")
            revision = name.split("_")[0]
            recorded = folder == "migrations" and revision <= (installed(connection, schema) or "")
            if file == "psql/begin.sql":
                # `whose.sql` has shown that no other role planted anything in the schema, which even the
                # planning of a query would run.
                _check(installed(connection, schema), schema, installs=force is None)
                stack.enter_context(connection.transaction())
                found = _setting(connection, "pytube.install_roles")
                variables |= {"roles": found} | {f"role_{kind}": f"{found}_{kind}" for kind in ROLES}
                variables["capture"] = _setting(connection, "pytube.install_capture")
            elif folder == "psql" or recorded:
                continue
            elif folder == "migrations" and migrate is not None:
                migrate(connection, schema, revision)
            else:
                run_file(connection, file, variables)
    return _setting(connection, "pytube.install_report")


def _check(version: str | None, schema: str, *, installs: bool) -> None:
    if installs:
        refuse_newer(version, schema)
    elif version is None:
        raise UsageError(f"pytube is not installed in the schema {schema!r}; give another with --schema")


def run_file(connection: psycopg.Connection, file: str, variables: dict[str, str]) -> None:
    """Run one file of `sql/`, as one message; errors as of `run_page`."""
    text = substituted(_read(file), variables, file)
    try:
        connection.execute(text.encode())
    except psycopg.Error as error:
        ours = translate(error)
        if ours is not None:
            raise ours from error
        position = error.diag.statement_position
        line = f":{text.count(chr(10), 0, int(position) - 1) + 1}" if position else ""
        raise ScriptError(f"{sql_dir() / file}{line}: {describe(error)}") from error


def substituted(text: str, variables: Mapping[str, str | int], file: str = "") -> str:
    """`text` with each `:"name"` and `:'name'` replaced as psql does: not in quotes, bodies and comments.

    A number as the value stands for this argument of `format`.
    """

    def value(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0]
        if name not in variables:
            raise ScriptError(f"{file}: there is no variable {match[0]}")
        found, is_name = variables[name], match["quote"] == '"'
        if isinstance(found, int):
            return f"%{found}${'I' if is_name else 'L'}"
        return (sql.Identifier if is_name else sql.Literal)(found).as_string()

    return _VARIABLE.sub(value, text)


def _read(file: str) -> str:
    try:
        return (sql_dir() / file).read_text(encoding="utf-8")
    except OSError as error:
        raise ScriptError(f"{sql_dir() / file}: can't be read: {error.strerror}") from error


def _setting(connection: psycopg.Connection, name: str) -> str:
    row = connection.execute("SELECT pg_catalog.current_setting(%s)", [name]).fetchone()
    assert row is not None
    return str(row[0])


# --- install, upgrade, uninstall ------------------------------------------------------------------


def install(
    dsn: str | SecretStr,
    schema: str = "tube",
    roles: str | None = None,
    *,
    progress: Progress | None = None,
) -> str:
    """Install pytube's SQL into `schema`, or bring it up to date; twice is the same as once.

    Args:
        dsn: a libpq connection string or URI.
        schema: a separate schema; made if missing.
        roles: the prefix of the roles' names; None: the schema's name, or the earlier prefix.
        progress: is called before each file, with how many are done, how many there are, and its name.

    Returns:
        The installation, in two lines: version, schema, roles, event triggers.

    Raises:
        DatabaseUnavailable: no session could be had.
        ScriptError: Postgres refused a statement, e.g. for want of a privilege. Nothing changed, except
            tables of tubes that the new version had changed already.
        SchemaMismatch: the installed SQL is newer than this package.
    """
    return _install(dsn, schema, roles, progress)


def upgrade(
    dsn: str | SecretStr,
    schema: str = "tube",
    roles: str | None = None,
    *,
    progress: Progress | None = None,
) -> str:
    """As `install`, but that Alembic runs the migrations. Ends in the same database.

    Raises:
        UsageError: Alembic or SQLAlchemy is not installed. Nothing changed.
        PytubeError: as for `install`.
    """
    # Here, because Alembic and SQLAlchemy take longer to load than most commands take to run.
    try:
        from pytube.db.migrate import migrate
    except ModuleNotFoundError as error:
        raise UsageError(
            f"pytube upgrade needs the package {error.name}: {how_to_install('alembic')}; "
            "or run `pytube install`, which upgrades, too"
        ) from None

    return _install(dsn, schema, roles, progress, migrate)


def _install(
    dsn: str | SecretStr,
    schema: str,
    roles: str | None,
    progress: Progress | None,
    migrate: Migrate | None = None,
) -> str:
    files, name = contents("install.sql"), "pytube install" if migrate is None else "pytube upgrade"
    with _session(dsn, name) as connection, translated():
        return run_page(connection, files, schema, roles=roles, migrate=migrate, progress=progress)


def uninstall(dsn: str | SecretStr, schema: str = "tube", *, force: bool = False) -> str:
    """Remove all of pytube's SQL, with the tubes and the triggers on attached tables.

    Returns:
        A report, in a line.

    Raises:
        UsageError: tables are attached, tubes hold pods or parked documents, or outboxes records, and `force`
            is not set; or nothing is installed. Nothing changed.
    """
    with _session(dsn, "pytube uninstall") as connection, translated():
        return run_page(connection, contents("uninstall.sql"), schema, force=force)


def _session(dsn: str | SecretStr, name: str) -> psycopg.Connection:
    """A session that never takes objects of other roles for pytube's, or for Postgres' own."""
    return connect_sync(dsn, "pg_catalog", application_name=name, also=("pg_temp",))
