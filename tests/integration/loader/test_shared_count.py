"""The number of a job's processes follows its lag: process 0 has a real agent start them, and they leave."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest
from rtolap.model.loader import LoaderProcesses
from rtolap.protocols.loader.messages import LoaderStatus, process_key
from rtolap.stored.metastore.load_jobs import LoadJobEvent

from tests.integration.loader.test_commands import rtolap, told
from tests.integration.loader.test_kills import rows_of
from tests.integration.loader.test_shared import spread
from tests.support.agent_harness import running_agent
from tests.support.cubes.services import wait_for
from tests.support.loader.loader_runs import answer_of
from tests.support.loader.loader_world import Around, LoaderWorld
from tests.support.stored.stream_load_cluster import TOKEN

PARTITIONS, SHARES, RECORDS = 6, 6, 1_500
PROCESSES = LoaderProcesses(
    min=1, max=3, shares=SHARES, lag_records=RECORDS // 3, up_after_ms=1_000, down_after_ms=3_000
)


def living(status: LoaderStatus) -> set[int]:
    return {process.number for process in status.processes if process.alive}


def is_paused(status: LoaderStatus) -> bool:
    """Return True once every process does what the command has asked for."""
    return all(process.phase == "paused" for process in status.processes if process.alive)


def test_processes_come_with_the_lag_and_go_with_it_and_each_record_is_loaded_once(
    around: Around, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        **around.env,
        "RTOLAP_KAFKA": around.kafka.address,
        "RTOLAP_TOKEN_FILE": str(around.cluster.folder / "token"),
        "RTOLAP_DATA_DIR": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    chooser = random.Random(58)
    with running_agent(tmp_path / "agent", token=TOKEN) as agent, agent.client() as client:
        monkeypatch.setenv("RTOLAP_AGENT_PORT", agent.url.rpartition(":")[2])
        world = LoaderWorld(
            f"n_{unique_name[-8:]}", "duplicate", around, tmp_path, partitions=PARTITIONS, processes=PROCESSES
        )
        further = [process_key(world.name, number) for number in (1, 2)]
        try:
            told("start", world.name, "--wait-s", "90")
            world.wait_until(lambda it: spread(it) == {0: SHARES})
            for generation in (1, 2):
                # a job that is paused reads nothing: its lag stays
                told("pause", world.name)
                world.wait_until(is_paused)
                world.produce(chooser, RECORDS)
                found = world.wait_until(lambda it: living(it) == {0, 1, 2})
                assert (found.processes_wanted, found.shares) == (3, SHARES)
                world.wait_until(lambda it: set(spread(it).values()) == {SHARES // 3})
                assert [client.generation(key) for key in further] == [generation] * 2
                if generation == 2:
                    pid = client.get(further[0]).pid
                    assert pid is not None
                    os.kill(pid, signal.SIGKILL)
                    wait_for(
                        "the agent has started it again", lambda: client.get(further[0]).restarts > 0, 60
                    )
                else:
                    shown = rtolap("status", world.name).stdout
                    assert f"{world.name}: {SHARES} shares; 3 processes wanted, 3 live" in shown
                world.access.jobs.change_state(world.name, LoadJobEvent.RESUME, "")
                world.wait_loaded()
                # a process that is late to renew its lease is not counted for a moment, though it is wanted
                world.wait_until(lambda it: it.processes_wanted == 1 and living(it) == {0})
                world.wait_until(lambda it: spread(it) == {0: SHARES})
                for key in further:
                    wait_for("it has ended", lambda key=key: client.get(key).state == "SUCCEEDED", 60)  # type: ignore[misc]
            assert rows_of(world) == answer_of(world.model, world.produced)
            told("stop", world.name)
        finally:
            world.close()
