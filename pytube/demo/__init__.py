"""The demonstration: real servers, real load, workers that are killed, and the proof.

It needs the packages of the extra `demo`, and for a real Kafka or OpenSearch the extra `embedded`. It imports
them when it runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytube.errors import UsageError, how_to_install

if TYPE_CHECKING:
    from pytube.demo.copies import SinkType
    from pytube.demo.stage import Broker, Election, Stage


def main(
    *,
    kafka: Broker | None,
    election: Election | None,
    sink: SinkType,
    outbox: bool,
    seconds: float,
    directory: Path | None,
) -> int:
    """Run the demonstration as the options of `pytube demo` say, and print what it saw.

    Returns:
        0 when the copy is equal to the source, or all that was committed came to the consumer in order, every
        worker took part and every process ended well; 1 when not; 130 after SIGINT and 143 after SIGTERM.

    Raises:
        UsageError: a package is missing, or the directory can't be used.
        EmbeddedError: there is no such server on this machine.
    """
    try:
        from pytube.demo.copies import check, running
        from pytube.demo.outbox import OutboxStory
        from pytube.demo.stage import on_stage
        from pytube.demo.tube import TubeStory
    except ModuleNotFoundError as error:
        raise UsageError(f"the demo needs the package {error.name}: {how_to_install('demo')}") from error
    election = election or ("neli" if kafka else "lease")
    kafka = kafka or "embedded"
    if outbox and sink != "jsonl":
        raise UsageError("the messages of an outbox go to Kafka: leave --sink out")
    check(sink)
    broker: Broker | None = "real" if sink == "kafka" else kafka if outbox or election == "neli" else None

    def play(stage: Stage) -> int:
        if outbox:
            return OutboxStory(stage, makes_topic=kafka == "real").play(seconds)
        copy = stage.stack.enter_context(running(sink, stage.path, stage.bootstrap))
        return TubeStory(stage, copy).play(seconds)

    return on_stage(directory, broker, election, play)
