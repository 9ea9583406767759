"""A backfill's run ends when its segments are READY, and fails with those that will not be."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.coordinator import RequeueOperator
from rtolap.airflow.rebuilt import RebuildWatch
from rtolap.airflow.sensors.cubes import SegmentsReadySensor
from rtolap.base.errors import Refused, Unavailable
from rtolap.protocols.coordinator.messages import BuildInfo, SegmentInfo

from tests.support.seeds import so_many

pytestmark = pytest.mark.usefixtures("connection")


def segment(name: str, state: str, *, version: int = 1, error: str | None = None) -> SegmentInfo:
    build = (
        None if error is None else BuildInfo(build_id="b", version=2, started_ms=0, location="", error=error)
    )
    return SegmentInfo(
        cube="c", segment=name, start_ms=0, end_ms=1, state=state, version=version, build=build
    )


class FakeCoordinator:
    """Segments as a test sets them: one list for each look, the last one from then on."""

    def __init__(self, *looks: list[SegmentInfo] | Unavailable) -> None:
        self.looks = list(looks)
        self.refused: set[str] = set()
        self.requeued: list[str] = []

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> Any:
        class Awaited:
            async def segments(_self, cube: str) -> list[SegmentInfo]:
                return self.segments(cube)

        return Awaited()

    async def __aexit__(self, *_: object) -> None: ...

    def segments(self, cube: str, **_range: int) -> list[SegmentInfo]:
        now = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(now, Unavailable):
            raise now
        return now

    def requeue(self, cube: str, name: str) -> None:
        if name in self.refused:
            raise Refused(f"{name} is not READY")
        self.requeued.append(name)


def coordinator(monkeypatch: pytest.MonkeyPatch, *looks: list[SegmentInfo] | Unavailable) -> FakeCoordinator:
    fake = FakeCoordinator(*looks)
    for name in ("coordinator", "async_coordinator"):
        monkeypatch.setattr(RtolapHook, name, lambda _hook: fake)
    return fake


def sensor(*segments: str, **more: Any) -> SegmentsReadySensor:
    arguments: dict[str, Any] = {
        "task_id": "ready",
        "cube": "c",
        "segments": list(segments),
        "poke_interval": 0.01,
    }
    return SegmentsReadySensor(**{**arguments, **more})


def resumed(waiting: SegmentsReadySensor) -> Any:
    """Defer, wait in the trigger, and resume with what it has fired."""
    with pytest.raises(TaskDeferred) as deferral:
        waiting.execute({})

    async def first() -> Any:
        return (await asyncio.wait_for(anext(deferral.value.trigger.run()), 30)).payload

    return waiting.heard({}, asyncio.run(first()), **deferral.value.kwargs)


def test_a_run_waits_until_every_segment_is_ready_and_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    queued = [segment("s1", "REMOTE_PERSISTED"), segment("s2", "READY"), segment("other", "REMOTE_PERSISTED")]
    ready = [segment("s1", "READY", version=2), *queued[1:]]
    coordinator(monkeypatch, queued, queued, Unavailable("no leader"), queued, ready)
    assert resumed(sensor("s1", "s2")) == {"cube": "c", "ready": ["s1", "s2"]}


def test_a_run_without_segments_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator(monkeypatch, Unavailable("it is not asked"))
    assert sensor().execute({}) == {"cube": "c", "ready": []}


def test_a_run_fails_with_what_was_purged_or_does_not_build(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = segment("s1", "REMOTE_PERSISTED", error="the disk is full")
    coordinator(monkeypatch, [failing, segment("s2", "PURGED"), segment("s3", "READY")])
    with pytest.raises(AirflowFailException) as failed:
        resumed(sensor("s1", "s2", "s3", "s4", failed_after_s=0.05))
    assert str(failed.value).startswith("3 of 4 segments of c were not rebuilt: ")
    for part in (
        "s1: its builds fail: the disk is full",
        "s2: it was purged",
        "s4: there is no such segment",
    ):
        assert part in str(failed.value)


def test_a_failed_attempt_is_no_failure_while_another_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    failing, building = segment("s", "REMOTE_PERSISTED", error="x"), segment("s", "REMOTE_PERSISTED")
    watch = RebuildWatch(["s"], failed_after_s=10)
    assert watch.look([failing], 0.0).waiting == {"s": "REMOTE_PERSISTED"}
    assert watch.look([failing], 9.0).waiting
    assert watch.look([building], 50.0).waiting  # by a retry of the build
    assert watch.look([failing], 51.0).failed == {"s": "its builds fail: x"}
    assert watch.look([segment("s", "READY", version=2)], 52.0).ready == ("s",)


@pytest.mark.parametrize("seed", range(so_many(50)))
def test_each_segment_is_ready_failed_or_waiting_whatever_its_life(seed: int) -> None:
    drawn = random.Random(seed)
    names = [f"s{number}" for number in range(drawn.randrange(1, 8))]
    watch = RebuildWatch(names, failed_after_s=5)
    for now_s in range(20):
        infos = [
            segment(
                name,
                drawn.choice(["READY", "REMOTE_PERSISTED", "IMMUTABLE", "PURGED"]),
                error=drawn.choice([None, "broken"]),
            )
            for name in names
            if drawn.random() < 0.9
        ]
        seen = watch.look(infos, float(now_s))
        assert sorted([*seen.ready, *seen.failed, *seen.waiting]) == sorted(names)
        assert set(seen.ready) == {info.segment for info in infos if info.state == "READY"}


def test_what_an_earlier_try_has_queued_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = coordinator(
        monkeypatch,
        [
            segment("new", "REMOTE_PERSISTED", version=0),  # its first build: nothing of a backfill
            segment("queued", "REMOTE_PERSISTED"),
            segment("ready", "READY"),
            segment("late", "READY"),
            segment("gone", "PURGED"),
        ],
    )
    fake.refused = {"late"}
    operator = RequeueOperator(task_id="t", cube="c", start="2013-01-01", end="2013-01-02")
    assert operator.execute({}) == {"cube": "c", "segments": ["queued", "ready"]}
    assert fake.requeued == ["ready"]
