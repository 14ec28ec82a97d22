"""Errors of this package; the others are those of `pytube.errors`."""

from __future__ import annotations

from collections.abc import Mapping

from pytube.errors import PytubeError


class PartFailed(PytubeError):
    """Some of the databases did not get their part. What the others got stays, and is not written again.

    `hosts` gives the reason for each that failed, by its name.
    """

    exit_code = 3

    def __init__(self, job_id: str, hosts: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{name}: {reason.removeprefix(name + ': ')}" for name, reason in hosts.items())
        super().__init__(
            f"not all of job {job_id!r} is written: {reasons}. Run it again with the same job_id, "
            "and only what lacks is written"
        )
        self.job_id = job_id
        self.hosts = dict(hosts)
