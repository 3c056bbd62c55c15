"""A tenant's burst is its own: others wait for one item of it at a time."""

from collections.abc import Iterable

import pytest

from durable.authority.db.fair_queue import FairQueue, Turn, in_turns

Item = tuple[str, int, int]


def turn(item: Item) -> Turn:
    return Turn(item[0], item[1])


def items(tenant: str, count: int, priority: int = 0) -> list[Item]:
    return [(tenant, priority, number) for number in range(count)]


def tenants(order: Iterable[Item]) -> str:
    return "".join(tenant for tenant, _, _ in order)


@pytest.mark.parametrize(
    ("arrived", "order"),
    [
        (items("a", 3), "aaa"),
        (items("a", 4) + items("b", 1), "abaaa"),
        (items("a", 3) + items("b", 2) + items("c", 1), "abcaba"),
        (items("a", 2) + items("b", 1, priority=5), "baa"),
        (items("a", 3, priority=5) + items("b", 1), "aaab"),
    ],
)
def test_tenants_take_turns_within_a_priority(arrived: list[Item], order: str) -> None:
    assert tenants(in_turns(arrived, turn)) == order


def test_items_of_one_tenant_stay_in_their_order() -> None:
    order = in_turns(items("a", 50) + items("b", 50), turn)
    assert [item for item in order if item[0] == "a"] == items("a", 50)


def test_who_comes_behind_a_burst_is_next_but_one() -> None:
    queue = FairQueue(turn)
    for item in items("a", 1_000):
        queue.append(item)
    popped = [queue.pop() for _ in range(10)]
    queue.append(("b", 0, 0))
    assert tenants(queue.pop() for _ in range(2)) == "ab"
    assert tenants(popped) == "a" * 10
    assert len(queue) == len(list(queue)) == 989


def test_what_is_put_back_goes_before_what_waits() -> None:
    queue = FairQueue(turn)
    for item in items("a", 5):
        queue.append(item)
    batch = [queue.pop() for _ in range(3)]
    queue.put_back(batch)
    assert [queue.pop() for _ in range(len(queue))] == items("a", 5)
    assert not len(queue)
