"""${message}"""

from pytube.db.migrate import run_migration

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    run_migration(f"{revision}_${message}")
