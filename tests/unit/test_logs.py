"""What is logged, and how the command line shows it."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from pytube import logs
from pytube.errors import SinkError, SinkTimeout, SinkUnavailable
from pytube.logs import Logger, UserFaults
from tests.helpers.logs import capture_logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the command line would log; the logging of the tests is put back."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:], level = before
    root.setLevel(level)
    for name in ("psycopg", "py4j"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_other_libraries_tell_of_trouble_only(stream: io.StringIO) -> None:
    logs.configure("info", "human", stream)
    logging.getLogger("py4j.clientserver").info("Closing down clientserver connection")
    logging.getLogger("alembic.runtime.migration").info("Context impl PostgresqlImpl.")
    logging.getLogger("psycopg.pool").warning("error connecting")
    assert stream.getvalue() == ""


def test_people_get_a_line_with_the_place_first(stream: io.StringIO) -> None:
    logs.configure("info", "human", stream)
    log = Logger("pytube.x", shard=7)
    log.info(
        "it_happened", reason='no "answer"', partition=0, tube="es-live", id=UUID(int=1), note="a\x1b[2J"
    )
    line = stream.getvalue()
    assert line.split(maxsplit=1)[1] == (
        'info    it_happened tube=es-live partition=0 shard=7 reason="no \\"answer\\"" '
        'id=00000000-0000-0000-0000-000000000001 note="a\\u001b[2J"\n'
    )


@pytest.mark.parametrize("log_format", ["human", "json"])
def test_a_stack_trace_is_shown_and_bounded(stream: io.StringIO, log_format: logs.Format) -> None:
    logs.configure("info", log_format, stream)
    try:
        raise ValueError("x" * 50_000)
    except ValueError as error:
        Logger("pytube.x").error("it_failed", exc_info=error)
    text = stream.getvalue() if log_format == "human" else json.loads(stream.getvalue())["exception"]
    assert "test_a_stack_trace_is_shown_and_bounded" in text
    assert "characters left out" in text
    assert len(text) < 9_000


def test_no_exception_controls_the_terminal(stream: io.StringIO) -> None:
    logs.configure("info", "human", stream)
    Logger("pytube.x").error("it_failed", exc_info=ValueError("a\x1b[2J\rb"))
    logging.getLogger("of.others").warning("a\x1b[2Jb")
    lines = stream.getvalue().splitlines()
    assert lines[1] == "ValueError: a\\x1b[2J\\rb"
    assert lines[2].endswith("warning a\\x1b[2Jb")


def faults(*raised: Exception, method: str = "log") -> list[tuple[str, str]]:
    """The calls and reasons that are logged, when user code raises these one after the other."""
    with capture_logs() as told:
        of_users = UserFaults(Logger("pytube.x"))
        for error in raised:
            try:
                raise error
            except Exception as caught:  # noqa: BLE001
                getattr(of_users, method)("send", caught)
    return [(line["event"], line["reason"]) for line in told]


def test_a_fault_of_user_code_is_logged_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    told = ("user_code_raised", "ValueError: a")
    assert faults(ValueError("a"), ValueError("b")) == [told], "they come from one line of code"
    assert faults(ValueError("a"), KeyError("b")) == [told, ("user_code_raised", "KeyError: 'b'")]
    monkeypatch.setattr(logs, "_QUIET", 0.0)
    assert len(faults(ValueError("a"), ValueError("a"))) == 2


def test_an_error_of_ours_is_no_fault_of_user_code_unless_it_has_one_as_its_cause() -> None:
    assert faults(SinkError("refused"), method="log_sink") == []
    try:
        raise ConnectionError("refused")
    except ConnectionError as error:
        cause = error
    failed = SinkError("failed")
    failed.__cause__ = cause
    assert faults(failed, method="log_sink") == [("user_code_raised", "ConnectionError: refused")]
    failed.__cause__ = ConnectionError("never raised")
    assert faults(failed, method="log_sink") == []
    for outage in (SinkUnavailable("down"), SinkTimeout("slow")):
        outage.__cause__ = cause
        assert faults(outage, method="log_sink") == [], "raised on purpose, and told as an outage"


def test_what_runs_user_code_or_is_called_by_our_own_sinks_is_no_user_code() -> None:
    """Their optional packages, as they are imported; what those import comes from there alone."""
    sinks = Path(logs.__file__).parent / "sinks"
    imports = re.compile(r"^\s*(?:from|import) ([a-z_]\w*)", re.MULTILINE)
    named = {name for path in sinks.rglob("*.py") for name in imports.findall(path.read_text())}
    assert named - {"__future__"} <= logs._NOT_USERS
