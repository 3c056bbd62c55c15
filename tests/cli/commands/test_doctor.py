"""`durable doctor` against a real authority."""

import json

import psycopg

from ..builders import SMALL_FLEET
from ..conftest import Write
from ..terminal import Terminal


def test_a_violated_invariant_is_shown_and_ends_in_one(
    terminal: Terminal, write: Write, database_url: str
) -> None:
    terminal.json("fleet", "load", "-f", write(SMALL_FLEET))
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


def test_every_invariant_is_listed_also_those_that_nothing_could_violate_yet(
    terminal: Terminal,
) -> None:
    terminal.run("doctor", "--json")
    report = json.loads(terminal.stdout)
    named = [row["invariant"] for row in report["invariants"]] + list(report["not_applicable"])
    assert {f"S{number}" for number in range(1, 10)} <= {name[:2] for name in named}
    assert report["holds"]
    terminal.run("doctor")
    assert "S9: preemption respects protected capacity" in terminal.stdout


def test_a_role_that_may_write_what_it_does_not_own_is_found(
    terminal: Terminal, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("GRANT UPDATE (spec) ON global.workloads TO durable_reader")
    assert terminal.run("doctor") == 1
    assert "durable_reader,global.workloads,UPDATE" in terminal.stdout
