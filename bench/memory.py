"""How much memory a regional worker takes for a region of 50,000 nodes, beside one of 1,000."""

import asyncio
import os
import tempfile
from pathlib import Path

from bench._plane import REGION, control_plane, fleet
from bench._report import progress, table, verdict

SMALL, LARGE = 1_000, 50_000
# Beyond what any worker takes, so much for each node of its region.
KIB_PER_NODE_BAR = 16


def peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the process has ended")


async def measure(nodes: int) -> float:
    """The worker's peak after it has read the whole region and placed something in it."""
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - PostgreSQL may run as another user
        async with control_plane(Path(folder), fleet(nodes, 1)) as plane:
            resources = {"cpu": 1, "memory": "1Gi"}
            spec = {"replicas": 3, "resources": resources}
            manifest = {"tenant": "tenant-0", "name": "any", "spec": spec}
            progress(f"placing in {REGION}, {nodes:,} nodes")
            await plane.durable.place(manifest, request_id="any", within_seconds=300)
            return peak_mib(plane.pids["regional"])


async def main() -> None:
    small, large = [await measure(nodes) for nodes in (SMALL, LARGE)]
    per_node = (large - small) * 1024 / (LARGE - SMALL)
    rows = [[f"{SMALL:,} nodes", small], [f"{LARGE:,} nodes", large], ["KiB per node", per_node]]
    table("Peak memory of the regional worker, MiB", ["what", "measured"], rows)
    verdict(
        "memory",
        {"mib_at_1000_nodes": small},
        {"mib_at_50000_nodes": large, "kib_per_node": per_node},
        holds=per_node <= KIB_PER_NODE_BAR,
    )


if __name__ == "__main__":
    asyncio.run(main())
