"""The way of parts to the holders of their shares."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from rtolap.base.errors import Forbidden, NotOwner, RtolapError, Unanswered, Unavailable
from rtolap.protocols.capture.client import PartCall
from rtolap.protocols.capture.messages import PartHead
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.shares import router as router_module
from rtolap.sep.shares.router import Router

from tests.support.sep.batches import Event, batch_of
from tests.support.sep.share_numbers import share_of

HERE, THERE, ELSEWHERE = "here:1", "there:1", "elsewhere:1"
ROWS = {
    share: next(row for row in (b"%d" % at for at in range(99)) if share_of(row, 2) == share)
    for share in (0, 1)
}


class OwnShare:
    """A share of this process. `error` is what it raises."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.apart: list[tuple[list[bytes], str]] = []
        self.error: RtolapError | None = None

    async def deliver(self, batch: EditBatch, deadline_s: float) -> None:
        if self.error is not None:
            raise self.error
        self.events += batch.events["row"].to_pylist()

    async def set_apart(self, batch: EditBatch, reason: str) -> None:
        self.apart.append((batch.events["row"].to_pylist(), reason))


class Peer:
    """Another consumer. It answers once `gate` is open, or when the call is cancelled."""

    def __init__(self) -> None:
        self.heads: list[PartHead] = []
        self.rows: list[bytes] = []
        self.error: RtolapError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    def deliver(self, head: PartHead, events: pa.RecordBatch, cells: pa.RecordBatch, call: PartCall) -> None:
        self.heads.append(head)
        call.begun(self)
        self.begun.set()
        while not self.gate.wait(0.01):
            if self.cancelled.is_set():
                break
        if self.cancelled.is_set():
            raise Unanswered("cancelled")
        if self.error is not None:
            raise self.error
        self.rows += events["row"].to_pylist()

    def cancel(self) -> None:
        self.cancelled.set()


def routed(
    test: Callable[[Router, Mapping[int, OwnShare], Mapping[str, Peer]], object],
) -> tuple[Mapping[int, OwnShare], Mapping[str, Peer]]:
    """Run the coroutine function with a router of two shares, whose share 1 another consumer holds."""
    own, peers = {0: OwnShare(), 1: OwnShare()}, {THERE: Peer(), ELSEWHERE: Peer()}

    async def run() -> None:
        router = Router(own, peers.__getitem__, cluster_id="c", own_address=HERE)
        router.update({0: HERE, 1: THERE})
        try:
            await test(router, own, peers)  # type: ignore[misc]
        finally:
            for peer in peers.values():
                peer.gate.set()
            router.close()

    asyncio.run(run())
    return own, peers


def call_of(*rows: bytes) -> EditBatch:
    return batch_of(Event("r", at + 1, row) for at, row in enumerate(rows))


def soon() -> float:
    return time.monotonic() + 20


def test_each_part_goes_to_the_holder_of_its_share() -> None:
    async def test(router: Router, own: object, peers: object) -> None:
        await router.deliver(call_of(ROWS[0], ROWS[1], ROWS[0]), soon())
        await router.set_apart(call_of(ROWS[0], ROWS[1]), "bad")
        assert router.forwarded_events == 2

    own, peers = routed(test)
    assert own[0].events == [ROWS[0], ROWS[0]]
    assert own[0].apart == [([ROWS[0]], "bad")]
    assert [(head.share, head.cluster_id, head.set_apart) for head in peers[THERE].heads] == [
        (1, "c", ""),
        (1, "c", "bad"),
    ]
    assert not own[1].events


def test_a_call_fails_only_when_all_of_its_parts_have_ended() -> None:
    async def test(router: Router, own: Mapping[int, OwnShare], peers: Mapping[str, Peer]) -> None:
        own[0].error = Unavailable("the target is away")
        peers[THERE].gate.clear()
        call = asyncio.create_task(router.deliver(call_of(ROWS[0], ROWS[1]), soon()))
        await asyncio.to_thread(peers[THERE].begun.wait, 20)
        await asyncio.sleep(0)
        assert not call.done()
        peers[THERE].gate.set()
        with pytest.raises(Unavailable, match="the target is away"):
            await call

    _, peers = routed(test)
    assert peers[THERE].rows == [ROWS[1]]


def test_a_part_waits_until_a_share_has_a_holder() -> None:
    async def test(router: Router, own: object, peers: object) -> None:
        router.update({0: HERE, 1: None})
        call = asyncio.create_task(router.deliver(call_of(ROWS[1]), soon()))
        await asyncio.sleep(0.05)
        assert not call.done()
        router.update({0: HERE, 1: ELSEWHERE})
        await call

    _, peers = routed(test)
    assert peers[ELSEWHERE].rows == [ROWS[1]]


def test_a_holder_that_has_given_the_share_back_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(router_module, "AGAIN_S", 20.0)

    async def test(router: Router, own: object, peers: Mapping[str, Peer]) -> None:
        peers[THERE].error = NotOwner("not mine")
        call = asyncio.create_task(router.deliver(call_of(ROWS[1]), soon()))
        await asyncio.to_thread(peers[THERE].begun.wait, 20)
        await asyncio.sleep(0.05)
        router.update({0: HERE, 1: HERE})
        await call

    own, _ = routed(test)
    assert own[1].events == [ROWS[1]]


def test_a_part_under_way_at_a_consumer_that_stands_still_goes_to_its_successor() -> None:
    async def test(router: Router, own: object, peers: Mapping[str, Peer]) -> None:
        peers[THERE].gate.clear()
        call = asyncio.create_task(router.deliver(call_of(ROWS[1]), soon()))
        await asyncio.to_thread(peers[THERE].begun.wait, 20)
        router.update({0: HERE, 1: ELSEWHERE})
        await call
        assert await asyncio.to_thread(peers[THERE].cancelled.wait, 20)

    _, peers = routed(test)
    assert peers[ELSEWHERE].rows == [ROWS[1]]
    assert not peers[THERE].rows


def test_what_a_holder_refuses_by_name_is_not_tried_again_here() -> None:
    async def test(router: Router, own: object, peers: Mapping[str, Peer]) -> None:
        peers[THERE].error = Forbidden("no access to the topic")
        with pytest.raises(Forbidden):
            await router.deliver(call_of(ROWS[1]), soon())

    _, peers = routed(test)
    assert len(peers[THERE].heads) == 1


def test_a_share_without_a_holder_fails_the_call_when_its_time_is_over() -> None:
    async def test(router: Router, own: object, peers: object) -> None:
        router.update({0: HERE})
        with pytest.raises(Unavailable, match="1 events of share 1 have no consumer"):
            await router.deliver(call_of(ROWS[1]), time.monotonic() + 0.05)

    routed(test)


def test_no_more_calls_than_may_be_are_under_way_at_one_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "CALLS_PER_CONSUMER_MAX", 2)

    async def test(router: Router, own: object, peers: Mapping[str, Peer]) -> None:
        peers[THERE].gate.clear()
        calls = [asyncio.create_task(router.deliver(call_of(ROWS[1]), soon())) for _ in range(5)]
        await asyncio.to_thread(peers[THERE].begun.wait, 20)
        await asyncio.sleep(0.05)
        assert len(peers[THERE].heads) <= 2
        peers[THERE].gate.set()
        await asyncio.gather(*calls)

    _, peers = routed(test)
    assert len(peers[THERE].rows) == 5
