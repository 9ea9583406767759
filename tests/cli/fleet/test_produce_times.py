"""What the mover reads of writes, by looks at the brokers' sources; the options of `rtolap fleet serve`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.fleet.serve import REQUESTS_MIN, ProduceTimes, serve
from rtolap.fleet.monitoring.collect import MissingSource, StageLook
from rtolap.fleet.monitoring.stages import RequestType
from rtolap.fleet.moves.produce_latency import ProduceReading

from tests.support.fleet.broker_metrics import MemoryBroker, look_at


class Fleet:
    def __init__(self) -> None:
        self.brokers = {1: MemoryBroker(), 2: MemoryBroker(), 3: MemoryBroker()}
        self.missing: list[MissingSource] = []
        self.times = ProduceTimes(self.look)
        for broker in self.brokers.values():
            broker.serve(RequestType.PRODUCE, 50, local=1)

    def look(self, at_ms: int) -> StageLook:
        return look_at(self.brokers, at_ms, missing=self.missing)


def test_writes_between_two_looks_count_and_the_long_poll_of_fetches_does_not() -> None:
    fleet = Fleet()
    assert fleet.times.read(0) is None
    fleet.brokers[1].serve(RequestType.PRODUCE, REQUESTS_MIN, local=400, remote=12)
    fleet.brokers[2].serve(RequestType.PRODUCE, REQUESTS_MIN - 1, local=400)
    fleet.brokers[3].serve(RequestType.FETCH_CONSUMER, 500, remote=5000)
    assert fleet.times.read(10_000) == ProduceReading({1: 412.0, 2: None, 3: None})


def test_a_broker_that_does_not_answer_or_was_not_seen_before_is_not_told_of() -> None:
    fleet = Fleet()
    late = fleet.brokers.pop(3)
    fleet.times.read(0)
    del fleet.brokers[2]
    fleet.brokers[3] = late
    assert fleet.times.read(10_000) == ProduceReading({1: None})


def test_a_look_from_before_the_plan_is_not_compared_with() -> None:
    fleet = Fleet()
    fleet.times.read(0)
    assert fleet.times.read(600_000) is None
    assert fleet.times.read(610_000) is not None


def test_a_limit_without_sources_is_refused_before_the_cluster_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RTOLAP_FLEET_SOURCES", raising=False)
    token = tmp_path / "token"
    token.write_text("the token")
    token.chmod(0o600)
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(token))
    with pytest.raises(DefinitionError, match="no sources of the brokers"):
        serve(produce_p99_ms_max=300.0, sources=None)
