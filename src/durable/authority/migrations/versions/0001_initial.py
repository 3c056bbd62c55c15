"""The initial schema: the tables, then the guards that keep them true."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

PARTS = (
    "global_tables",
    "regional_tables",
    "override_tables",
    "record_tables",
    "claims",
    "counters",
    "nodes",
    "quota",
    "lifecycles",
    "clocks",
    "records",
    "locks",
    "restores",
)


def upgrade() -> None:
    # The driver's own connection: SQLAlchemy would send one statement at a time.
    driver = op.get_bind().connection.driver_connection
    assert driver is not None
    for part in PARTS:
        driver.execute((Path(__file__).parent / "initial" / f"{part}.sql").read_text())
