"""What is to be done about tables that are attached by several columns, without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytube.config.names import TableName
from pytube.config.tubes import Attached
from pytube.declarations import tubes
from pytube.declarations.model import Action, DeclaredTube, Plan, There
from pytube.declarations.tubes import manner
from pytube.documents.model import Tube
from pytube.errors import KeysWouldChange, UsageError
from pytube.model import KeyType

ROOT = Attached(TableName("a", "sites"), ("tenant", "id"), shards=4, made=True, shard_by="tenant")
RELATED = replace(
    ROOT,
    table=TableName("a", "visits"),
    root=False,
    key=("of_tenant", "site"),
    shard_by="of_tenant",
)
ONE = replace(ROOT, key=("id",), shard_by=None)


def there(*tables: Attached, applied: str | None = "before") -> Tube:
    """A tube and its tables, all made by a file; `applied` None: by hand."""
    made = applied is not None
    attached = [replace(one, made=made) for one in tables]
    return Tube("t", 1, KeyType.TEXT, applied=applied, made=made, tables=attached)


def declared(*tables: Attached) -> DeclaredTube:
    return DeclaredTube("t", None, KeyType.TEXT, None, tables, "digest")


def plan(tube: DeclaredTube, now: Tube | None) -> Plan:
    return tubes.plan(tube, There({} if now is None else {"t": now}))


def test_it_is_attached_as_it_is_said() -> None:
    assert manner(ROOT).key == ("tenant", "id")
    assert manner(ROOT).option == "--key-cols tenant,id"
    assert (manner(ROOT).shard_place, ROOT.shard_place, ONE.shard_place) == (0, 0, None)
    (make,) = [step for step in plan(declared(ROOT), None).steps if step.action is Action.ATTACH]
    assert make.text == "attach a.sites to t by tenant, id; each UPDATE counts; shards 0 to 3 by tenant"


@pytest.mark.parametrize(
    "was",
    [ONE, replace(ROOT, key=("tenant", "name")), replace(ROOT, shard_by=None)],
    ids=["one", "other", "whole"],
)
@pytest.mark.parametrize("applied", [None, "before"])
def test_documents_keep_their_keys(was: Attached, applied: str | None) -> None:
    with pytest.raises(KeysWouldChange, match="would have a document under another key"):
        plan(declared(ROOT), there(was, applied=applied))
    with pytest.raises(KeysWouldChange):
        plan(declared(was), there(ROOT, applied=applied))


@pytest.mark.parametrize("key", [("of_tenant", "other"), ("place", "site")])
def test_a_related_table_may_hold_ids_elsewhere(key: tuple[str, ...]) -> None:
    """Which of its columns tells the shard has another name then, and the same place."""
    new = replace(RELATED, key=key, shard_by=key[0])
    (change, _) = plan(declared(ROOT, new), there(ROOT, RELATED)).steps
    assert (change.action, change.table, change.roots) == (Action.CHANGE, new.table, (ROOT.table,))
    with pytest.raises(UsageError, match=f"--key-cols {','.join(key)}") as caught:
        plan(declared(ROOT, new), there(ROOT, RELATED, applied=None))
    assert ("--shard-by" in str(caught.value)) is (key[0] != "of_tenant")


def test_another_change_sends_only_what_it_widens() -> None:
    """The columns of the key are no reason."""
    less = replace(RELATED, columns=frozenset({"of_tenant"}))
    (change, _) = plan(declared(ROOT, less), there(ROOT, RELATED)).steps
    assert (change.action, change.roots) == (Action.CHANGE, ())
    assert plan(declared(ROOT, RELATED), there(ROOT, RELATED)).steps[:-1] == ()
