"""Set up a Temporal cluster for durable: the namespace, its retention and search attributes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    DescribeNamespaceRequest,
    RegisterNamespaceRequest,
)
from temporalio.client import Client
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from durable.settings import Settings
from durable.signals.search_attributes import SEARCH_ATTRIBUTES
from durable.state_dir.record import StackError
from durable.temporal.connection import connect

RETENTION = timedelta(days=30)
RPC_TIMEOUT = timedelta(seconds=10)
CACHE_DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.05

Answer = TypeVar("Answer")


async def register(settings: Settings, address: str) -> None:
    """Create what is missing, and wait until searches by our attributes work."""
    client = await connect(settings, address)
    try:
        await _register_namespace(client)
        await _register_search_attributes(client)
        await _wait_searchable(client)
    except RPCError as error:
        raise StackError(
            f"Could not set up namespace {client.namespace} on Temporal at {address}: "
            f"{error.message}"
        ) from error


async def _register_namespace(client: Client) -> None:
    service = client.workflow_service
    wanted = DescribeNamespaceRequest(namespace=client.namespace)
    try:
        await service.describe_namespace(wanted, timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        retention = Duration()
        retention.FromTimedelta(RETENTION)
        await service.register_namespace(
            RegisterNamespaceRequest(
                namespace=client.namespace,
                workflow_execution_retention_period=retention,
            ),
            timeout=RPC_TIMEOUT,
        )


async def _register_search_attributes(client: Client) -> None:
    listed = await _call_until_known(
        lambda: client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=client.namespace), timeout=RPC_TIMEOUT
        )
    )
    missing = missing_attributes(client.namespace, dict(listed.custom_attributes))
    if missing:
        await client.operator_service.add_search_attributes(
            AddSearchAttributesRequest(namespace=client.namespace, search_attributes=missing),
            timeout=RPC_TIMEOUT,
        )


async def _wait_searchable(client: Client) -> None:
    request = CountWorkflowExecutionsRequest(
        namespace=client.namespace,
        query=" AND ".join(f"{key.name} = 'none'" for key in SEARCH_ATTRIBUTES),
    )
    await _call_until_known(
        lambda: client.workflow_service.count_workflow_executions(request, timeout=RPC_TIMEOUT)
    )


async def _call_until_known(call: Callable[[], Awaitable[Answer]]) -> Answer:
    """Retry while the server's caches do not know a new namespace or attribute yet."""
    give_up = time.monotonic() + CACHE_DEADLINE_SECONDS
    while True:
        try:
            return await call()
        except RPCError as error:
            is_unknown_yet = error.status in (
                RPCStatusCode.NOT_FOUND,
                RPCStatusCode.INVALID_ARGUMENT,
            )
            if not is_unknown_yet or time.monotonic() > give_up:
                raise
            await asyncio.sleep(POLL_SECONDS)


def missing_attributes(
    namespace: str, present: dict[str, IndexedValueType.ValueType]
) -> dict[str, IndexedValueType.ValueType]:
    """The attributes to add; an existing one of another type is refused."""
    missing: dict[str, IndexedValueType.ValueType] = {}
    for key in SEARCH_ATTRIBUTES:
        wanted = _type_of(key)
        found = present.get(key.name)
        if found is None:
            missing[key.name] = wanted
        elif found != wanted:
            raise StackError(
                f"Search attribute {key.name} of namespace {namespace} has type "
                f"{_type_name(found)} and must be {_type_name(wanted)}: "
                "remove it, or set DURABLE_TEMPORAL_NAMESPACE to another namespace."
            )
    return missing


def _type_of(key: SearchAttributeKey[str]) -> IndexedValueType.ValueType:
    return IndexedValueType.ValueType(key.indexed_value_type)


def _type_name(value: IndexedValueType.ValueType) -> str:
    return IndexedValueType.Name(value).removeprefix("INDEXED_VALUE_TYPE_").title()
