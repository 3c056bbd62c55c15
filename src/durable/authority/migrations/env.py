"""Alembic's entry point: runs on the connection that `upgrade` opened and locked."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
