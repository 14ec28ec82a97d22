"""What an installation looks like, as text: `sql/snapshot.sql` is that of the newest version.

Renew it with `python -m tests.helpers.snapshot` after a change of the SQL, and read the difference.
"""

from __future__ import annotations

import hashlib
import re
import subprocess

from pytube.db.install import install
from pytube.embedded.postgres import Postgres
from tests.helpers.database import ROOT, TestServer

SNAPSHOT = ROOT / "sql" / "snapshot.sql"

_BODY = re.compile(r"AS \$(\w*)\$(.*?)\$\1\$;", re.DOTALL)
_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog\.set_config.*|\\(un)?restrict .*)\n", re.MULTILINE)


def dump(postgres: Postgres, dsn: str, *schemas: str) -> str:
    """The definitions in `schemas`, else in ours, without what differs from server to server.

    A function's body is a digest. `postgres` is a server of version 18: so there is one way to write them.
    """
    patterns = ('"' + schema.replace('"', '""') + '"' for schema in schemas or ("tube",))
    done = subprocess.run(
        [
            *(str(postgres.bin("pg_dump")), "--schema-only", "--no-owner", "-d", dsn),
            *(word for pattern in patterns for word in ("-n", pattern)),
        ],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    text = _BODY.sub(lambda body: f"AS {hashlib.sha256(body[2].encode()).hexdigest()[:16]};", done.stdout)
    return re.sub(r"\n{2,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def main() -> None:
    """Write the snapshot of a fresh installation."""
    server = TestServer(18)
    try:
        with server.database(installed=False) as dsn:
            install(dsn)
            SNAPSHOT.write_text(dump(server.postgres, dsn), encoding="utf-8")
    finally:
        server.close()


if __name__ == "__main__":
    main()
