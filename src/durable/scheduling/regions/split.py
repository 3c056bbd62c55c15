"""Which region each slot belongs to: by room, grant and weight, and moved only if asked."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import WorkloadSpec
from durable.scheduling.regions.room import RegionOffer, RegionStanding

Slots = tuple[int, ...]
# A refusal's sentence has 500 characters, and two lists of names at most.
_LIST_LENGTH = 150


@dataclass(frozen=True, slots=True)
class CurrentShares:
    """Where the slots are, and what is asked for beside their number."""

    by_region: Mapping[str, Slots] = field(default_factory=dict[str, Slots])
    # Every replica is started anew, so that a region where none can start has nothing to keep.
    is_rollout: bool = False
    # Somebody changed the weights, and so asked for slots to move.
    is_rebalanced: bool = False
    # Regions that are lost: what they have moves to others, or has nowhere to go.
    lost: frozenset[str] = frozenset()
    # Regions that keep what they have and get no more: nobody knows yet what they are.
    closed: frozenset[str] = frozenset()


NOWHERE = CurrentShares()


def split(
    spec: WorkloadSpec, offers: Sequence[RegionOffer], current: CurrentShares = NOWHERE
) -> dict[str, Slots]:
    """Slots 0 to N-1 over the regions; every region has an entry, if an empty one.

    A slot keeps its region while that is allowed: what serves is not taken down to rebalance,
    unless somebody changed the weights. New slots go where room and grant are, in proportion to the
    weights; those that fit nowhere now wait where something could still start them. A gang goes to
    one region as a whole. Fewer replicas drop the highest slots.
    """
    regions = sorted(offer.region for offer in offers)
    weights = _weights(spec, regions)
    takers = _without(weights, current.lost | current.closed)
    weights = {region: weights[region] for region in weights if region not in current.lost}
    allowed = {
        offer.region: offer if offer.region in takers else _closed(offer)
        for offer in offers
        if offer.region in weights
    }
    homes = _homes(spec.replicas, allowed, current)
    if spec.is_gang:
        shares = {_home_of_gang(spec, weights, allowed, homes): spec.replicas}
    else:
        shares = _shares(spec.replicas, weights, allowed, homes, current.is_rebalanced)
    return _assign(spec.replicas, regions, shares, homes)


def _weights(spec: WorkloadSpec, regions: Sequence[str]) -> dict[str, int]:
    """The weight of every region that may have any slot, in the order of names."""
    if not regions:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            "There are no regions yet; load a fleet with `durable fleet load -f FILE`.",
        )
    named = spec.requirements.regions
    refuse_unknown({*named, *spec.weights}, regions)
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


def refuse_unknown(named: Iterable[str], regions: Iterable[str]) -> None:
    """Refuses names of regions that there are not."""
    unknown = sorted(set(named).difference(regions))
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_REGION,
            f"There is no region {_listed(unknown)}; the regions are {_listed(sorted(regions))}.",
        )


def _without(weights: Mapping[str, int], lost: frozenset[str]) -> dict[str, int]:
    """The regions that are left."""
    left = {region: weight for region, weight in weights.items() if region not in lost}
    if not left:
        raise RefusedError(
            RefusalCode.RESIDENCY,
            f"It may run only in {_listed(sorted(weights))}, which is lost; allow another region "
            "or give one a weight.",
        )
    return left


def _closed(offer: RegionOffer) -> RegionOffer:
    return RegionOffer(offer.region, RegionStanding.CLOSED, granted=offer.granted)


def _homes(
    replicas: int, allowed: Mapping[str, RegionOffer], current: CurrentShares
) -> dict[int, str]:
    """Where each wanted slot is now, as far as it may stay; one that is at two places keeps one."""
    best = min(offer.standing for offer in allowed.values())
    homes: dict[int, str] = {}
    for region, offer in sorted(allowed.items()):
        if current.is_rollout and offer.standing > max(best, RegionStanding.NO_GRANT_LEFT):
            continue
        for slot in current.by_region.get(region, ()):
            if slot < replicas:
                homes.setdefault(slot, region)
    return homes


def _home_of_gang(
    spec: WorkloadSpec,
    weights: Mapping[str, int],
    allowed: Mapping[str, RegionOffer],
    homes: Mapping[int, str],
) -> str:
    """Where most of it is already, or else where it fits as a whole, by weight and grant."""
    held = Counter(homes.values())

    def rank(region: str) -> tuple[object, ...]:
        offer = allowed[region]
        fits = (offer.fits < spec.gang_size, offer.fits < spec.replicas, offer.standing)
        lacks = (-weights[region], offer.granted < spec.replicas, -offer.fits)
        return (-held[region], *fits, *lacks, region)

    return min(allowed, key=rank)


def _shares(
    replicas: int,
    weights: Mapping[str, int],
    allowed: Mapping[str, RegionOffer],
    homes: Mapping[int, str],
    is_rebalanced: bool,
) -> dict[str, int]:
    """As near to the weights as what stays and what fits allow."""
    held = Counter(homes.values())
    most = {region: held[region] + offer.fits for region, offer in allowed.items()}
    least = {region: 0 if is_rebalanced else held[region] for region in allowed}
    if sum(most.values()) < replicas:
        # Everything that fits is placed; the rest waits in the regions that are the likeliest.
        best = min(offer.standing for offer in allowed.values())
        likely = [region for region, offer in allowed.items() if offer.standing is best]
        least = dict(most)
        most |= dict.fromkeys(likely, replicas)
    return _proportional(replicas, weights, held, least, most)


def _proportional(
    replicas: int,
    weights: Mapping[str, int],
    held: Mapping[str, int],
    least: Mapping[str, int],
    most: Mapping[str, int],
) -> dict[str, int]:
    """Whole shares by weight within their limits.

    A share beyond a limit is set to it, and the others share what that changes: first on the side
    where more is beyond, so that what is left can always be shared out.
    """
    shares: dict[str, int] = {}
    free: dict[str, int] = {**weights}
    while free:
        tried = _largest_remainder(replicas - sum(shares.values()), free, held)
        below = {region: least[region] for region in free if tried[region] < least[region]}
        above = {region: most[region] for region in free if tried[region] > most[region]}
        if not below and not above:
            return shares | tried
        lacking = sum(least[region] - tried[region] for region in below)
        excess = sum(tried[region] - most[region] for region in above)
        limited: dict[str, int] = {
            **(below if lacking >= excess else {}),
            **(above if excess >= lacking else {}),
        }
        shares |= limited
        free = {region: weight for region, weight in free.items() if region not in limited}
    return shares


def _largest_remainder(
    slots: int, weights: Mapping[str, int], held: Mapping[str, int]
) -> dict[str, int]:
    """Whole shares by largest remainder; between equals who has it keeps it, so less moves."""
    total = sum(weights.values())
    shares = {region: slots * weight // total for region, weight in weights.items()}

    def claim(region: str) -> tuple[int, int, str]:
        beyond = held[region] - shares[region]
        return (-(slots * weights[region] % total), -beyond, region)

    by_remainder = sorted(weights, key=claim)
    for region in by_remainder[: slots - sum(shares.values())]:
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
