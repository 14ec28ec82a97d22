"""Mutations of the triggers, each of which the state machine of capture has to find."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

_MODEL = ("sql/test_capture_model.py::test_no_touch_is_missing_and_none_is_too_many",)
_BODY = "sql/capture/body.sql"
_STORE = "sql/capture/store.sql"
_TRIGGERS = "sql/capture/owners.sql"


def _seed(name: str, breaks: str, file: str, old: str, new: str) -> Seed:
    return Seed(name, breaks, file, old, new, _MODEL, slow=True)


SEEDS = [
    _seed(
        "truncate_is_not_seen",
        "documents of a truncated table stay",
        _TRIGGERS,
        "(k.place = 4 OR att.replica)",
        "(false OR att.replica)",
    ),
    _seed(
        "leaves_are_not_followed",
        "what is written to a partition by its own name is missed",
        _TRIGGERS,
        "(k.place <= 3 OR m.kind = 'r'",
        "(k.place <= 3 AND m.rel = att.tbl OR m.kind = 'r'",
    ),
    _seed(
        "rows_come_unseen",
        "rows of a partition that is attached are missed",
        _STORE,
        "SELECT c INTO part FROM unnest(come) AS c WHERE NOT",
        "SELECT c INTO part FROM unnest(come[2:]) AS c WHERE NOT",
    ),
    _seed(
        "rows_go_unseen",
        "documents of a partition that is detached stay",
        _STORE,
        "FROM unnest(known) AS m (rel)",
        "FROM unnest('{}'::oid[]) AS m (rel)",
    ),
    _seed(
        "all_leave_the_filter",
        "rows that all leave the predicate stay",
        _BODY,
        "'{}' THEN <put>('D', o.ids)",
        "'{}' THEN true",
    ),
    _seed(
        "some_leave_the_filter",
        "of many rows, those that leave the predicate or their key stay",
        _BODY,
        "SELECT <id> AS id, 1 AS side FROM old_table AS r WHERE <passes>\n"
        "                UNION ALL SELECT <id>, 2",
        "SELECT <id> AS id, 2 AS side",
    ),
    _seed(
        "one_key_of_two",
        "of a row whose key has changed, one document is not brought up to date",
        _BODY,
        "CASE WHEN o.ids OPERATOR(pg_catalog.=) n.ids THEN",
        "CASE WHEN pg_catalog.cardinality(o.ids) OPERATOR(pg_catalog.=) pg_catalog.cardinality(n.ids) THEN",
    ),
    _seed(
        "columns_hide_the_filter",
        "a row that enters or leaves the predicate is missed where columns are given",
        _BODY,
        "<passes> IS TRUE, <image>) FROM old_table AS r LIMIT <few>)))\n                "
        "OPERATOR(pg_catalog.*=) (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, <passes> IS TRUE, ",
        "<image>) FROM old_table AS r LIMIT <few>)))\n                "
        "OPERATOR(pg_catalog.*=) (SELECT ROW(ARRAY(SELECT ROW(<key_columns>, ",
    ),
    _seed(
        "ops_are_swapped",
        "what is gone counts as entered",
        _BODY,
        "bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN ''D'",
        "bit_or(x.side) OPERATOR(pg_catalog.=) 1 THEN ''I'",
    ),
    _seed(
        "the_first_id_is_left_out",
        "of many rows one is missed",
        "sql/capture/put.sql",
        "pg_catalog.generate_series(1, pg_catalog.cardinality(g.ids), 250)",
        "pg_catalog.generate_series(2, pg_catalog.cardinality(g.ids), 250)",
    ),
    _seed(
        "an_old_filter_stays",
        "a changed predicate is not what writers go by",
        "sql/tubes/tubes.sql",
        "        PERFORM tube_private_bring_in_line(att, false);\n",
        "        NULL;\n",
    ),
    _seed(
        "options_change_nothing",
        "columns that were given before go on to hide changes",
        "sql/capture/attach.sql",
        "wanted.columns := tube_private_columns(tbl, columns);",
        "wanted.columns := coalesce(was.columns, tube_private_columns(tbl, columns));",
    ),
]
