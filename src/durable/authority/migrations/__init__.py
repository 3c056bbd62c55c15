"""Brings a database to this release's schema, and its roles to their exact grants."""

from collections.abc import Iterable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from durable.authority.db.connection import CONNECT_TIMEOUT_SECONDS, KEEPALIVE, driver_url
from durable.authority.db.errors import explained
from durable.authority.db.roles import grant_statements

LOCK_KEY = 0x6475_7261  # "dura"; two upgrades of one database take turns
LOCK_TIMEOUT_SECONDS = 60  # how long one waits for the other


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    return config


def head_revision() -> str:
    """The revision that this release's code expects."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None, "the package carries its migrations"
    return head


_SERVES = text("""
    INSERT INTO regional.deployment (serves_global) VALUES (:serves_global)
        ON CONFLICT (singleton) DO UPDATE SET serves_global = true
     WHERE excluded.serves_global AND NOT deployment.serves_global
""")


def upgrade(url: str, *, serves_global: bool = True) -> None:
    """Migrates to the newest revision and re-applies every role's grants, in one transaction.

    A database that serves regions alone is marked so, because there nothing can be checked against
    the global side. One that serves the global side stays marked, whichever URL it is reached by.
    """
    with explained("migrate the database"):
        limits = f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s"
        engine = create_engine(
            driver_url(url),
            connect_args={
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "options": limits,
                **KEEPALIVE,
            },
        )
        try:
            with engine.begin() as connection:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
                config = _config()
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.execute(_SERVES, {"serves_global": serves_global})
                for statement in grant_statements():
                    connection.execute(text(statement))
        finally:
            engine.dispose()


def upgrade_all(home: str, regional: Iterable[str]) -> int:
    """Migrates the global side's database and every other; answers how many there are."""
    upgrade(home)
    others = set(regional) - {home}
    for url in sorted(others):
        upgrade(url, serves_global=False)
    return 1 + len(others)
