"""Outboxes."""

from pytube.db.migrate import run_migration

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0003_outbox")
