"""`durable send` carries operators' messages to placements."""

import json

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal


def test_an_operator_sends_to_every_placement(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("sent", 2)))
    answers = at_plane.json("send", "shop/sent", "retry-now", "--reason", "INC-1")["answers"]
    assert [answer["placement"] for answer in answers] == [
        "placement/shop/sent/g1/north",
        "placement/shop/sent/g1/south",
    ]
    of_none = ("retry-now", "--reason", "INC-1")
    gone = at_plane.refusal("send", "placement/shop/sent/g9/north", *of_none)
    assert gone == "unknown_placement"
    assert at_plane.refusal("send", "shop/none", *of_none) == "no_placements"
    at_plane.wrong("send", "shop/sent", "explode", "--reason", "INC-1")
    at_plane.wrong("send", "shop/sent", "retry-now")
    at_plane.wrong("send", "shop/sent", "retry-now", "--reason", " ")
    at_plane.wrong("send", "shop/sent", "retry-now", "--reason", "x", "--slot", "1")


def test_every_placement_is_asked_whatever_the_others_answer(
    at_plane: Terminal, write: Write
) -> None:
    at_plane.json("apply", "-f", write(service("asked", 2)))
    north, south = (f"placement/shop/asked/g1/{region}" for region in ("north", "south"))
    of = ("--reason", "INC-4", "--request-id")
    at_plane.json("send", north, "retry-now", *of, "INC-4")

    # The first refuses the id, the second has never heard of it.
    assert at_plane.run("send", "shop/asked", "evict", *of, "INC-4", "--json") == 1
    answered = json.loads(at_plane.stdout)
    outcomes = {one["placement"]: one["refused"] for one in answered["answers"]}
    assert outcomes == {north: "key_conflict", south: None}
    assert answered["error"]["code"] == "key_conflict"

    assert at_plane.run("send", "shop/asked", "evict", *of, "INC-4") == 1
    for shown in (north, south, "key_conflict", "accepted", "Stopping"):
        assert shown in at_plane.stdout
    assert "1 of 2 placements refused it" in at_plane.stderr
    at_plane.json("delete", "shop/asked")


def test_a_request_id_counts_once(at_plane: Terminal, write: Write) -> None:
    at_plane.json("apply", "-f", write(service("noted", 1)))
    one = at_plane.json("get", "placements", "--tenant", "shop")["placements"]
    [placement] = [row["placement"] for row in one if "/noted/" in row["placement"]]

    def of(message: str, request: str) -> tuple[str, ...]:
        return ("send", placement, message, "--reason", "INC-2", "--request-id", request)

    def answer(message: str, request: str) -> str:
        [report] = at_plane.json(*of(message, request))["answers"]
        return report["answer"]

    assert answer("evict", "e1").startswith("Stopping")
    assert answer("evict", "e1").startswith("Stopping")
    assert at_plane.run(*of("retry-now", "e1")) == 1
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
