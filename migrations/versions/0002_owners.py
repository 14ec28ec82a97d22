"""What evaluates over an attached table belongs to the table's owner."""

from pytube.db.migrate import run_migration

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0002_owners")
