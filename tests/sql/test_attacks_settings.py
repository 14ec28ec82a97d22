"""What writers set in their sessions, and a trigger's function inherits: it changes no touch."""

from __future__ import annotations

import pytest

from tests.helpers.capture import attach, make_tube, open_session, take
from tests.helpers.database import preparing

pytestmark = pytest.mark.every_server

SETTINGS = [
    ("plpgsql.extra_errors = 'all'", "plpgsql.extra_warnings = 'all'", "plpgsql.variable_conflict = 'error'"),
    ("array_nulls = off", "transform_null_equals = on", "quote_all_identifiers = on", "row_security = off"),
    ("DateStyle = 'German, DMY'", "IntervalStyle = 'postgres_verbose'", "TimeZone = 'Asia/Kathmandu'"),
    ("standard_conforming_strings = off", "backslash_quote = off", "bytea_output = 'escape'"),
    ("client_encoding = 'LATIN1'", "extra_float_digits = -15", "xmloption = 'document'"),
    ("plan_cache_mode = 'force_generic_plan'", "jit = on", "jit_above_cost = 0", "work_mem = '64kB'"),
    ("plan_cache_mode = 'force_custom_plan'", "geqo_threshold = 2", "from_collapse_limit = 1"),
    ("search_path = ''", "default_tablespace = ''", "default_table_access_method = 'heap'"),
    *[(f"{name} = off",) for name in ("enable_seqscan", "enable_hashagg", "enable_sort", "enable_material")],
    ("default_transaction_deferrable = on", "default_transaction_isolation = 'serializable'"),
    ("{parallel} = regress", "parallel_setup_cost = 0", "min_parallel_table_scan_size = 0"),
    ("pytube.wake = 'neither'", "check_function_bodies = off", "synchronous_commit = off"),
]
WRITES = """
    INSERT INTO public.one SELECT g, g FROM generate_series(1, 3) AS g;
    UPDATE public.one SET id = -id WHERE id < 3;
    DELETE FROM public.one WHERE id = 3;
    INSERT INTO public.several VALUES (date '2026-02-01', chr(233) || chr(34) || chr(92), true),
        (date '2026-02-02', NULL, false), (date '2026-01-31', 'x', true);
    UPDATE public.several SET day = day + 1;
    DELETE FROM public.one;
    DELETE FROM public.several
"""
NAME = r'"é\"\\"'
"""As JSON has it, in a key."""
TOUCHED = sorted(
    [
        *(("I", id_) for id_ in ("1", "2", "3", "-1", "-2")),
        *(("D", id_) for id_ in ("1", "2", "3", "-1", "-2")),
        ("I", f'["2026-02-01", {NAME}, true]'),
        ("D", f'["2026-02-01", {NAME}, true]'),
        ("I", f'["2026-02-02", {NAME}, true]'),
        ("D", f'["2026-02-02", {NAME}, true]'),
        ("I", '["2026-02-01", "x", true]'),
        ("D", '["2026-02-01", "x", true]'),
    ]
)


def _tables(dsn: str) -> None:
    with open_session(dsn) as conn:
        conn.execute(
            "CREATE TABLE public.one (id bigint PRIMARY KEY, v integer);"
            " CREATE TABLE public.several (day date, name text, is_new boolean)"
        )
        make_tube(conn, "one")
        conn.execute(
            "SELECT tube_ensure_exists('several', key_type => 'text', predicate => 'day > ''2026-01-31''')"
        )
        attach(conn, "public.one", tube="one")
        conn.execute(
            "SELECT tube_table_ensure_attached("
            "'several', 'public.several', 0, key_cols => '{day, name, is_new}')"
        )


prepare = preparing(_tables, "any_dsn")


def test_settings_of_a_writer(any_dsn: str) -> None:
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    with open_session(any_dsn) as reader:
        name = "debug_parallel_query" if reader.info.server_version >= 160000 else "force_parallel_mode"
        for settings in SETTINGS:
            with open_session(any_dsn) as writer:
                for setting in settings:
                    writer.execute(f"SET {setting.format(parallel=name)}".encode())
                for statement in WRITES.split(";"):
                    writer.execute(statement.encode())
            touched = take(reader, "one") + take(reader, "several")
            found[settings] = sorted((touch.op, str(touch.id)) for touch in touched)
    assert found == dict.fromkeys(SETTINGS, TOUCHED)
