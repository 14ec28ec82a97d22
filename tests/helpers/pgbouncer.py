"""A real PgBouncer before a server, in a mode of the test's choice."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pytube.embedded.postgres import RUN_AS, SUPERUSER
from pytube.embedded.process import HOST, Port, ServerProcess, is_root

BUILT = Path("/usr/local/lib/pytube-tests")
"""Where `.ci/system` puts a newer one than the system's."""
READY_LIMIT = 30.0


def programs() -> dict[str, Path]:
    """The PgBouncers of this machine: the system's, and those that were built for the tests."""
    system = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    found = {"system": Path(system)} if system else {}
    return {**found, **{path.parent.name: path for path in sorted(BUILT.glob("pgbouncer-*/pgbouncer"))}}


@contextmanager
def pgbouncer(program: Path, dsn: str, mode: str, **settings: str | int) -> Iterator[str]:
    """The DSN of a pool before the database of `dsn`.

    Args:
        program: one of `programs()`.
        dsn: leads to a server that asks for no password.
        mode: session, transaction or statement.
        settings: more settings of PgBouncer, e.g. default_pool_size=1.
    """
    server = conninfo_to_dict(dsn)
    lines = {
        "listen_addr": HOST,
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": mode,
        **settings,
    }
    with Port() as port, TemporaryDirectory(prefix="pytube-pgbouncer-", dir="/tmp") as name:
        folder = Path(name)
        config = folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n{server['dbname']} = host={HOST} port={server['port']} user={SUPERUSER}\n"
            f"[pgbouncer]\nlisten_port = {port.number}\n"
            + "".join(f"{key} = {value}\n" for key, value in lines.items())
        )
        user = RUN_AS if is_root() else None  # it refuses to run as root, like Postgres
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        command = [str(program), str(config)]
        process = ServerProcess(
            "PgBouncer", command, log=folder / "log", guard_signal=signal.SIGINT, user=user
        )
        try:
            process.wait_ready(lambda: _listens(port.number), timeout=READY_LIMIT)
            yield make_conninfo(dsn, host=HOST, port=port.number)
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((HOST, port)) == 0
