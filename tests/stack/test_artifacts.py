"""Tests of what the set-up fetches is what was meant to be fetched, or nothing."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rtolap.base.errors import Corrupted
from rtolap.stack import artifacts
from rtolap.stack.jar_checksums import STACK, listed, measured

from tests.support.fleet.jmx_agents import checksums, jolokia_agent, prometheus_exporter

EXPECTED = {"kafka/a-1.jar": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}  # of b"a"


@pytest.mark.parametrize(
    "served",
    [{"a-1.jar": b"another"}, {"a-1.jar": b"a", "b-1.jar": b"b"}, {"a-2.jar": b"a"}],
    ids=["other bytes", "one more", "another version"],
)
def test_jars_that_nobody_expects_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: dict[str, bytes]
) -> None:
    serve(monkeypatch, served)
    with pytest.raises(Corrupted, match="nothing of what was fetched is kept"):
        artifacts.fetch_jars("<ivy/>", ("kafka",), "Kafka", tmp_path, checksums=EXPECTED)
    assert not list(tmp_path.rglob("*.jar"))


def test_jars_that_are_expected_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, {"a-1.jar": b"a"})
    folder = artifacts.fetch_jars("<ivy/>", ("kafka",), "Kafka", tmp_path, checksums=EXPECTED)
    assert measured(folder) == EXPECTED


def test_of_two_that_fetch_at_once_one_waits_for_what_the_other_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    both_have_begun = threading.Barrier(2, timeout=10)

    def ivy(confs: Sequence[str], what: str, ivy_cache: Path, work: Path, poms: bool) -> None:
        fetched.append(what)
        (work / "out" / "kafka").mkdir(parents=True)

    def fetch(what: str) -> Path:
        both_have_begun.wait()
        return artifacts.fetch_jars("<ivy-module/>", ["kafka"], what, tmp_path)

    monkeypatch.setattr(artifacts, "_run_ivy", ivy)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fetch, ("first", "second"))
    assert first == second
    assert len(fetched) == 1


def test_different_jars_are_fetched_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_are_fetching = threading.Barrier(2, timeout=10)

    def ivy(confs: Sequence[str], what: str, ivy_cache: Path, work: Path, poms: bool) -> None:
        both_are_fetching.wait()
        (work / "out" / "kafka").mkdir(parents=True)

    monkeypatch.setattr(artifacts, "_run_ivy", ivy)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda ivy_file: artifacts.fetch_jars(ivy_file, ["kafka"], "Kafka", tmp_path), ("<a/>", "<b/>")
        )
    assert first != second


def test_the_jars_of_this_machine_are_those_of_the_list() -> None:
    found = artifacts.java_artifacts()
    folders = {jar.parent.parent for jar in found.spark_kafka}
    assert [measured(folder) for folder in folders] == [listed(STACK)]


def test_the_agents_of_this_machine_are_those_of_the_list() -> None:
    for jar, name in ((jolokia_agent(), "jolokia"), (prometheus_exporter(), "exporter")):
        assert measured(jar.parent.parent) == checksums(name)


def test_an_archive_is_fetched_and_checked_as_jars_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, {"server.tar.gz": b"an archive"})
    digest = {"kafka/server.tar.gz": hashlib.sha256(b"an archive").hexdigest()}
    folder = artifacts.fetch_jars("<ivy/>", ("kafka",), "Kafka", tmp_path, checksums=digest)
    assert (folder / "kafka" / "server.tar.gz").read_bytes() == b"an archive"
    with pytest.raises(Corrupted, match=r"server.tar.gz is not the one"):
        artifacts.fetch_jars("<other/>", ("kafka",), "Kafka", tmp_path, checksums={})


def serve(monkeypatch: pytest.MonkeyPatch, jars: dict[str, bytes]) -> None:
    def ivy(confs: Sequence[str], what: str, cache: Path, work: Path, poms: bool) -> None:
        (work / "out" / "kafka").mkdir(parents=True)
        for name, data in jars.items():
            (work / "out" / "kafka" / name).write_bytes(data)

    monkeypatch.setattr(artifacts, "_run_ivy", ivy)


def test_what_is_fetched_is_reported_while_it_comes(tmp_path: Path) -> None:
    """Ivy writes into its cache bit by bit; whoever waits sees how much there is."""
    script = (
        "import pathlib, sys, time\n"
        "for part in range(4):\n"
        "    (pathlib.Path(sys.argv[1]) / str(part)).write_bytes(bytes(5 << 20))\n"
        "    while not (pathlib.Path(sys.argv[1]) / f'go{part}').exists():\n"
        "        time.sleep(0.01)\n"
    )
    cache = tmp_path / "ivy"
    cache.mkdir()
    (cache / "before").write_bytes(bytes(1 << 20))
    said: list[tuple[str, str, str]] = []

    def report(part: str, phase: str, note: str) -> None:
        said.append((part, phase, note))
        if note.endswith("so far"):
            come = int(note.split(".", maxsplit=1)[0]) // 5
            for each in range(4 if come == 4 else come):
                (cache / f"go{each}").touch()

    with artifacts.fetches_reported(report):
        code = artifacts._run_watched(
            [sys.executable, "-c", script, str(cache)], "HBase", tmp_path / "log", cache
        )
    assert code == 0
    assert said[0] == ("HBase", "fetching", "once, into the cache")
    assert said[1] == ("HBase", "fetching", "5.0 MiB so far")
    assert said[-1] == ("HBase", "fetched", "20.0 MiB")
    assert len(said) == 6


def test_a_fetch_that_nobody_waits_for_reports_to_nobody(tmp_path: Path) -> None:
    code = artifacts._run_watched([sys.executable, "-c", ""], "Kafka", tmp_path / "log", tmp_path)
    assert code == 0
