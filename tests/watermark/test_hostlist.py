"""Tests of who counts: lists that grow and shrink, registered hosts, drains and leases."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.base.errors import NotFound
from rtolap.watermark.hostlist import Hosts
from rtolap.watermark.snapshot import NEVER


def counting(hosts: Hosts) -> list[str]:
    return [name for at, name in enumerate(hosts.names) if hosts.listed[at] and not hosts.drained[at]]


def never(hosts: Hosts) -> np.ndarray:
    return np.full(len(hosts), NEVER, np.int64)


def test_a_list_grows_and_shrinks_in_epochs() -> None:
    hosts = Hosts()
    assert hosts.replace(["a", "b", "a"], 0, 60).added == ("a", "b")
    assert hosts.replace(["b", "a"], 10, 60).added == ()
    assert hosts.epoch == 1
    change = hosts.replace(["b", "c"], 20, 60)
    assert (change.added, change.leaving, hosts.epoch) == (("c",), ("a",), 2)
    assert counting(hosts) == ["a", "b", "c"]  # what a logged before may still be on its way
    assert hosts.leave(never(hosts), 79) == ()
    assert hosts.leave(never(hosts), 80) == ("a",)
    assert counting(hosts) == ["b", "c"]
    assert hosts.epoch == 3


def test_a_host_that_comes_back_counts_again_at_its_own_index() -> None:
    hosts = Hosts()
    hosts.replace(["a", "b"], 0, 60)
    hosts.replace(["b"], 0, 60)
    hosts.replace(["a", "b"], 10, 60)
    assert hosts.leave(never(hosts), 1_000) == ()
    hosts.replace(["b"], 1_000, 0)
    hosts.leave(never(hosts), 1_000)
    assert hosts.indices(["a", "b", "x"]).tolist() == [-1, 1, -1]
    hosts.replace(["a", "b"], 2_000, 60)
    assert hosts.indices(["a", "b"]).tolist() == [0, 1]


def test_a_drained_host_leaves_when_it_has_been_read_to_its_end() -> None:
    hosts = Hosts()
    hosts.replace(["a", "b"], 0, 60)
    hosts.drain("a", 500, 100, 10_000)
    latest = np.array([499, 0])
    assert hosts.leave(latest, 200) == ()
    assert counting(hosts) == ["a", "b"]
    assert hosts.leave(np.array([500, 0]), 200) == ("a",)
    hosts.drain("b", None, 300, 1_000)
    assert hosts.leave(np.array([500, 10**12]), 1_299) == ()
    assert hosts.leave(np.array([500, 0]), 1_300) == ("b",)
    with pytest.raises(NotFound, match="no host is named 'b'"):
        hosts.drain("b", None, 0, 0)


def test_a_lease_that_is_not_renewed_ends() -> None:
    hosts = Hosts()
    hosts.register(["a", "b"], 0, 100)
    hosts.register(["a"], 90, 100)
    assert hosts.epoch == 1
    assert hosts.leave(never(hosts), 100) == ("b",)
    assert hosts.register(["b"], 150, 100).added == ("b",)
    assert counting(hosts) == ["a", "b"]
    assert hosts.leave(never(hosts), 250) == ("a", "b")
    assert counting(hosts) == []


def test_a_removed_host_does_not_count_from_now_on() -> None:
    hosts = Hosts()
    hosts.register(["a", "b"], 0, 100)
    hosts.remove("a")
    assert counting(hosts) == ["b"]
    with pytest.raises(NotFound):
        hosts.remove("x")


def test_every_time_that_a_host_begins_to_count_is_told_by_its_epoch() -> None:
    hosts = Hosts()

    def joined() -> dict[str, int]:
        return dict(zip(hosts.names, hosts.joined.tolist(), strict=True))

    hosts.register(["a", "b"], 0, 100)
    hosts.register(["a"], 50, 100)
    hosts.drain("b", None, 60, 100)
    hosts.register(["b"], 70, 200)
    assert joined() == {"a": 1, "b": 1}, "who is renewed, or was leaving only, has not left"
    assert hosts.leave(never(hosts), 150) == ("a",)
    hosts.register(["a", "c"], 160, 100)
    assert joined() == {"a": hosts.epoch, "b": 1, "c": hosts.epoch}
    hosts.remove("c")
    hosts.replace(["a", "b", "c"], 170, 0)
    assert joined() == {"a": hosts.epoch - 2, "b": 1, "c": hosts.epoch}
    hosts.keep(np.array([2, 1]))
    assert joined() == {"c": hosts.epoch, "b": 1}


def test_room_is_given_back_when_many_have_left() -> None:
    hosts = Hosts()
    hosts.replace(["a", "b", "c"], 0, 0)
    hosts.replace(["c", "b"], 0, 0)
    hosts.leave(never(hosts), 0)
    retained = hosts.retained()
    assert retained.tolist() == [1, 2]
    hosts.keep(retained)
    assert (hosts.names, hosts.index, len(hosts)) == (["b", "c"], {"b": 0, "c": 1}, 2)
    assert counting(hosts) == ["b", "c"]
