"""The checker of journals finds each kind of trouble, and none where there is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytube.model import Batch, Document, Token
from pytube.sinks.jsonl import encode
from tests.crash.journal import Findings, check
from tests.crash.journal_sink import accepted, rejected
from tests.helpers.terms import Claim, Conn, Term, acquire, make_tube, park, park_item

TUBE = "docs"
KEY = 7


@dataclass
class Journals:
    """A tube with one row `n` = 1, and what workers are said to have written."""

    conn: Conn
    folder: Path
    dsn: str
    first: Term
    second: Term

    def write(self, term: Term | int, n: int | None, counter: int = 1) -> None:
        """A document of the key arrives."""
        token = Token(term if isinstance(term, int) else term.epoch, counter)
        body = None if n is None else json.dumps({"id": KEY, "n": n}).encode()
        pieces = encode(Batch(TUBE, 0, token, [Document(0, KEY, body, token, 1)]), "tester")
        with accepted(TUBE, self.folder).open("ab") as file:
            file.write(b"1.0".join(pieces))

    def reject(self, term: Term, counter: int) -> None:
        """A document of the key is refused."""
        with rejected(TUBE, self.folder).open("a") as file:
            file.write(json.dumps([0, KEY, int(Token(term.epoch, counter))]) + "\n")

    def park(self) -> None:
        park(self.conn, self.second, park_item(KEY))

    def found(self, *leader_ids: str) -> Findings:
        return check(self.dsn, TUBE, self.folder, leader_ids)


@pytest.fixture
def journals(conn: Conn, dsn: str, tmp_path: Path) -> Journals:
    make_tube(conn, TUBE)
    conn.execute("CREATE TABLE public.docs (id bigint PRIMARY KEY, n bigint)")
    conn.execute("INSERT INTO public.docs VALUES (%s, 1)", (KEY,))
    first, second = acquire(conn, Claim(TUBE)), acquire(conn, Claim(TUBE))
    return Journals(conn, tmp_path, dsn, first, second)


def troubles(findings: Findings) -> dict[str, Any]:
    """What was found, by kind."""
    return {kind: found for kind, found in vars(findings).items() if found and kind != "lines"}


def test_nothing_is_wrong(journals: Journals) -> None:
    journals.write(journals.first, 0)
    journals.write(journals.second, 1)
    findings = journals.found(str(journals.first.leader_id), str(journals.second.leader_id))
    assert findings.is_good, findings
    assert findings.lines == 2


def test_a_write_that_is_lost(journals: Journals) -> None:
    journals.write(journals.first, 0)
    assert troubles(journals.found()).keys() == {"wrong"}


def test_a_delete_that_is_lost(journals: Journals) -> None:
    journals.write(journals.first, 1)
    journals.conn.execute("DELETE FROM public.docs")
    assert troubles(journals.found()).keys() == {"wrong"}
    journals.write(journals.second, None)
    assert journals.found().is_good


def test_an_old_state_under_a_newer_token(journals: Journals) -> None:
    journals.write(journals.first, 0, counter=2)
    journals.write(journals.first, 1, counter=1)
    assert troubles(journals.found()).keys() == {"wrong"}


def test_an_old_term_after_a_new_one(journals: Journals) -> None:
    journals.write(journals.second, 1)
    journals.write(journals.first, 1)
    assert troubles(journals.found()).keys() == {"late"}


def test_a_term_that_the_database_does_not_know(journals: Journals) -> None:
    journals.write(7, 1)
    assert troubles(journals.found()).keys() == {"unknown_terms"}


def test_a_leader_that_the_database_does_not_know(journals: Journals) -> None:
    journals.write(journals.first, 1)
    assert troubles(journals.found("nobody")).keys() == {"unknown_terms"}


def test_a_rejected_key_is_parked(journals: Journals) -> None:
    journals.write(journals.first, 0)
    journals.reject(journals.second, 1)
    assert troubles(journals.found()).keys() == {"parked"}
    journals.park()
    assert journals.found().is_good


def test_a_key_that_is_parked_for_no_reason(journals: Journals) -> None:
    journals.reject(journals.first, 1)
    journals.write(journals.second, 1)
    assert journals.found().is_good
    journals.park()
    assert troubles(journals.found()).keys() == {"parked"}


def test_a_pod_that_is_left(journals: Journals) -> None:
    journals.write(journals.first, 1)
    journals.conn.execute("INSERT INTO tube.docs (op, shard, ids) VALUES ('U', 0, '{7}')")
    assert troubles(journals.found()).keys() == {"left"}
