"""Until when an agent trusts a lease."""

from durable.agent.leases import Leases
from durable.model.fleet.region_life import LeaseLeft
from durable.model.ids import NodeId

N1, N2 = NodeId("n1"), NodeId("n2")


def test_a_lease_is_trusted_from_when_it_was_requested() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1, N2: 1}, sent_at=100)
    # Its answer came at 109, which does not matter.
    leases.renewed([N1], sent_at=105)
    assert leases.take_lapsed(109.9) == []
    assert leases.take_lapsed(110) == [N2]
    assert leases.take_lapsed(110) == [], "each is returned once"
    assert dict(leases.sessions) == {N1: 1}
    # An answer that was overtaken by a later one shortens nothing.
    leases.renewed([N1], sent_at=101)
    assert leases.take_lapsed(114.9) == []


def test_a_lease_runs_on_when_its_session_was_ended_by_another() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1}, sent_at=0)
    leases.end_session(N1, 1)
    assert dict(leases.sessions) == {}
    assert leases.take_lapsed(10) == [N1]

    leases.begun({N1: 2}, sent_at=20)
    leases.end_session(N1, 1)
    assert dict(leases.sessions) == {N1: 2}, "the end of an old session ends no new one"


def test_an_agent_that_slept_through_its_lease_holds_nothing_though_nobody_noticed() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1}, sent_at=0)
    assert leases.holds(N1, 9.9)
    assert not leases.holds(N1, 10)
    assert not leases.holds(N2, 0)


def test_what_must_stop_ends_with_the_lease_of_its_region_and_the_node_goes_on() -> None:
    leases = Leases(trusted_seconds=10)
    leases.bound_by_region(LeaseLeft(seconds=7), sent_at=100)
    leases.begun({N1: 1}, sent_at=100)
    assert leases.stop_at(N1) == 105, "two seconds are left for killing"
    assert not leases.has_region_lapsed(104.9)
    assert leases.has_region_lapsed(105)
    assert leases.holds(N1, 105)
    leases.bound_by_region(LeaseLeft(seconds=60), sent_at=108)
    assert not leases.has_region_lapsed(108)
    assert leases.stop_at(N1) == 110


def test_what_an_agent_counts_itself_holds_while_the_clock_of_the_region_jumps() -> None:
    leases, jumped = Leases(trusted_seconds=10), LeaseLeft(seconds=0, has_jumped=True)
    leases.bound_by_region(LeaseLeft(seconds=60), sent_at=100)
    leases.bound_by_region(jumped, sent_at=110)
    assert not leases.has_region_lapsed(157.9)
    assert leases.has_region_lapsed(158)
    begun_after_it = Leases(trusted_seconds=10)
    begun_after_it.bound_by_region(jumped, sent_at=110)
    assert begun_after_it.has_region_lapsed(110)


def test_a_region_in_the_database_of_the_global_side_bounds_nothing() -> None:
    leases = Leases(trusted_seconds=10)
    leases.bound_by_region(LeaseLeft(seconds=None), sent_at=100)
    leases.begun({N1: 1}, sent_at=100)
    assert leases.stop_at(N1) == 110
    assert not leases.has_region_lapsed(1e12)
