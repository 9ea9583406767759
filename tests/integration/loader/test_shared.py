"""Several processes of one job over real servers: they join, die, stand still and leave.

In the end the table equals a recount of the topic, and every partition has had one owner at a time.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

from rtolap.model.loader import LoaderProcesses
from rtolap.protocols.loader.messages import LoaderStatus
from rtolap.stack.process import ManagedProcess

from tests.integration.loader.test_kills import rows_of
from tests.support.loader.loader_runs import answer_of
from tests.support.loader.loader_world import Around, LoaderWorld

PARTITIONS = 6
RECORDS = 1_500


def spread(status: LoaderStatus) -> dict[int, int]:
    """Process → number of the shares that it loads. A share that waits for its lease does not count."""
    return {
        process.number: sum(share.phase not in ("waiting", "stopping") for share in process.shares)
        for process in status.processes
        if process.alive
    }


def shares_of(number: int) -> dict[int, int]:
    return dict.fromkeys(range(number), PARTITIONS // number)


class Scenario:
    def __init__(self, world: LoaderWorld, seed: int) -> None:
        self.world = world
        self.chooser = random.Random(seed)

    def produce(self) -> None:
        self.world.produce(self.chooser, RECORDS)

    def wait_spread(self, expected: dict[int, int]) -> LoaderStatus:
        status: LoaderStatus | None = None

        def is_so(found: LoaderStatus) -> bool:
            nonlocal status
            status = found
            return spread(found) == expected

        try:
            return self.world.wait_until(is_so)
        except AssertionError as error:
            raise AssertionError(f"{expected} is waited for, {status} is found") from error

    def kill_and_start(self, process: ManagedProcess) -> None:
        """Kill a process while it has work, and start it again."""
        self.produce()
        process.kill()
        self.produce()
        process.start()

    def check(self) -> None:
        self.world.wait_loaded()
        assert rows_of(self.world) == answer_of(self.world.model, self.world.produced)


def test_each_record_is_loaded_once_while_processes_join_die_stand_still_and_leave(
    around: Around, tmp_path: Path
) -> None:
    processes = LoaderProcesses(min=3, max=3, shares=PARTITIONS)
    name = f"shared_{os.urandom(3).hex()}"
    world = LoaderWorld(name, "duplicate", around, tmp_path, partitions=PARTITIONS, processes=processes)
    scenario = Scenario(world, seed=1)
    try:
        scenario.produce()
        world.process.start()
        scenario.wait_spread(shares_of(1))
        scenario.kill_and_start(world.process)
        for number in (2, 3):
            joining = world.add_process()
            joining.start()
            scenario.produce()
            scenario.wait_spread(shares_of(number))
            scenario.kill_and_start(joining)
            scenario.wait_spread(shares_of(number))

        fenced = world.processes[1]
        pid = fenced.pid()
        assert pid is not None
        scenario.produce()
        os.killpg(pid, signal.SIGSTOP)
        scenario.produce()
        scenario.wait_spread({0: 3, 2: 3})
        os.killpg(pid, signal.SIGCONT)
        scenario.produce()
        scenario.wait_spread(shares_of(3))

        world.processes[2].stop()
        scenario.produce()
        scenario.wait_spread(shares_of(2) | {0: 3, 1: 3})
        scenario.check()
    finally:
        world.close()
