"""A broker that answers, and not for consumer groups: the workers stand by, and say why."""

from __future__ import annotations

from pathlib import Path

from pytube.embedded.kafka_real import RealKafka
from tests.helpers.cli import run, start
from tests.helpers.terms import Conn, scalar
from tests.helpers.waiting import wait_until

_SETTINGS = """
[postgres]
dsn = "{dsn}"
[kafka]
bootstrap_servers = "{kafka}"
[worker]
client_id = "one"
session_timeout = 2.0
receive_deadline = 0.5
drain_limit = 0.5
[tube.live.sink]
request_timeout = 1.0
type = "jsonl"
path = "{folder}/live.jsonl"
"""


class Groupless(RealKafka):
    """A broker that can't make the topic in which it would keep its groups, until `mend`."""

    def _properties(self) -> dict[str, str | int]:
        return super()._properties() | {"offsets.topic.replication.factor": 3}

    def mend(self) -> None:
        """Let it make the topic from its next start on."""
        text = self._settings.read_text()
        self._settings.write_text(
            text.replace("offsets.topic.replication.factor=3", "offsets.topic.replication.factor=1")
        )


def kafka_line(dsn: str) -> str:
    return next((line for line in run("status", dsn=dsn).output.splitlines() if "Kafka at" in line), "")


def test_a_group_that_no_broker_serves_is_told_of_until_one_does(
    tmp_path: Path, dsn: str, conn: Conn
) -> None:
    conn.execute("CREATE TABLE public.goods (id bigint PRIMARY KEY, n int)")
    conn.execute("SELECT tube_ensure_exists('live', 2)")
    conn.execute("SELECT tube_table_ensure_attached('live', 'public.goods', 0)")
    config = tmp_path / "pytube.toml"
    with Groupless(tmp_path / "kafka") as kafka:
        config.write_text(_SETTINGS.format(dsn=dsn, kafka=kafka.bootstrap, folder=tmp_path))
        worker = start("worker", config=config)
        try:
            wait_until(lambda: bool(kafka_line(dsn)), what="status tells of it", timeout=30)
            line = kafka_line(dsn)
            assert line.startswith(f"Kafka at {kafka.bootstrap} can't be used by one since 20"), line
            assert "it answers, but the coordinator of group pytube.default.live does not take this" in line
            assert "no worker can be elected for partitions of: live" in line
            kafka.stop()
            kafka.mend()
            kafka.start()
            led = "SELECT count(*) FROM tube.tube_leaders() WHERE NOT lost"
            wait_until(lambda: scalar(conn, led) == 2, what="it is led")
            wait_until(lambda: kafka_line(dsn) == "", what="the line goes")
        finally:
            worker.terminate()
            _, output = worker.communicate()
    events = [word for word in ("group_silent", "group_answers") if f'"{word}"' in output]
    assert events == ["group_silent", "group_answers"]
