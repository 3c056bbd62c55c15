"""The bars of speed at small sizes, to be run before a change lands: one line of JSON for all.

Each benchmark runs as it is, with fewer and smaller workloads. Its bar is a ratio within its own
run, so that it holds on any machine, if nothing else runs there.
"""

import json
import subprocess
import sys
import time
from typing import Any

# The sizes of each, and the figures that its bars are about.
QUICK: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "placement": (
        ("--singles", "150", "--workloads", "30", "--replicas", "50", "--latencies", "10"),
        ("singles_ratio_to_empty_pairs", "replicas_ratio_to_yardstick", "cpu_ms_of_a_single"),
    ),
    "rollout": (("--workloads", "20", "--replicas", "10"), ("ratio", "fewest_serving")),
    "decision": (
        ("--nodes", "20000", "--seconds", "0.3"),
        ("growth_5000_to_20000", "sampled_to_all_at_20000", "refused_ratio"),
    ),
}


def run(name: str) -> dict[str, Any]:
    """The figures of one benchmark, and whether its bars hold."""
    sizes, shown = QUICK[name]
    done = subprocess.run(  # noqa: S603 - our own modules
        [sys.executable, "-m", f"bench.{name}", *sizes],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = done.stdout.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return {"holds": False, "exit_code": done.returncode}
    print("\n".join(lines[:-1]), file=sys.stderr)
    line = json.loads(lines[-1])
    return {"holds": line["holds"], **{figure: line["figures"][figure] for figure in shown}}


def main() -> int:
    began = time.monotonic()
    figures = {name: run(name) for name in QUICK}
    holds = all(each["holds"] for each in figures.values())
    seconds = round(time.monotonic() - began)
    print(json.dumps({"bench": "quick", "holds": holds, "seconds": seconds, "figures": figures}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
