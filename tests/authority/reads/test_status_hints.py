"""A workload that changes is told once, however many of its generations something happens to."""

from typing import Any, Self, cast

from temporalio.client import Client

from durable.authority.sides import Regional
from durable.controllers.status import GATHER_MOVING_SECONDS, GATHER_SECONDS, StatusController
from durable.model.states import ObservedState
from durable.signals.names import workload_id
from durable.signals.payloads import Look
from tests.authority.reads.test_share_feed import report
from tests.authority.world import API, EAST, RISK, World

WORKLOAD = workload_id(RISK, API)


class Mailbox:
    """A client that keeps what is sent, by the workflow that it is sent to."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Look]] = []
        self._to = ""

    def get_workflow_handle(self, workflow_id: str) -> Self:
        self._to = workflow_id
        return self

    async def signal(self, _: str, payload: Any) -> None:
        self.sent.append((self._to, payload))

    def to_workload(self) -> list[Look]:
        return [look for to, look in self.sent if to == WORKLOAD]


def controller_of(world: World, mailbox: Mailbox) -> StatusController:
    return StatusController(Regional(world.databases, EAST), cast("Client", mailbox))


async def test_what_leaves_one_generation_and_serves_in_another_is_one_hint(
    ready_world: World,
) -> None:
    old = await ready_world.running(0)
    new = await ready_world.running(1, generation=2)
    mailbox = Mailbox()
    controller = controller_of(ready_world, mailbox)
    await report(ready_world, old, ObservedState.SERVING)
    await report(ready_world, new, ObservedState.SERVING)

    await controller.once(0.0)
    await controller.once(GATHER_SECONDS)

    (look,) = mailbox.to_workload()
    assert {look.generation, *look.also} == {1, 2}
    await controller.once(2 * GATHER_MOVING_SECONDS)
    assert len(mailbox.to_workload()) == 1, "what was reported is no news"


async def test_a_generation_that_settled_waits_a_moment_for_one_that_is_coming_up(
    ready_world: World,
) -> None:
    old = await ready_world.running(0)
    await ready_world.running(1, generation=2)
    mailbox = Mailbox()
    controller = controller_of(ready_world, mailbox)
    await controller.once(0.0)
    await controller.once(GATHER_MOVING_SECONDS)
    mailbox.sent.clear()

    await report(ready_world, old, ObservedState.SERVING)
    began = 2 * GATHER_MOVING_SECONDS
    await controller.once(began)
    await controller.once(began + GATHER_SECONDS)
    assert not mailbox.to_workload()
    await controller.once(began + GATHER_MOVING_SECONDS)
    (look,) = mailbox.to_workload()
    assert (look.generation, look.also) == (1, ())
