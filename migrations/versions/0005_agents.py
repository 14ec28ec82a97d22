"""An owner's agent is called only as its owner agreed to it."""

from pytube.db.migrate import run_migration

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Run the file of the same name in `sql/migrations`."""
    run_migration("0005_agents")
