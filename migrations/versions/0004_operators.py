"""What operators do, and what workers must remember for them."""

from pytube.db.migrate import run_migration

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0004_operators")
