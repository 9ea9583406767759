"""Leadership of a replica set goes to a receiver that can close and upload, where the leader has failed."""

from __future__ import annotations

from rtolap.base.errors import RtolapError
from rtolap.cubes.receiver.process import GivingWay, ReceiverService
from rtolap.cubes.receiver.states import READING

from tests.support.cubes.metadata_contract import eventually


class Candidate:
    """As one of two; both lead in turn."""

    def __init__(self) -> None:
        self.leads, self.alone, self.steps = True, False, 0

    def is_leader(self) -> bool:
        return self.leads

    def step_back(self) -> bool:
        if self.alone:
            return False
        self.leads, self.steps = False, self.steps + 1
        return True

    def fence(self) -> str | None:
        return None

    def node(self) -> str | None:
        return None

    def term(self) -> int | None:
        return None

    def leader(self) -> str | None:
        return None

    def close(self) -> None: ...


def test_it_steps_back_once_for_each_failure() -> None:
    candidate = Candidate()
    giving = GivingWay(candidate)
    giving.observe([])
    assert candidate.leads
    giving.observe(["sales"])
    assert not candidate.leads
    candidate.leads = True  # the other one has failed too
    giving.observe(["sales"])
    assert candidate.leads, "no better one is there"
    giving.observe(["sales", "visits"])
    assert candidate.steps == 2, "another failure"
    candidate.leads = True
    giving.observe(["visits"])
    assert candidate.leads
    giving.observe([])
    giving.observe(["visits"])
    assert candidate.steps == 3, "it had gone on in between"


def test_it_waits_for_another_one_to_be_there() -> None:
    candidate = Candidate()
    candidate.alone = True
    giving = GivingWay(candidate)
    giving.observe(["sales"])
    assert candidate.leads
    candidate.alone = False
    giving.observe(["sales"])
    assert not candidate.leads


def test_a_follower_leads_when_the_leader_has_failed(receivers: list[ReceiverService]) -> None:
    first, second = receivers
    for service in receivers:
        core = service.cubes.runner("sales_by_kind").core
        eventually(lambda core=core: core.consumer_state in READING, "it reads")
    eventually(lambda: first.stats().cubes[0].is_leader, "the first leads")
    runner = first.cubes.runner("sales_by_kind")
    runner.ask(lambda: runner.core.fail(RtolapError("a disk of this test is gone")))
    eventually(lambda: second.stats().cubes[0].is_leader, "the second leads")
    assert not first.stats().cubes[0].is_leader
