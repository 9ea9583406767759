"""The client against a server of the tests that answers, is silent, or forgets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import msgspec
import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, Refused, Unavailable
from rtolap.protocols.watermark.messages import Refusal, ReportAnswer, ReportBatch, UnitReport, unit_path
from rtolap.watermark_client.client import WatermarkClient, unfinished
from rtolap.watermark_client.pending import ROWS_MAX, Pending
from rtolap.watermark_client.session import WatermarkSession

from tests.support.cubes.metadata_contract import eventually
from tests.support.twins.clock import ManualClock

DECODE = msgspec.msgpack.Decoder(ReportBatch)


class Leader(httpx.BaseTransport):
    """Takes batches as the server does. `lost`: so many answers do not arrive although the batch was
    taken."""

    def __init__(self) -> None:
        self.epoch = 7
        self.up = threading.Event()
        self.up.set()
        self.lost = 0
        self.global_ms: int | None = None
        self.approved_ms: int | None = None
        self.batches: list[ReportBatch] = []
        self.progress: dict[tuple[int, str], int] = {}
        self.events: dict[str, int] = {}
        self.units: dict[str, int | None] = {}
        self.names: dict[str, list[str]] = {}
        self._sequence = -1

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self.up.is_set():
            raise httpx.ConnectError("nobody listens")
        batch = DECODE.decode(request.read())
        resend = batch.client_epoch != self.epoch
        if not resend and batch.sequence > self._sequence:
            self._take(batch)
        if self.lost:
            self.lost -= 1
            raise httpx.ReadTimeout("the answer is lost")
        refused = tuple(
            Refusal(unit_path(one.level, one.processor, one.key_group), "no such level")
            for one in batch.units
            if one.level == "wrong"
        )
        answer = ReportAnswer(
            self.epoch, resend, {"web": self.global_ms}, {}, self.global_ms, self.approved_ms, refused
        )
        return httpx.Response(200, content=msgspec.msgpack.encode(answer))

    def _take(self, batch: ReportBatch) -> None:
        self._sequence = batch.sequence
        self.batches.append(batch)
        if batch.begins:
            self.names.clear()
        for one in batch.sources:
            names = self.names.setdefault(one.level, [])
            assert one.hosts_from == len(names)
            names.extend(one.hosts)
            index, latest = np.frombuffer(one.index, "<i4"), np.frombuffer(one.latest_ms, "<i8")
            for at, instant in zip(index.tolist(), latest.tolist(), strict=True):
                self.progress[one.partition, names[at]] = instant
            for at, number in zip(index.tolist(), np.frombuffer(one.events, "<i8").tolist(), strict=False):
                self.events[names[at]] = self.events.get(names[at], 0) + number
        self.units = {one.processor: one.oldest_work_ms for one in batch.units if not one.left}


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def client(leader: Leader) -> Iterator[WatermarkClient]:
    with WatermarkClient(["http://a"], "token", "logs", every_s=3600, transport=leader) as client:
        yield client


def test_the_newest_state_per_host_is_said_once(leader: Leader, client: WatermarkClient) -> None:
    client.report_progress("web", 0, 1, ["a", "b"], [5, 9], [1, 2])
    client.report_progress("web", 0, 1, ["a", "a"], [7, 6], [3, 4])
    client.report_progress("web", 1, 1, ["a"], [3])
    client.flush()
    assert leader.progress == {(0, "a"): 7, (0, "b"): 9, (1, "a"): 3}
    assert leader.events == {"a": 8, "b": 2}
    said = len(leader.batches)
    client.report_progress("web", 0, 1, ["b"], [11])
    client.flush()
    rows = sum(len(one.index) // 4 for batch in leader.batches[said:] for one in batch.sources)
    assert rows == 1
    assert leader.names == {"web": ["a", "b"]}


def test_a_lost_answer_is_made_up_for_and_counts_nothing_twice(
    leader: Leader, client: WatermarkClient
) -> None:
    client.flush()
    leader.lost = 2
    client.report_progress("web", 0, 1, ["a"], [5], [10])
    client.flush()
    assert leader.events == {"a": 10}
    assert client.problem is None


def test_a_new_leader_is_told_everything_again(leader: Leader, client: WatermarkClient) -> None:
    client.report_progress("web", 0, 1, ["a", "b"], [5, 9])
    client.set_oldest_work("sessions", "p", 0, 4)
    client.flush()
    leader.epoch, leader.progress, leader.units = 8, {}, {}
    client.flush()
    assert leader.progress == {(0, "a"): 5, (0, "b"): 9}
    assert leader.units == {"p": 4}
    assert leader.batches[-2].begins or leader.batches[-1].begins


def test_reporting_never_waits_and_keeps_only_the_newest_while_nobody_leads(
    leader: Leader, client: WatermarkClient
) -> None:
    client.flush()
    leader.up.clear()
    hosts = [f"h{n}" for n in range(1000)]
    began_s = time.monotonic()
    for instant_ms in range(500):
        client.report_progress("web", 0, 1, hosts, np.full(1000, instant_ms), np.ones(1000))
        client.set_oldest_work("sessions", "p", 0, instant_ms)
    assert time.monotonic() - began_s < 30, "half a million rows are merged, not queued"
    with pytest.raises(Unavailable):
        client.flush(timeout_s=0.3)
    assert client.problem is not None
    leader.up.set()
    client.flush(timeout_s=30)
    assert set(leader.progress.values()) == {499}
    assert leader.events["h7"] == 500
    assert leader.units == {"p": 499}


def test_a_window_may_close_by_the_watermark_or_by_a_person(leader: Leader) -> None:
    with WatermarkClient(["http://a"], "token", "logs", every_s=0.05, transport=leader) as client:
        assert not client.may_close(100, timeout_s=0.0)
        leader.global_ms = 99
        eventually(lambda: client.global_watermark() == 99, "the watermark is known")
        assert client.watermark("web") == 99
        assert not client.may_close(100)
        waiting: list[bool] = []
        thread = threading.Thread(target=lambda: waiting.append(client.may_close(100, timeout_s=30)))
        thread.start()
        leader.global_ms = 100
        thread.join(30)
        assert waiting == [True]
        leader.approved_ms = 300
        assert client.may_close(300, timeout_s=30)
        assert not client.may_close(301)


def test_closing_says_what_is_left_to_say(leader: Leader) -> None:
    client = WatermarkClient(["http://a"], "token", "logs", every_s=3600, transport=leader)
    client.flush()
    client.report_progress("web", 0, 1, ["a"], [5])
    client.set_oldest_work("sessions", "p", 0, 4)
    client.close()
    assert leader.progress == {(0, "a"): 5}
    assert leader.units == {"p": 4}


def test_closing_ends_although_nobody_answers(leader: Leader) -> None:
    client = WatermarkClient(["http://a"], "token", "logs", every_s=0.01, transport=leader)
    leader.up.clear()
    client.report_progress("web", 0, 1, ["a"], [5])
    began_s = time.monotonic()
    client.close(timeout_s=0.2)
    assert time.monotonic() - began_s < 10
    assert not client.may_close(1, timeout_s=30), "and nobody waits on it"


def test_what_is_wrong_is_told_to_who_reports_and_blocks_nobody_else(
    leader: Leader, client: WatermarkClient
) -> None:
    with pytest.raises(DefinitionError, match="not the name of a host"):
        client.report_progress("web", 0, 1, ["two words"], [5])
    with pytest.raises(DefinitionError, match="one instant per host"):
        client.report_progress("web", 0, 1, ["a"], [5, 6])
    client.set_oldest_work("wrong", "p")
    client.report_progress("web", 0, 1, ["a"], [5])
    client.flush()
    assert leader.progress == {(0, "a"): 5}
    assert client.refused_entries >= 1
    assert client.last_refused == (Refusal("wrong/p/0", "no such level"),)


def test_a_later_generation_forgets_the_one_before(leader: Leader, client: WatermarkClient) -> None:
    client.report_progress("web", 0, 1, ["a", "b"], [5, 9])
    client.report_progress("web", 0, 2, ["a"], [4])
    client.report_progress("web", 0, 1, ["b"], [99])
    client.flush()
    assert leader.progress == {(0, "a"): 4}


def test_what_is_too_much_for_one_batch_goes_in_several() -> None:
    pending = Pending()
    hosts = [f"h{n}" for n in range(ROWS_MAX // 2 + 1)]
    for partition in range(3):
        pending.progress("web", partition, 0, hosts, np.arange(len(hosts)), None)
    sizes = []
    while not sizes or pending.more:
        sizes.append(
            [len(one.index) // 4 for one in pending.take_report("c", len(sizes), 1, not sizes).sources]
        )
    assert sizes == [[len(hosts)]] * 3


def test_what_an_earlier_owner_of_a_unit_says_in_the_same_client_is_void() -> None:
    pending = Pending()
    pending.work(UnitReport("sessions", "p", 0, 5, generation=2))
    pending.work(UnitReport("sessions", "p", 0, None, generation=1))
    pending.work(UnitReport("sessions", "p", left=True, generation=1))
    assert pending.take_report("c", 1, 1, True).units == (UnitReport("sessions", "p", 0, 5, generation=2),)


def test_unfinished_work_is_held_from_before_it_begins_until_it_has_succeeded(
    leader: Leader, client: WatermarkClient
) -> None:
    def try_it(error: Exception | None) -> None:
        with unfinished(client, "sessions", "job", oldest_work_ms=5, generation=2):
            assert leader.units == {"job": 5}
            if error is not None:
                raise error

    with pytest.raises(ValueError, match="the disk is full"):
        try_it(ValueError("the disk is full"))
    client.flush()
    assert leader.units == {"job": 5}, "another try has to do it"
    try_it(None)
    client.flush()
    assert leader.units == {"job": None}
    assert {unit.generation for batch in leader.batches for unit in batch.units} == {2}


def test_work_is_not_begun_while_nobody_holds_it(leader: Leader) -> None:
    client = WatermarkClient(["http://a"], "token", "logs", every_s=0.01, transport=leader)
    leader.up.clear()
    work = unfinished(client, "sessions", "job", oldest_work_ms=5, timeout_s=0.2)
    with pytest.raises(Unavailable), work:
        pytest.fail("it has begun")
    client.close(timeout_s=0.1)


def test_work_is_not_begun_while_it_is_refused(leader: Leader, client: WatermarkClient) -> None:
    """Another unit's refusal is none of its business, nor is its own that is over."""
    client.set_oldest_work("wrong", "other", 0, 5)
    with unfinished(client, "sessions", "job", oldest_work_ms=5):
        assert leader.units["job"] == 5
    work = unfinished(client, "wrong", "job", oldest_work_ms=5)
    with pytest.raises(Refused, match="wrong/job/0: no such level"), work:
        pytest.fail("it has begun")
    client.leave("wrong", "job")
    client.flush()
    assert client.unit_refused("wrong", "job") is None
    assert client.unit_refused("wrong", "other") is not None


def test_a_process_begins_beyond_the_numbers_of_its_predecessor() -> None:
    clock = ManualClock(1_000_000)
    former = WatermarkSession("job", clock)
    for _ in range(20):
        former.batch()
        former.answered(ReportAnswer(7))
    clock.advance_ms(1_000)
    assert WatermarkSession("job", clock).batch().sequence > former.batch().sequence
