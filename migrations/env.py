"""Alembic's environment. `pytube.db.migrate` gives it a connection and a schema."""

from alembic import context

from pytube.db.version import VERSION_TABLE

settings = context.config.attributes
if "connection" not in settings:
    raise SystemExit("run migrations with `pytube upgrade`")

context.configure(
    connection=settings["connection"],
    version_table=VERSION_TABLE,
    version_table_schema=settings["schema"],
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
