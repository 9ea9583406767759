"""What a sound application is, and what of an unsound one is said: file, line, key, expected, found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.model.application import (
    Application,
    ApplicationSource,
    CubeWatermark,
    Deficit,
    HostList,
    HostPrecise,
    Operator,
    Partitions,
    Registry,
    Rule,
    Sink,
)
from rtolap.model.validation.application import application_problems, validate_application
from rtolap.model.yaml_files import read_definitions

SOUND = """\
kind: application
name: logs
sources:
  - name: web
    rule: {deficit: {missing_events_ppm: 100, window: 5m}}
    hosts: {registry: {lease: 60s}}
    heartbeat: 5s
  - {name: batch}
operators:
  - {name: parse}
sinks:
  - {name: store}
edges:
  - [web, parse]
  - [batch, parse]
  - [parse, store]
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "include"


def problems(tmp_path: Path, old: str = "", new: str = "") -> list[str]:
    assert old in SOUND
    (tmp_path / "a.yaml").write_text(SOUND.replace(old, new) if old else SOUND + new)
    with pytest.raises(DefinitionError) as caught:
        read_definitions(tmp_path)
    return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]


def test_an_application_is_read_beside_other_definitions(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SOUND)
    (found,) = read_definitions(tmp_path).applications.values()
    assert found.sources[0] == ApplicationSource(
        name="web",
        rule=Rule(deficit=Deficit(100, 300_000)),
        hosts=HostList(registry=Registry(60_000)),
        heartbeat_ms=5_000,
    )
    assert found.sources[1].rule == Rule(partitions=Partitions())
    assert (found.operators, found.sinks) == ((Operator("parse"),), (Sink("store"),))
    assert found.upstreams("parse") == ("web", "batch")
    assert found.in_order() == ("web", "batch", "parse", "store")
    assert "access_logs" in read_definitions(EXAMPLE).applications


def test_an_application_survives_json(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SOUND)
    (found,) = read_definitions(tmp_path).applications.values()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Application) == found
    validate_application(found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "[parse, store]",
            "[prase, store]",
            "a.yaml:16: edges[2]: no such level; expected one of web, batch, parse, store; found 'prase'; "
            "did you mean 'parse'?",
        ),
        (
            "[parse, store]",
            "[parse]",
            "a.yaml:16: edges[2]: not an edge; expected two levels: [upstream, downstream]; found ['parse']",
        ),
        (
            "[batch, parse]",
            "[web, parse]",
            "a.yaml:15: edges[1]: edge is declared twice; found web → parse",
        ),
        (
            "[batch, parse]",
            "[parse, batch]",
            "a.yaml:15: edges[1]: a source with an upstream; expected sources to have no upstream; "
            "found parse → batch",
        ),
        (
            "  - [batch, parse]",
            "  - [batch, parse]\n  - [store, parse]",
            "a.yaml:16: edges[2]: a sink with a downstream; expected sinks to have no downstream; "
            "found store → parse",
        ),
        (
            "  - [parse, store]\n",
            "",
            "a.yaml:12: sinks[0].name: sink without an upstream; expected an edge "
            "[upstream, store]; found none",
        ),
        (
            "  - [batch, parse]\n",
            "",
            "a.yaml:8: sources[1].name: source leads nowhere; expected an edge "
            "[batch, downstream]; found none",
        ),
        (
            "{name: batch}",
            "{name: web}",
            "a.yaml:8: sources[1].name: level is declared twice; found 'web'",
        ),
        (
            "missing_events_ppm: 100,",
            "missing_events_ppm: 999900,",
            "a.yaml:5: sources[0].rule.deficit.missing_events_ppm: out of bounds; expected 0 to 100000; "
            "found 999900; parts per million of events that may be missing: 1000 is 0.1 %",
        ),
        (
            "missing_events_ppm: 100,",
            "missing_events_ppm: 0.1,",
            "a.yaml:5: sources[0].rule.deficit.missing_events_ppm: wrong value; expected a whole number; "
            "found '0.1' (float)",
        ),
        (
            "deficit: {missing_events_ppm: 100, window: 5m}",
            "host_precise: {delayed_hosts_ppm: -1}",
            "a.yaml:5: sources[0].rule.host_precise.delayed_hosts_ppm: out of bounds; expected 0 to 100000; "
            "found -1; parts per million of hosts that may be late: 1000 is 0.1 %",
        ),
        (
            "window: 5m",
            "window: 10ms",
            "a.yaml:5: sources[0].rule.deficit.window: out of bounds; expected 1s to 52w2d; found 10ms",
        ),
        (
            "{deficit:",
            "{partitions: {}, deficit:",
            "a.yaml:5: sources[0].rule: not a rule; expected exactly one of partitions, host_precise, "
            "deficit; found partitions, deficit",
        ),
        (
            "    hosts: {registry: {lease: 60s}}\n",
            "",
            "a.yaml:4: sources[0]: rule deficit needs hosts; expected the key hosts with one of file, url, "
            "zookeeper, registry; found none",
        ),
        (
            "{registry: {lease: 60s}}",
            "{registry: {lease: 6s}}",
            "a.yaml:6: sources[0].hosts.registry.lease: lease too short; expected at least twice the "
            "heartbeat, 10s; found 6s",
        ),
        (
            "{registry: {lease: 60s}}",
            "{file: hosts.txt, zookeeper: web/}",
            "a.yaml:6: sources[0].hosts: not a host list; expected exactly one of file, url, zookeeper, "
            "registry; found file, zookeeper",
        ),
        (
            "{registry: {lease: 60s}}",
            "{url: 'ftp://names'}",
            "a.yaml:6: sources[0].hosts.url: not an address; expected http://… or https://…; "
            "found 'ftp://names'",
        ),
        (
            "{name: batch}",
            "{name: batch, hosts: {file: names}}",
            "a.yaml:8: sources[1].hosts: rule partitions asks for no hosts; take a rule of host_precise or "
            "deficit, or leave the hosts out",
        ),
        (
            "heartbeat: 5s",
            "heartbeet: 5s",
            "a.yaml:7: sources[0].heartbeet: unknown key; expected one of heartbeat, future_max, unit_lease, "
            "name, rule, hosts; found 'heartbeet'; did you mean 'heartbeat'?",
        ),
    ],
)
def test_a_problem_says_where_what_was_expected_and_what_was_found(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert said in problems(tmp_path, old, new)


def test_a_cycle_is_shown_with_its_way_round(tmp_path: Path) -> None:
    more = "  - [parse, enrich]\n  - [enrich, check]\n  - [check, parse]\n  - [parse, store]"
    text = SOUND.replace("  - [parse, store]", more).replace(
        "{name: parse}", "{name: parse}\n  - {name: enrich}\n  - {name: check}"
    )
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(DefinitionError) as caught:
        read_definitions(tmp_path)
    (line,) = str(caught.value).splitlines()
    assert "a cycle; expected edges without one; found " in line
    around = line.rpartition("found ")[2].split(" → ")
    assert around[0] == around[-1]
    assert set(around) == {"parse", "enrich", "check"}
    itself = SOUND.replace("[web, parse]", "[web, parse]\n  - [parse, parse]")
    (tmp_path / "a.yaml").write_text(itself)
    with pytest.raises(DefinitionError, match="parse → parse"):
        read_definitions(tmp_path)


def test_two_applications_with_one_name_are_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, new=f"---\n{SOUND}") == [
        "a.yaml:19: name: application is declared twice; found 'logs'"
    ]


def test_sources_and_sinks_are_needed() -> None:
    found = application_problems(Application(name="a", sources=(), sinks=(), edges=()))
    assert [problem.text() for problem in found] == [
        "sources: no sources; expected one or more; found none",
        "sinks: no sinks; expected one or more; found none",
    ]


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    hosts = HostList(url="http://me:hidden@names/list")
    source = ApplicationSource(name="s", rule=Rule(host_precise=HostPrecise(1000)), hosts=hosts)
    one = Application(name="a", sources=(source,), sinks=(Sink("k"),), edges=(("s", "k"),))
    with pytest.raises(DefinitionError, match="credentials in an address") as caught:
        validate_application(one)
    assert "hidden" not in str(caught.value)


CUBE = """\
kind: table
name: hits
topic: hits
time: {column: at}
host_column: host
columns: [{name: at, type: bigint}, {name: host, type: string}]
---
kind: cube
name: hits_cube
table: hits
dimensions: [host]
watermark: {application: logs, source: web, sink: store}
---
"""


def test_a_cube_closes_by_an_application(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CUBE + SOUND)
    found = read_definitions(tmp_path)
    assert found.tables["hits"].host_column == "host"
    assert found.cubes["hits_cube"].watermark == CubeWatermark("logs", "web", "store")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("application: logs", "application: logz", "a.yaml:12: watermark.application: no such application; "),
        ("source: web", "source: store", "watermark.source: no such source; expected one of web, batch"),
        ("sink: store", "sink: parse", "watermark.sink: no such sink; expected one of store; found 'parse'"),
        ("host_column: host\n", "", "rule deficit needs the host of an event; expected host_column in table"),
        (
            "host_column: host\n",
            "host_column: at\n",
            "a.yaml:5: host_column: no host name; expected a string",
        ),
    ],
)
def test_a_cube_that_does_not_fit_its_application_is_refused(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    (tmp_path / "a.yaml").write_text(CUBE.replace(old, new) + SOUND)
    with pytest.raises(DefinitionError) as caught:
        read_definitions(tmp_path)
    assert said in str(caught.value)
