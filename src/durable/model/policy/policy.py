"""A scheduler policy: which scores weigh how much, and the limits a decision works within.

Filters are not listed: each enforces an invariant or a requirement of the workload, so no policy
can switch one off. A revision is data; the region's authority says which revision runs.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from durable.model.operators.rights import Verb
from durable.model.overrides.effects import Gate
from durable.model.recovery.detection import RecoveryPolicy
from durable.validation.value import Value

DEFAULT_GATES = (Gate.CORDON, Gate.AVOIDED, Gate.CRASHES, Gate.SPREAD)

ScoreWeight = Annotated[float, Field(ge=0, le=1_000)]


class Sampling(Value):
    """Work below this priority is scored on a sample of its candidates (power of d choices)."""

    below_priority: Annotated[int, Field(ge=0, le=1_001)]
    candidates: Annotated[int, Field(ge=2, le=100_000)]


class Urgency(Value):
    """How far the priority of a job rises as its deadline nears, in equal steps."""

    # The last step, and the priority that no deadline raises anything above.
    most: Annotated[int, Field(ge=0, le=1_000)] = 200
    ceiling: Annotated[int, Field(ge=0, le=1_000)] = 800
    steps: Annotated[int, Field(ge=1, le=100)] = 4
    # The first step comes when this part of the time from admission to deadline has passed.
    begins: Annotated[float, Field(ge=0, lt=1)] = 0.5


class Guardrails(Value):
    """What a region must show while a new revision is watched there; else it is rolled back."""

    # How long the first region is watched, and each further one.
    bake_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    step_seconds: Annotated[int, Field(ge=0, le=86_400)] = 60
    # By how many points the part of replicas that wait may rise.
    pending_rise_percent: Annotated[float, Field(ge=0, le=100)] = 10.0
    # How many of its reservations may be refused.
    refused_percent: Annotated[float, Field(ge=0, le=100)] = 50.0
    # How long 95 of 100 replicas at most may wait for a node.
    place_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    # With fewer decisions than this, refusals and waits say nothing.
    least_decisions: Annotated[int, Field(ge=1, le=10_000)] = 5


class Policy(Value):
    """One revision's content."""

    weights: Annotated[Mapping[str, ScoreWeight], Field(min_length=1, max_length=64)]
    sampling: Sampling
    # Of the candidates whose points are within this of the best, the request's seed chooses: many
    # decisions on one version of the cache then rarely meet at the same node. 0 takes the best.
    choice_band: Annotated[float, Field(ge=0, le=1_000)] = 0.02
    # A decision on a stale cache is refused at commit and made again this often in one activity.
    rounds_per_attempt: Annotated[int, Field(ge=1, le=16)]
    reservation_lease_seconds: Annotated[int, Field(ge=1, le=3_600)]
    # How many of the best candidates a decision keeps to explain its choice.
    candidates_kept: Annotated[int, Field(ge=1, le=100)]
    # A slot that just failed on a node does not go back there for so long.
    crash_pair_seconds: Annotated[int, Field(ge=0, le=86_400)]
    retry_first_seconds: Annotated[float, Field(gt=0, le=3_600)]
    retry_longest_seconds: Annotated[float, Field(gt=0, le=3_600)]
    urgency: Urgency = Urgency()
    # What a break-glass override may skip; what keeps the invariants is no gate.
    overridable_gates: tuple[Gate, ...] = DEFAULT_GATES
    guardrails: Guardrails = Guardrails()
    recovery: RecoveryPolicy = RecoveryPolicy()
    # What is refused without a signature: an actor without one is only a claim.
    signed_verbs: tuple[Verb, ...] = (Verb.APPROVE, Verb.BREAK_GLASS, Verb.FENCE)
