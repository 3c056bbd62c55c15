"""Why something waits: a code with parameters, put into words only where people read them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, cast

from pydantic import Field, JsonValue, computed_field, model_validator

from durable.model.placement.pending_reasons import (
    NEEDS_A_CHANGE,
    CommitRefused,
    CrashBackoff,
    Details,
    Gang,
    Held,
    HeldBack,
    NoGrant,
    NoNode,
    PendingCode,
    Rejection,
    Shortage,
    Unreachable,
)
from durable.model.refusal import Refusal
from durable.model.resources import show_dimension
from durable.validation.text import shorten, show_moment
from durable.validation.value import Value

Parameters = Mapping[str, JsonValue]

# What surrounds the rejections in a sentence needs less than the rest of it.
_REJECTIONS_LENGTH = 240


class Pending(Value):
    """One wait: programs read the code and the parameters, people read the sentence."""

    code: PendingCode
    parameters: Parameters = Field(default={})

    @classmethod
    def because(cls, code: PendingCode, details: Details) -> Self:
        return cls(code=code, parameters=details.model_dump(mode="json", exclude_none=True))

    @classmethod
    def refused(cls, code: PendingCode, refusal: Refusal) -> Self:
        """A wait because the authority refused a step; the refusal's sentence says why."""
        return cls.because(code, CommitRefused(refusal=refusal))

    def reason(self) -> dict[str, JsonValue]:
        """The code and the parameters alone, as one reason is nested in another."""
        return {"code": self.code.value, "parameters": dict(self.parameters)}

    @model_validator(mode="before")
    @classmethod
    def _drop_sentence(cls, data: Any) -> Any:
        """It is written beside the parameters for people, and never read back."""
        if not isinstance(data, Mapping):
            return data
        fields = cast(Mapping[str, Any], data)
        return {name: value for name, value in fields.items() if name != "sentence"}

    @model_validator(mode="after")
    def _has_words(self) -> Self:
        """Parameters that do not belong to the code are refused now, not when they are read."""
        _words(self.code, self.parameters)
        return self

    @computed_field
    @property
    def sentence(self) -> str:
        """What the wait is for and what would end it, in at most 500 characters."""
        return shorten(_words(self.code, self.parameters))

    @property
    def waiting_helps(self) -> bool:
        return self.code not in NEEDS_A_CHANGE

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"


def show_rejections(
    rejections: Iterable[Rejection],
    nodes: int,
    *,
    rejected: int | None = None,
    counted: str = "nodes",
) -> str:
    """On one line: `4,981 of 5,000 nodes: 3,000 insufficient gpu, ...`.

    `rejected` is how many nodes were rejected in all, if not every rejection is given.
    """
    by_words = Counter[str]()
    for line in rejections:
        by_words[line.words] += line.nodes
    total = rest = by_words.total() if rejected is None else rejected
    parts = list[str]()
    for words, count in sorted(by_words.items(), key=lambda line: (-line[1], line[0])):
        part = f"{count:,} {words}"
        if len(", ".join([*parts, part])) > _REJECTIONS_LENGTH:
            break
        parts.append(part)
        rest -= count
    if rest:
        parts.append(f"{rest:,} for other reasons")
    return f"{total:,} of {nodes:,} {counted}: {', '.join(parts)}"


def _words(code: PendingCode, parameters: Parameters) -> str:
    if "refusal" in parameters:
        return CommitRefused.read(parameters).refusal.sentence
    return _WORDS[code](parameters)


def _queued(_: Parameters) -> str:
    return "It waits for its next decision."


def _conflicts(_: Parameters) -> str:
    return "Others took the nodes first; it tries again."


def _lapsed(_: Parameters) -> str:
    return "The lease of its region has lapsed; it goes on when the global side is reached again."


def _no_node(remedy: str) -> Callable[[Parameters], str]:
    def words(parameters: Parameters) -> str:
        return _no_node_words(NoNode.read(parameters), "", remedy)

    return words


def _nodes_unavailable(parameters: Parameters) -> str:
    details = NoNode.read(parameters)
    if not details.nodes:
        return f"{details.region} has no nodes; wait for their agents, or add nodes."
    return _no_node_words(details, "", "wait for nodes to come back, or add nodes")


def _never_fits(parameters: Parameters) -> str:
    """Names the dimension of which no node has enough, and the largest amount there is."""
    details = NoNode.read(parameters)
    requested, largest = details.requested, details.largest or details.requested
    pairs = enumerate(zip(requested.amounts, largest.amounts, strict=True))
    for dimension, (amount, most) in pairs:
        if most < amount:
            needed, has = show_dimension(dimension, amount), show_dimension(dimension, most)
            needs = f", which needs {needed}; the largest has {has}"
            return _no_node_words(details, needs, "request less, or add larger nodes")
    needs = f", which needs {requested} at once"
    return _no_node_words(details, needs, "request less, or add nodes of another shape")


def _crashed(parameters: Parameters) -> str:
    if "nodes" in parameters:
        details = NoNode.read(parameters)
        failed = f" What failed last: {details.failure}" if details.failure else ""
        remedy = "wait until it may go back there, or add nodes"
        return _no_node_words(details, "", remedy) + failed
    crash = CrashBackoff.read(parameters)
    many = "1 slot failed and is" if crash.slots == 1 else f"{crash.slots:,} slots failed and are"
    return f"{many} tried again shortly: {crash.failure}"


def _no_node_words(details: NoNode, needs: str, remedy: str) -> str:
    of = "" if details.slots is None else f"{details.unplaced:,} of {details.slots:,} slots of "
    counted = "kinds of node" if details.counts_kinds else "nodes"
    line = show_rejections(
        details.rejections, details.nodes, rejected=details.rejected, counted=counted
    )
    what = f"{of}{details.workload}{needs}"
    return f"No node in {details.region} can take {what} ({line}); {remedy}."


def _grant(parameters: Parameters) -> str:
    details = Shortage.read(parameters)
    return (
        f"Tenant {details.tenant} has {details.left} of its grant left in {details.region}, "
        f"{_enough_for(details)}; grant that it does not use in other regions moves here by "
        "itself; if none comes, use less or raise its quota."
    )


def _headroom(parameters: Parameters) -> str:
    details = Shortage.read(parameters)
    return (
        f"{details.region} has {details.left} left beside what is kept for recovery, "
        f"{_enough_for(details)}; wait until other work uses less, or add nodes."
    )


def _enough_for(details: Shortage) -> str:
    of = f"{details.enough_for:,} of {details.slots:,} slots"
    return f"which is enough for {of} of {details.requested}"


def _no_grant(parameters: Parameters) -> str:
    details = NoGrant.read(parameters)
    return (
        f"Tenant {details.tenant} has no grant in {details.region}; grant it some of its quota "
        "there, or let the workload run elsewhere."
    )


def _gang(parameters: Parameters) -> str:
    details = Gang.read(parameters)
    if details.was_reserved:
        return (
            f"{details.placeable:,} of the {details.size:,} replicas that must start together "
            "got a node, and other work took the rest first; none was kept, and all are tried "
            "again."
        )
    beside = f" beside {details.live:,} that are live" if details.live else ""
    begins = (
        f"A gang of {details.size:,} starts together or not at all, and {details.placeable:,} of "
        f"{details.slots:,} slots could be placed{beside}"
    )
    if details.because is None:
        return f"{begins}; request more slots at once."
    return f"{begins}: {Pending.read(details.because).sentence}"


def _held_back(parameters: Parameters) -> str:
    details = HeldBack.read(parameters)
    waits = "1 slot waits" if details.slots == 1 else f"{details.slots:,} slots wait"
    if not details.at_once:
        return f"{waits}: the job runs as many slots at once in other regions as it may."
    few = "1 slot of it" if details.at_once == 1 else f"{details.at_once:,} slots of it"
    return f"{waits} until another has ended: {few} may run at once here."


def _held(parameters: Parameters) -> str:
    details = Held.read(parameters)
    return (
        f"Held by {details.actor} until {show_moment(details.ends_at)}: "
        f"{details.reason[:300]}; wait, or end it: "
        f"`durable override revoke {details.override} --reason ...`."
    )


def _unreachable(parameters: Parameters) -> str:
    return Unreachable.read(parameters).error


_WORDS: Mapping[PendingCode, Callable[[Parameters], str]] = {
    PendingCode.QUEUED: _queued,
    PendingCode.CAPACITY: _no_node("wait for room, request less, or add nodes"),
    PendingCode.NODES_UNAVAILABLE: _nodes_unavailable,
    PendingCode.SPREAD: _no_node(
        "wait for room where it may go, relax its spread, or add nodes there"
    ),
    PendingCode.GRANT: _grant,
    PendingCode.HEADROOM: _headroom,
    PendingCode.GANG: _gang,
    PendingCode.CONFLICTS: _conflicts,
    PendingCode.CRASHED: _crashed,
    PendingCode.PARALLELISM: _held_back,
    PendingCode.HELD: _held,
    PendingCode.REGION_FENCED: _no_node("place it elsewhere, or wait for the failback"),
    PendingCode.REGION_LEASE_LAPSED: _lapsed,
    PendingCode.AUTHORITY_UNREACHABLE: _unreachable,
    PendingCode.NEVER_FITS: _never_fits,
    PendingCode.REQUIREMENTS: _no_node("change its requirements, or add nodes that meet them"),
    PendingCode.TAINTED: _no_node("tolerate the taint, or add nodes without it"),
    PendingCode.NO_GRANT: _no_grant,
}
