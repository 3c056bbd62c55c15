"""Brings a database to this release's schema, and its roles to their exact grants."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

from durable.authority.connection import CONNECT_TIMEOUT_SECONDS, driver_url
from durable.authority.errors import explained
from durable.authority.roles import grant_statements

LOCK_KEY = 0x6475_7261  # "dura": two upgrades of one database take turns


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
        ON CONFLICT (singleton) DO UPDATE SET serves_global = excluded.serves_global
""")


def upgrade(url: str, *, serves_global: bool = True) -> None:
    """Migrates to the newest revision and re-applies every role's grants, in one transaction.

    A database that serves regions alone is told so: there, nothing can be checked against the
    global side's books.
    """
    with explained("migrate the database"):
        engine = create_engine(
            driver_url(url), connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS}
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
