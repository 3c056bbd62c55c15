"""The one kind of noun: an immutable value that refuses unknown fields and guessed types.

What people write is refused for an unknown field, because it is a mistake. What another
process of ours wrote may come from a later release, and is read without such fields.
"""

from typing import Any, Self, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

# Where a lenient reading would change the meaning: "1", 1.0 and True are not the integer 1.
# Enums, moments and sequences stay lenient, because JSON and YAML write them as text and lists.
_EXACT = frozenset({"int", "float", "bool", "str", "bytes", "decimal"})
_MOMENTS = frozenset({"datetime", "date", "time", "timedelta"})
# A JSON object's keys are always text, so an integer key must be readable from text.
_UNTOUCHED = frozenset({"keys_schema", "metadata", "serialization", "default"})


def _refuse_number(value: object) -> object:
    text = value.strip().lstrip("+-").replace(".", "", 1) if isinstance(value, str) else ""
    if isinstance(value, int | float) or text.isdigit():
        raise PydanticCustomError("moment_type", "Input should be text, never a number of seconds")
    return value


def _exact(schema: Any) -> Any:
    """The schema with every scalar in it made exact; nested models have seen to their own."""
    if isinstance(schema, list):
        return [_exact(item) for item in cast(list[Any], schema)]
    if isinstance(schema, tuple):
        return tuple(_exact(item) for item in cast(tuple[Any, ...], schema))
    if not isinstance(schema, dict):
        return schema
    node = dict(cast(dict[str, Any], schema))
    kind = node.get("type")
    if kind == "model-fields":
        # Keyed by the fields' own names, which may be any word of the schema itself.
        fields = {name: _exact(field) for name, field in node["fields"].items()}
        return node | {"fields": fields}
    if kind == "model":
        return node
    if kind in _EXACT:
        node.setdefault("strict", True)
    if kind in _MOMENTS:
        return core_schema.no_info_before_validator_function(_refuse_number, cast(CoreSchema, node))
    return {key: inner if key in _UNTOUCHED else _exact(inner) for key, inner in node.items()}


def _exact_model(schema: Any) -> Any:
    """The same below the model's own node, which model validators may have wrapped."""
    node = cast(dict[str, Any], schema)
    if node.get("type") == "definitions":
        return node | {"schema": _exact_model(node["schema"])}
    if node.get("type") == "model":
        return node | {"schema": _exact(node["schema"])}
    if "schema" in node:
        return node | {"schema": _exact_model(node["schema"])}
    return node


class Value(BaseModel):
    """A frozen value: equal content is equal, and nothing is coerced where meaning is lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def read(cls, written: object) -> Self:
        """What another process wrote: fields of a later release are ignored, at every depth."""
        return cls.model_validate(written, extra="ignore")

    @classmethod
    def read_json(cls, written: bytes | str) -> Self:
        """The same from JSON."""
        return cls.model_validate_json(written, extra="ignore")

    @classmethod
    def known_fields(cls) -> tuple[str, ...]:
        """The names that input may use, for telling people what they could have meant."""
        return tuple(cls.model_fields)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        return cast(CoreSchema, _exact_model(handler(source)))
