"""`durable migrate` against a real database."""

import json

import psycopg
import pytest

from ..terminal import Terminal


def test_a_database_by_another_name_still_serves_the_global_side(
    terminal: Terminal, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = json.dumps({"us-east": database_url.replace("127.0.0.1", "localhost")})
    monkeypatch.setenv("DURABLE_REGIONAL_DATABASE_URLS", alias)
    assert terminal.json("migrate")["databases"] == 2
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT serves_global FROM regional.deployment").fetchone()
    assert row == (True,)


def test_migrating_again_is_harmless(terminal: Terminal) -> None:
    assert terminal.json("migrate") == {"revision": "0001", "databases": 1}
