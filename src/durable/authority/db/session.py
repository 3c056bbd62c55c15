"""A dedicated connection, for what lasts as long as a connection: LISTEN and advisory locks."""

import psycopg

from durable.authority.db.connection import CONNECT_TIMEOUT_SECONDS, KEEPALIVE, driver_url


async def open_session(url: str, name: str) -> psycopg.AsyncConnection:
    """Connects under a name that others see, and detects a silent server within seconds."""
    return await psycopg.AsyncConnection.connect(
        driver_url(url).set(drivername="postgresql").render_as_string(hide_password=False),
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        application_name=name,
        keepalives_idle=KEEPALIVE["keepalives_idle"],
        keepalives_interval=KEEPALIVE["keepalives_interval"],
        keepalives_count=KEEPALIVE["keepalives_count"],
        tcp_user_timeout=KEEPALIVE["tcp_user_timeout"],
    )
