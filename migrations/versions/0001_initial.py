"""The registry, leadership, parking and the sequence that all tubes share."""

from pytube.db.migrate import run_migration

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0001_initial")
