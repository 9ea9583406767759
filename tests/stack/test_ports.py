"""Choice of ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from rtolap.stack.ports import choose_port, choose_ports, free_port, is_free


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_the_preferred_port_is_kept_when_it_is_free() -> None:
    port = free_port()
    assert choose_port(port) == port


def test_a_taken_port_gives_way_to_a_free_one(taken_port: int) -> None:
    chosen = choose_port(taken_port)
    assert chosen != taken_port
    assert is_free(chosen)


def test_a_port_given_to_another_component_is_not_given_twice() -> None:
    port = free_port()
    assert choose_port(port, taken={port}) != port


def test_ports_are_chosen_by_name_and_not_twice(taken_port: int) -> None:
    free, claimed = free_port(), free_port()
    chosen = choose_ports({"a": free, "b": free, "c": taken_port, "d": claimed}, {claimed})
    assert chosen["a"] == free
    assert len({*chosen.values(), taken_port, claimed}) == 6
