"""How values travel through Temporal: as JSON of pydantic models, through one shared converter."""

from dataclasses import replace

from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import CompositePayloadConverter

_SHARED = PydanticPayloadConverter()


class SharedPayloadConverter(CompositePayloadConverter):
    """Shares the type validators, which each workflow run would otherwise build anew.

    That alone was a tenth of a placement's whole cost.
    """

    def __init__(self) -> None:
        super().__init__(*_SHARED.converters.values())


data_converter = replace(pydantic_data_converter, payload_converter_class=SharedPayloadConverter)
