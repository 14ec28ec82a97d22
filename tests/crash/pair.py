"""A primary and its standby, and what happens to the two."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.embedded.postgres import Postgres, Version
from tests.helpers.database import TestServer
from tests.helpers.standby import Standby


class Pair:
    """Two servers. The DSN names both, and asks for the one that takes writes."""

    def __init__(self, version: Version = 18) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pytube-standby-", dir="/tmp")
        Path(self._folder.name).chmod(0o755)
        self._server = TestServer(version, {"max_prepared_transactions": "0"})
        self.primary: Postgres = self._server.postgres
        self.standby = Standby(self._folder.name, self.primary, version)
        self._database = self._server.database(installed=True)
        self._one = ""

    def __enter__(self) -> Self:
        self._one = self._database.__enter__()
        self.standby.start()
        self.standby.wait_until_streaming()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.standby.close()
        self._server.close()
        self._folder.cleanup()

    @property
    def dsn(self) -> str:
        """What a user writes to survive a failover."""
        return self._dsn(f"{self.primary.port},{self.standby.port}", "127.0.0.1,127.0.0.1")

    @property
    def dsn_of_standby(self) -> str:
        """What a worker on the other side of a split reaches."""
        return self._dsn(str(self.standby.port), "127.0.0.1")

    @property
    def dsn_of_primary(self) -> str:
        """The old primary, whatever became of it."""
        return self._dsn(str(self.primary.port), "127.0.0.1")

    def _dsn(self, ports: str, hosts: str) -> str:
        parts = {**conninfo_to_dict(self._one), "host": hosts, "port": ports}
        return make_conninfo("", **parts, target_session_attrs="read-write")
