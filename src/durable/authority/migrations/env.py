"""Alembic's entry point: runs on the connection that `upgrade` opened and locked."""

from alembic import context

from durable.authority.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    include_schemas=True,
)
with context.begin_transaction():
    context.run_migrations()
