"""Manifests that several tests apply, and what an authority remembers of changes."""

from typing import Any

from .terminal import Terminal

SMALL_FLEET = """
regions:
  - id: us-east
    zones: [a]
    recovery_headroom: {id: kept, resources: {cpu: 2}, expires_in: 1d}
    pools:
      - {name: general, zone: a, count: 3, capacity: {cpu: 8, memory: 32Gi}}
tenants:
  - id: risk
    hard: {cpu: 20, memory: 64Gi}
    protected: {cpu: 8}
    grants:
      us-east: {cpu: 12, memory: 32Gi}
"""


def service(name: str, replicas: int = 2, cpu: str = "1", more: str = "") -> str:
    return (
        f"tenant: shop\nname: {name}\nspec:\n  replicas: {replicas}\n"
        f"  resources: {{cpu: {cpu}, memory: 1Gi}}\n{more}"
    )


def state_of(at_plane: Terminal) -> Any:
    """What an authority remembers of changes: versions, the audit's heads, workloads."""
    return (
        [(one["region"], one["version"]) for one in at_plane.json("get", "regions")["regions"]],
        at_plane.json("audit", "head"),
        at_plane.json("get", "workloads", "--all"),
    )
