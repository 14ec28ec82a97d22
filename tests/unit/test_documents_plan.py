"""What has to be done about a declared document, from whatever state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytube.documents.companions import Followed, TubeState
from pytube.documents.model import Document, TableName
from pytube.documents.plan import UNFINISHED, Action, Plan, State, Step, after, gone, next_step, plan
from pytube.errors import KeysWouldChange, UsageError
from pytube.model import KeyType
from tests.helpers.declared import CUSTOMERS, ITEMS, PRODUCTS, ROOT, document, link

Tubes = Mapping[str, TubeState]


def applied(declared: Document, tubes: Tubes | None = None) -> dict[str, TubeState]:
    """What is there once it is applied."""
    now = dict(tubes or {})
    for step in plan(declared, declared.name, now).steps:
        now = after(step, now, declared.name)
    return now


def made(what: Plan) -> list[tuple[str, str, str | None]]:
    """The steps: action, tube, table."""
    return [(str(s.action), s.tube, None if s.table is None else s.table.table) for s in what.steps]


def by_hand(*tables: Followed, **other: object) -> dict[str, TubeState]:
    tube = TubeState("orders", None, None, KeyType.BIGINT, 1, list(tables))
    return {"orders": replace(tube, **other)}  # type: ignore[arg-type]


def test_a_new_document() -> None:
    found = plan(document(), "orders", {})
    assert made(found) == [
        ("make", "orders", None),
        ("companion", "orders_relations", None),
        ("attach", "orders", "orders"),
        ("attach", "orders", "order_items"),
        ("attach", "orders_relations", "customers"),
        ("attach", "orders_relations", "products"),
        ("declare", "orders", None),
    ]
    assert (found.state, found.wants_backfill, found.losses) == (State.NEW, True, [])
    tubes = applied(document())
    assert tubes["orders"].declared == document().digest
    assert tubes["orders_relations"].companion_of == "orders"


def test_an_applied_document() -> None:
    found = plan(document(), "orders", applied(document()))
    assert (found.steps, found.state, found.wants_backfill) == ((), State.APPLIED, False)


def test_a_new_field_counts_before_the_document_is_declared_and_an_old_one_until_then() -> None:
    new = document(
        ROOT, replace(ITEMS, columns=("id", "order_id", "position", "product_id")), CUSTOMERS, PRODUCTS
    )
    found = plan(new, "orders", applied(document()))
    assert made(found) == [
        ("change", "orders", "order_items"),
        ("declare", "orders", None),
        ("change", "orders", "order_items"),
    ]
    first, _, last = found.steps
    assert set(first.columns) == {"id", "order_id", "position", "product_id", "quantity"}
    assert last.columns == new.own[1].columns
    assert "position now counts" in first.text
    assert "quantity counts no longer" in last.text
    assert (found.state, found.wants_backfill) == (State.CHANGED, True)


def test_an_own_link_by_another_column_changes_with_the_declaration() -> None:
    other = link("order_items", "parent_order", "order_id", "product_id", "quantity")
    found = plan(document(ROOT, other, CUSTOMERS, PRODUCTS), "orders", applied(document()))
    (step,) = found.steps
    assert step.action is Action.DECLARE
    assert [(one.column, one.columns) for one in step.switches] == [("parent_order", other.columns)]


def test_a_relation_by_another_column_is_followed_by_both_until_it_is_declared() -> None:
    other = replace(PRODUCTS, column="sku_number", columns=("id", "name", "sku_number"))
    found = plan(document(ROOT, ITEMS, CUSTOMERS, other), "orders", applied(document()))
    assert made(found) == [
        ("companion", "orders_relations_2", None),
        ("attach", "orders_relations_2", "products"),
        ("declare", "orders", None),
        ("detach", "orders_relations", "products"),
    ]
    assert [step.tube for step in found.losses] == ["orders_relations"]


def test_a_relation_of_another_type_has_a_companion_of_its_own() -> None:
    coded = link("notes", "code", "body", path="SELECT 1", key_type=KeyType.UUID)
    tubes = applied(document(ROOT, CUSTOMERS, coded))
    assert {name: tube.key_type for name, tube in tubes.items() if tube.companion_of} == {
        "orders_relations": KeyType.BIGINT,
        "orders_relations_2": KeyType.UUID,
    }
    left = plan(document(ROOT, CUSTOMERS), "orders", tubes)
    assert made(left) == [
        ("declare", "orders", None),
        ("detach", "orders_relations_2", "notes"),
        ("drop", "orders_relations_2", None),
    ]


def test_a_table_that_comes_nearer_or_goes_farther() -> None:
    far = replace(ITEMS, path="SELECT 1")
    there, back = document(ROOT, far), document(ROOT, ITEMS)
    assert made(plan(there, "orders", applied(back))) == [
        ("companion", "orders_relations", None),
        ("attach", "orders_relations", "order_items"),
        ("declare", "orders", None),
        ("detach", "orders", "order_items"),
    ]
    assert made(plan(back, "orders", applied(there))) == [
        ("attach", "orders", "order_items"),
        ("declare", "orders", None),
        ("detach", "orders_relations", "order_items"),
        ("drop", "orders_relations", None),
    ]


def test_other_partitions() -> None:
    found = plan(document(partitions=4), "orders", applied(document()))
    assert made(found)[0] == ("partitions", "orders", None)
    assert after(found.steps[0], applied(document()), "orders")["orders"].partitions == 4


def by_tenant(*names: str, shard_by: str | None = None) -> Document:
    """A document whose root has a key of these columns, with items that hold it."""
    root = replace(ROOT, column=names[0], key_cols=names, key_type=KeyType.TEXT, shard_by=shard_by)
    held = tuple("order_id" if name == "id" else name for name in names)
    items = replace(ITEMS, column=held[0], key_cols=held, key_type=KeyType.TEXT, shard_by=shard_by)
    return replace(document(root, items, CUSTOMERS), key_type=KeyType.TEXT, digest=f"{names} {shard_by}")


def test_a_key_of_several_columns() -> None:
    declared = by_tenant("tenant_id", "id", shard_by="tenant_id")
    found = plan(declared, "orders", {})
    steps = [step for step in found.steps if step.action is Action.ATTACH]
    assert [(step.by, step.shard_by) for step in steps] == [
        (("tenant_id", "id"), "tenant_id"),
        (("tenant_id", "order_id"), "tenant_id"),
        (("id",), None),
    ]
    assert steps[0].text.startswith("attach shop.orders to orders by tenant_id, id; columns that count: ")
    shown = [(step["column"], step["by"]) for step in (one.as_json() for one in steps)]
    assert shown == [(None, ["tenant_id", "id"]), (None, ["tenant_id", "order_id"]), ("id", ["id"])]
    assert plan(declared, "orders", applied(declared)).state is State.APPLIED


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            by_tenant("id", "tenant_id", shard_by="tenant_id"),
            "the keys of its documents are tenant_id, id of shop.orders, and are to be id, tenant_id",
        ),
        (
            by_tenant("tenant_id", "id"),
            'computed from tenant_id, and would be from the whole key, .*; set shard_by = "tenant_id", or',
        ),
        (
            by_tenant("tenant_id", "id", shard_by="id"),
            "shards are computed from tenant_id, and would be from id, which gives each document another key",
        ),
        (document(), "the keys of tube orders are text, but the keys of shop.orders are bigint"),
    ],
)
def test_another_key_of_several_columns_is_refused(other: Document, message: str) -> None:
    with pytest.raises(KeysWouldChange, match=message):
        plan(other, "orders", applied(by_tenant("tenant_id", "id", shard_by="tenant_id")))


def test_items_that_come_to_hold_the_key_otherwise_change_with_the_declaration() -> None:
    old = by_tenant("tenant_id", "id")
    other = replace(old.links[1], key_cols=("tenant_id", "parent_id"))
    new = replace(old, links=(old.root, other, *old.links[2:]), digest="other")
    (step,) = plan(new, "orders", applied(old)).steps
    assert [one.by for one in step.switches] == [("tenant_id", "parent_id")]
    assert "shop.order_items is followed by tenant_id, parent_id from then on" in step.text


OLD = document()
NEW = document(
    ROOT,
    link("notes", "order_id", "body"),
    replace(ITEMS, column="product_id", path="SELECT 1"),
    replace(CUSTOMERS, columns=("id", "tier")),
    replace(PRODUCTS, column="sku_number", columns=("name", "sku_number")),
)


@pytest.mark.parametrize("before", [None, OLD])
def test_cut_after_any_step_it_goes_on(before: Document | None) -> None:
    tubes = {} if before is None else applied(before)
    steps = plan(NEW, "orders", tubes).steps
    assert len(steps) > 5
    for step in steps:
        tubes = after(step, tubes, "orders")
        assert plan(NEW, "orders", tubes).steps == steps[len(steps) - len(plan(NEW, "orders", tubes).steps) :]
    assert next_step(NEW, tubes) is None


def test_what_a_declared_document_follows_is_followed_at_each_moment() -> None:
    def misses(declared: Document, tubes: Tubes) -> list[str]:
        ours = [tube for tube in tubes.values() if declared.name in (tube.name, tube.companion_of)]
        return [
            str(one.table)
            for one in declared.links
            if not any(
                (now.table, now.column) == (one.table, one.column)
                and (tube.companion_of is None) == (one.path is None)
                and (now.columns is None or set(one.columns) <= set(now.columns))
                for tube in ours
                for now in tube.tables
            )
        ]

    tubes, by_digest = applied(OLD), {OLD.digest: OLD, NEW.digest: NEW}
    assert misses(OLD, tubes) == []
    for step in plan(NEW, "orders", tubes).steps:
        tubes = after(step, tubes, "orders")
        declared = tubes["orders"].declared
        assert declared is not None
        assert misses(by_digest[declared], tubes) == [], step.text


def test_back_in_the_middle() -> None:
    """Somebody takes the old file again, while the new one is applied."""
    tubes = applied(OLD)
    for step in plan(NEW, "orders", tubes).steps:
        tubes = after(step, tubes, "orders")
        back = applied(OLD, tubes)
        assert plan(OLD, "orders", back).steps == ()
        assert {(t.name, one.table, one.column) for t in back.values() for one in t.tables} == {
            (t.name, one.table, one.column) for t in applied(OLD).values() for one in t.tables
        }


# --- drift ----------------------------------------------------------------------------------------


def test_drift() -> None:
    tubes = applied(document())
    relations = tubes["orders_relations"]
    lost = {**tubes, "orders_relations": replace(relations, tables=relations.tables[1:])}
    found = plan(document(), "orders", lost)
    assert [step.action for step in found.steps] == [Action.ATTACH]
    assert (found.state, found.wants_backfill, found.missed_changes) == (State.DRIFTED, True, True)
    without = {name: tube for name, tube in tubes.items() if name != "orders_relations"}
    assert [step.action for step in plan(document(), "orders", without).steps] == [
        Action.COMPANION,
        Action.ATTACH,
        Action.ATTACH,
    ]
    root = tubes["orders"].tables[0]
    narrow = replace(tubes["orders"], tables=[replace(root, columns=None), *tubes["orders"].tables[1:]])
    (step,) = plan(document(), "orders", {**tubes, "orders": narrow}).steps
    assert "not every UPDATE counts" in step.text


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"columns": ("id",)}, True),
        ({"columns": ("id", "quantity", "other")}, True),
        ({"column": "product_id"}, True),
        ({"columns": None}, False),
        ({"columns": (*ITEMS.columns, "other")}, False),
    ],
)
def test_drift_that_lost_changes_wants_a_backfill(change: dict[str, object], missed: bool) -> None:
    tubes = applied(document())
    root, items = tubes["orders"].tables
    tubes["orders"] = replace(tubes["orders"], tables=[root, replace(items, **change)])  # type: ignore[arg-type]
    found = plan(document(), "orders", tubes)
    assert [step.action for step in found.steps] == [Action.CHANGE]
    assert (found.state, found.wants_backfill) == (State.DRIFTED, missed)


def test_what_is_left_of_an_apply_that_was_cut_is_no_lost_change() -> None:
    """Once the document is declared, columns and tables only go."""
    tubes = applied(OLD)
    for step in plan(NEW, "orders", tubes).steps:
        tubes = after(step, tubes, "orders")
        assert not plan(NEW, "orders", tubes).missed_changes, step.text


def test_what_waits_in_a_relation_that_goes_is_told() -> None:
    tubes = applied(document())
    (note,) = plan(document(ROOT, ITEMS, PRODUCTS), "orders", tubes).notes
    assert "changes of removed relations are queued in orders_relations" in note
    assert plan(document(ROOT, CUSTOMERS, PRODUCTS), "orders", tubes).notes == ()


# --- made by hand, and what is refused ------------------------------------------------------------------


def test_a_tube_by_hand_that_fits_becomes_the_documents() -> None:
    tubes = by_hand(Followed(ROOT.table, "id", 0, 1, None), Followed(ITEMS.table, "order_id", 0, 1, None))
    found = plan(document(), "orders", tubes)
    assert "created manually" in found.notes[0]
    assert (found.state, found.losses) == (State.NEW, [])
    assert applied(document(), tubes)["orders"].declared == document().digest
    assert plan(document(), "orders", by_hand()).state is State.NEW


@pytest.mark.parametrize(
    ("tubes", "words"),
    [
        (by_hand(Followed(TableName("shop", "other"), "id", 0, 1, None)), "shop.other attached by id"),
        (by_hand(Followed(ROOT.table, "customer_id", 0, 1, None)), "shop.orders attached by customer_id"),
        (by_hand(Followed(ITEMS.table, "order_id", 0, 1, None)), "root table"),
        (
            by_hand(Followed(ITEMS.table, "order_id", 0, 1, None), Followed(ROOT.table, "id", 0, 1, None)),
            "before its root table shop.orders; .* Run `pytube tube detach orders shop.order_items`, and",
        ),
        (by_hand(Followed(ROOT.table, "id", 7, 1, None)), "has shard 7, and is to have shard 0"),
        (by_hand(Followed(ROOT.table, "id", 0, 4, None)), "set shards = 4"),
        (by_hand(key_type=KeyType.UUID), "keys of tube orders are uuid"),
        (by_hand(companion_of="others"), "belongs to the document others"),
    ],
)
def test_a_tube_by_hand_that_does_not_fit(tubes: Tubes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        plan(document(), "orders", tubes)
    assert str(error.value).startswith("document.orders: ")


def test_a_predicate() -> None:
    with pytest.raises(UsageError, match="--predicate ''"):
        plan(document(), "orders", by_hand(), predicates={"orders": "NOT deleted"})


def test_a_name_too_long_for_a_tube() -> None:
    name = "o" * 58
    with pytest.raises(UsageError, match="58 bytes"):
        plan(document(name=name), name, {})
    with pytest.raises(UsageError, match="oo_relations would have a name of 58 bytes"):
        plan(document(name=name[:48]), name[:48], {})
    assert plan(document(ROOT, ITEMS, name=name[:48]), name[:48], {}).steps


def test_shards_root_table_and_key_stay() -> None:
    tubes = applied(document())
    with pytest.raises(KeysWouldChange, match="set shards = 1"):
        plan(document(shards=8), "orders", tubes)
    with pytest.raises(KeysWouldChange, match="id of shop.orders, and are to be number"):
        plan(document(replace(ROOT, column="number")), "orders", tubes)
    with pytest.raises(KeysWouldChange, match="without shop.notes"):
        plan(document(link("notes", "id"), ITEMS), "orders", tubes)


def test_a_root_table_that_was_dropped_and_made_again() -> None:
    tubes = applied(document())
    root, items = tubes["orders"].tables
    for tables, where in (([items], "without"), ([items, root], "before")):
        lost = {**tubes, "orders": replace(tubes["orders"], tables=tables)}
        with pytest.raises(UsageError, match=f"{where} its root table shop.orders, which was") as error:
            plan(document(), "orders", lost)
        assert "empty the index" not in str(error.value), "the keys are the same"
        assert "`pytube tube detach orders shop.order_items`" in str(error.value)
        with pytest.raises(KeysWouldChange, match="dropped and made again, run `pytube tube detach orders"):
            plan(document(ROOT, ITEMS), "orders", lost)
    found = plan(document(), "orders", {**tubes, "orders": replace(tubes["orders"], tables=[])})
    assert made(found) == [("attach", "orders", "orders"), ("attach", "orders", "order_items")]
    assert found.missed_changes


# --- no longer declared -------------------------------------------------------------------------------


def test_a_document_that_the_file_does_not_declare_any_more() -> None:
    tubes = applied(document()) | {"by_hand": TubeState("by_hand", None, None, KeyType.BIGINT, 1)}
    assert gone({}, tubes) == ["orders"]
    assert gone({"orders": object()}, tubes) == []
    found = plan(None, "orders", tubes)
    assert (made(found), found.state) == ([("drop", "orders", None)], State.GONE)
    assert set(after(found.steps[0], tubes, "orders")) == {"by_hand"}


def test_one_whose_tube_stays_configured() -> None:
    tubes = applied(document())
    found = plan(None, "orders", tubes, stays=True)
    (step,) = found.steps
    assert (step.action, step.companions) == (Action.RELEASE, ("orders_relations",))
    left = after(step, tubes, "orders")
    assert (set(left), left["orders"].declared) == ({"orders"}, None)
    assert left["orders"].tables == tubes["orders"].tables


def test_an_unfinished_one_goes_on() -> None:
    tubes = after(next_step(document(), {}) or Step(Action.MAKE, "orders"), {}, "orders")
    assert tubes["orders"].declared == UNFINISHED
    found = plan(document(), "orders", tubes)
    assert (found.state, found.notes) == (
        State.NEW,
        ("an earlier apply was interrupted; this one continues it",),
    )


def test_json_of_a_plan() -> None:
    found = plan(document(), "orders", {}).as_json()
    assert set(found) == {
        "document", "state", "problem", "steps", "tables", "missing_indexes", "notes", "backfill",
    }  # fmt: skip
    assert found["tables"] == [
        {
            "table": str(one.table),
            "column": one.column,
            "by": [one.column],
            "tube": "orders" if one.path is None else "orders_relations",
            "sections": list(one.sections),
            "columns": list(one.columns),
            "documents": {"mean": one.documents[0], "worst": one.documents[1]},
        }
        for one in document().links
    ]
