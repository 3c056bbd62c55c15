"""How many replicas voluntary stops must leave serving in each region.

The sum of the floors is never below what the workload must keep, also while they change: a floor
comes down only when the floors that are known to be in force make up for it. So a step that stops
something in a region needs to look at that region's floor alone.
"""

from collections.abc import Mapping


def shortfall(homes: Mapping[str, int], left: Mapping[str, int]) -> int:
    """How many replicas are missing in those regions that have fewer than they answer for."""
    return sum(max(0, count - left.get(region, 0)) for region, count in homes.items())


def divide_floors(
    homes: Mapping[str, int], left: Mapping[str, int], known: Mapping[str, int], allowance: int
) -> dict[str, int]:
    """The floors to publish now: the allowance goes where it is needed, the rest stays put."""
    target = _targets(homes, left, known, allowance)
    must_keep = max(0, sum(homes.values()) - allowance)
    # Until it is known that a floor was raised, it counts as it was.
    certain = sum(min(floor, known.get(region, 0)) for region, floor in target.items())
    if certain >= must_keep:
        return target
    return {region: max(floor, known.get(region, 0)) for region, floor in target.items()}


def _targets(
    homes: Mapping[str, int], left: Mapping[str, int], known: Mapping[str, int], allowance: int
) -> dict[str, int]:
    given: dict[str, int] = {}
    for region in sorted(homes):
        missing = max(0, homes[region] - left.get(region, 0))
        given[region] = min(missing, allowance - sum(given.values()))
    for region in sorted(homes):
        held = max(0, homes[region] - known.get(region, homes[region])) - given[region]
        given[region] += max(0, min(held, allowance - sum(given.values())))
    spare = min(allowance, sum(homes.values())) - sum(given.values())
    for _ in range(spare):
        region = max(sorted(homes), key=lambda one: homes[one] - given[one])
        given[region] += 1
    targets = {region: homes[region] - given[region] for region in homes}
    # A region that answers for nothing any more keeps nothing.
    return targets | {region: 0 for region in known if region not in homes}
