"""Kinds of processes on processors of their own: what may be declared, and what the processes get."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from rtolap.agent.cpus import Processors, host_processors, inherited, parse_cpus
from rtolap.agent.processes import Processes
from rtolap.base.errors import DefinitionError

from tests.support.waiting import until

# Two nodes of two cores with two threads each: 0 and 4 are one core, 1 and 5, 2 and 6, 3 and 7.
_HOST = Processors(
    usable=frozenset(range(8)),
    cores={cpu: frozenset({cpu % 4, cpu % 4 + 4}) for cpu in range(8)},
    numa_nodes={0: frozenset({0, 1, 4, 5}), 1: frozenset({2, 3, 6, 7})},
)


def test_kinds_get_the_processors_or_the_node_that_is_named() -> None:
    assert parse_cpus("receiver=0-1,4 ; build=numa:1", _HOST) == {
        "receiver": {0, 1, 4},
        "build": {2, 3, 6, 7},
    }
    assert parse_cpus("", _HOST) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("receiver", "each kind once"),
        ("receiver=0;receiver=1", "each kind once"),
        ("Receiver=0", "each kind once"),
        ("receiver=a", "one of numa:0, numa:1"),
        ("receiver=3-", "one of numa:0, numa:1"),
        ("receiver=numa:2", "one of numa:0, numa:1"),
        ("receiver=8", "some of 0, 1, 2"),
        ("receiver=", "some of 0, 1, 2"),
        ("receiver=0;build=4", "receiver and build share a physical core.*found processors 0, 4"),
    ],
)
def test_what_cannot_be_is_refused(text: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        parse_cpus(text, _HOST)


def test_the_host_is_read_as_linux_tells_it(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    topology = tmp_path / "cpu" / f"cpu{cpu}" / "topology"
    topology.mkdir(parents=True)
    (topology / "thread_siblings_list").write_text(f"{cpu},{cpu + 64}\n")
    node = tmp_path / "node" / "node0"
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0-2,5\n")
    host = host_processors(tmp_path)
    assert host.cores[cpu] == {cpu, cpu + 64}
    assert host.numa_nodes == {0: {0, 1, 2, 5}}
    assert host_processors().usable == os.sched_getaffinity(0)


def test_a_process_runs_where_its_kind_is_pinned_and_its_agent_does_not(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    chosen = frozenset({min(before)})
    processes = Processes(tmp_path, cpus={"receiver": chosen})
    show = "import os; print(sorted(os.sched_getaffinity(0)))"
    for key in ("receiver.r0", "loader.l0"):
        processes.spawn(key, 1, (sys.executable, "-c", show), {}, keep_exit=False)
    for key, cpus in (("receiver.r0", chosen), ("loader.l0", before)):
        until(lambda path=processes.log_path(key, 1): path.read_text().strip(), "its processors")
        assert processes.log_path(key, 1).read_text().strip() == str(sorted(cpus))
    assert os.sched_getaffinity(0) == before
    assert psutil.Process().cpu_affinity() == sorted(before)


def test_a_thread_gets_its_processors_back_though_nothing_could_be_started() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(FileNotFoundError), inherited(frozenset({min(before)})):
        raise FileNotFoundError
    assert os.sched_getaffinity(0) == before
