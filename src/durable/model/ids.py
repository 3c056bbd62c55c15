"""Who and what things are called: one nominal type per kind of name, one strict grammar."""

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from durable.validation.text import quote


class Identifier(str):
    """A name that is safe in paths, metric labels, workflow ids and log lines without escaping."""

    __slots__ = ()

    pattern: ClassVar[re.Pattern[str]] = re.compile("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
    max_length: ClassVar[int] = 63
    allowed: ClassVar[str] = (
        "1 to 63 characters of a-z, 0-9 and '-', starting and ending with a letter or digit"
    )

    def __new__(cls, value: str) -> Self:
        return super().__new__(cls, cls._checked(value))

    @classmethod
    def _checked(cls, value: object) -> str:
        # ASCII alone is allowed, so every text that is not in normal form C is refused with it.
        # The length comes first: a pattern never runs over text of unbounded size.
        if (
            isinstance(value, str)
            and len(value) <= cls.max_length
            and cls.pattern.fullmatch(value) is not None
        ):
            return value
        raise ValueError(f"got {quote(value)}; allowed for {cls.__name__}: {cls.allowed}")

    @classmethod
    def _received(cls, value: object) -> Self:
        """The value of a field: another kind of name is a mix-up even when the text would do."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Identifier):
            raise ValueError(f"got {value!r}; allowed: a {cls.__name__}, not another kind of name")
        return super().__new__(cls, cls._checked(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({super().__repr__()})"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: type[Any], _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._received, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "type": "string",
            "minLength": 1,
            "maxLength": cls.max_length,
            "pattern": f"^{cls.pattern.pattern}$",
            "description": cls.allowed,
        }


class RegionId(Identifier):
    __slots__ = ()


class ZoneId(Identifier):
    __slots__ = ()


class PoolId(Identifier):
    __slots__ = ()


class NodeId(Identifier):
    __slots__ = ()


class DeviceId(Identifier):
    __slots__ = ()


class TenantId(Identifier):
    __slots__ = ()


class WorkloadName(Identifier):
    __slots__ = ()


class IncidentId(Identifier):
    __slots__ = ()


class OverrideId(Identifier):
    __slots__ = ()


class BudgetId(Identifier):
    """A name that a manifest gives, or that of the override which keeps the budget."""

    __slots__ = ()

    # Both names are as long as any other: the limit is in the pattern.
    pattern = re.compile("(?:override/)?[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
    max_length = len("override/") + Identifier.max_length
    allowed = f"{Identifier.allowed}; or override/ and the name of an override"


class ActorId(Identifier):
    """A person or a controller, such as `person:alice` or `controller:quota`."""

    __slots__ = ()

    pattern = re.compile("[a-z0-9](?:[a-z0-9._@:/-]*[a-z0-9])?")
    max_length = 128
    allowed = (
        "1 to 128 characters of a-z, 0-9, '-', '.', '@', '_', ':' and '/', "
        "starting and ending with a letter or digit"
    )


PolicyRevision = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Generation = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Slot = Annotated[int, Field(strict=True, ge=0, le=99_999)]
Token = Annotated[int, Field(strict=True, ge=1, le=2**63 - 1)]
