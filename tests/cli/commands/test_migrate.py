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


@pytest.mark.parametrize(
    ("revision", "sentence"),
    [
        ("0000", "needs 0001: run `durable migrate` first."),
        ("0002", "newer than this release of durable knows (0001): upgrade durable here."),
    ],
)
def test_every_command_says_which_side_must_move(
    terminal: Terminal, database_url: str, revision: str, sentence: str
) -> None:
    with psycopg.connect(database_url) as owner:
        owner.execute("UPDATE alembic_version SET version_num = %s", [revision])
    for command in (
        "audit log", "audit verify", "doctor", "explain shop/seen", "fleet show", "get nodes",
        "get regions", "get tenants", "queue", "worker --global", "worker --region north",
        "agent --simulated --region all", "agent --simulated --region north",
        "agent --region north --node n1 --zone a --cpu 1 --memory 1Gi",
        *(["migrate"] if revision == "0002" else []),
    ):  # fmt: skip
        assert sentence in terminal.refused(*command.split()), command
