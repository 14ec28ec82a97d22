"""Keys as numpy holds them: read, packed, cut and encoded, each comes out as it was."""

from __future__ import annotations

import json
import struct
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytube.errors import UsageError
from pytube.model import KeyType, shard_of
from pytube.spark import arrays
from pytube.spark import pods as make
from pytube.spark.arrays import BIGINT, KeyKind, Keys, Spread, kind_of
from pytube.spark.hosts import shard_map
from pytube.spark.pods import Pods, blocks, check_keys, cut
from pytube.spark.touch import PIECE, Plan, bucket_of, pack_keys, units_of, unpack

TOUCH = import_module("pytube.spark.touch")  # its name in the package is the function's
_FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = json.loads((_FOLDER / "shards_of_keys.json").read_text())
OF_COLUMNS = json.loads((_FOLDER / "keys.json").read_text())["keys"]
UUID_KIND, TEXT_KIND = kind_of("uuid"), kind_of("text")
BOTH = pytest.mark.parametrize("kind", [UUID_KIND, TEXT_KIND], ids=["uuid", "text"])
EACH = pytest.mark.parametrize("kind", [BIGINT, UUID_KIND, TEXT_KIND], ids=["bigint", "uuid", "text"])

UNTIMED = settings(deadline=None, max_examples=25)
"""pyarrow imports much when it makes its first column."""

Pair = tuple[int, int | str]


def forms(value: UUID) -> st.SearchStrategy[str]:
    """A uuid in any form that Postgres reads."""

    def written(draw: st.DrawFn) -> str:
        digits = value.hex
        groups = [digits[place : place + 4] for place in range(0, 32, 4)]
        text = groups[0] + "".join(draw(st.sampled_from(["", "-"])) + group for group in groups[1:])
        text = draw(st.sampled_from([text, str(value), digits]))
        text = draw(st.sampled_from([text, text.upper(), text.title()]))
        return draw(st.sampled_from([text, f"{{{text}}}"]))

    return st.composite(written)()


# Of few texts, so that some repeat; of many lengths, so that widths are mixed.
LONG = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=8), st.integers(1, 60))
TEXTS = st.lists((st.text(max_size=12) | LONG).filter(lambda text: "\0" not in text))
UUIDS = st.lists(st.uuids() | st.integers(0, 255).map(lambda number: UUID(int=number << 120)))


def columns(kind: KeyKind) -> st.SearchStrategy[list[Any]]:
    """Keys, as Postgres writes them if they are no numbers."""
    if kind is BIGINT:
        return st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9))
    return TEXTS if kind.type is KeyType.TEXT else UUIDS.map(lambda found: [str(value) for value in found])


def column(kind: KeyKind, keys: list[Any]) -> pa.Array[Any]:
    return pa.array(keys, pa.int64() if kind is BIGINT else pa.string())


def names(kind: KeyKind, keys: Keys) -> list[Any]:
    """Keys of an array, in the form of `columns`."""
    if kind is BIGINT:
        return [int(key) for key in keys]
    plain = keys if kind.type is KeyType.TEXT else arrays.uuid_texts(keys)
    return [key.decode() for key in plain.tolist()]


def read(kind: KeyKind, column: pa.Array[Any]) -> list[str]:
    """The keys of a column, in their order."""
    found: dict[int, str] = {}
    for rows, keys in kind.read(column):
        assert keys.flags.c_contiguous
        found |= dict(zip(np.arange(len(column))[rows].tolist(), names(kind, keys), strict=True))
    return [found[row] for row in range(len(column))]


# --- read -----------------------------------------------------------------------------------------


@UNTIMED
@given(UUIDS, st.data(), st.integers(0, 2))
def test_all_forms_of_a_uuid_are_one_key(values: list[UUID], data: st.DataObject, skipped: int) -> None:
    column = [data.draw(forms(value)) for value in values]
    expected = [str(value) for value in values][skipped:]
    for kind in (pa.string(), pa.large_string()):
        assert read(UUID_KIND, pa.array(column, kind).slice(skipped)) == expected
    assert (
        read(UUID_KIND, pa.array([value.bytes for value in values], pa.binary()).slice(skipped)) == expected
    )


GOOD = "6ecd8c99-4036-403d-bf84-cf8400f67836"


@pytest.mark.parametrize(
    "wrong",
    [
        *("", "x", "NULL", GOOD[:-1], GOOD + "0", GOOD + "\n", " " + GOOD, GOOD.replace("6", "g", 1)),
        *("{" + GOOD, GOOD + "}", "{" + GOOD + ")", GOOD.replace("-", "+"), GOOD.replace("-", "--")),
        *(GOOD.replace("-", "")[:-1] + "-", "6ecd8c-994036403dbf84cf8400f67836", "6" * 33, "６" * 12),
    ],
)
def test_what_is_no_uuid_is_named(wrong: str) -> None:
    column = pa.array([GOOD, GOOD.upper(), wrong, "also wrong"])
    with pytest.raises(UsageError, match="an id is not a valid uuid: ") as raised:
        read(UUID_KIND, column)
    assert repr(wrong) in str(raised.value)
    assert GOOD in str(raised.value)


def test_bytes_that_are_no_uuid() -> None:
    with pytest.raises(UsageError, match="an id has 15 bytes; a uuid has 16"):
        read(UUID_KIND, pa.array([bytes(16), bytes(15)], pa.binary()))


@UNTIMED
@given(TEXTS, st.integers(0, 2))
def test_texts_stay_what_they_are(values: list[str], skipped: int) -> None:
    for kind in (pa.string(), pa.large_string()):
        assert read(TEXT_KIND, pa.array(values, kind).slice(skipped)) == values[skipped:]


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 64, 65, arrays.MOST - 1, arrays.MOST])
def test_widths(length: int) -> None:
    values = ["x" * length, "short"]
    assert read(TEXT_KIND, pa.array(values)) == values
    assert all(keys.itemsize < max(64, 2 * length) for _, keys in TEXT_KIND.read(pa.array(values[:1])))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([b"good", b"a\0b", b"\0"], r"an id has a NUL character: 'a\\x00b'"),
        ([b"good", b"\xff"], r"an id is not UTF-8: b'\\xff'"),
        # Together they are right.
        (["ü".encode()[:1], "ü".encode()[1:]], r"an id is not UTF-8: b'\\xc3'"),
        ([b"", "ü".encode()[1:], b""], r"an id is not UTF-8: b'\\xbc'"),
        # A surrogate, which Java writes so and Postgres refuses.
        ([b"\xed\xa0\x80"], "an id is not UTF-8: "),
        ([b"x" * (arrays.MOST + 1)], f"an id has {arrays.MOST + 1} bytes, and {arrays.MOST} is the most"),
        ([b"\xff" * 1000], r"an id is not UTF-8: b'[x\\f]{56,60}…"),
    ],
)
def test_texts_that_cant_be(values: list[bytes], reason: str) -> None:
    column: pa.Array[Any] = pa.array(values, pa.binary())
    column = pa.Array.from_buffers(pa.string(), len(values), column.buffers())
    with pytest.raises(UsageError, match=reason):
        read(TEXT_KIND, column)


@BOTH
def test_none_may_be_null(kind: KeyKind) -> None:
    with pytest.raises(UsageError, match="an id is NULL"):
        read(kind, pa.array([GOOD, None]))


# --- shards and buckets -----------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS)
def test_the_shard_of_a_key(vector: dict[str, Any]) -> None:
    kind = kind_of(vector["type"])
    for _, keys in kind.read(pa.array([vector["id"]])):
        assert kind.shards(keys, vector["shard"], vector["shards"]).tolist() == [vector["expected"]]


@pytest.mark.parametrize("vector", OF_COLUMNS, ids=lambda vector: str(vector["text"]))
def test_the_shard_of_a_key_of_several_columns(vector: dict[str, Any]) -> None:
    place = -1 if vector["place"] is None else vector["place"]
    table = Spread(vector["shard"], vector["shards"], place)
    for _, keys in TEXT_KIND.read(pa.array([vector["text"]])):
        assert TEXT_KIND.shards(keys, *table).tolist() == [vector["expected"]]
        check_keys(np.array([vector["expected"]]), keys, (table,), TEXT_KIND)
        other = table.shard + (vector["expected"] - table.shard + 1) % table.shards
        with pytest.raises(UsageError, match="is not in the shard"):
            check_keys(np.array([other]), keys, (table,), TEXT_KIND)


@BOTH
@UNTIMED
@given(data=st.data(), shards=st.integers(1, 1000))
def test_shards_are_those_of_all_others(kind: KeyKind, data: st.DataObject, shards: int) -> None:
    for _, keys in kind.read(pa.array(data.draw(columns(kind)), pa.string())):
        expected = [shard_of(name, 7, shards) for name in names(kind, keys)]
        assert kind.shards(keys, 7, shards).tolist() == expected


@BOTH
def test_a_key_belongs_to_its_shard(kind: KeyKind) -> None:
    (keys,) = (keys for _, keys in kind.read(pa.array([GOOD])))
    right = kind.shards(keys, 10, 64)
    check_keys(right, keys, (Spread(10, 64),), kind)
    shown = GOOD if kind is UUID_KIND else f"'{GOOD}'"
    with pytest.raises(UsageError, match=f"the id {shown} is not in the shard 10, but in {right[0]}"):
        check_keys(np.array([10]), keys, (Spread(10, 64),), kind)


@BOTH
def test_keys_are_spread_evenly(kind: KeyKind) -> None:
    """Of all lengths, and in whatever company they come."""
    written = [str(UUID(int=n << 96)) if kind is UUID_KIND else "k" * (n % 70) + str(n) for n in range(4000)]
    found: dict[str, int] = {}
    for _, keys in kind.read(pa.array(written)):
        shards = np.arange(len(keys)) % 3
        buckets = bucket_of(shards, keys, 50).tolist()
        assert bucket_of(shards[7:8], keys[7:8], 50).tolist() == buckets[7:8]
        found |= dict(zip(names(kind, keys), buckets, strict=True))
    counts = np.bincount(list(found.values()), minlength=50)
    assert len(found) == 4000
    assert counts.min() > 40
    assert counts.max() < 130


# --- packed and unpacked ----------------------------------------------------------------------------


HOSTS = shard_map({(0, 99): "host=b", (100, 199): "host=a"})


def plan_of(kind: KeyKind, **options: Any) -> Plan:
    return Plan(HOSTS, "job", ("t",), "T", **{"buckets": 4, "pod_size": 250, "kind": kind, **options})


def unpacked(plan: Plan, *pieces: tuple[list[int] | None, list[Any]]) -> dict[int, list[Pair]]:
    """The keys of each unit, sorted, after they were packed and unpacked. Rows come in two slices."""
    batches = []
    for shards, keys in pieces:
        columns = {"id": column(plan.kind, keys)}
        batches.append(
            pa.record_batch(columns | ({} if shards is None else {"shard": pa.array(shards, pa.int32())}))
        )
    found: dict[int, list[Pair]] = {}
    for batch in pack_keys(plan)(iter(batches)):
        for part in (batch.slice(0, len(batch) // 2), batch.slice(len(batch) // 2)):
            for unit, places, ids in unpack(part, plan.kind):
                assert set(units_of(plan, places, ids).tolist()) == {unit}
                found.setdefault(unit, []).extend(zip(places.tolist(), names(plan.kind, ids), strict=True))
    return {unit: sorted(pairs) for unit, pairs in found.items()}


@EACH
@UNTIMED
@given(data=st.data(), block=st.integers(1, 10))
def test_every_key_is_in_its_unit(kind: KeyKind, data: st.DataObject, block: int) -> None:
    pieces = []
    for keys in data.draw(st.lists(columns(kind), max_size=3)):
        places = st.integers(0, 199) if data.draw(st.booleans()) else st.just(7)
        pieces.append((data.draw(st.lists(places, min_size=len(keys), max_size=len(keys))), keys))
    with mock.patch.object(TOUCH, "BLOCK", block):
        found = unpacked(plan_of(kind), *pieces)
        rest = unpacked(plan_of(kind, skipped=frozenset({1, 6})), *pieces)
    expected = [pair for shards, keys in pieces for pair in zip(shards, keys, strict=True)]
    assert sorted(pair for pairs in found.values() for pair in pairs) == sorted(expected)
    assert all(unit // 4 == (shard >= 100) for unit, pairs in found.items() for shard, _ in pairs)
    assert rest == {unit: pairs for unit, pairs in found.items() if unit not in (1, 6)}


@EACH
def test_shards_that_are_derived_or_the_same(kind: KeyKind) -> None:
    keys: list[Any] = (
        [*range(-150, 150)] if kind is BIGINT else [str(UUID(int=n * 7**40)) for n in range(300)]
    )
    for spread in (Spread(10, 16), Spread(7, 1)):
        found = unpacked(plan_of(kind, shards=spread), (None, keys))
        expected = [(shard_of(key, spread.shard, spread.shards), key) for key in keys]
        assert sorted(pair for pairs in found.values() for pair in pairs) == sorted(expected)


def test_a_shard_that_nobody_has() -> None:
    with pytest.raises(UsageError, match="no database has the shard 200"):
        unpacked(plan_of(BIGINT), ([5, 200], [1, 1]))
    with pytest.raises(UsageError, match="there is no shard -1"):
        unpacked(plan_of(BIGINT), ([-1], [1]))


@pytest.mark.parametrize("buckets", [64, 1000])
@pytest.mark.parametrize("step", [1, 2, 1000, 2**32, 2**40])
def test_numbers_are_spread_evenly(buckets: int, step: int) -> None:
    """Whatever their steps are, and if the shards follow from them."""
    ids = np.arange(40 * buckets) * step - 5
    for shards in (np.zeros_like(ids), ids % 16):
        counts = np.bincount(bucket_of(shards, ids, buckets), minlength=buckets)
        assert len(counts) == buckets
        assert counts.min() > 8
        assert counts.max() < 100


def test_a_row_is_bounded() -> None:
    few: list[tuple[KeyKind, list[Any]]] = [(BIGINT, list(range(10 * PIECE)))]
    for length, count in {10: 5000, 1000: 500, arrays.MOST: 3}.items():
        few.append((TEXT_KIND, [f"{number:x<{length}}" for number in range(count)]))
    for kind, keys in few:
        plan = plan_of(kind, buckets=1, shards=Spread(5, 1))
        batch = pa.record_batch({"id": column(kind, keys)})
        (packed,) = pack_keys(plan)(iter([batch]))
        rows: list[Any] = packed.column(3).to_pylist()
        assert max(map(len, rows)) <= max(1 << 14, len(str(keys[0])))
        assert sum(len(ids) for _, _, ids in unpack(packed, kind)) == len(keys)


# --- cut ------------------------------------------------------------------------------------------


def listed(kind: KeyKind, pods: list[Pods]) -> list[Pair]:
    return [
        (int(shard), name)
        for pod in pods
        for shard, row in zip(pod.shards, pod.ids, strict=True)
        for name in names(kind, row)
    ]


@BOTH
@UNTIMED
@given(data=st.data(), size=st.integers(1, 7))
def test_each_key_is_in_one_pod(kind: KeyKind, data: st.DataObject, size: int) -> None:
    pieces = []
    expected: set[Pair] = set()
    for keys in data.draw(st.lists(columns(kind), max_size=3)):
        shards = np.array([len(key) % 3 for key in keys], np.int64)
        expected |= set(zip(shards.tolist(), keys, strict=True))
        pieces += [(shards[rows], some) for rows, some in kind.read(pa.array(keys, pa.string()))]
    pods = [pod for block in blocks(pieces, 10**6, 10**8) for pod in cut(*block, size)]
    assert sorted(listed(kind, pods)) == sorted(expected)
    assert all(pod.ids.shape[1] <= size for pod in pods)


def test_pods_of_long_texts_are_smaller() -> None:
    sizes = {}
    for length in (10, 1000, arrays.MOST):
        for _, keys in TEXT_KIND.read(pa.array([f"{number:x<{length}}" for number in range(300)])):
            pods = cut(np.zeros(300, np.int64), keys, 250)
            sizes[keys.itemsize] = max(pod.ids.shape[1] for pod in pods)
    assert sizes == {32: 250, 1024: 64, arrays.MOST: 1}


# --- encoded --------------------------------------------------------------------------------------


def one_by_one(pods: Pods, values: list[list[bytes]], oid: int, payload: bytes | None) -> bytes:
    """The rows of COPY as its documentation has them."""
    rows = []
    for shard, ids in zip(pods.shards.tolist(), values, strict=True):
        array = struct.pack(">iiiii", 1, 0, oid, len(ids), 1)
        array += b"".join(struct.pack(">i", len(key)) + key for key in ids)
        row = struct.pack(">h", 4) + struct.pack(">i", 1) + b"U" + struct.pack(">ii", 4, shard)
        row += struct.pack(">i", len(array)) + array
        row += struct.pack(">i", -1) if payload is None else struct.pack(">i", len(payload)) + payload
        rows.append(row)
    return b"".join(rows)


@BOTH
@UNTIMED
@given(data=st.data(), payload=st.none() | st.just({"a": 1}))
def test_rows_of_copy(kind: KeyKind, data: st.DataObject, payload: dict[str, int] | None) -> None:
    read = kind.read(pa.array(data.draw(columns(kind)), pa.string()))
    for block in (pod for _, keys in read for pod in cut(np.arange(len(keys)) % 2, keys, 3)):
        values = [[key.encode() for key in names(kind, row)] for row in block.ids]
        if kind is UUID_KIND:
            values = [[UUID(key.decode()).bytes for key in row] for row in values]
        text = None if payload is None else b"\x01" + json.dumps(payload).encode()
        expected = one_by_one(block, values, kind.oid, text)
        assert make.encode(block, "U", payload, kind=kind) == expected
