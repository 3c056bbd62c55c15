"""How values travel through Temporal: as JSON of pydantic models, by one converter for all."""

from dataclasses import replace

from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter

_SHARED = PydanticPayloadConverter()


class SharedPayloadConverter(CompositePayloadConverter):
    """Every workflow run makes a converter of its own, which would build each type's validator
    anew: a tenth of a placement's whole cost. These share one."""

    def __init__(self) -> None:
        super().__init__(*_SHARED.converters.values())


data_converter = replace(pydantic_data_converter, payload_converter_class=SharedPayloadConverter)
