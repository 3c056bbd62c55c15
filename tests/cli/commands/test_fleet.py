"""`durable fleet` against a real authority."""

import json
from pathlib import Path

import psycopg
import pytest

from ..builders import SMALL_FLEET
from ..conftest import Write
from ..terminal import Terminal

FLEET = Path(__file__).parents[3] / "examples" / "fleet.yaml"


def invariants_hold(terminal: Terminal) -> bool:
    """Nothing else is well here: no agent hosts the nodes."""
    terminal.run("doctor", "--json")
    return json.loads(terminal.stdout)["holds"]


def test_the_example_fleet_loads_and_is_shown(terminal: Terminal) -> None:
    assert terminal.run("fleet", "load", "-f", str(FLEET)) == 0
    for name in ("us-east", "us-west", "eu-central", "risk", "billing", "analytics"):
        assert name in terminal.stdout
    shown = terminal.json("fleet", "show")
    regions = {region["region"]["region"]: region for region in shown["regions"]}
    assert sum(pool["nodes"] for pool in regions["us-east"]["pools"]) == 33
    assert sum(pool["live"] for region in shown["regions"] for pool in region["pools"]) == 0
    assert invariants_hold(terminal)


def test_loading_again_changes_nothing(terminal: Terminal, write: Write) -> None:
    path = write(SMALL_FLEET)
    first = terminal.json("fleet", "load", "-f", path)
    second = terminal.json("fleet", "load", "-f", path)
    assert first["tenants"] == second["tenants"]
    assert first["regions"][0]["pools"] == second["regions"][0]["pools"]
    assert first["regions"][0]["budgets"] == second["regions"][0]["budgets"]


def test_loading_again_is_no_event(terminal: Terminal, write: Write) -> None:
    path = write(SMALL_FLEET)
    terminal.json("fleet", "load", "-f", path)
    heads = terminal.json("audit", "head")
    terminal.json("fleet", "load", "-f", path)
    assert terminal.json("audit", "head") == heads


def test_what_a_manifest_no_longer_names_stays_and_is_reported(
    terminal: Terminal, write: Write
) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    less = SMALL_FLEET[: SMALL_FLEET.index("tenants:")].replace("count: 3", "count: 1")
    shown = terminal.json("fleet", "load", "-f", write(less))
    assert "2 nodes of us-east" in terminal.stderr
    assert "tenants that the manifest does not name: risk" in terminal.stderr
    assert shown["regions"][0]["pools"][0]["nodes"] == 3


def test_a_line_number_is_never_printed_as_an_emoji(terminal: Terminal, write: Write) -> None:
    path = write("#\n" * 98 + "regions: 1\nsurprise: 1\n")
    assert terminal.run("fleet", "load", "-f", path) == 2
    assert ":100: document 1" in terminal.stderr


def test_a_changed_manifest_moves_what_differs(terminal: Terminal, write: Write) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
    changed = SMALL_FLEET.replace("cpu: 12", "cpu: 9").replace("count: 3", "count: 4")
    shown = terminal.json("fleet", "load", "-f", write(changed))
    (tenant,) = shown["tenants"]
    assert tenant["grants"][0]["granted"]["cpu_millis"] == 9000
    assert tenant["quota"]["granted"]["cpu_millis"] == 9000
    assert shown["regions"][0]["pools"][0]["nodes"] == 4
    (kept,) = terminal.json("get", "budgets")["budgets"]
    assert (kept["budget"], kept["state"], kept["amount"]["cpu_millis"]) == ("kept", "kept", 2000)
    assert invariants_hold(terminal)


def test_loading_again_leaves_the_active_policy_and_lost_nodes_alone(
    terminal: Terminal, write: Write, database_url: str
) -> None:
    path = write(SMALL_FLEET)
    terminal.json("fleet", "load", "-f", path)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE regional.policy_states SET state = 'rolled_back'")
        connection.execute("UPDATE regional.regions SET version = version + 1")
        connection.execute(
            "UPDATE regional.nodes SET state = 'lost',"
            " changed_version = (SELECT version FROM regional.regions)"
        )
    terminal.json("fleet", "load", "-f", path)
    with psycopg.connect(database_url) as connection:
        states = connection.execute("SELECT DISTINCT state FROM regional.nodes").fetchall()
        policies = connection.execute("SELECT state FROM regional.policy_states").fetchall()
    assert (states, policies) == ([("lost",)], [("rolled_back",)])


@pytest.mark.parametrize(
    ("wrong", "mentions"),
    [
        (SMALL_FLEET.replace("zone: a,", "zone: b,"), "zone"),
        (SMALL_FLEET.replace("cpu: 12,", "cpu: 21,"), "grants"),
        (SMALL_FLEET.replace("32Gi}}", "32gib}}"), "memory"),
        (SMALL_FLEET.replace("count: 3", "count: -3"), "count"),
        (SMALL_FLEET + "surprise: 1\n", "surprise"),
        ("", "empty"),
    ],
)
def test_a_wrong_manifest_is_refused_and_changes_nothing(
    terminal: Terminal, write: Write, wrong: str, mentions: str
) -> None:
    assert terminal.run("fleet", "load", "-f", write(wrong)) == 2
    assert mentions in terminal.stderr
    assert "Traceback" not in terminal.stderr
    assert terminal.json("fleet", "show") == {"regions": [], "tenants": [], "unreachable": {}}


def test_an_empty_authority_says_what_to_do(terminal: Terminal) -> None:
    assert terminal.run("fleet", "show") == 0
    assert "durable fleet load" in terminal.stdout
