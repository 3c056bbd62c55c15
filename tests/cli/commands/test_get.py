"""`durable get` on a running control plane."""

import pytest

from ..terminal import Terminal


def test_every_kind_is_listed_and_filtered(seen: Terminal) -> None:
    regions = seen.json("get", "regions", "--live")["regions"]
    assert [(row["region"], row["nodes"], row["live"]) for row in regions] == [
        ("north", 6, 6),
        ("south", 4, 4),
    ]
    for name in ("nodes", "node", "no"):
        assert seen.json("get", name)["total"] == 10
    nodes = seen.json("get", "nodes", "--region", "south", "--limit", "2")
    assert (nodes["total"], len(nodes["nodes"])) == (4, 2)
    assert all(node["live"] for node in nodes["nodes"])
    [tenant] = seen.json("get", "tenants")["tenants"]
    assert tenant["tenant"] == "shop"
    assert tenant["hard"] == {"cpu_millis": 90_000, "memory_mib": 400 * 1024, "gpus": 0}
    grants = seen.json("get", "grants", "--tenant", "shop")["grants"]
    assert {(row["region"], row["standing"]) for row in grants} == {
        ("north", "fits"),
        ("south", "fits"),
    }
    assert nodes["nodes"][0]["capacity"]["memory_mib"] in (8 * 1024, 32 * 1024)
    assert regions[0]["capacity"]["cpu_millis"] == 48_000
    placements = seen.json("get", "placements", "--region", "north", "--tenant", "shop")
    mine = [
        p for p in placements["placements"] if p["placement"].startswith("placement/shop/seen/")
    ]
    assert mine[0]["slots"][0]["state"] == "serving"
    decisions = seen.json("get", "decisions", "shop/seen")["decisions"]
    assert {row["region"] for row in decisions} == {"north", "south"}
    [row] = [
        row for row in seen.json("get", "workloads")["workloads"] if row["workload"] == "shop/seen"
    ]
    assert (row["serving"], row["phase"]) == (3, "serving")


@pytest.mark.parametrize(
    "kind",
    ["workloads", "placements", "nodes", "tenants", "grants", "regions", "policies", "operators"],
)
def test_every_list_is_readable(seen: Terminal, kind: str) -> None:
    assert seen.run("get", kind, "--limit", "1") == 0
    assert len([line for line in seen.stdout.splitlines() if line.strip()]) >= 3
    assert "Traceback" not in seen.stderr


def test_a_wrong_filter_is_refused(seen: Terminal) -> None:
    assert "the regions are north, south" in seen.refused("get", "nodes", "--region", "west")
    seen.wrong("get", "nodes", "--region", "No Such")
    seen.wrong("get", "workloads", "--tenant", "No Such")
    seen.wrong("get", "nodes", "--limit", "0")
    assert "There is no tenant nobody" in seen.refused("get", "workloads", "--tenant", "nobody")
