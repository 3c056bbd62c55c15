"""`durable operator` and `durable sign` against a real authority."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import is_signed_by
from durable.settings import Settings
from tests.conftest import DEPLOYMENT

from ..builders import SMALL_FLEET
from ..conftest import Write
from ..terminal import Terminal


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DURABLE_KEYS_DIR", str(tmp_path / "keys"))
    return tmp_path / "keys"


def test_operators_are_added_granted_revoked_and_removed(terminal: Terminal, write: Write) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    added = terminal.json(
        "operator", "add", "service:ci", "--service", "--right", "apply", "--tenant", "risk"
    )
    assert added["kind"] == "service"
    assert added["rights"] == [{"verb": "apply", "scope": {"tenant": "risk", "region": None}}]
    granted = terminal.json(
        "operator", "grant", "service:ci", "drain", "cordon", "--region", "us-east"
    )
    assert {right["verb"] for right in granted["rights"]} == {"apply", "drain", "cordon"}
    left = terminal.json("operator", "revoke", "service:ci", "drain", "--region", "us-east")
    assert {right["verb"] for right in left["rights"]} == {"apply", "cordon"}
    assert terminal.run("operator", "show", "service:ci") == 0
    assert "May: apply on tenant risk" in terminal.stdout
    listed = terminal.json("operator", "list")["operators"]
    assert "service:ci" in [one["id"] for one in listed]
    terminal.json("operator", "remove", "service:ci")
    listed = terminal.json("operator", "list")["operators"]
    assert "service:ci" not in [one["id"] for one in listed]
    assert "service:ci" in [
        one["id"] for one in terminal.json("operator", "list", "--all")["operators"]
    ]
    events = terminal.json("audit", "log", "--object", "operator/service:ci")["events"]
    assert [event["action"] for event in events] == [
        "add operator", "grant right", "grant right", "revoke right", "remove operator",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "Not A Name"), "allowed"),
        (("add", "bob", "--right", "fly"), "there is no right"),
        (("grant", "test", "fly"), "there is no right"),
        (("key", "test", "--public", "nonsense"), "--public"),
        (("key", "test", "--public", "x", "--forget"), "--forget"),
    ],
)
def test_wrong_words_are_a_usage_error(
    terminal: Terminal, words: tuple[str, ...], said: str
) -> None:
    assert terminal.run("operator", *words) == 2
    assert said in " ".join(terminal.stderr.split())


def test_a_right_for_what_does_not_exist_is_refused(terminal: Terminal, write: Write) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    assert terminal.run("operator", "grant", "test", "apply", "--tenant", "rsik") == 1
    assert "There is no tenant rsik" in terminal.stderr
    assert terminal.run("operator", "grant", "test", "drain", "--region", "mars") == 1
    assert "There is no region mars" in terminal.stderr


def test_who_is_no_operator_changes_nothing_and_is_in_the_audit(
    terminal: Terminal, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_ACTOR", "person:mallory")
    for command in (
        ("fleet", "load", "-f", write(SMALL_FLEET)),
        ("operator", "add", "person:mallory", "--right", "all"),
    ):
        assert terminal.refusal(*command) == "unknown_operator"
    events = terminal.json("audit", "log")["events"]
    assert [(event["actor"], event["action"]) for event in events] == [
        ("person:mallory", "refuse command")
    ] * 2


def test_migrate_makes_its_caller_the_first_operator(
    terminal: Terminal, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM global.operator_rights")
        connection.execute("DELETE FROM global.operators")
    assert terminal.run("migrate") == 0
    (first,) = terminal.json("operator", "list")["operators"]
    assert (first["id"], first["rights"]) == (
        Settings().acting_as, [{"verb": None, "scope": {"tenant": None, "region": None}}],
    )  # fmt: skip
    monkeypatch.setenv("DURABLE_ACTOR", "person:second")
    assert terminal.run("migrate") == 0
    assert len(terminal.json("operator", "list")["operators"]) == 1


def test_a_key_is_made_registered_and_signs(terminal: Terminal, keys: Path) -> None:
    me = Settings().acting_as
    made = terminal.json("operator", "key")
    assert made["id"] == me
    file = Path(made["file"])
    assert file.parent == keys
    assert file.stat().st_mode & 0o077 == 0
    assert terminal.json("operator", "key")["public_key"] == made["public_key"], "it is kept"

    content = {"reason": "INC-42", "replicas": 3}
    assert terminal.run("sign", "workload/risk/api", "scale", json.dumps(content)) == 0
    payload: dict[str, Any] = json.loads(terminal.stdout)
    assert (payload["actor"], payload["replicas"]) == (me, 3)
    asked = OperatorMessage(workflow_id="workload/risk/api", message="scale", payload=payload)
    assert is_signed_by(made["public_key"], asked, DEPLOYMENT)
    assert not is_signed_by(made["public_key"], asked, "another")

    forgotten = terminal.json("operator", "key", me, "--forget")
    assert forgotten["public_key"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing/x", "scale", "{}"), "is not a workflow that takes messages"),
        (("workload/a/b", "fly", "{}"), "takes no message 'fly'; allowed: apply, scale"),
        (("workload/a/b", "scale", "{"), "it is not JSON"),
        (("workload/a/b", "scale", "[]"), "one JSON object"),
        (("workload/a/b", "scale", '{"reason": "r"}'), "replicas"),
        (("workload/a/b", "scale", '{"reason": "r", "replicas": 1, "x": 2}'), "x"),
    ],
)
def test_what_cannot_be_sent_is_not_signed(
    terminal: Terminal, words: tuple[str, ...], said: str
) -> None:
    assert terminal.run("sign", *words) == 2
    assert said in " ".join(terminal.stderr.replace("│", " ").split())


def test_without_a_key_or_with_one_that_others_read_nothing_is_signed(
    terminal: Terminal, keys: Path
) -> None:
    words = ("sign", "workload/a/b", "scale", '{"reason": "r", "replicas": 1}')
    assert terminal.run(*words) == 1
    assert "durable operator key" in terminal.stderr
    made = terminal.json("operator", "key")
    Path(made["file"]).chmod(0o644)
    assert terminal.run(*words) == 2
    assert "Others may read the key" in terminal.stderr
