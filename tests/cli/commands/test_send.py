"""`durable send` carries operators' messages to placements."""

import json
import time
from typing import Any

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal


def test_an_operator_holds_and_resumes_placements(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("held", 2)))
    held = at_plane.json("send", "shop/held", "hold", "--reason", "INC-1")["answers"]
    assert [answer["placement"] for answer in held] == [
        "placement/shop/held/g1/north",
        "placement/shop/held/g1/south",
    ]
    holds_are_shown(at_plane)
    late = at_plane.refused("scale", "shop/held", "4", "--timeout", "3")
    assert "INC-1 (held)" in late
    assert "durable send shop/held resume --reason REASON; see durable explain shop/held" in late
    one = held[0]["placement"]
    assert at_plane.run("send", one, "resume", "--reason", "INC-1") == 0
    assert one in at_plane.stdout
    assert "Resumed" in at_plane.stdout
    of_none = ("hold", "--reason", "INC-1")
    gone = at_plane.refusal("send", "placement/shop/held/g9/north", *of_none)
    assert gone == "unknown_placement"
    assert at_plane.refusal("send", "shop/none", *of_none) == "no_placements"
    at_plane.wrong("send", "shop/held", "explode", "--reason", "INC-1")
    at_plane.wrong("send", "shop/held", "hold")
    at_plane.wrong("send", "shop/held", "hold", "--reason", " ")
    at_plane.wrong("send", "shop/held", "hold", "--reason", "x", "--slot", "1")


def test_every_placement_is_asked_whatever_the_others_answer(
    at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(service("asked", 2)))
    north, south = (f"placement/shop/asked/g1/{region}" for region in ("north", "south"))
    of = ("--reason", "INC-4", "--request-id")
    at_plane.json("send", north, "retry-now", *of, "INC-4")

    # The first refuses the id, the second has never heard of it.
    assert at_plane.run("send", "shop/asked", "hold", *of, "INC-4", "--json") == 1
    answered = json.loads(at_plane.stdout)
    outcomes = {one["placement"]: one["refused"] for one in answered["answers"]}
    assert outcomes == {north: "key_conflict", south: None}
    assert answered["error"]["code"] == "key_conflict"
    assert wait_for_holds(at_plane, "asked", 1).keys() == {south}

    assert at_plane.run("send", "shop/asked", "hold", *of, "INC-4") == 1
    for shown in (north, south, "key_conflict", "accepted", "Held"):
        assert shown in at_plane.stdout
    assert "1 of 2 placements refused it" in at_plane.stderr
    at_plane.json("delete", "shop/asked")


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


def holds_are_shown(at_plane: Terminal) -> None:
    """Although nothing waits."""
    holds = wait_for_holds(at_plane, "held", 2)
    assert holds.keys() == {"placement/shop/held/g1/north", "placement/shop/held/g1/south"}
    assert {hold["reason"] for hold in holds.values()} == {"INC-1"}
    assert at_plane.run("get", "placements") == 0
    assert "Hold" in at_plane.stdout
    regions = at_plane.json("explain", "shop/held")["regions"]
    assert [region["queue"]["request"]["hold"]["reason"] for region in regions] == ["INC-1"] * 2
    assert at_plane.run("explain", "shop/held") == 0
    assert "INC-1; nothing new is placed until it is resumed" in at_plane.stdout


def test_a_request_id_counts_once(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("noted", 1)))
    one = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
    [placement] = [row["placement"] for row in one if "/noted/" in row["placement"]]

    def of(message: str, request: str) -> tuple[str, ...]:
        return ("send", placement, message, "--reason", "INC-2", "--request-id", request)

    def answer(message: str, request: str) -> str:
        [report] = at_plane.json(*of(message, request))["answers"]
        return report["answer"]

    assert answer("hold", "h1").startswith("Held")
    assert answer("hold", "h1").startswith("Held")
    assert at_plane.run(*of("resume", "h1")) == 1
    assert answer("resume", "r1").startswith("Resumed")
    assert at_plane.run(*of("hold", "h1")) == 1
    assert wait_for_holds(at_plane, "noted", 0) == {}
    at_plane.json("delete", "shop/noted")


def test_any_field_of_a_payload_can_be_set(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("fields", 2)))
    send = ("send", "shop/fields", "evict", "--reason", "INC-3")
    answers = at_plane.json(*send, "--set", "slots=[]")["answers"]
    assert all("Stopping" in answer["answer"] for answer in answers)
    for wrong, why in (
        ("slots", "allowed: NAME=JSON"),
        ("slots=[", "allowed: NAME=JSON"),
        ("slots=1", "slots"),
        ("loudly=true", "loudly"),
    ):
        assert at_plane.run(*send, "--set", wrong) == 2
        assert why in at_plane.stderr
