"""What of `pytube web` needs no server: comparing documents, history, graphs, and where it listens."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytube.web.html import clock_time, document, graph, tag
from pytube.web.parked import Mark, chosen, compared
from pytube.web.site import History, Series
from tests.helpers.cli import run
from tests.unit.test_cli import DOWN

ONE = Series(None, "t", 0, "lag")


def marks(source: object, sink: object) -> dict[str, Mark]:
    lines = compared(source, sink, has_source=True, has_sink=True)
    return {line.path: line.mark for line in lines}


def test_values_are_compared_as_verify_does() -> None:
    assert marks({"a": 1, "b": True, "c": {"d": [1, 2]}}, {"a": 1.0, "b": 1, "c": {"d": [1]}, "e": {}}) == {
        "a": Mark.SAME,
        "b": Mark.DIFFERENT,
        "c.d[0]": Mark.SAME,
        "c.d[1]": Mark.SOURCE_ONLY,
        "e": Mark.SINK_ONLY,
    }
    assert marks({"a": {}}, {"a": []}) == {"a": Mark.DIFFERENT}
    assert marks([], []) == {"(the whole)": Mark.SAME}
    (line,) = compared(None, {"a": 1}, has_source=None, has_sink=True)
    assert line.mark is Mark.UNKNOWN


def test_of_a_large_document_what_differs_is_kept() -> None:
    lines = compared(
        {str(n): n for n in range(9)}, {str(n): n % 8 for n in range(9)}, has_source=True, has_sink=True
    )
    kept, left, differing = chosen(lines, 2)
    assert ([line.path for line in kept], left, differing) == (["0", "8"], 7, 0)


def test_history_is_a_ring_and_forgets_what_is_gone() -> None:
    history = History(3)
    for moment in range(5):
        gone = {ONE._replace(name="gone"): 9.0} if moment == 0 else {}
        history.add(moment, {ONE: moment, ONE._replace(figure="retries"): 1} | gone)
    times, lag = history.values("lag", lambda _: True, max)
    assert (times, lag) == ([2, 3, 4], [2, 3, 4])
    history.add(5, {Series("h", "t", 1, "lag"): 7})
    assert history.values("lag", lambda _: True, max)[1] == [3, 4, 7]
    unknown = history.values("lag", lambda one: one.host == "h", max)[1]
    assert [math.isnan(value) for value in unknown] == [True, True, False]


def test_a_graph_has_gaps_and_words() -> None:
    values = [1.0, 2.0, math.nan, 4.0, 5.0]
    figure = graph("Lag", [0, 1, 2, 3, 4], values, str, 3)
    assert figure.count("M") - figure.count("Made") == 2
    assert f'aria-label="Lag: now 5.0, at most 5.0, since {clock_time(0)}"' in figure
    assert "no sample yet" in graph("Lag", [0], [math.nan], str, 3)


def test_whatever_is_no_html_is_escaped() -> None:
    text = document("<t>", [], [tag("p", '"<b>" & \u202e', title="'\"><i>")])
    assert "<title>&lt;t&gt;</title>" in text
    assert '<p title="&#x27;&quot;&gt;&lt;i&gt;">&quot;&lt;b&gt;&quot; &amp; \\u202e</p>' in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--listen", "nowhere"], "address:port"),
        (["--listen", "example.com:1"], "not an IP address"),
        (["--listen", "0.0.0.0:0"], "give --allow-remote and a token"),
        (["--listen", "0.0.0.0:0", "--allow-remote"], "give --allow-remote and a token"),
        (["--listen", "[::]:0", "--token-file", "token"], "give --allow-remote and a token"),
        (["--listen", "0.0.0.0:0", "--allow-remote", "--token-file", "token"], "say by --name"),
        (["--token-file", "none"], "can't be read"),
        (["--token-file", "short"], "at least 16 ASCII characters"),
    ],
)
def test_where_it_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("0123456789abcdef\n")
    Path("short").write_text("hunter2")
    out = run("web", *options, dsn=DOWN, code=2).output
    assert says in out
    assert "hunter2" not in out


def test_two_tokens_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTUBE_WEB_TOKEN", "0123456789abcdef")
    assert "not by both" in run("web", "--token-file", str(tmp_path / "x"), dsn=DOWN, code=2).output
