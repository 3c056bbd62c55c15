"""What work requests and nodes have: exact whole numbers of cpu, memory and gpus."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field, model_validator

from durable.model.amounts import (
    DIMENSION_NAMES,
    DIMENSIONS,
    Amounts,
    at_least_nothing,
    at_most,
    lower_of,
    minus,
    plus,
    show_amounts,
    show_dimension,
    times,
)
from durable.validation.problems import Finding, refuse
from durable.validation.quantities import (
    MAX_QUANTITY,
    read_count,
    read_cpu_millis,
    read_memory_mib,
)
from durable.validation.value import Value

Quantity = Annotated[int, Field(strict=True, ge=0, le=MAX_QUANTITY)]

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


class Capacity(Resources):
    """What a node has; rounded down, so that no more is promised than there is."""

    rounds_up: ClassVar[bool] = False


ZERO = Resources.of(0)
