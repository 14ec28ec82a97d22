"""`/healthz`, `/readyz` and `/metrics` of a worker."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from pytube.errors import ConfigError
from pytube.logs import Logger
from pytube.worker.exporter import View, WorkerCollector
from pytube.worker.http import Answer, HttpResponder


def build_listener(
    address: str,
    view: View,
    *,
    why_broken: Callable[[], str | None],
    why_unready: Callable[[], str | None],
    log: Logger,
) -> HttpResponder:
    """A listener that is not open yet.

    Args:
        address: as in the configuration.
        view: what the metrics are made of.
        why_broken: why `/healthz` fails; None while the worker is well.
        why_unready: why `/readyz` fails; None while the worker serves or stands by.
        log: receives faults.

    Raises:
        ConfigError: the package that writes metrics is not installed.
    """
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
    except ImportError as error:
        raise ConfigError(
            "key worker.listen: the package prometheus_client is missing; install pytube-pg[metrics]"
        ) from error
    # Not the global registry, which belongs to the program that embeds the worker.
    collector = WorkerCollector(view)

    def state(reason: str | None) -> Answer:
        status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
        return Answer.text(status, reason or "ok")

    def metrics() -> Answer:
        return Answer(HTTPStatus.OK, generate_latest(collector), CONTENT_TYPE_LATEST)

    paths = {
        "/healthz": lambda: state(why_broken()),
        "/readyz": lambda: state(why_unready()),
        "/metrics": metrics,
    }
    return HttpResponder(address, paths, log)
