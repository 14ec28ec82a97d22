"""The hooks for traces of batches in the worker. The methods here do nothing; `otel` implements them.

A batch is one delivery of keys. Its span has the children `mark`, `enrich`, `transform`, `send` and `purge`.
A worker that does not trace calls these empty methods a few times a batch, and imports no OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Self

from pytube.errors import ConfigError, how_to_install
from pytube.model import Documents, Id, Pod
from pytube.pipeline.inflight import Flight, InFlight
from pytube.sources.terms import Term

Step = Literal["enrich", "transform", "send"]


class BatchTrace:
    """The trace of one batch. Within it (`with trace:`), an error that is raised ends the span."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, stack: object) -> None:
        """Nothing to end."""

    def step(
        self,
        name: Step,  # noqa: ARG002
        documents: Documents | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """A child span around a piece of work; `documents` are the ones to send."""
        return nullcontext()

    def delivered(self, counts: Mapping[str, int], machine: InFlight) -> None:
        """The outcome was handled: `counts` has the numbers of its keys by result, the worst first.

        The span ends now if no pod is done with this batch, else when a pod of it is purged.
        """


UNTRACED = BatchTrace()


class PartitionTraces:
    """The traces of one term."""

    def exchange(
        self,
        exchange: Coroutine[Any, Any, list[Pod]],
        done: Iterable[int],  # noqa: ARG002
    ) -> Coroutine[Any, Any, list[Pod]]:
        """An exchange that purges the pods `done` and returns the pods that it marks."""
        return exchange

    def batch(
        self,
        flight: Flight,  # noqa: ARG002
        groups: Mapping[int, Sequence[Id]],  # noqa: ARG002
    ) -> BatchTrace:
        """Begin the trace of a batch of these keys of the flight."""
        return UNTRACED

    def close(self) -> None:
        """The term is over: end the spans that are open."""


_UNTRACED = PartitionTraces()


class Tracing:
    """The traces of a process."""

    def partition(self, term: Term) -> PartitionTraces:  # noqa: ARG002
        """The traces of one term."""
        return _UNTRACED

    async def close(self) -> None:
        """Send the remaining spans."""


def build_tracing(setting: bool | str, client_id: str) -> Tracing:
    """The traces of a process as `worker.tracing` asks for.

    Raises:
        ConfigError: a package is missing, or a variable of OpenTelemetry asks for what there is not.
    """
    if setting is False:
        return Tracing()
    try:
        from pytube.worker.otel import OpenTelemetry
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"key worker.tracing needs the package {error.name}: {how_to_install('tracing')}"
        ) from error
    return OpenTelemetry.build(setting, client_id)
