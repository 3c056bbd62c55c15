"""`fleet`, `doctor`, `audit` and `migrate` as people run them, against a real authority."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from .terminal import Terminal

FLEET = Path(__file__).parents[2] / "examples" / "fleet.yaml"

SMALL = """
regions:
  - id: us-east
    zones: [a]
    recovery_headroom: {id: kept, resources: {cpu: 2}, expires_in: 1d}
    pools:
      - {name: general, zone: a, count: 3, capacity: {cpu: 8, memory: 32Gi}}
tenants:
  - id: risk
    hard: {cpu: 20, memory: 64Gi}
    protected: {cpu: 8}
    grants:
      us-east: {cpu: 12, memory: 32Gi}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / "fleet.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_the_example_fleet_loads_and_is_shown(terminal: Terminal) -> None:
    assert terminal.run("fleet", "load", "-f", str(FLEET)) == 0
    for name in ("us-east", "us-west", "eu-central", "risk", "billing", "analytics"):
        assert name in terminal.stdout
    shown = terminal.json("fleet", "show")
    regions = {region["region"]["region"]: region for region in shown["regions"]}
    assert sum(pool["nodes"] for pool in regions["us-east"]["pools"]) == 33
    assert sum(pool["live"] for region in shown["regions"] for pool in region["pools"]) == 0
    assert terminal.json("doctor")["holds"] is True


def test_loading_again_changes_nothing(terminal: Terminal, manifest: Callable[[str], str]) -> None:
    path = manifest(SMALL)
    first = terminal.json("fleet", "load", "-f", path)
    second = terminal.json("fleet", "load", "-f", path)
    assert first["tenants"] == second["tenants"]
    assert first["regions"][0]["pools"] == second["regions"][0]["pools"]
    assert first["regions"][0]["budgets"] == second["regions"][0]["budgets"]


def test_loading_again_is_no_event(terminal: Terminal, manifest: Callable[[str], str]) -> None:
    path = manifest(SMALL)
    terminal.json("fleet", "load", "-f", path)
    heads = terminal.json("audit", "head")
    terminal.json("fleet", "load", "-f", path)
    assert terminal.json("audit", "head") == heads


def test_what_a_manifest_no_longer_names_is_left_and_told(
    terminal: Terminal, manifest: Callable[[str], str]
) -> None:
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    less = SMALL[: SMALL.index("tenants:")].replace("count: 3", "count: 1")
    shown = terminal.json("fleet", "load", "-f", manifest(less))
    assert "2 nodes of us-east" in terminal.stderr
    assert "tenants that the manifest does not name: risk" in terminal.stderr
    assert shown["regions"][0]["pools"][0]["nodes"] == 3


def test_an_empty_state_dir_is_not_the_folder_one_is_in(terminal: Terminal) -> None:
    assert terminal.run("status", "--state-dir", "") == 2
    assert "empty" in terminal.stderr


def test_the_hundredth_line_is_no_emoji(terminal: Terminal, manifest: Callable[[str], str]) -> None:
    path = manifest("#\n" * 98 + "regions: 1\nsurprise: 1\n")
    assert terminal.run("fleet", "load", "-f", path) == 2
    assert ":100: document 1" in terminal.stderr


def test_a_changed_manifest_moves_what_differs(
    terminal: Terminal, manifest: Callable[[str], str]
) -> None:
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    changed = SMALL.replace("cpu: 12", "cpu: 9").replace("count: 3", "count: 4")
    shown = terminal.json("fleet", "load", "-f", manifest(changed))
    (tenant,) = shown["tenants"]
    assert tenant["grants"][0]["granted"]["cpu_millis"] == 9000
    assert tenant["quota"]["granted"]["cpu_millis"] == 9000
    assert shown["regions"][0]["pools"][0]["nodes"] == 4
    assert terminal.json("doctor")["holds"] is True


def test_loading_again_leaves_the_active_policy_and_lost_nodes_alone(
    terminal: Terminal, manifest: Callable[[str], str], database_url: str
) -> None:
    path = manifest(SMALL)
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
    ("wrong", "tells"),
    [
        (SMALL.replace("zone: a,", "zone: b,"), "zone"),
        (SMALL.replace("cpu: 12,", "cpu: 21,"), "grants"),
        (SMALL.replace("32Gi}}", "32gib}}"), "memory"),
        (SMALL.replace("count: 3", "count: -3"), "count"),
        (SMALL + "surprise: 1\n", "surprise"),
        ("", "empty"),
    ],
)
def test_a_wrong_manifest_is_refused_and_changes_nothing(
    terminal: Terminal, manifest: Callable[[str], str], wrong: str, tells: str
) -> None:
    assert terminal.run("fleet", "load", "-f", manifest(wrong)) == 2
    assert tells in terminal.stderr
    assert "Traceback" not in terminal.stderr
    assert terminal.json("fleet", "show") == {"regions": [], "tenants": []}


def test_an_empty_authority_says_what_to_do(terminal: Terminal) -> None:
    assert terminal.run("fleet", "show") == 0
    assert "durable fleet load" in terminal.stdout


def test_the_audit_is_verified_and_anchored(
    terminal: Terminal, manifest: Callable[[str], str], database_url: str
) -> None:
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    heads = terminal.json("audit", "head")["heads"]
    assert {head.split(":")[0] for head in heads} == {"global", "us-east"}
    anchors = [word for head in heads for word in ("--anchor", head)]
    assert terminal.json("audit", "verify", *anchors)["holds"] is True

    with psycopg.connect(database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE audit.events SET actor = 'person:nobody' WHERE chain = 'us-east'"
            " AND sequence = 2"
        )
    assert terminal.run("audit", "verify") == 1
    assert "event 2 of us-east" in terminal.stdout
    assert "was changed" in terminal.stdout


@pytest.mark.parametrize("anchor", ["nonsense", "us-east:1", "us-east:x:00", "us-east:1:00"])
def test_a_wrong_anchor_is_a_usage_error(terminal: Terminal, anchor: str) -> None:
    assert terminal.run("audit", "verify", "--anchor", anchor) == 2
    assert "Traceback" not in terminal.stderr


def test_the_audit_tells_who_did_what(terminal: Terminal, manifest: Callable[[str], str]) -> None:
    assert terminal.run("audit", "log") == 0
    assert "There are no events yet" in terminal.stdout
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    events = terminal.json("audit", "log")["events"]
    told = {event["action"] for event in events}
    assert {"add region", "declare nodes", "set quota", "transfer grant"} <= told
    assert all(event["actor"].startswith("person:") for event in events)
    regional = terminal.json("audit", "log", "--chain", "us-east", "--last", "1")["events"]
    assert [event["chain"] for event in regional] == ["us-east"]
    assert terminal.run("audit", "log") == 0
    assert "add region" in terminal.stdout
    assert terminal.stderr == ""


def test_a_log_that_is_cut_says_so(terminal: Terminal, manifest: Callable[[str], str]) -> None:
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    every = terminal.json("audit", "log")
    assert every["has_older"] is False
    cut = terminal.json("audit", "log", "--last", "2")
    assert (cut["has_older"], cut["events"]) == (True, every["events"][-2:])
    assert terminal.run("audit", "log", "--last", "2") == 0
    assert "Older events are not shown: raise --last (up to 10,000)" in terminal.stderr


def test_a_chain_that_vanished_since_it_was_anchored_is_found(terminal: Terminal) -> None:
    assert terminal.run("audit", "verify", "--anchor", f"us-east:3:{'ab' * 32}") == 1
    assert "us-east" in terminal.stdout


def test_a_violated_invariant_is_shown_and_ends_in_one(
    terminal: Terminal, manifest: Callable[[str], str], database_url: str
) -> None:
    terminal.json("fleet", "load", "-f", manifest(SMALL))
    with psycopg.connect(database_url) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE regional.nodes SET used_cpu_millis = 5")
    assert terminal.run("doctor") == 1
    assert "S2: a node's use is the sum of its claims" in terminal.stdout
    assert terminal.run("doctor", "--json") == 1
    report = json.loads(terminal.stdout)
    assert (report["holds"], report["error"]["code"]) == (False, "broken_invariant")
    violated = [row["invariant"] for row in report["invariants"] if not row["holds"]]
    assert violated == ["S2: a node's use is the sum of its claims"]
    assert all(bool(row["violations"]) is not row["holds"] for row in report["invariants"])


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


def test_an_unreachable_database_is_one_sentence(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_DATABASE_URL", "postgresql://a:sesame@127.0.0.1:1/nowhere")
    for command in (["migrate"], ["fleet", "show"], ["doctor"], ["audit", "verify"]):
        assert terminal.run(*command) == 1
        assert terminal.stderr.count("\n") == 1, terminal.stderr
        assert "sesame" not in terminal.stderr


def test_without_a_stack_or_a_database_it_says_what_to_do(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURABLE_DATABASE_URL")
    assert terminal.run("fleet", "show") == 1
    assert "durable up" in terminal.stderr
