"""A Temporal cluster gets our namespace, its retention and typed search attributes."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from durable.settings import Settings
from durable.signals.search_attributes import PHASE, SEARCH_ATTRIBUTES, TENANT
from durable.stack.child import spawn
from durable.stack.ports import HOST, free_port
from durable.stack.temporal_server import temporal_child
from durable.state_dir.record import StackError
from durable.temporal.namespace import register
from tests.stack.polling import DEADLINE_SECONDS

pytestmark = pytest.mark.server

OURS = Settings()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("temporal")
    port = free_port()
    server = spawn(temporal_child(directory, port, free_port()))
    server.wait_ready()
    yield f"{HOST}:{port}"
    server.stop()


async def test_a_namespace_is_registered_once_with_its_retention_and_attributes(
    address: str,
) -> None:
    await register(OURS, address)
    await register(OURS, address)

    client = await Client.connect(address, namespace="durable")
    described = await client.workflow_service.describe_namespace(
        DescribeNamespaceRequest(namespace="durable")
    )
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace="durable")
    )
    retention = described.config.workflow_execution_retention_ttl.ToTimedelta()
    assert retention == timedelta(days=30)
    for key in SEARCH_ATTRIBUTES:
        kind = listed.custom_attributes[key.name]
        assert kind == IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD


async def test_workflows_are_found_by_our_attributes(address: str) -> None:
    await register(OURS, address)
    client = await Client.connect(address, namespace="durable")
    await client.start_workflow(
        "Placement",
        id="searched",
        task_queue="nobody",
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(TENANT, "payments"), SearchAttributePair(PHASE, "pending")]
        ),
    )

    query = "DurableTenant = 'payments' AND DurablePhase = 'pending'"
    give_up = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    count = 0
    while count == 0 and asyncio.get_running_loop().time() < give_up:
        count = (await client.count_workflows(query)).count
    assert count == 1


async def test_an_attribute_of_another_type_is_refused(address: str) -> None:
    client = await Client.connect(address)
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(
            namespace="default",
            search_attributes={PHASE.name: IndexedValueType.INDEXED_VALUE_TYPE_INT},
        )
    )

    expected = "DurablePhase of namespace default has type Int and must be Keyword"
    with pytest.raises(StackError, match=expected):
        await register(Settings(temporal_namespace="default"), address)


async def test_a_cluster_that_does_not_answer_is_named() -> None:
    port = free_port()

    with pytest.raises(StackError, match=f"Temporal at {HOST}:{port} does not answer"):
        await register(OURS, f"{HOST}:{port}")
