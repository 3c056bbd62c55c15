"""`durable drain`, `cordon`, `uncordon` and `get drains` on a running control plane."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal

NODE = "north-one-0000"


@pytest.fixture
def fleet(at_plane: Terminal) -> Iterator[Terminal]:
    """The plane is shared: whatever a test cordoned takes work again."""
    yield at_plane
    for zone in ("n1", "n2", "s1"):
        at_plane.run("drain", "--zone", zone, "--cancel")
        at_plane.run("uncordon", "--zone", zone)
    at_plane.run("drain", NODE, "--cancel")
    at_plane.run("uncordon", NODE)


def node(terminal: Terminal, name: str = NODE) -> Any:
    return next(one for one in terminal.json("get", "nodes")["nodes"] if one["node"] == name)


def test_a_node_is_cordoned_and_uncordoned_with_a_reason(fleet: Terminal) -> None:
    assert fleet.json("cordon", NODE, "--reason", "a fan")["nodes"] == [NODE]
    shown = node(fleet)
    assert shown["cordoned"] == "a fan"
    assert shown["cordoned_by"].startswith("person:")
    assert fleet.run("cordon", NODE, "--reason", "a fan") == 0
    assert "Nothing changed" in fleet.stdout
    assert fleet.json("uncordon", NODE)["nodes"] == [NODE]
    assert node(fleet)["cordoned"] is None


def test_a_node_is_drained_and_the_command_waits_for_it(fleet: Terminal, write: Write) -> None:
    fleet.json("apply", "-f", write(service("moved", 6)))
    drained = fleet.json("drain", NODE, "--reason", "INC-42", "--request-id", "INC-42")["drain"]
    assert (drained["drain"], drained["state"]) == (f"drain/north/{NODE}", "drained")
    assert node(fleet)["cordoned"] == f"drain/north/{NODE}: INC-42"
    assert fleet.json("get", "drains")["drains"] == []
    ended = fleet.json("get", "drains", "--all", "--region", "north")["drains"]
    assert "INC-42" in [one["request"] for one in ended]
    assert fleet.run("get", "drains", "--all") == 0
    assert "drained" in fleet.stdout
    assert fleet.refusal("drain", NODE) == "already_drained"
    fleet.json("delete", "shop/moved")


def test_a_region_is_marked_as_in_maintenance_and_shown_as_such(fleet: Terminal) -> None:
    def shown() -> str:
        regions = fleet.json("get", "regions")["regions"]
        return next(one["maintenance"] for one in regions if one["region"] == "north")

    why = ("--reason", "new kernels")
    marked = fleet.json("maintenance", "north", "--for", "1h", *why)["maintenance"]
    assert marked["reason"] == "new kernels"
    assert shown().startswith("until ")
    assert shown().endswith(": new kernels")
    assert fleet.json("maintenance", "north", "--end", *why)["maintenance"] is None
    assert shown() == ""
    assert fleet.run("maintenance", "north", "--end", *why) == 0
    assert "was not in maintenance" in fleet.stdout
    assert fleet.refusal("maintenance", "nowhere", "--for", "1h", *why) == "unknown_region"
    hour = ("--for", "1h")
    for wrong in (
        why,
        hour,
        (*hour, "--end", *why),
        ("--for", "soon", *why),
        ("--for", "25h", *why),
    ):
        assert fleet.run("maintenance", "north", *wrong) == 2


def test_what_is_wrong_is_refused_with_what_is_allowed(fleet: Terminal) -> None:
    before = fleet.json("get", "nodes")["nodes"]
    for command in ("drain", "cordon", "uncordon"):
        assert fleet.refusal(command, "nowhere") == "unknown_node"
        assert fleet.refusal(command, "--zone", "nowhere") == "unknown_zone"
        assert fleet.refusal(command, "--pool", "nowhere") == "unknown_pool"
        assert "in north and in south; add --region" in fleet.refused(command, "--pool", "one")
        assert fleet.refusal(command, NODE, "--region", "west") == "unknown_region"
        assert "north has no node" in fleet.refused(command, "south-one-0000", "--region", "north")
        fleet.wrong(command)
        fleet.wrong(command, NODE, "--zone", "n1")
        fleet.wrong(command, "No Such")
    for deadline in ("0", "0s", "1", "-5m", "soon"):
        assert "allowed" in fleet.wrong("drain", NODE, "--deadline", deadline)
    assert fleet.refusal("drain", NODE, "--cancel") == "unknown_drain"
    assert fleet.json("get", "nodes")["nodes"] == before


def test_a_drain_that_gives_up_ends_the_command_with_an_error(
    fleet: Terminal, write: Write
) -> None:
    # What other tests left running would be in the way, too.
    for row in fleet.json("get", "workloads")["workloads"]:
        fleet.json("delete", row["workload"])
    for zone in ("n2", "s1"):
        fleet.json("cordon", "--zone", zone, "--reason", "so that nothing fits elsewhere")
    fleet.json("apply", "-f", write(service("stuck", 1)))
    stuck = ("drain", "--zone", "n1", "--reason", "INC-7")
    assert fleet.run(*stuck, "--deadline", "5s", "--json") == 1
    answer = json.loads(fleet.stdout)
    assert answer["error"]["code"] == "not_drained"
    assert "shop/stuck (1 replica)" in answer["error"]["message"]
    assert answer["drain"]["state"] == "gave_up"

    assert fleet.run(*stuck, "--no-wait") == 0
    [running] = fleet.json("get", "drains")["drains"]
    assert (running["drain"], running["left"]) == ("drain/north/zone/n1", 1)
    assert fleet.refusal(*stuck) == "being_drained"
    assert fleet.refusal("uncordon", "--zone", "n1") == "being_drained"
    assert fleet.run("drain", "--zone", "n1", "--cancel", "--reason", "INC-7") == 0
    assert "Cancelled" in fleet.stdout
    assert node(fleet)["cordoned"] is None
    fleet.json("delete", "shop/stuck")
