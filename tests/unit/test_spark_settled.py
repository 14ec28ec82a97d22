"""A session that is lost between the two questions of a settled seq."""

from __future__ import annotations

from typing import Any, cast

import pytest

from pytube.errors import DatabaseUnavailable
from pytube.spark import queues
from pytube.spark.queues import SettledSeq


def test_a_seq_is_never_settled_by_an_earlier_transaction_id(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Any] = {queues._SEQ: 5, queues._XID: "100"}
    asked: list[str] = []

    def value(_: object, statement: str, **given: str) -> Any:
        if statement == queues._DONE:
            asked.append(given["xid"])
            return True
        if answers[statement] is None:
            raise DatabaseUnavailable("the session is lost")
        return answers[statement]

    monkeypatch.setattr(queues, "value", value)
    settled, session = SettledSeq("t"), cast("Any", None)
    assert settled.advance(session) == 5
    answers |= {queues._SEQ: 9, queues._XID: None}
    with pytest.raises(DatabaseUnavailable):
        settled.advance(session)
    answers[queues._XID] = "200"
    assert settled.advance(session) == 9
    assert asked == ["100", "200"]
