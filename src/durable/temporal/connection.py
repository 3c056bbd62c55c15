"""Connects to the Temporal cluster of the settings, with our payload conversion, and probes it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic import TypeAdapter
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DefaultFailureConverter,
    EncodingPayloadConverter,
    PayloadConverter,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, TLSConfig

from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.temporal.signs_of_life import runtime


class LenientJsonConverter(EncodingPayloadConverter):
    """Reads what another process of ours sent, and ignores fields that it does not know.

    Workers, controllers and clients are not upgraded at one moment. What people send is not read
    here: handlers take it raw, and check it strictly.
    """

    def __init__(self, plain: EncodingPayloadConverter) -> None:
        self._plain = plain
        self._readers: dict[Any, TypeAdapter[Any]] = {}

    @property
    def encoding(self) -> str:
        return self._plain.encoding

    def to_payload(self, value: Any) -> Payload | None:
        return self._plain.to_payload(value)

    def from_payload(self, payload: Payload, type_hint: Any = None) -> Any:
        return self._reader(Any if type_hint is None else type_hint).validate_json(
            payload.data, extra="ignore"
        )

    def _reader(self, type_hint: Any) -> TypeAdapter[Any]:
        reader = self._readers.get(type_hint)
        if reader is None:
            reader = self._readers[type_hint] = TypeAdapter(type_hint)
        return reader


_SHARED: list[EncodingPayloadConverter] = [
    LenientJsonConverter(one) if one.encoding == "json/plain" else one
    for one in PydanticPayloadConverter().converters.values()
]


class SharedPayloadConverter(CompositePayloadConverter):
    """Shares the type validators, which each workflow run would otherwise build again.

    That alone was a tenth of a placement's whole cost.
    """

    def __init__(self) -> None:
        super().__init__(*_SHARED)


class SentenceFailureConverter(DefaultFailureConverter):
    """Sends a refusal without the stack of the worker that refused: its sentence says it all."""

    def to_failure(
        self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure
    ) -> None:
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, ApplicationError):
            failure.stack_trace = ""


data_converter = replace(
    pydantic_data_converter,
    payload_converter_class=SharedPayloadConverter,
    failure_converter_class=SentenceFailureConverter,
)


CONNECT_TIMEOUT = timedelta(seconds=10)
PROBE_TIMEOUT = timedelta(seconds=2)


async def connect(settings: Settings, address: str) -> Client:
    """A client of the settings' cluster; a StackError says why there is none."""
    key = settings.temporal_api_key
    try:
        return await Client.connect(
            address,
            namespace=settings.temporal_namespace,
            api_key=None if key is None else key.get_secret_value(),
            tls=_tls(settings),
            data_converter=data_converter,
            connect_timeout=CONNECT_TIMEOUT,
            runtime=runtime(),
        )
    except RuntimeError as error:
        # The SDK's own message is a dump of structures; it stays in the cause.
        raise StackError(
            f"Temporal at {address} does not answer: "
            "check that it is running and that the TLS settings match."
        ) from error


async def answers(address: str) -> bool:
    """Whether a server without TLS serves requests at this address."""
    try:
        client = await Client.connect(address, connect_timeout=PROBE_TIMEOUT)
        return await client.service_client.check_health(timeout=PROBE_TIMEOUT)
    except (RPCError, RuntimeError):
        return False


async def check_namespace(settings: Settings, address: str) -> None:
    """Return if the server serves our namespace; otherwise raise what is wrong."""
    client = await connect(settings, address)
    wanted = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        await client.service_client.check_health(timeout=PROBE_TIMEOUT)
        await client.workflow_service.describe_namespace(wanted, timeout=PROBE_TIMEOUT)
    except RPCError as error:
        raise StackError(f"it answered: {error.message}") from error


def _tls(settings: Settings) -> TLSConfig | bool:
    if not settings.temporal_tls:
        return False
    files = (settings.temporal_tls_ca, settings.temporal_tls_cert, settings.temporal_tls_key)
    ca, certificate, key = (None if file is None else file.read_bytes() for file in files)
    return TLSConfig(server_root_ca_cert=ca, client_cert=certificate, client_private_key=key)
