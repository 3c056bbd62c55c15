"""Reach the Temporal cluster of the settings, and ask whether it serves us."""

from __future__ import annotations

from datetime import timedelta

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, TLSConfig

from durable.settings import Settings
from durable.state_dir.record import StackError
from durable.temporal.payloads import data_converter

CONNECT_TIMEOUT = timedelta(seconds=10)
PROBE_TIMEOUT = timedelta(seconds=2)


async def connect(settings: Settings, address: str) -> Client:
    """A client for the settings' cluster, or a sentence why there is none."""
    key = settings.temporal_api_key
    try:
        return await Client.connect(
            address,
            namespace=settings.temporal_namespace,
            api_key=None if key is None else key.get_secret_value(),
            tls=_tls(settings),
            data_converter=data_converter,
            connect_timeout=CONNECT_TIMEOUT,
        )
    except RuntimeError as error:
        # The SDK's own words are a dump of structures; they stay in the cause.
        raise StackError(
            f"Temporal at {address} does not answer: "
            "check that it runs and that the TLS settings fit."
        ) from error


async def answers(address: str) -> bool:
    """Whether a server without TLS serves requests there."""
    try:
        client = await Client.connect(address, connect_timeout=PROBE_TIMEOUT)
        return await client.service_client.check_health(timeout=PROBE_TIMEOUT)
    except (RPCError, RuntimeError):
        return False


async def healthy_namespace(settings: Settings, address: str) -> None:
    """Return when the server serves our namespace, else say what is wrong."""
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
