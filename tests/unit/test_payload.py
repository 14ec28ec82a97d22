"""Payloads of control pods: whatever is in them, reading does not fail, and what was read can be written."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytube.db.session import read_json
from pytube.model import Pod
from pytube.sources.pods import asks_for_sweep, is_end, start_seq_of, type_of

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=10,
)


@given(values)
def test_json_is_read(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    ["[" * depth + "]" * depth for depth in (101, 900, 990, 1000, 100_000)]
    + ['{"a":' * 990 + "1" + "}" * 990, "1" * 5000, "1e400", "-1e400", '{"start_seq": 1e999}'],
)
def test_what_python_has_no_value_for_stays_a_text(text: str) -> None:
    assert read_json(text) == text
    assert read_json(text.encode()) == text


@given(values | st.fixed_dictionaries({"type": values, "start_seq": values, "backfill": values}))
def test_any_payload_can_be_asked(payload: object) -> None:
    pod = Pod(1, "B", 0, [], cast("Any", payload))
    start = start_seq_of(pod)
    assert start is None or 0 <= start < 2**63
    assert start is not None or not is_end(pod)
    type_of(pod)
    asks_for_sweep(pod)


@pytest.mark.parametrize("start", [0, 5, 2**63 - 1, "0", "5", "0005", "9223372036854775807"])
def test_start_seqs(start: object) -> None:
    assert start_seq_of(Pod(1, "B", 0, [], {"start_seq": start})) == int(str(start))
