"""Process 0 and its agent: what is missing is started, what runs is renewed, the rest is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED
from rtolap.stored.loader.shares.supervision import ORPHAN_S, Supervision


class Agent:
    """An agent in memory: what it runs, and which requests it has had."""

    def __init__(self) -> None:
        self.found: dict[str, ProcessStatus] = {}
        self.specs: dict[str, ProcessSpec] = {}
        self.renewed: list[tuple[str, int]] = []
        self.refuses = False

    def get(self, key: str) -> ProcessStatus:
        if key not in self.found:
            raise NotFound(f"there is no process {key}")
        return self.found[key]

    def ensure(self, key: str, spec: ProcessSpec) -> ProcessStatus:
        if self.refuses:
            raise DefinitionError("an option is refused")
        self.specs[key] = spec
        self.found[key] = ProcessStatus(key=key, generation=spec.generation, state="RUNNING")
        return self.found[key]

    def renew(self, key: str, generation: int) -> ProcessStatus:
        self.renewed.append((key, generation))
        return self.found[key]

    def generation(self, key: str) -> int:
        return self.found[key].generation if key in self.found else 0

    def end(self, key: str, state: str) -> None:
        self.found[key] = ProcessStatus(key=key, generation=self.generation(key), state=state)


def supervised(agent: Agent, wanted: int, *living: int) -> None:
    Supervision("j", agent, lambda: (wanted, living)).round()


def test_all_processes_but_the_first_are_started_with_their_numbers() -> None:
    agent = Agent()
    supervised(agent, 3, 0)
    assert {key: spec.argv for key, spec in agent.specs.items()} == {
        f"loader.j.{number}": ("rtolap", "loader", "run", "j", "--process", str(number)) for number in (1, 2)
    }
    spec = agent.specs["loader.j.1"]
    assert (spec.generation, spec.orphan_s) == (1, ORPHAN_S)
    assert set(spec.restart.final_codes) == {EXIT_STOPPED, EXIT_FAILED, EXIT_OWNED}


def test_what_runs_is_renewed_and_not_started_again() -> None:
    agent = Agent()
    supervised(agent, 2, 0)
    agent.specs.clear()
    supervised(agent, 2, 0)  # it has not joined yet
    agent.end("loader.j.1", "BACKOFF")  # the agent restarts it by itself
    supervised(agent, 2, 0)
    assert agent.renewed == [("loader.j.1", 1)] * 2
    assert agent.specs == {}


def test_a_process_that_has_ended_is_started_as_a_new_generation_once_it_is_wanted_again() -> None:
    agent = Agent()
    supervised(agent, 2, 0)
    agent.end("loader.j.1", "SUCCEEDED")
    supervised(agent, 1, 0)
    assert agent.found["loader.j.1"].state == "SUCCEEDED"
    supervised(agent, 2, 0)
    assert agent.specs["loader.j.1"].generation == 2


def test_a_process_that_runs_elsewhere_is_left_alone() -> None:
    agent = Agent()
    supervised(agent, 3, 0, 1)
    assert agent.specs.keys() == {"loader.j.2"}


def test_an_agent_that_refuses_is_told_of_and_asked_again() -> None:
    """Process 0 loads on: it waits for its agent as for one that does not answer."""
    agent = Agent()
    agent.refuses = True
    with pytest.raises(Unavailable, match=r"further processes of loader j .* found an option is refused"):
        supervised(agent, 2, 0)
    agent.refuses = False
    supervised(agent, 2, 0)
    assert agent.specs.keys() == {"loader.j.1"}


def test_the_command_of_a_process_is_one_that_an_agent_runs(tmp_path: Path) -> None:
    agent = Agent()
    supervised(agent, 2, 0)
    commands = Commands(Host(tmp_path, tmp_path, "file:///nowhere", "local[2]"))
    assert commands.check(agent.specs["loader.j.1"])[-2:] == ("--process", "1")


def test_a_process_that_is_not_wanted_is_not_renewed() -> None:
    agent = Agent()
    supervised(agent, 3, 0)
    supervised(agent, 2, 0, 1, 2)
    assert agent.renewed == [("loader.j.1", 1)]
