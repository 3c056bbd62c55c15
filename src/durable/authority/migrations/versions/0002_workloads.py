"""Workloads with their shares, requests with what they run, and indexes for those who follow."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # The driver's own connection: SQLAlchemy would send one statement at a time.
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    driver.execute(Path(__file__).with_suffix(".sql").read_text())
