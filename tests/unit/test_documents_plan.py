"""What has to be done about a declared document, from whatever state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytube.config.names import TableName
from pytube.config.tubes import Attached
from pytube.declarations import documents
from pytube.declarations.model import UNFINISHED, Action, Kind, Plan, State, Step, There, farewell
from pytube.documents.model import Document, Tube
from pytube.errors import KeysWouldChange, UsageError
from pytube.model import KeyType
from tests.helpers.declared import CUSTOMERS, ITEMS, PRODUCTS, ROOT, document, link

Tubes = Mapping[str, Tube]


def plan(declared: Document, tubes: Tubes) -> Plan:
    return documents.plan(declared, There(tubes))


def after(step: Step, tubes: Tubes, declared: Document) -> dict[str, Tube]:
    """What a database has after a step; `tubes` stays as it is."""
    now, name = dict(tubes), step.name
    match step.action:
        case Action.MAKE:
            now[name] = Tube(name, declared.partitions, declared.key_type, document=UNFINISHED)
        case Action.COMPANION:
            assert step.key_type is not None
            now[name] = Tube(name, 1, step.key_type, companion_of=declared.name)
        case Action.PARTITIONS:
            now[name] = replace(tubes[name], partitions=declared.partitions)
        case Action.ATTACH | Action.CHANGE:
            assert step.attached is not None
            now[name] = followed(tubes[name], step.attached)
        case Action.DECLARE:
            now[name] = replace(tubes[name], document=declared.digest)
            for one in step.switches:
                now[name] = followed(now[name], one)
        case Action.DETACH:
            now[name] = replace(tubes[name], tables=[o for o in tubes[name].tables if o.table != step.table])
        case Action.DROP:
            now = {other: one for other, one in now.items() if name not in (other, one.companion_of)}
    return now


def followed(tube: Tube, new: Attached) -> Tube:
    tables = [new if one.table == new.table else one for one in tube.tables]
    return replace(tube, tables=tables if new in tables else [*tables, new])


def applied(declared: Document, tubes: Tubes | None = None) -> dict[str, Tube]:
    """What is there once it is applied."""
    now = dict(tubes or {})
    for step in plan(declared, now).steps:
        now = after(step, now, declared)
    return now


def made(what: Plan) -> list[tuple[str, str, str | None]]:
    """The steps: action, tube, table."""
    return [(str(s.action), s.name, None if s.table is None else s.table.table) for s in what.steps]


def by_hand(*tables: Attached, **other: object) -> dict[str, Tube]:
    tube = Tube("orders", 1, KeyType.BIGINT, tables=list(tables))
    return {"orders": replace(tube, **other)}  # type: ignore[arg-type]


def test_a_new_document() -> None:
    found = plan(document(), {})
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
    assert tubes["orders"].document == document().digest
    assert tubes["orders_relations"].companion_of == "orders"


def test_an_applied_document() -> None:
    found = plan(document(), applied(document()))
    assert (found.steps, found.state, found.wants_backfill) == ((), State.APPLIED, False)


def test_a_new_field_counts_before_the_document_is_declared_and_an_old_one_until_then() -> None:
    new = document(
        ROOT, replace(ITEMS, columns=("id", "order_id", "position", "product_id")), CUSTOMERS, PRODUCTS
    )
    found = plan(new, applied(document()))
    assert made(found) == [
        ("change", "orders", "order_items"),
        ("declare", "orders", None),
        ("change", "orders", "order_items"),
    ]
    first, _, last = found.steps
    assert first.attached is not None
    assert first.attached.columns == {"id", "order_id", "position", "product_id", "quantity"}
    assert last.attached is not None
    assert last.attached.columns == {*new.own[1].columns}
    assert "position now counts" in first.text
    assert "quantity counts no longer" in last.text
    assert (found.state, found.wants_backfill) == (State.CHANGED, True)


def test_an_own_link_by_another_column_changes_with_the_declaration() -> None:
    other = link("order_items", "parent_order", "order_id", "product_id", "quantity")
    found = plan(document(ROOT, other, CUSTOMERS, PRODUCTS), applied(document()))
    (step,) = found.steps
    assert step.action is Action.DECLARE
    assert [(one.key, one.columns) for one in step.switches] == [
        (("parent_order",), frozenset(other.columns))
    ]


def test_a_relation_by_another_column_is_followed_by_both_until_it_is_declared() -> None:
    other = replace(PRODUCTS, by=("sku_number",), columns=("id", "name", "sku_number"))
    found = plan(document(ROOT, ITEMS, CUSTOMERS, other), applied(document()))
    assert made(found) == [
        ("companion", "orders_relations_2", None),
        ("attach", "orders_relations_2", "products"),
        ("declare", "orders", None),
        ("detach", "orders_relations", "products"),
    ]
    assert [step.name for step in found.losses] == ["orders_relations"]


def test_a_relation_of_another_type_has_a_companion_of_its_own() -> None:
    coded = link("notes", "code", "body", path="SELECT 1", key_type=KeyType.UUID)
    tubes = applied(document(ROOT, CUSTOMERS, coded))
    assert {name: tube.key_type for name, tube in tubes.items() if tube.companion_of} == {
        "orders_relations": KeyType.BIGINT,
        "orders_relations_2": KeyType.UUID,
    }
    left = plan(document(ROOT, CUSTOMERS), tubes)
    assert made(left) == [
        ("declare", "orders", None),
        ("detach", "orders_relations_2", "notes"),
        ("drop", "orders_relations_2", None),
    ]


def test_a_table_that_comes_nearer_or_goes_farther() -> None:
    far = replace(ITEMS, path="SELECT 1")
    there, back = document(ROOT, far), document(ROOT, ITEMS)
    assert made(plan(there, applied(back))) == [
        ("companion", "orders_relations", None),
        ("attach", "orders_relations", "order_items"),
        ("declare", "orders", None),
        ("detach", "orders", "order_items"),
    ]
    assert made(plan(back, applied(there))) == [
        ("attach", "orders", "order_items"),
        ("declare", "orders", None),
        ("detach", "orders_relations", "order_items"),
        ("drop", "orders_relations", None),
    ]


def test_other_partitions() -> None:
    found = plan(document(partitions=4), applied(document()))
    assert made(found)[0] == ("partitions", "orders", None)
    assert after(found.steps[0], applied(document()), document(partitions=4))["orders"].partitions == 4


def by_tenant(*names: str, shard_by: str | None = None) -> Document:
    """A document whose root has a key of these columns, with items that hold it."""
    root = replace(ROOT, by=names, key_type=KeyType.TEXT, shard_by=shard_by)
    held = tuple("order_id" if name == "id" else name for name in names)
    items = replace(ITEMS, by=held, key_type=KeyType.TEXT, shard_by=shard_by)
    return replace(document(root, items, CUSTOMERS), key_type=KeyType.TEXT, digest=f"{names} {shard_by}")


def test_a_key_of_several_columns() -> None:
    declared = by_tenant("tenant_id", "id", shard_by="tenant_id")
    found = plan(declared, {})
    steps = [step for step in found.steps if step.action is Action.ATTACH]
    assert [(one.key, one.shard_by) for one in (step.attached for step in steps) if one] == [
        (("tenant_id", "id"), "tenant_id"),
        (("tenant_id", "order_id"), "tenant_id"),
        (("id",), None),
    ]
    assert steps[0].text.startswith("attach shop.orders to orders by tenant_id, id; columns that count: ")
    shown = [(step["column"], step["by"]) for step in (one.as_json() for one in steps)]
    assert shown == [(None, ["tenant_id", "id"]), (None, ["tenant_id", "order_id"]), ("id", ["id"])]
    assert plan(declared, applied(declared)).state is State.APPLIED


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
        plan(other, applied(by_tenant("tenant_id", "id", shard_by="tenant_id")))


def test_items_that_come_to_hold_the_key_otherwise_change_with_the_declaration() -> None:
    old = by_tenant("tenant_id", "id")
    other = replace(old.links[1], by=("tenant_id", "parent_id"))
    new = replace(old, links=(old.root, other, *old.links[2:]), digest="other")
    (step,) = plan(new, applied(old)).steps
    assert [one.key for one in step.switches] == [("tenant_id", "parent_id")]
    assert "shop.order_items is followed by tenant_id, parent_id from then on" in step.text


OLD = document()
NEW = document(
    ROOT,
    link("notes", "order_id", "body"),
    replace(ITEMS, by=("product_id",), path="SELECT 1"),
    replace(CUSTOMERS, columns=("id", "tier")),
    replace(PRODUCTS, by=("sku_number",), columns=("name", "sku_number")),
)


@pytest.mark.parametrize("before", [None, OLD])
def test_cut_after_any_step_it_goes_on(before: Document | None) -> None:
    tubes = {} if before is None else applied(before)
    steps = plan(NEW, tubes).steps
    assert len(steps) > 5
    for step in steps:
        tubes = after(step, tubes, NEW)
        left = plan(NEW, tubes).steps
        assert left == steps[len(steps) - len(left) :]
    assert plan(NEW, tubes).steps == ()


def test_what_a_declared_document_follows_is_followed_at_each_moment() -> None:
    def misses(declared: Document, tubes: Tubes) -> list[str]:
        ours = [tube for tube in tubes.values() if declared.name in (tube.name, tube.companion_of)]
        return [
            str(one.table)
            for one in declared.links
            if not any(
                (now.table, now.key) == (one.table, one.by)
                and (tube.companion_of is None) == (one.path is None)
                and (not now.columns or now.columns.issuperset(one.columns))
                for tube in ours
                for now in tube.tables
            )
        ]

    tubes, by_digest = applied(OLD), {OLD.digest: OLD, NEW.digest: NEW}
    assert misses(OLD, tubes) == []
    for step in plan(NEW, tubes).steps:
        tubes = after(step, tubes, NEW)
        declared = tubes["orders"].document
        assert declared is not None
        assert misses(by_digest[declared], tubes) == [], step.text


def test_back_in_the_middle() -> None:
    """Somebody takes the old file again, while the new one is applied."""
    tubes = applied(OLD)
    for step in plan(NEW, tubes).steps:
        tubes = after(step, tubes, NEW)
        back = applied(OLD, tubes)
        assert plan(OLD, back).steps == ()
        assert {(t.name, one.table, one.key) for t in back.values() for one in t.tables} == {
            (t.name, one.table, one.key) for t in applied(OLD).values() for one in t.tables
        }


# --- drift ----------------------------------------------------------------------------------------


def test_drift() -> None:
    tubes = applied(document())
    relations = tubes["orders_relations"]
    lost = {**tubes, "orders_relations": replace(relations, tables=relations.tables[1:])}
    found = plan(document(), lost)
    assert [step.action for step in found.steps] == [Action.ATTACH]
    assert (found.state, found.wants_backfill, found.missed_changes) == (State.DRIFTED, True, True)
    without = {name: tube for name, tube in tubes.items() if name != "orders_relations"}
    assert [step.action for step in plan(document(), without).steps] == [
        Action.COMPANION,
        Action.ATTACH,
        Action.ATTACH,
    ]
    root, *others = tubes["orders"].tables
    narrow = replace(tubes["orders"], tables=[replace(root, columns=frozenset()), *others])
    (step,) = plan(document(), {**tubes, "orders": narrow}).steps
    assert "not every UPDATE counts" in step.text


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"columns": frozenset({"id"})}, True),
        ({"columns": frozenset({"id", "quantity", "other"})}, True),
        ({"key": ("product_id",)}, True),
        ({"columns": frozenset()}, False),
        ({"columns": frozenset({*ITEMS.columns, "other"})}, False),
    ],
)
def test_drift_that_lost_changes_wants_a_backfill(change: dict[str, object], missed: bool) -> None:
    tubes = applied(document())
    root, items = tubes["orders"].tables
    tubes["orders"] = replace(tubes["orders"], tables=[root, replace(items, **change)])  # type: ignore[arg-type]
    found = plan(document(), tubes)
    assert [step.action for step in found.steps] == [Action.CHANGE]
    assert (found.state, found.wants_backfill) == (State.DRIFTED, missed)


def test_what_is_left_of_an_apply_that_was_cut_is_no_lost_change() -> None:
    """Once the document is declared, columns and tables only go."""
    tubes = applied(OLD)
    for step in plan(NEW, tubes).steps:
        tubes = after(step, tubes, NEW)
        assert not plan(NEW, tubes).missed_changes, step.text


def test_what_waits_in_a_relation_that_goes_is_told() -> None:
    tubes = applied(document())
    (note,) = plan(document(ROOT, ITEMS, PRODUCTS), tubes).notes
    assert "changes of removed relations are queued in orders_relations" in note
    assert plan(document(ROOT, CUSTOMERS, PRODUCTS), tubes).notes == ()


# --- made by hand, and what is refused ------------------------------------------------------------------


def test_a_tube_by_hand_that_fits_becomes_the_documents() -> None:
    tubes = by_hand(Attached(ROOT.table, ("id",)), Attached(ITEMS.table, ("order_id",)))
    found = plan(document(), tubes)
    assert "created manually" in found.notes[0]
    assert (found.state, found.losses) == (State.NEW, [])
    assert applied(document(), tubes)["orders"].document == document().digest
    assert plan(document(), by_hand()).state is State.NEW


@pytest.mark.parametrize(
    ("tubes", "words"),
    [
        (by_hand(Attached(TableName("shop", "other"), ("id",))), "shop.other attached by id"),
        (by_hand(Attached(ROOT.table, ("customer_id",))), "shop.orders attached by customer_id"),
        (by_hand(Attached(ITEMS.table, ("order_id",))), "root table"),
        (
            by_hand(Attached(ITEMS.table, ("order_id",)), Attached(ROOT.table, ("id",))),
            "before its root table shop.orders; .* Run `pytube tube detach orders shop.order_items`, and",
        ),
        (by_hand(Attached(ROOT.table, ("id",), 7)), "has shard 7, and is to have shard 0"),
        (by_hand(Attached(ROOT.table, ("id",), 0, 4)), "set shards = 4"),
        (by_hand(key_type=KeyType.UUID), "keys of tube orders are uuid"),
        (by_hand(companion_of="others"), "belongs to the document others"),
    ],
)
def test_a_tube_by_hand_that_does_not_fit(tubes: Tubes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        plan(document(), tubes)
    assert str(error.value).startswith("document.orders: ")


def test_a_predicate() -> None:
    with pytest.raises(UsageError, match="--predicate ''"):
        plan(document(), by_hand(predicate="NOT deleted"))


def test_a_name_too_long_for_a_tube() -> None:
    name = "o" * 58
    with pytest.raises(UsageError, match="58 bytes"):
        plan(document(name=name), {})
    with pytest.raises(UsageError, match="oo_relations would have a name of 58 bytes"):
        plan(document(name=name[:48]), {})
    assert plan(document(ROOT, ITEMS, name=name[:48]), {}).steps


def test_shards_root_table_and_key_stay() -> None:
    tubes = applied(document())
    with pytest.raises(KeysWouldChange, match="set shards = 1"):
        plan(document(shards=8), tubes)
    with pytest.raises(KeysWouldChange, match="id of shop.orders, and are to be number"):
        plan(document(replace(ROOT, by=("number",))), tubes)
    with pytest.raises(KeysWouldChange, match="without shop.notes"):
        plan(document(link("notes", "id"), ITEMS), tubes)


def test_a_root_table_that_was_dropped_and_made_again() -> None:
    tubes = applied(document())
    root, items = tubes["orders"].tables
    for tables, where in (([items], "without"), ([items, root], "before")):
        lost = {**tubes, "orders": replace(tubes["orders"], tables=tables)}
        with pytest.raises(UsageError, match=f"{where} its root table shop.orders, which was") as error:
            plan(document(), lost)
        assert "empty the index" not in str(error.value), "the keys are the same"
        assert "`pytube tube detach orders shop.order_items`" in str(error.value)
        with pytest.raises(KeysWouldChange, match="dropped and made again, run `pytube tube detach orders"):
            plan(document(ROOT, ITEMS), lost)
    found = plan(document(), {**tubes, "orders": replace(tubes["orders"], tables=[])})
    assert made(found) == [("attach", "orders", "orders"), ("attach", "orders", "order_items")]
    assert found.missed_changes


# --- no longer declared -------------------------------------------------------------------------------


def test_a_document_that_the_file_does_not_declare_any_more() -> None:
    tubes = applied(document()) | {"by_hand": Tube("by_hand", 1, KeyType.BIGINT)}
    assert There(tubes).applied(Kind.DOCUMENT) == {"orders": document().digest}
    found = farewell(Kind.DOCUMENT, "orders", There(tubes), stays=False)
    assert (made(found), found.state) == ([("drop", "orders", None)], State.GONE)
    assert set(after(found.steps[0], tubes, document())) == {"by_hand"}


def test_one_whose_tube_stays_configured() -> None:
    found = farewell(Kind.DOCUMENT, "orders", There(applied(document())), stays=True)
    (step,) = found.losses
    assert (step.action, step.companions) == (Action.RELEASE, ("orders_relations",))


def test_an_unfinished_one_goes_on() -> None:
    tubes = after(plan(document(), {}).steps[0], {}, document())
    found = plan(document(), tubes)
    assert (found.state, found.notes) == (
        State.NEW,
        ("an earlier apply was interrupted; this one continues it",),
    )


def test_json_of_a_plan() -> None:
    found = plan(document(), {}).as_json()
    assert set(found) == {
        "document", "state", "problem", "steps", "tables", "missing_indexes", "notes", "backfill",
    }  # fmt: skip
    assert found["tables"] == [
        {
            "table": str(one.table),
            "column": one.column,
            "by": list(one.by),
            "tube": "orders" if one.path is None else "orders_relations",
            "sections": list(one.sections),
            "columns": list(one.columns),
            "documents": {"mean": one.documents[0], "worst": one.documents[1]},
        }
        for one in document().links
    ]
