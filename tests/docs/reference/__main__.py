"""`python -m tests.docs.reference`: write the generated pages, on a server of its own."""

from __future__ import annotations

import psycopg

from tests.docs.reference import write
from tests.helpers.database import TestServer


def main() -> None:
    """Write them."""
    server = TestServer(18)
    try:
        with server.database(installed=True) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
            write(connection)
    finally:
        server.close()


if __name__ == "__main__":
    main()
