"""Times of requests in columns: joined over two looks exactly, kept in a file, refused where damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.fleet.monitoring.collect import MissingSource
from rtolap.fleet.monitoring.history import append_look, read_looks
from rtolap.fleet.monitoring.readings import BrokerGauges
from rtolap.fleet.monitoring.stages import PARTS, RequestType, Stage, between, from_times

from tests.support.fleet.broker_metrics import MemoryBroker, look_at


def test_a_window_holds_exactly_the_requests_between_two_looks() -> None:
    rng = np.random.default_rng(7)
    brokers = {1: MemoryBroker(), 3: MemoryBroker()}
    for broker in brokers.values():
        for _ in range(500):
            broker.serve(RequestType.PRODUCE, local=rng.integers(0, 900), send=rng.integers(0, 9))
    before = look_at(brokers, 1000).stages
    sent = rng.integers(0, 50, (200, 2))
    for local, remote in sent.tolist():
        brokers[3].serve(RequestType.PRODUCE, local=local, remote=remote)
    window = between(before, 1000, look_at(brokers, 2000).stages, 2000)
    assert window.counts.tolist() == [0, 200]
    assert np.isnan(window.mean_ms[0]).all()
    assert np.isnan(window.p99_ms[0]).all()
    assert window.mean_ms[1, Stage.LOCAL] == pytest.approx(sent[:, 0].mean(), abs=1e-9)
    assert window.mean_ms[1, Stage.REMOTE] == pytest.approx(sent[:, 1].mean(), abs=1e-9)
    assert window.mean_ms[1, PARTS].sum() == pytest.approx(window.mean_ms[1, Stage.TOTAL], abs=1e-9)


def test_a_broker_that_was_started_again_is_counted_from_its_start() -> None:
    old, new = MemoryBroker(), MemoryBroker()
    old.serve(RequestType.PRODUCE, 1000, local=500)
    new.serve(RequestType.PRODUCE, 40, local=2)
    window = between(look_at({1: old}, 0).stages, 0, look_at({1: new}, 1).stages, 1)
    assert window.counts.tolist() == [40]
    assert window.mean_ms[0, Stage.LOCAL] == 2


def test_a_broker_that_was_not_seen_before_has_no_window() -> None:
    broker = MemoryBroker()
    broker.serve(RequestType.PRODUCE, 5, local=2)
    now = look_at({1: broker}, 1).stages
    window = between(from_times({}), 0, now, 1)
    assert window.counts.tolist() == [-1]
    assert np.isnan(window.mean_ms).all()
    assert len(between(now, 0, from_times({}), 1)) == 0


def test_an_old_percentile_is_not_believed_beyond_what_the_new_requests_allow() -> None:
    broker = MemoryBroker()
    broker.serve(RequestType.PRODUCE, 900, local=800)
    before = look_at({1: broker}, 0).stages
    broker.serve(RequestType.PRODUCE, 100, local=1)
    window = between(before, 0, look_at({1: broker}, 1).stages, 1)
    assert window.histogram_p99_ms[0, Stage.LOCAL] == 800
    assert window.p99_ms[0, Stage.LOCAL] == 100


def test_looks_are_kept_whole_and_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    broker = MemoryBroker()
    broker.serve(RequestType.FETCH_FOLLOWER, 3, local=5)
    gauges = {1: BrokerGauges(lag_records_max=4, offline_log_dirs=("/d0",))}
    missing = (MissingSource("Jolokia of broker 2", "timed out", 2),)
    look, path = look_at({1: broker}, 5, gauges, missing), tmp_path / "looks.jsonl"
    append_look(path, look)
    append_look(path, look_at({}, 6))
    with path.open("ab") as file:
        file.write(b'{"version":1,"at_')
    first, second = read_looks(path)
    assert (first.at_ms, first.gauges, first.missing) == (5, gauges, missing)
    assert first.silent_brokers == (2,)
    for name, column in vars(look.stages).items():
        np.testing.assert_array_equal(getattr(first.stages, name), column)
    assert len(second.stages) == 0


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"x", b'{"version":2}'])
def test_a_file_of_something_else_is_refused_with_the_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "looks.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(Corrupted, match="line 1"):
        read_looks(path)
    with pytest.raises(NotFound, match="--record"):
        read_looks(tmp_path / "none")


def test_a_look_whose_columns_contradict_each_other_is_refused(tmp_path: Path) -> None:
    broker = MemoryBroker()
    broker.serve(RequestType.PRODUCE)
    path = tmp_path / "looks.jsonl"
    append_look(path, look_at({1: broker, 2: broker}, 5))
    path.write_bytes(path.read_bytes().replace(b'"brokers":[1,2]', b'"brokers":[2,1]'))
    with pytest.raises(Corrupted, match="order of broker"):
        read_looks(path)
