"""A look at all brokers: agents and exporters on real sockets, with good, wrong, huge and no answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.fleet.monitoring import collect
from rtolap.fleet.monitoring.collect import StageReader
from rtolap.fleet.monitoring.jolokia import BULK_READ, bean_keys, parse_bulk_answer
from rtolap.fleet.monitoring.prometheus_text import parse_page
from rtolap.fleet.monitoring.sources import FleetSources, read_sources
from rtolap.fleet.monitoring.stages import RequestType, Stage

from tests.support.certificates import make_certificates
from tests.support.fleet.broker_metrics import MemoryBroker, jolokia_answer
from tests.support.fleet.served_pages import Answer, agent, declared

PAGE = b"""# TYPE kafka_network_requestmetrics_totaltimems untyped
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99",} 12.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.5",} NaN
kafka_network_requestmetrics_totaltimems_count{request="Produce",} 300.0
kafka_network_requestmetrics_totaltimems{request="Metadata",quantile="0.99",} 1.0
kafka_log_log_size{topic="requestmetrics",partition="0",} 7.0
kafka_server_replicamanager_underreplicatedpartitions 2.0
kafka_server_replicafetchermanager_maxlag{clientId="Replica",} 9.0
"""
PLAIN_PAGE = b"""kafka_network_RequestMetrics_99thPercentile{name="LocalTimeMs",request="FetchConsumer"} 4.0
kafka_network_RequestMetrics_Count{name="LocalTimeMs",request="FetchConsumer"} 30.0
kafka_network_RequestMetrics_Mean{name="LocalTimeMs",request="FetchConsumer"} 2.5
kafka_log_LogManager_Value{logDirectory="\\"/data/d0\\"",name="LogDirectoryOffline"} 0.0
kafka_log_LogManager_Value{logDirectory="\\"/data/d1\\"",name="LogDirectoryOffline"} 1.0
kafka_server_ReplicaFetcherManager_Value{clientId="Replica",name="MaxLag"} 4.0
kafka_server_ReplicaManager_Count{name="IsrShrinksPerSec"} 6.0
kafka_server_app_info_StartTimeMs{id="5"} 1.7E12
"""


def served_broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.serve(RequestType.PRODUCE, 10, local=3, remote=4)
    broker.serve(RequestType.FETCH_CONSUMER, 5, remote=500)
    return broker


def test_one_bulk_read_tells_all_stages_of_a_broker_and_who_it_is(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def answer(request: Any) -> Answer:
        asked.append(request.body)
        return 200, jolokia_answer(served_broker(), 1, lag=3, offline=["/data/a,b"])

    with (
        agent(answer) as url,
        StageReader(declared(tmp_path, f"brokers: {{1: {{jolokia: '{url}'}}}}")) as reader,
    ):
        look = reader.look(77)
    assert asked == [BULK_READ]
    assert look.missing == ()
    assert look.at_ms == 77
    assert look.stages.brokers.tolist() == [1, 1]
    assert look.stages.requests.tolist() == [RequestType.PRODUCE, RequestType.FETCH_CONSUMER]
    assert look.stages.counts[:, Stage.TOTAL].tolist() == [10, 5]
    assert look.stages.p99_ms[0, [Stage.LOCAL, Stage.REMOTE, Stage.TOTAL]].tolist() == [3, 4, 7]
    gauges = look.gauges[1]
    assert (gauges.lag_records_max, gauges.handlers_idle, gauges.request_queue) == (3, 0.9, 3)
    assert (gauges.isr_shrinks, gauges.network_idle) == (None, None)
    assert gauges.offline_log_dirs == ("/data/a,b",)


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = jolokia_answer(served_broker(), 1)
    monkeypatch.setattr(collect, "ANSWER_BYTES_MAX", len(good))
    waits = threading.Event()

    def hang(_: Any) -> Answer:
        waits.wait(30)
        return 200, good

    answers: dict[int, Callable[[Any], Answer]] = {
        1: lambda _: (200, good),
        2: lambda _: (200, jolokia_answer(served_broker(), 9)),
        3: lambda _: (200, b"<html>"),
        4: lambda _: (200, b" " * (len(good) + 1)),
        5: lambda _: (401, b""),
        6: lambda _: (302, b""),
        7: hang,
        8: lambda _: (200, json.dumps([{"status": 403, "error": "no access"}] * 11).encode()),
    }
    served = {broker: agent(answer) for broker, answer in answers.items()}
    urls = {broker: it.__enter__() for broker, it in served.items()}
    urls[10] = "http://127.0.0.1:1/jolokia"
    text = "brokers:\n" + "".join(f"  {broker}: {{jolokia: '{url}'}}\n" for broker, url in urls.items())
    with StageReader(declared(tmp_path, text), timeout_s=0.5) as reader:
        look = reader.look(0)
    waits.set()
    for it in served.values():
        it.__exit__(None, None, None)
    assert sorted(look.gauges) == [1]
    reasons = {missing.broker: missing.reason for missing in look.missing}
    assert look.silent_brokers == (2, 3, 4, 5, 6, 7, 8, 10)
    for broker, part in {
        2: "agent of broker 9",
        3: "no answer of a Jolokia agent",
        4: "too large",
        5: "401",
        6: "302",
        7: "timed out",
        8: "no access",
        10: "refused",
    }.items():
        assert part in reasons[broker]


def test_secrets_go_to_the_agent_alone_and_are_shown_nowhere(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def answer(request: Any) -> Answer:
        seen.append(request.headers["Authorization"])
        return 401, b""

    (tmp_path / "password").write_text("s3cret\n")
    (tmp_path / "password").chmod(0o600)
    access = f"access: {{user: monitor, password: {{file: {tmp_path}/password}}}}"
    with agent(answer) as url:
        sources = declared(tmp_path, f"brokers: {{1: {{jolokia: '{url}'}}}}\n{access}")
        with StageReader(sources) as reader:
            look = reader.look(0)
    assert seen == ["Basic bW9uaXRvcjpzM2NyZXQ="]
    assert "s3cret" not in f"{look} {sources}"
    assert "access" in look.missing[0].reason
    (tmp_path / "password").chmod(0o644)
    with pytest.raises(DefinitionError, match="open to others"):
        StageReader(sources)


def test_an_agent_that_is_not_trusted_gets_no_request(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(_: Any) -> Answer:
        asked.append(1)
        return 200, jolokia_answer(served_broker(), 1)

    made = make_certificates(tmp_path)
    with agent(answer, made) as url:
        text = f"brokers: {{1: {{jolokia: '{url}'}}}}\n"
        with StageReader(declared(tmp_path, text)) as reader:
            assert "CERTIFICATE_VERIFY_FAILED" in reader.look(0).missing[0].reason
        assert asked == []
        with StageReader(declared(tmp_path, f"{text}access: {{ca: {made.authority}}}")) as reader:
            assert reader.look(0).missing == ()
    with pytest.raises(DefinitionError, match="trusted certificates"):
        StageReader(declared(tmp_path, f"{text}access: {{ca: /none.pem}}"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("brokers: {1: {}}", "broker 1 has no source"),
        ("brokers: {1: {jolokia: 'http://u:p4ss@h/jolokia'}}", "a URL holds a password"),
        ("brokers: {1: {jolokia: 'ftp://h'}}", "http://"),
        ("brokers: {1: {jolokia: 'http://h', user: x}}", "unknown field `user`"),
        ("access: {user: u, password: p4ss}", "password"),
        ("clients: ['nowhere']", "no URL"),
        ("brokers: {one: {jolokia: 'http://h'}}", "declares no sources"),
        ("a: [", "no YAML, line 1"),
    ],
)
def test_a_wrong_declaration_is_refused_without_its_secrets(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(DefinitionError, match=named) as caught:
        declared(tmp_path, text)
    assert "p4ss" not in str(caught.value)


def test_a_declaration_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text("clients: []")
    path.chmod(0o666)
    with pytest.raises(DefinitionError, match="others may write"):
        read_sources(path)
    with pytest.raises(DefinitionError, match="cannot be read"):
        read_sources(tmp_path / "none")


def test_without_a_source_a_look_says_so() -> None:
    with StageReader(FleetSources()) as reader:
        look = reader.look(0)
    assert len(look.stages) == 0
    assert [missing.source for missing in look.missing] == ["JMX"]


def test_an_exporters_page_is_read_under_either_of_its_names(tmp_path: Path) -> None:
    with agent(lambda _: (200, PAGE)) as url:
        text = f"brokers: {{4: {{prometheus: '{url}'}}}}"
        with StageReader(declared(tmp_path, text)) as reader:
            look = reader.look(0)
    assert look.stages.requests.tolist() == [RequestType.PRODUCE]
    assert look.stages.counts[0].tolist() == [-1] * 6 + [300]
    assert look.stages.p99_ms[0, Stage.TOTAL] == 12
    assert np.isnan(look.stages.p50_ms).all()
    assert (look.gauges[4].under_replicated, look.gauges[4].lag_records_max) == (2, 9)
    plain = parse_page(PLAIN_PAGE)
    times = plain.times[RequestType.FETCH_CONSUMER, Stage.LOCAL]
    assert (times.count, times.mean_ms, times.p99_ms) == (30, 2.5, 4)
    assert (plain.gauges.lag_records_max, plain.gauges.isr_shrinks, plain.ids) == (4, 6, (5,))
    assert plain.gauges.offline_log_dirs == ("/data/d1",)


def test_what_an_exporter_calls_a_counter_may_end_in_total() -> None:
    line = 'kafka_network_requestmetrics_localtimems_count_total{request="Produce"} 8.0\n'
    assert parse_page(line.encode()).times[RequestType.PRODUCE, Stage.LOCAL].count == 8


@pytest.mark.parametrize(
    "page",
    [b"", b"<html>", b"other 1\n", b'kafka_network_requestmetrics_totaltimems{request="Produce"\n', b"\xff"],
)
def test_a_page_without_times_is_refused(page: bytes) -> None:
    with pytest.raises(Corrupted):
        parse_page(page)


@pytest.mark.parametrize("answer", [b"{}", b"[]", b"[1]", b"\xff", b'[{"status": 200, "value": 3}]'])
def test_an_answer_that_is_none_is_refused(answer: bytes) -> None:
    with pytest.raises(Corrupted):
        parse_bulk_answer(answer)


def test_names_of_beans_are_read_with_quotes_and_without() -> None:
    assert bean_keys('k:a=1,b="x,y=\\"z\\"",c=2') == {"a": "1", "b": 'x,y="z"', "c": "2"}
