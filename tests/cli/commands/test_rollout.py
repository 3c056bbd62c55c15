"""`durable rollout`, `diff` and `replace` on a running control plane."""

import itertools
import json
import time
from typing import Any

import pytest
import yaml

from ..builders import service, state_of
from ..conftest import Write
from ..terminal import Terminal


def version(name: str, number: int, **rollout: Any) -> str:
    """Three replicas of a version; without a pause point it would be over too soon to look at."""
    settings = json.dumps({"bake": None, **rollout})
    run = f'{{environment: {{VERSION: "{number}"}}}}'
    return service(name, 3, more=f"  rollout: {settings}\n  run: {run}\n")


Rolling = tuple[Terminal, str]
_numbers = itertools.count(1)


@pytest.fixture
def rolling(at_plane: Terminal, write: Write) -> Rolling:
    """A workload whose second generation stands at a pause point."""
    name = f"rolls-{next(_numbers)}"
    at_plane.json("apply", "-f", write(version(name, 1)))
    at_plane.json("apply", "-f", write(version(name, 2, pauses=[1])), "--no-wait")
    give_up = time.monotonic() + 240
    while True:
        report = at_plane.json("rollout", "status", f"shop/{name}", "--no-watch")
        if report["progress"] and report["progress"]["step"] == "pause_point":
            return at_plane, f"shop/{name}"
        assert time.monotonic() < give_up, report
        time.sleep(0.2)


def test_a_rollout_is_shown_promoted_and_followed_to_its_end(rolling: Rolling) -> None:
    terminal, name = rolling
    assert terminal.run("rollout", "status", name, "--no-watch") == 0
    shown = terminal.stdout
    assert f"{name} generation 2\n" in shown
    assert "Generation 2 is being rolled out; 1 was the last good one. Began " in shown
    assert "1 of 3 replaced" in shown
    assert "Generation 1: 2 serving, 2 ready, 2 bound" in shown
    assert "promote it to go on" in shown
    assert "It accepts now: promote, pause, rollback, apply." in shown
    [row] = [
        one for one in terminal.json("get", "workloads")["workloads"] if one["workload"] == name
    ]
    assert (row["phase"], row["serving"], row["updated"], row["wanted"]) == ("rolling", 3, 1, 3)
    assert terminal.run("explain", name) == 0
    assert "Rolling out generation 2 since " in terminal.stdout
    assert f"promote it past its pause point: `durable rollout promote {name}`" in terminal.stdout

    late = terminal.refused("rollout", "status", name, "--timeout", "1")
    assert f"Promote it with `durable rollout promote {name}`" in late
    promoted = terminal.json("rollout", "promote", name)
    assert promoted == {"workload": name, "answer": "Promoted past pause point 1 of 1."}
    done = terminal.json("rollout", "status", name)
    assert (done["is_rolling"], done["generation"], done["updated"]) == (False, 2, 3)
    history = terminal.json("rollout", "history", name)["generations"]
    assert [one["outcome"] for one in history] == ["superseded", "complete"]


def test_a_message_during_a_rollout_goes_where_each_slot_runs(rolling: Rolling) -> None:
    terminal, name = rolling
    of = ("--reason", "INC-5")

    def generations(*message: str) -> set[str]:
        answers = terminal.json("send", name, *message, *of)["answers"]
        return {answer["placement"].split("/")[3] for answer in answers}

    assert generations("retry-now") == {"g1", "g2"}
    assert generations("evict", "--slot", "0") == {"g2"}
    assert generations("evict", "--slot", "1") == {"g1"}
    assert terminal.refusal("send", name, "evict", *of, "--slot", "9") == "unknown_slot"


def test_a_rollout_is_paused_resumed_and_rolled_back(rolling: Rolling) -> None:
    terminal, name = rolling
    before = state_of(terminal)
    assert "is not paused" in terminal.refused("rollout", "resume", name)
    assert "no generation 9" in terminal.refused("rollout", "rollback", name, "--to", "9")
    assert terminal.refusal("rollout", "rollback", name, "--to", "9") == "unknown_generation"
    assert "was never good; good ones: 1" in terminal.refused(
        "rollout", "rollback", name, "--to", "2"
    )
    assert state_of(terminal)[2] == before[2], "nothing has changed"

    terminal.json("rollout", "pause", name, "--reason", "metrics", "--request-id", "p1")
    assert "was paused already, by " in terminal.refused("rollout", "pause", name)
    used = terminal.refusal("rollout", "resume", name, "--request-id", "p1")
    assert used == "key_conflict"
    assert terminal.run("rollout", "status", name, "--no-watch") == 0
    assert ": metrics, since " in terminal.stdout
    assert "Resumed" in terminal.json("rollout", "resume", name)["answer"]

    back = terminal.json("rollout", "rollback", name, "--reason", "too slow")
    assert back["answer"].startswith("Going back to generation 1")
    assert (back["rollout"]["generation"], back["rollout"]["is_rolling"]) == (1, False)
    assert terminal.run("rollout", "status", name) == 1
    assert "Generation 2 was rolled back: " in terminal.stdout
    assert ": too slow; generation 1 is wanted again." in terminal.stderr
    assert terminal.refusal("rollout", "status", name) == "rolled_back"
    assert terminal.run("rollout", "history", name) == 0
    assert "rolled_back" in terminal.stdout
    assert terminal.run("explain", name, "--generation", "2") == 0
    assert "was rolled back: " in terminal.stdout


def test_an_apply_whose_generation_was_rolled_back_ends_with_1(
    at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(version("reverted", 1)))
    path, asked = write(version("reverted", 2, pauses=[1])), ("--request-id", "deploy-2")
    at_plane.json("apply", "-f", path, *asked, "--no-wait")
    at_plane.json("rollout", "rollback", "shop/reverted", "--reason", "too slow")
    # Sent again, it is answered as it was first, and must not pass for what serves now.
    assert at_plane.run("apply", "-f", path, *asked, "--json") == 1
    report = json.loads(at_plane.stdout)
    [row] = report["workloads"]
    assert (row["phase"], row["generation"], row["status"]["generation"]) == ("rolled back", 2, 1)
    assert ": too slow; generation 1 is wanted again." in row["rolled_back"]
    assert report["error"]["code"] == "rolled_back"
    assert at_plane.run("apply", "-f", path, *asked) == 1
    assert "rolled back" in at_plane.stdout
    assert "See `durable rollout history shop/reverted`." in at_plane.stderr


def test_generations_are_printed_as_manifests_and_compared(rolling: Rolling, write: Write) -> None:
    terminal, name = rolling
    assert terminal.run("rollout", "history", name, "--generation", "1") == 0
    manifest = yaml.safe_load(terminal.stdout)
    assert manifest["spec"]["run"]["environment"] == {"VERSION": "1"}
    terminal.json("plan", "-f", write(terminal.stdout))

    assert terminal.run("diff", name, "1", "2") == 0
    lines = [line.split() for line in terminal.stdout.splitlines() if line.strip()]
    assert ["run.environment.VERSION", "1", "2"] in lines
    found = terminal.json("diff", name, "1", "2")["differences"]
    assert [one["field"] for one in found] == ["rollout.pauses", "run.environment.VERSION"]
    assert terminal.run("diff", name, "1", "1") == 0
    assert "have the same spec" in terminal.stdout
    message = terminal.refused("diff", name, "1", "7")
    assert "has no generation 7 in its history" in message
    assert "known: 1, 2." in message
    assert terminal.refusal("diff", name, "7", "1") == "unknown_generation"
    assert terminal.refusal("rollout", "history", name, "--generation", "7") == "unknown_generation"
    terminal.wrong("diff", name, "0", "1")


def test_slots_are_replaced_one_by_one(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(version("moved", 1)))
    before = _tokens(at_plane)
    done = at_plane.json("replace", "shop/moved", "--slot", "1", "--slot", "1", "--reason", "disk")
    assert done["answer"].startswith("Replacing 1 of 1 slots")
    assert (done["rollout"]["is_rolling"], done["rollout"]["serving"]) == (False, 3)
    after = _tokens(at_plane)
    assert {slot for slot in before if before[slot] != after[slot]} == {1}
    unknown = ("replace", "shop/moved", "--slot", "3", "--reason", "disk")
    assert at_plane.refusal(*unknown) == "unknown_slot"
    assert "--reason" in at_plane.wrong("replace", "shop/moved")


def _tokens(terminal: Terminal) -> dict[int, int]:
    return {
        slot["slot"]: slot["token"]
        for row in terminal.json("get", "placements")["placements"]
        for slot in row["slots"]
        if row["placement"].startswith("placement/shop/moved/")
    }


def test_what_does_not_roll_is_refused(seen: Terminal) -> None:
    before = state_of(seen)
    for request in ("pause", "resume", "promote"):
        assert "is not rolling out" in seen.refused("rollout", request, "shop/seen")
    assert "no other generation" in seen.refused("rollout", "rollback", "shop/seen")
    assert state_of(seen)[2] == before[2]
    for command in ("status", "history", "pause", "rollback"):
        assert seen.refusal("rollout", command, "shop/none") == "unknown_workload"
        assert "TENANT/NAME" in seen.wrong("rollout", command, "none")


def test_a_job_does_not_roll_out(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("once-only", 1, more="  kind: job\n")))
    assert "a job does not roll out" in at_plane.refused("rollout", "status", "shop/once-only")
    assert at_plane.run("rollout", "history", "shop/once-only") == 0


@pytest.mark.parametrize(
    ("rollout", "sentence"),
    [
        ("{max_surge: 0, max_unavailable: 0%}", "one of the two above 0"),
        ("{max_surge: 101%}", "a percentage from 0% to 100%"),
        ("{max_unavailable: -1}", "a whole number from 0 to 4000"),
        ("{min_ready: 10m, progress_deadline: 10m}", "less than progress_deadline, which is 10m"),
        ("{regions: [north, north]}", "each region once"),
    ],
)
def test_a_wrong_rollout_is_refused_with_its_line(
    terminal: Terminal, write: Write, rollout: str, sentence: str
) -> None:
    path = write(service("web", more=f"  rollout: {rollout}\n"))
    message = terminal.wrong("apply", "-f", path)
    assert f"{path}:6: document 1, field spec.rollout" in message
    assert sentence in message


def test_a_plan_says_how_a_change_would_roll_out(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(version("outlook", 1)))
    path = write(version("outlook", 2, max_surge=1, max_unavailable=0))
    before = state_of(at_plane)
    [plan] = at_plane.json("plan", "-f", path)["plans"]
    rollout = plan["rollout"]
    assert (rollout["surge"], rollout["unavailable"], rollout["keeps_serving"]) == (1, 0, 3)
    assert set(rollout["surge_fits"].values()) == {1}
    assert at_plane.run("plan", "-f", path) == 0
    assert "at least 3 replicas, old or new, keep serving meanwhile" in at_plane.stdout
    assert state_of(at_plane) == before
    at_plane.json("delete", "shop/outlook")
