"""`durable queue` shows what waits, and `durable explain` why."""

from typing import Any

from ..builders import service
from ..conftest import Write
from ..terminal import Terminal


def test_a_waiting_workload_is_in_the_queue_with_a_reason(at_plane: Terminal, write: Write) -> None:
    # Every region has a node that could hold one, but not so many of them.
    path = write(service("waits", 20, cpu="4"))
    late = at_plane.refused("apply", "-f", path, "--timeout", "3")
    assert "durable explain shop/waits" in late
    waiting = [row for row in at_plane.json("queue")["queue"] if row["workload"] == "waits"]
    assert waiting
    assert all(row["position"] >= 1 and row["pending"]["code"] for row in waiting)
    assert at_plane.run("queue", "--region", "north") == 0
    report = at_plane.json("explain", "shop/waits")
    assert any(region["queue"]["request"]["pending"] for region in report["regions"])
    each_slot_is_explained_for_itself(at_plane, report)
    at_plane.json("delete", "shop/waits")
    assert "there is no region" in at_plane.refused("queue", "--region", "west").lower()


def each_slot_is_explained_for_itself(at_plane: Terminal, report: Any) -> None:
    """Of a share of which part waits, a slot that is placed waits for nothing."""
    share = next(
        one for one in report["regions"] if one["queue"]["request"]["waiting"] and one["observed"]
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
    assert "Committed for 1 slot: reserve at" in at_plane.stdout
    assert "Waiting" not in at_plane.stdout


def _bound(share: Any) -> set[int]:
    return {one["slot"] for one in share["observed"]}
