"""Mutations of the triggers, each of which the state machine of capture has to find."""

from __future__ import annotations

from tests.crash.seeded.seed import Seed

_MODEL = ("sql/test_capture_model.py::test_no_touch_is_missing_and_none_is_too_many",)
_BODY = "sql/capture/tube_private_capture_body.sql"
_TRIGGERS = "sql/capture/tube_private_triggers.sql"
_TREE = "sql/capture/tube_private_tree.sql"


def _seed(name: str, breaks: str, file: str, old: str, new: str) -> Seed:
    return Seed(name, breaks, file, old, new, _MODEL, slow=True)


SEEDS = [
    _seed(
        "truncate_is_not_seen",
        "documents of a truncated table stay",
        _TRIGGERS,
        "WHEN 34 THEN m.kind = 'r'",
        "WHEN 34 THEN false",
    ),
    _seed(
        "leaves_are_not_followed",
        "what is written to a partition by its own name is missed",
        _TRIGGERS,
        "ELSE true END",
        "ELSE m.rel = att.tbl END",
    ),
    _seed(
        "rows_come_unseen",
        "rows of a partition that is attached are missed",
        _TREE,
        "FOREACH rel IN ARRAY come LOOP",
        "FOREACH rel IN ARRAY come[2:] LOOP",
    ),
    _seed(
        "rows_go_unseen",
        "documents of a partition that is detached stay",
        _TREE,
        "FOREACH rel IN ARRAY gone LOOP",
        "FOREACH rel IN ARRAY gone[2:] LOOP",
    ),
    _seed(
        "all_leave_the_filter",
        "rows that all leave the predicate stay",
        _BODY,
        "'SELECT FROM old_table WHERE <filter> UNION ALL SELECT FROM new_table WHERE <filter>'",
        "'SELECT FROM new_table WHERE <filter>'",
    ),
    _seed(
        "some_leave_the_filter",
        "of many rows, those that leave the predicate or their key stay",
        _BODY,
        "        old_side || E'\\n                        UNION ALL ' || new_side),\n",
        "        new_side),\n",
    ),
    _seed(
        "one_key_of_two",
        "of a row whose key has changed, one document is not brought up to date",
        _BODY,
        "(r.passes OR n.passes) AND r.id IS NOT DISTINCT FROM n.id'",
        "(r.passes OR n.passes)'",
    ),
    _seed(
        "columns_hide_the_filter",
        "a row that enters or leaves the predicate is missed where columns are given",
        _BODY,
        "(r.passes IS DISTINCT FROM n.passes<changed>)'",
        "(false<changed>)' || ' OR EXISTS (SELECT FROM new_table OFFSET 1)'",
    ),
    _seed(
        "ops_are_swapped",
        "what entered counts as gone",
        _BODY,
        "CASE bit_or(side) WHEN 1 THEN ''<d>'' WHEN 2 THEN ''<i>'' ELSE ''U'' END",
        "CASE bit_or(side) WHEN 2 THEN ''<d>'' WHEN 1 THEN ''<i>'' ELSE ''U'' END",
    ),
    _seed(
        "the_first_id_is_left_out",
        "of many rows one is missed",
        _BODY,
        "generate_series(1, cardinality(g.ids), 250)",
        "generate_series(2, cardinality(g.ids), 250)",
    ),
    _seed(
        "an_old_filter_stays",
        "a changed predicate is not what writers go by",
        "sql/tubes/tube_private_set_predicate.sql",
        "    PERFORM tube_private_sync(tube);\n",
        "",
    ),
    _seed(
        "options_change_nothing",
        "columns that were given before go on to hide changes",
        "sql/capture/tube_table_ensure_attached.sql",
        "columns = wanted.columns, replica",
        "columns = coalesce(a.columns, wanted.columns), replica",
    ),
]
