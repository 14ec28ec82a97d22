"""What owners have agreed to has a table of its own."""

from pytube.db.migrate import run_migration

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0006_agreed")
