"""`durable scale` and `durable delete` on a running control plane."""

import pytest

from ..builders import service, state_of
from ..conftest import Write
from ..terminal import Terminal


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


@pytest.mark.parametrize("name", ["web", "shop/", "/web", "shop/web/1", "Shop/web", "shop/we b"])
@pytest.mark.parametrize("command", [("delete",), ("explain",), ("scale",)])
def test_a_name_in_the_wrong_form_is_wrong_usage(
    at_plane: Terminal, name: str, command: tuple[str, ...]
) -> None:
    number = ("3",) if command == ("scale",) else ()
    assert "TENANT/NAME" in at_plane.wrong(*command, name, *number)


def test_unknown_names_and_impossible_numbers_change_nothing(at_plane: Terminal) -> None:
    before = state_of(at_plane)
    for command in (("scale", "shop/none", "2"), ("delete", "shop/none"), ("explain", "shop/none")):
        assert "shop/none" in at_plane.refused(*command)
    for number in ("-1", "10001", "two"):
        at_plane.wrong("scale", "shop/web", "--", number)
    assert state_of(at_plane) == before
