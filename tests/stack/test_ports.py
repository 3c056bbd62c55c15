"""Ports: the usual one if it is free, and never someone else's."""

import os
import socket
from collections.abc import Iterator

import pytest

from durable.stack.ports import HOST, choose_port, free_port, is_free, listens


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_preferred_port_is_used_when_it_is_free(taken: int) -> None:
    liked = free_port()

    assert choose_port([taken, liked]) == liked


def test_another_port_is_found_when_all_preferred_are_taken(taken: int) -> None:
    chosen = choose_port([taken])

    assert chosen != taken
    assert is_free(chosen)


def test_a_port_to_avoid_is_not_chosen_though_it_is_free() -> None:
    liked = free_port()

    assert choose_port([liked], avoid={liked}) != liked


def test_a_listener_is_known_by_its_pid(taken: int) -> None:
    assert listens(os.getpid(), taken)
    assert not listens(os.getppid(), taken)
    assert not listens(os.getpid(), free_port())
