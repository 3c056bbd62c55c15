"""`apply`, `plan`, `scale`, `delete` and `send` on a control plane that really runs."""

import json
import time
from typing import Any

import pytest

from .conftest import Write
from .terminal import Terminal


def service(name: str, replicas: int = 2, cpu: str = "1", more: str = "") -> str:
    return (
        f"tenant: shop\nname: {name}\nspec:\n  replicas: {replicas}\n"
        f"  resources: {{cpu: {cpu}, memory: 1Gi}}\n{more}"
    )


def everything(at_plane: Terminal) -> Any:
    """What an authority remembers of changes: versions, the audit's heads, workloads."""
    return (
        at_plane.json("get", "regions"),
        at_plane.json("audit", "head"),
        at_plane.json("get", "workloads", "--all"),
    )


def test_a_service_is_applied_until_it_serves_and_again_changes_nothing(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("web", 3))
    [first] = at_plane.json("apply", "-f", path)["workloads"]
    assert (first["workload"], first["phase"], first["generation"]) == ("shop/web", "serving", 1)
    assert sum(first["regions"].values()) == 3
    assert "shop/web created, generation 1" in at_plane.stderr
    assert "shop/web: " in at_plane.stderr
    assert "3 serving of 3" in at_plane.stderr

    before = everything(at_plane)
    [again] = at_plane.json("apply", "-f", path)["workloads"]
    assert (again["phase"], again["generation"]) == ("serving", 1)
    assert "shop/web unchanged, generation 1" in at_plane.stderr
    assert everything(at_plane) == before

    assert at_plane.run("apply", "-f", path) == 0
    assert "3 serving of 3" in at_plane.stdout


def test_a_plan_says_where_and_why_and_changes_nothing(at_plane: Terminal, write: Write) -> None:
    path = write(service("planned", 4))
    before = everything(at_plane)
    [new] = at_plane.json("plan", "-f", path)["plans"]
    assert everything(at_plane) == before
    assert (new["action"], new["generation"]) == ("create", 1)
    places = {region["region"]: region["places"] for region in new["regions"]}
    assert sum(map(len, places.values())) == 4
    south = next(region for region in new["regions"] if region["region"] == "south")
    assert south["filtered"] == "1 of 4 nodes: 1 taint for=nobody"
    assert south["evidence"]["candidates"]

    at_plane.json("apply", "-f", path)
    before = everything(at_plane)
    [same] = at_plane.json("plan", "-f", path)["plans"]
    assert same["action"] == "no change"
    assert sum(len(region["keeps"]) for region in same["regions"]) == 4
    assert not any(region["places"] or region["stops"] for region in same["regions"])
    assert at_plane.run("plan", "-f", path) == 0
    assert "An apply would change nothing." in at_plane.stdout

    [less] = at_plane.json("plan", "-f", write(service("planned", 2)))["plans"]
    assert less["action"] == "change the size or the shares"
    assert sum(len(region["stops"]) for region in less["regions"]) == 2
    [other] = at_plane.json("plan", "-f", write(service("planned", 4, cpu="2")))["plans"]
    assert (other["action"], other["generation"]) == ("roll out a new generation", 2)
    assert sum(len(region["places"]) for region in other["regions"]) == 4
    assert everything(at_plane) == before


def test_what_would_be_refused_is_refused_in_a_plan_as_well(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("huge", 1, cpu="64"))
    before = everything(at_plane)
    assert at_plane.run("plan", "-f", path, "--json") == 1
    told = json.loads(at_plane.stdout)
    [planned] = told["refusals"]
    assert told["error"]["code"] == at_plane.refusal("apply", "-f", path)
    applied = at_plane.refused("apply", "-f", path)
    assert "shop/huge would be refused: " in planned
    assert "64 cpu" in planned
    assert "64 cpu" in applied
    assert "Nothing was applied." in applied
    assert everything(at_plane) == before


def test_all_documents_are_checked_before_the_first_is_sent(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("fine") + "---\n" + service("wrong", replicas=-1))
    said = at_plane.wrong("apply", "-f", path)
    assert f"{path}:10: document 2, field spec.replicas: " in said
    assert "shop/fine" not in str(everything(at_plane))
    twice = write(service("fine") + "---\n" + service("fine"))
    assert "declared twice" in at_plane.wrong("apply", "-f", twice)
    assert "no such file" in at_plane.wrong("apply", "-f", "missing.yaml")


def test_a_refused_document_stops_and_says_what_was_applied(
    at_plane: Terminal, write: Write
) -> None:
    foreign = service("nobodys").replace("tenant: shop", "tenant: nobody")
    path = write(service("before", 1) + "---\n" + foreign + "---\n" + service("after"))
    said = at_plane.refused("apply", "-f", path)
    assert "nobody/nobodys was refused: " in said
    assert "Applied before it: shop/before." in said
    names = [row["workload"] for row in at_plane.json("get", "workloads")["workloads"]]
    assert "shop/before" in names
    assert "shop/after" not in names


def test_a_request_id_counts_once(at_plane: Terminal, write: Write) -> None:
    path = write(service("once", 1))
    asked = ("--request-id", "deploy-7", "--no-wait")
    first = at_plane.json("apply", "-f", path, *asked)
    assert at_plane.json("apply", "-f", path, *asked) == first
    other = at_plane.refused("apply", "-f", write(service("once", 2)), *asked)
    assert "was used for something else" in other
    assert "--request-id" in at_plane.wrong("apply", "-f", path, "--request-id", "no spaces")


def test_an_answer_of_the_past_is_not_taken_for_the_present(
    at_plane: Terminal, write: Write
) -> None:
    path = write(service("past", 1))
    at_plane.json("apply", "-f", path, "--request-id", "deploy-8")
    at_plane.json("delete", "shop/past")
    said = at_plane.refused("apply", "-f", path, "--request-id", "deploy-8")
    assert (
        "was already answered, with generation 1, and the workload has been deleted since" in said
    )
    assert "✓" not in said
    [again] = at_plane.json("apply", "-f", path, "--request-id", "deploy-9")["workloads"]
    assert (again["generation"], again["phase"]) == (2, "serving")


def test_a_workload_is_scaled_and_deleted(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("sized", 1)))
    scaled = at_plane.json("scale", "shop/sized", "3")
    assert (scaled["phase"], scaled["generation"]) == ("serving", 1)
    assert scaled["status"]["serving"] == 3
    assert at_plane.json("delete", "shop/sized") == {"workload": "shop/sized", "deleted": True}
    rows = at_plane.json("get", "workloads", "--tenant", "shop")["workloads"]
    assert "shop/sized" not in [row["workload"] for row in rows]
    every = at_plane.json("get", "workloads", "--all")["workloads"]
    [gone] = [row for row in every if row["workload"] == "shop/sized"]
    assert (gone["phase"], gone["completed"]) == ("deleted", None)
    assert "shop/sized" in at_plane.refused("delete", "shop/sized")


def test_a_job_is_followed_until_it_is_complete(at_plane: Terminal, write: Write) -> None:
    job = service("batch", 2, more="  kind: job\n")
    path, asked = write(job), ("--request-id", "night-1")
    [row] = at_plane.json("apply", "-f", path, *asked)["workloads"]
    assert row["phase"] == "complete"
    assert row["status"]["completed"] == 2

    # What was done under this request id stays done, and can be seen.
    [again] = at_plane.json("apply", "-f", path, *asked)["workloads"]
    assert again["phase"] == "ended"
    assert "shop/batch already completed" in at_plane.stderr
    listed = at_plane.json("get", "workloads", "--all")["workloads"]
    [mine] = [one for one in listed if one["workload"] == "shop/batch"]
    assert (mine["phase"], mine["completed"], mine["wanted"]) == ("complete", 2, 2)
    assert mine["ended_at"]
    assert at_plane.run("get", "workloads") == 0
    assert "shop/batch" not in at_plane.stdout
    assert "ended: see durable get workloads --all" in at_plane.stderr


@pytest.mark.parametrize("name", ["web", "shop/", "/web", "shop/web/1", "Shop/web", "shop/we b"])
@pytest.mark.parametrize("command", [("delete",), ("explain",), ("scale",)])
def test_a_name_in_the_wrong_form_is_wrong_usage(
    at_plane: Terminal, name: str, command: tuple[str, ...]
) -> None:
    number = ("3",) if command == ("scale",) else ()
    assert "TENANT/NAME" in at_plane.wrong(*command, name, *number)


def test_unknown_names_and_impossible_numbers_change_nothing(at_plane: Terminal) -> None:
    before = everything(at_plane)
    for command in (("scale", "shop/none", "2"), ("delete", "shop/none"), ("explain", "shop/none")):
        assert "shop/none" in at_plane.refused(*command)
    for number in ("-1", "10001", "two"):
        at_plane.wrong("scale", "shop/web", "--", number)
    assert everything(at_plane) == before


def one_slot_is_told_for_itself(at_plane: Terminal, told: Any) -> None:
    """Of a share of which part waits, a slot that is placed waits for nothing."""
    share = next(
        one for one in told["regions"] if one["queue"]["request"]["waiting"] and one["observed"]
    )
    placed = share["observed"][0]["slot"]
    waits = next(slot for slot in share["slots"] if slot not in _bound(share))
    [is_placed] = at_plane.json("explain", "shop/waits", "--slot", str(placed))["regions"]
    assert (is_placed["queue"]["request"]["waiting"], is_placed["queue"]["request"]["state"]) == (
        0,
        "placed",
    )
    assert is_placed["condition"].endswith(" of 1")
    assert "waiting" not in is_placed["condition"]
    [is_waiting] = at_plane.json("explain", "shop/waits", "--slot", str(waits))["regions"]
    assert is_waiting["condition"] == "1 waiting of 1"
    assert is_waiting["queue"]["request"]["pending"]["sentence"]
    assert at_plane.run("explain", "shop/waits", "--slot", str(placed)) == 0
    assert "committed for 1 slot at" in at_plane.stdout
    assert "Waiting" not in at_plane.stdout


def _bound(share: Any) -> set[int]:
    return {one["slot"] for one in share["observed"]}


def test_who_waits_is_in_the_queue_with_a_reason(at_plane: Terminal, write: Write) -> None:
    # Every region has a node that could hold one, but not so many of them.
    path = write(service("waits", 20, cpu="4"))
    late = at_plane.refused("apply", "-f", path, "--timeout", "3")
    assert "durable explain shop/waits" in late
    waiting = [row for row in at_plane.json("queue")["queue"] if row["workload"] == "waits"]
    assert waiting
    assert all(row["position"] >= 1 and row["pending"]["code"] for row in waiting)
    assert at_plane.run("queue", "--region", "north") == 0
    told = at_plane.json("explain", "shop/waits")
    assert any(region["queue"]["request"]["pending"] for region in told["regions"])
    one_slot_is_told_for_itself(at_plane, told)
    at_plane.json("delete", "shop/waits")
    assert "there is no region" in at_plane.refused("queue", "--region", "west").lower()


def wait_for_holds(at_plane: Terminal, name: str, count: int) -> dict[str, Any]:
    """The holds of a workload's placements, which answer first and write their rows then."""
    holds: dict[str, Any] = {}
    for _ in range(100):
        listed = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
        rows = [row for row in listed if f"/{name}/" in row["placement"]]
        holds = {row["placement"]: row["hold"] for row in rows if row["hold"]}
        if len(holds) == count:
            break
        time.sleep(0.1)
    return holds


def holds_are_seen(at_plane: Terminal) -> None:
    """Although nothing waits."""
    holds = wait_for_holds(at_plane, "held", 2)
    assert holds.keys() == {"placement/shop/held/g1/north", "placement/shop/held/g1/south"}
    assert {hold["reason"] for hold in holds.values()} == {"INC-1"}
    assert at_plane.run("get", "placements") == 0
    assert "Hold" in at_plane.stdout
    told = at_plane.json("explain", "shop/held")["regions"]
    assert [region["queue"]["request"]["hold"]["reason"] for region in told] == ["INC-1"] * 2
    assert at_plane.run("explain", "shop/held") == 0
    assert "INC-1; nothing new is placed until it is resumed" in at_plane.stdout


def test_an_operator_holds_and_resumes_placements(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("held", 2)))
    held = at_plane.json("send", "shop/held", "hold", "--reason", "INC-1")["answers"]
    assert [answer["placement"] for answer in held] == [
        "placement/shop/held/g1/north",
        "placement/shop/held/g1/south",
    ]
    holds_are_seen(at_plane)
    late = at_plane.refused("scale", "shop/held", "4", "--timeout", "3")
    assert "INC-1 (held)" in late
    assert "durable send shop/held resume --reason REASON; see durable explain shop/held" in late
    one = held[0]["placement"]
    assert at_plane.run("send", one, "resume", "--reason", "INC-1") == 0
    assert f"{one}: " in at_plane.stdout
    of_none = ("hold", "--reason", "INC-1")
    gone = at_plane.refusal("send", "placement/shop/held/g9/north", *of_none)
    assert gone == "unknown_placement"
    assert at_plane.refusal("send", "shop/none", *of_none) == "no_placements"
    at_plane.wrong("send", "shop/held", "explode", "--reason", "INC-1")
    at_plane.wrong("send", "shop/held", "hold")
    at_plane.wrong("send", "shop/held", "hold", "--reason", " ")
    at_plane.wrong("send", "shop/held", "hold", "--reason", "x", "--slot", "1")


def test_a_request_id_counts_once_for_each_kind_of_message(
    at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(service("told", 1)))
    one = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
    [placement] = [row["placement"] for row in one if "/told/" in row["placement"]]

    def answer(message: str) -> str:
        of = ("send", placement, message, "--reason", "INC-2", "--request-id", "INC-2")
        [told] = at_plane.json(*of)["answers"]
        return told["answer"]

    assert answer("hold").startswith("Held")
    assert answer("resume").startswith("Resumed")
    assert "was taken before, so nothing changed" in answer("hold")
    assert wait_for_holds(at_plane, "told", 0) == {}
    at_plane.json("delete", "shop/told")


def test_programs_can_tell_one_refusal_from_another(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("coded", 1)), "--request-id", "r1")
    job = service("coded-job", 1, more="  kind: job\n")
    at_plane.json("apply", "-f", write(job), "--no-wait")
    assert at_plane.refusal("scale", "shop/coded-job", "2") == "job_not_scaled"
    assert at_plane.refusal("scale", "shop/nobody", "2") == "unknown_workload"
    assert at_plane.refusal("scale", "shop/coded", "2", "--request-id", "r1") == "key_conflict"
    evict = ("evict", "--reason", "x", "--slot", "7")
    assert at_plane.refusal("send", "shop/coded", *evict) == "unknown_slot"
    placements = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
    one = next(row["placement"] for row in placements if "/coded/" in row["placement"])
    assert at_plane.refusal("send", one, *evict) == "unknown_slot"
    assert at_plane.refusal("explain", "shop/nobody") == "unknown_workload"
    assert at_plane.refusal("explain", "shop/coded", "--slot", "7") == "unknown_slot"
    assert at_plane.refusal("explain", "shop/coded", "--generation", "7") == "unknown_generation"
    assert at_plane.refusal("explain", "shop/coded", "--attempt", "700") == "unknown_attempt"
    assert at_plane.refusal("logs", "shop/coded", "0") == "simulated_node"
    assert at_plane.refusal("logs", "shop/coded", "9") == "not_bound"
    at_plane.json("delete", "shop/coded")
    again = ("apply", "-f", write(service("coded", 1)), "--request-id", "r1")
    assert at_plane.refusal(*again) == "deleted_since"
