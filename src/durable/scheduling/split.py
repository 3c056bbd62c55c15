"""Which region each slot of a workload belongs to: by weight, and moved only when it must be."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from durable.model.refusal import RefusalCode, RefusedError
from durable.model.workload import WorkloadSpec

Slots = tuple[int, ...]
# A refusal's sentence has 500 characters, and two lists of names at most.
_LIST_LENGTH = 150


def split(
    spec: WorkloadSpec, regions: Sequence[str], current: Mapping[str, Slots]
) -> dict[str, Slots]:
    """Slots 0 to N-1 over the regions; every region has an entry, if an empty one.

    A slot keeps its region while that is allowed and has no more than its share; of those that
    have more, the highest slots move. Fewer replicas drop the highest slots.
    """
    weights = _weights(spec, regions)
    homes = _homes(spec.replicas, weights, current)
    if spec.is_gang:
        shares = {_home_of_gang(weights, homes): spec.replicas}
    else:
        shares = _shares(spec.replicas, weights, homes)
    return _assign(spec.replicas, sorted(regions), shares, homes)


def _weights(spec: WorkloadSpec, regions: Sequence[str]) -> dict[str, int]:
    """The weight of every region that may have any slot, in the order of names."""
    if not regions:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            "There are no regions yet; load a fleet with durable fleet load -f FILE.",
        )
    named = spec.requirements.regions
    unknown = sorted({*named, *spec.weights}.difference(regions))
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            f"There is no region {_listed(unknown)}; the regions are {_listed(sorted(regions))}.",
        )
    allowed = [region for region in sorted(regions) if not named or region in named]
    by_region: Mapping[str, int] = {str(name): share for name, share in spec.weights.items()}
    weights = {region: by_region.get(region, 1) for region in allowed}
    weights = {region: weight for region, weight in weights.items() if weight}
    if not weights:
        raise RefusedError(
            RefusalCode.RESIDENCY,
            f"Residency allows {_listed(allowed) or 'no region'} and every weight there is 0; of "
            f"the regions {_listed(sorted(regions))}, give one a weight or allow another.",
        )
    return weights


def _homes(
    replicas: int, weights: Mapping[str, int], current: Mapping[str, Slots]
) -> dict[int, str]:
    """Where each wanted slot is now, as far as it may stay; one that is at two places keeps one."""
    homes: dict[int, str] = {}
    for region in weights:
        for slot in current.get(region, ()):
            if slot < replicas:
                homes.setdefault(slot, region)
    return homes


def _home_of_gang(weights: Mapping[str, int], homes: Mapping[int, str]) -> str:
    """Where most of it is already, or else where the weight is highest."""
    held = Counter(homes.values())
    return min(weights, key=lambda region: (-held[region], -weights[region], region))


def _shares(replicas: int, weights: Mapping[str, int], homes: Mapping[int, str]) -> dict[str, int]:
    """Whole shares by largest remainder; between equals who has it keeps it, so less moves."""
    total, held = sum(weights.values()), Counter(homes.values())
    shares = {region: replicas * weight // total for region, weight in weights.items()}

    def claim(region: str) -> tuple[int, int, str]:
        beyond = held[region] - shares[region]
        return (-(replicas * weights[region] % total), -beyond, region)

    by_remainder = sorted(weights, key=claim)
    for region in by_remainder[: replicas - sum(shares.values())]:
        shares[region] += 1
    return shares


def _assign(
    replicas: int, regions: Sequence[str], shares: Mapping[str, int], homes: Mapping[int, str]
) -> dict[str, Slots]:
    given: dict[str, list[int]] = {region: [] for region in regions}
    homeless: list[int] = []
    for slot in range(replicas):
        home = homes.get(slot)
        if home is not None and len(given[home]) < shares.get(home, 0):
            given[home].append(slot)
        else:
            homeless.append(slot)
    for slot in homeless:
        # To the region that is emptiest for its share, so that the first slots are far apart.
        open_to = [region for region in sorted(shares) if len(given[region]) < shares[region]]
        emptiest = min(open_to, key=lambda region: len(given[region]) / shares[region])
        given[emptiest].append(slot)
    return {region: tuple(sorted(slots)) for region, slots in given.items()}


def _listed(names: Iterable[str]) -> str:
    listed, shown = list(names), list[str]()
    for name in listed:
        if len(", ".join([*shown, name])) > _LIST_LENGTH:
            return f"{', '.join(shown)} and {len(listed) - len(shown):,} more"
        shown.append(name)
    return ", ".join(shown)
