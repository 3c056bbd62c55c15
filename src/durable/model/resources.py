"""Amounts of cpu, memory and gpus: exact whole numbers, added, compared and shown here alone."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, model_validator

from durable.validation.problems import Finding, refuse
from durable.validation.quantities import (
    MAX_QUANTITY,
    read_count,
    read_cpu_millis,
    read_memory_mib,
    show_cpu,
    show_memory,
)
from durable.validation.value import Value

DIMENSIONS = ("cpu_millis", "memory_mib", "gpus")
# The same as people write them.
DIMENSION_NAMES = ("cpu", "memory", "gpu")

Amounts = tuple[int, int, int]
NOTHING: Amounts = (0, 0, 0)


def plus(left: Amounts, right: Amounts) -> Amounts:
    return (left[0] + right[0], left[1] + right[1], left[2] + right[2])


def minus(left: Amounts, right: Amounts) -> Amounts:
    return (left[0] - right[0], left[1] - right[1], left[2] - right[2])


def times(amounts: Amounts, count: int) -> Amounts:
    return (amounts[0] * count, amounts[1] * count, amounts[2] * count)


def at_least_nothing(amounts: Amounts) -> Amounts:
    return (max(0, amounts[0]), max(0, amounts[1]), max(0, amounts[2]))


def at_most(left: Amounts, right: Amounts) -> bool:
    """Whether `left` fits into `right`, in every dimension."""
    return left[0] <= right[0] and left[1] <= right[1] and left[2] <= right[2]


def lower_of(left: Amounts, right: Amounts) -> Amounts:
    """The lower amount in each dimension."""
    return (min(left[0], right[0]), min(left[1], right[1]), min(left[2], right[2]))


def how_often(left: Amounts, each: Amounts) -> int:
    """How many times `each` fits into what is left; `each` must not be nothing."""
    return min(max(0, have // one) for have, one in zip(left, each, strict=True) if one)


def show_dimension(dimension: int, amount: int) -> str:
    """One amount with its unit and its name."""
    if DIMENSIONS[dimension] == "cpu_millis":
        return show_cpu(amount)
    is_memory = DIMENSIONS[dimension] == "memory_mib"
    return f"{show_memory(amount)} memory" if is_memory else f"{amount} gpu"


def show_amounts(amounts: Amounts) -> str:
    """For a sentence: `2 cpu, 4Gi, 1 gpu`; less than nothing is shown as nothing."""
    cpu_millis, memory_mib, gpus = at_least_nothing(amounts)
    parts = [show_cpu(cpu_millis)]
    if memory_mib:
        parts.append(show_memory(memory_mib))
    if gpus:
        parts.append(f"{gpus} gpu")
    return ", ".join(parts)


Quantity = Annotated[int, Field(strict=True, ge=0, le=MAX_QUANTITY)]

_MOST: Amounts = (MAX_QUANTITY, MAX_QUANTITY, MAX_QUANTITY)
_FRIENDLY: Mapping[str, str] = dict(zip(DIMENSION_NAMES, DIMENSIONS, strict=True))


class Resources(Value):
    """An amount of resources; a request is rounded up, so that work gets at least what it needs."""

    rounds_up: ClassVar[bool] = True

    cpu_millis: Quantity
    memory_mib: Quantity = 0
    gpus: Quantity = 0

    @classmethod
    def known_fields(cls) -> tuple[str, ...]:
        return (*_FRIENDLY, *DIMENSIONS)

    @model_validator(mode="before")
    @classmethod
    def _read_friendly_form(cls, data: Any) -> Any:
        """`{cpu: 500m, memory: 1Gi, gpu: 1}` in exact units; each bad entry keeps its own name."""
        if not isinstance(data, Mapping) or not _FRIENDLY.keys() & data.keys():
            return cast(Any, data)
        exact = dict(cast(Mapping[str, Any], data))
        findings: list[Finding] = []
        for name in [name for name in _FRIENDLY if name in exact]:
            value = exact.pop(name)
            try:
                if _FRIENDLY[name] in exact:
                    raise ValueError(f"got {name} and {_FRIENDLY[name]}; allowed: one of the two")
                exact[_FRIENDLY[name]] = cls._read(name, value)
            except ValueError as error:
                findings.append(Finding((name,), value, str(error)))
        refuse(cls.__name__, findings)
        return exact

    @classmethod
    def _read(cls, name: str, value: object) -> int:
        if name == "cpu":
            return read_cpu_millis(value)
        if name == "memory":
            return read_memory_mib(value, round_up=cls.rounds_up)
        return read_count(value)

    @property
    def amounts(self) -> Amounts:
        return (self.cpu_millis, self.memory_mib, self.gpus)

    @property
    def is_zero(self) -> bool:
        return not any(self.amounts)

    def __eq__(self, other: object) -> bool:
        # By amount alone: a capacity and a request of the same size are the same size.
        return isinstance(other, Resources) and self.amounts == other.amounts

    def __hash__(self) -> int:
        return hash(self.amounts)

    def __add__(self, other: "Resources") -> "Resources":
        return Resources.of(*plus(self.amounts, other.amounts))

    def __sub__(self, other: "Resources") -> "Resources":
        lacking = other.shortfall(self)
        if lacking:
            raise ValueError(f"cannot take {other} from {self}: not enough {', '.join(lacking)}")
        return Resources.of(*minus(self.amounts, other.amounts))

    def __mul__(self, count: int) -> "Resources":
        return Resources.of(*times(self.amounts, count))

    def fits_in(self, other: "Resources") -> bool:
        return at_most(self.amounts, other.amounts)

    def lower_of(self, other: "Resources") -> "Resources":
        """The lower amount in each dimension."""
        return Resources.of(*lower_of(self.amounts, other.amounts))

    def excess_over(self, limit: "Resources") -> "Resources":
        """By how much this is more than the limit, in each dimension."""
        return Resources.of(*at_least_nothing(minus(self.amounts, limit.amounts)))

    def shortfall(self, other: "Resources") -> tuple[str, ...]:
        """The dimensions in which `other` has less than this."""
        excess = self.excess_over(other).amounts
        return tuple(name for name, amount in zip(DIMENSIONS, excess, strict=True) if amount)

    def show_excess(self, limit: "Resources") -> str:
        """By how much this is more than the limit, in words; empty when it fits."""
        excess = enumerate(self.excess_over(limit).amounts)
        return ", ".join(
            show_dimension(dimension, amount) for dimension, amount in excess if amount
        )

    def __str__(self) -> str:
        return show_amounts(self.amounts)

    @staticmethod
    def of(cpu_millis: int, memory_mib: int = 0, gpus: int = 0) -> "Resources":
        return Resources(cpu_millis=cpu_millis, memory_mib=memory_mib, gpus=gpus)

    @staticmethod
    def clipped(amounts: Amounts) -> "Resources":
        """A sum or a difference, within the bounds of one amount: a whole region may have more.

        What fits into the sum fits into this, and the other way round.
        """
        cpu_millis, memory_mib, gpus = lower_of(at_least_nothing(amounts), _MOST)
        return Resources.of(cpu_millis, memory_mib, gpus)


class Capacity(Resources):
    """What a node has; rounded down, so that no more is promised than there is."""

    rounds_up: ClassVar[bool] = False


ZERO = Resources.of(0)
