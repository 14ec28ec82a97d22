"""What the file of the sink `jsonl` holds, by key: on disk, so that memory does not grow with the keys."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import orjson

from pytube.errors import SinkUnavailable
from pytube.model import Id
from pytube.sinks.jsonl_replay import parse
from pytube.sinks.jsonl_trail import Trail

# An id has no type here: in a column of one, SQLite would make a number of a text that looks like it.
_TABLE = """
    CREATE TABLE held (
        tube TEXT, shard INTEGER, id, token INTEGER, seq INTEGER, live INTEGER,
        PRIMARY KEY (tube, shard, id)
    ) WITHOUT ROWID
"""
_PUT = """
    INSERT INTO held VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (tube, shard, id) DO UPDATE
    SET token = excluded.token, seq = excluded.seq, live = excluded.live
    WHERE excluded.token >= held.token
"""
# Numbers come before texts, and no number before this one.
_PAGE = """
    SELECT id FROM held
    WHERE tube = ? AND shard = ? AND id > ? AND live AND seq < ? ORDER BY id LIMIT ?
"""
_BEFORE_ALL = float("-inf")
_GREATEST = 2**63 - 1
"""Of what SQLite takes for a number."""
_IDS = (int, str)

_Row = tuple[str, int, Id, int, int, bool]

_SETTINGS = ("PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF", "PRAGMA cache_size = -16000")


class JsonlIndex:
    """The highest token of each key, and its stamp, as of the last `catch_up`.

    It lives in a temporary file that goes with the process. All methods block; each may be called
    from any thread.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._turn = threading.Lock()
        self._closing = False
        self._trail = Trail(path)
        self._db: sqlite3.Connection | None = None

    def catch_up(self) -> None:
        """Take in the lines that have come, also those of files that were rotated away since the last time.

        Raises:
            SinkUnavailable: the file can't be read, or the index was closed.
        """
        with self._taking_turns(), closing(self._trail.pieces()) as pieces:
            for lines in pieces:
                self._take(lines)
                if self._closing:
                    break

    def page(self, tube: str, shard: int, below_seq: int, after: Id | None, limit: int) -> list[Id]:
        """Ids after `after` (None: from the first on), ascending, of documents with a lower stamp."""
        with self._taking_turns():
            start = _BEFORE_ALL if after is None else after
            rows = self._open().execute(_PAGE, (tube, shard, start, below_seq, limit))
            return [row[0] for row in rows]

    def close(self) -> None:
        """End what is under way, and let go of the file, or leave that to who is using it; never waits."""
        self._closing = True
        self._drop_when_closed()

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        """One at a time; errors as ours. What SQLite could not do leaves the file in an unknown state."""
        try:
            with self._turn:
                self._refuse_when_closed()
                try:
                    yield
                except sqlite3.Error:
                    self._drop()
                    raise
            self._refuse_when_closed()
        except (OSError, sqlite3.Error) as error:
            raise SinkUnavailable(
                f'sink "jsonl": "{self._path}" could not be looked through: {error}'
            ) from error
        finally:
            self._drop_when_closed()

    def _refuse_when_closed(self) -> None:
        if self._closing:
            raise SinkUnavailable('sink "jsonl" is closed')

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            # A name that is empty means a temporary file.
            self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
            for statement in (*_SETTINGS, _TABLE):
                self._db.execute(statement)
        return self._db

    def _drop_when_closed(self) -> None:
        # Whoever has the turn comes here after giving it back.
        if self._closing and self._turn.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._turn.release()

    def _drop(self) -> None:
        """Let go of the file; all is read anew into the next one."""
        self._trail.forget()
        if self._db is not None:
            db, self._db = self._db, None
            db.close()

    def _take(self, lines: list[bytes]) -> None:
        rows = [row for row in map(_row, lines) if row is not None]
        db = self._open()
        db.execute("BEGIN")
        db.executemany(_PUT, rows)
        db.execute("COMMIT")


def _row(raw: bytes) -> _Row | None:
    """Tube, shard, id, token, seq, and whether it is there; None when the line is not whole, or not ours."""
    if not raw:
        return None
    try:
        line = orjson.loads(raw)
        live = line["op"] != "delete"
        row = line["tube"], line["shard"], line["id"], int(line["token"]), line["seq"], live
    except (ValueError, KeyError, TypeError):
        odd = parse(raw)  # torn, or with what only Python's own parser takes
        if odd is None:
            return None
        row = odd.tube, odd.shard, odd.id, int(odd.token), odd.seq, not odd.is_delete
    return row if _fits(*row) else None


def _fits(tube: Any, shard: Any, key: Any, token: Any, seq: Any, _: bool) -> bool:
    """Whether these are what we write: others may have written to the file, too."""
    try:
        return (
            type(tube) is str
            and type(key) in _IDS
            and 0 <= shard <= _GREATEST
            and 0 <= token <= _GREATEST
            and 0 <= seq <= _GREATEST
            and (-_GREATEST - 1 <= key <= _GREATEST if type(key) is int else key.isascii() or _is_text(key))
            and (tube.isascii() or _is_text(tube))
        )
    except TypeError:  # what is no number
        return False


def _is_text(text: str) -> bool:
    """Whether it can be stored: a half of a character that JSON has as an escape can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
