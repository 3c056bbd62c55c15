"""`durable plan` says what an apply would do, and changes nothing."""

import json

from ..builders import service, state_of
from ..conftest import Write
from ..terminal import Terminal


def test_a_plan_says_where_and_why_and_changes_nothing(at_plane: Terminal, write: Write) -> None:
    path = write(service("planned", 4))
    before = state_of(at_plane)
    [new] = at_plane.json("plan", "-f", path)["plans"]
    assert state_of(at_plane) == before
    assert (new["action"], new["generation"]) == ("create", 1)
    places = {region["region"]: region["places"] for region in new["regions"]}
    assert sum(map(len, places.values())) == 4
    south = next(region for region in new["regions"] if region["region"] == "south")
    assert south["filtered"] == "1 of 4 nodes: 1 taint for=nobody"
    assert south["evidence"]["candidates"]

    at_plane.json("apply", "-f", path)
    before = state_of(at_plane)
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
    assert state_of(at_plane) == before


def test_a_plan_refuses_what_an_apply_would_refuse(at_plane: Terminal, write: Write) -> None:
    path = write(service("huge", 1, cpu="64"))
    before = state_of(at_plane)
    assert at_plane.run("plan", "-f", path, "--json") == 1
    report = json.loads(at_plane.stdout)
    assert state_of(at_plane) == before, "not even the audit has grown"
    [planned] = report["refusals"]
    assert report["error"]["code"] == at_plane.refusal("apply", "-f", path)
    applied = at_plane.refused("apply", "-f", path)
    assert "shop/huge would be refused: " in planned
    assert "64 cpu" in planned
    assert "64 cpu" in applied
    assert "Nothing was applied." in applied
    assert state_of(at_plane)[0] == before[0], "a refused apply is audited and changes nothing"
