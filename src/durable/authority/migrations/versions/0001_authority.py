"""The authority: its tables, and the guards that keep them true."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    # The driver's own connection: SQLAlchemy would send one statement at a time.
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    for part in ("tables", "guards"):
        driver.execute(Path(__file__).with_name(f"0001_{part}.sql").read_text())
