"""Drivers on a cluster: how they are named, found and killed, beside a manager's client that a script plays.

What the script prints is what `yarn application` of Hadoop 3.5 prints. That a real YARN does what it is asked
is shown by `integration/spark/test_cluster_mode.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rtolap.agent import cluster_drivers, commands, watch
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.records import ProcessRecord, StateFile
from rtolap.agent.spark_allowed import SparkAllowed, read_spark_allowed
from rtolap.agent.states import ProcessState
from rtolap.agent.supervisor import Supervisor
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.base.pids import pid_lives
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus

from tests.support.agent_harness import TICK_S
from tests.support.waiting import until

# spark-submit notes the driver as living and waits; with `ends` its driver ends first, with that code.
SUBMIT = """#!/bin/sh
for word in "$@"; do
    case "$word" in spark.yarn.tags=*) name="${word#spark.yarn.tags=}" ;; esac
    ends="$word"
done
echo "$name" >> "{folder}/submitted"
case "$ends" in
    ends=*) exit "${ends#ends=}" ;;
esac
touch "{folder}/living/$name"
exec sleep 600
"""
# `application -list -appTags NAME …` and `-kill ID`; it fails as often as `failures` says.
CLIENT = """#!/bin/sh
echo "$@" >> "{folder}/calls"
left=$(cat "{folder}/failures")
if [ "$left" -gt 0 ]; then
    echo $((left - 1)) > "{folder}/failures"
    echo "Connection refused"
    exit 255
fi
if [ "$3" = -list ]; then
    echo "Total number of applications (application-types: [], states: [RUNNING] and tags: [$5]):1"
    echo "                Application-Id      Application-Name        State"
    [ -e "{folder}/living/$5" ] && echo "application_1795726165022_0002      job.py       RUNNING"
    exit 0
fi
[ -e "{folder}/immortal" ] || rm -f "{folder}"/living/*
exit 0
"""
ARGV = ("spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "job.py")


class Manager:
    """The manager's client and what it knows, in files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "living").mkdir(parents=True)
        for name, text in (("spark-submit", SUBMIT), ("spark-class", CLIENT)):
            script = folder / name
            script.write_text(text.replace("{folder}", str(folder)))
            script.chmod(0o755)
        (folder / "job.py").write_text("")
        self.fail(0)

    def fail(self, times: int) -> None:
        (self.folder / "failures").write_text(str(times))

    def living(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "living").iterdir())

    def submitted(self) -> list[str]:
        path = self.folder / "submitted"
        return path.read_text().split() if path.exists() else []

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def host(self) -> Host:
        return Host(self.folder, self.folder / "data", "file:///nowhere", "yarn")


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    found = Manager(tmp_path / "bin")
    monkeypatch.setattr(commands, "_spark_submit", lambda: found.folder / "spark-submit")
    monkeypatch.setattr(watch, "RETRY_S", 0.05)
    return found


def spec(generation: int, *arguments: str) -> ProcessSpec:
    return ProcessSpec(generation=generation, argv=(*ARGV, *arguments), one_shot=True, stop_grace_s=5.0)


class Life:
    """One life of an agent in a folder; its processes outlive it, as after a kill."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self.agent = Supervisor(folder, Commands(manager.host()), tick_s=TICK_S)

    async def __aenter__(self) -> Supervisor:
        self._loop = asyncio.create_task(self.agent.run())
        return self.agent

    async def __aexit__(self, *_: object) -> None:
        self._loop.cancel()
        self.agent.close()


async def eventually(is_so: Callable[[], bool]) -> None:
    await asyncio.to_thread(until, is_so)


def state(agent: Supervisor) -> str:
    return agent.get("build").state


def test_a_driver_carries_a_name_that_its_submission_cannot_change(manager: Manager) -> None:
    argv = Commands(manager.host()).resolve((*ARGV, "x"))
    named = cluster_drivers.named(argv, "rtolap-1")
    job = named.index(str(manager.folder / "job.py"))
    assert named[job:] == argv[argv.index(str(manager.folder / "job.py")) :]
    settings = [word for word in named[:job] if word.startswith(("spark.yarn.tags=", "spark.kubernetes."))]
    assert settings[-2:] == ["spark.yarn.tags=rtolap-1", "spark.kubernetes.driver.pod.name=rtolap-1"]
    assert cluster_drivers.new_name() != cluster_drivers.new_name()


def test_a_stop_and_the_next_generation_leave_no_driver(tmp_path: Path, manager: Manager) -> None:
    async def scenario() -> None:
        async with Life(tmp_path / "agent", manager) as agent:
            await agent.ensure("build", spec(1))
            await eventually(lambda: len(manager.living()) == 1)
            await agent.ensure("build", spec(2))
            await eventually(lambda: len(manager.submitted()) == 2)
            first, second = manager.submitted()
            await eventually(lambda: manager.living() == [second])
            assert first != second
            stopped = await agent.stop("build", 2)
            assert (stopped.state, manager.living()) == ("STOPPED", [])

    asyncio.run(scenario())


def test_a_killed_process_is_failed_once_its_driver_is_gone(tmp_path: Path, manager: Manager) -> None:
    async def scenario() -> None:
        async with Life(tmp_path / "agent", manager) as agent:
            await agent.ensure("build", spec(1))
            await eventually(lambda: len(manager.living()) == 1)
            manager.fail(3)
            kill(agent.get("build"))
            await eventually(lambda: state(agent) == "FAILED")
            assert manager.living() == []
            assert (manager.folder / "failures").read_text().strip() == "0"

    asyncio.run(scenario())


def test_a_driver_that_ended_well_is_not_looked_for_and_one_that_failed_is(
    tmp_path: Path, manager: Manager
) -> None:
    async def scenario() -> None:
        async with Life(tmp_path / "agent", manager) as agent:
            await agent.ensure("build", spec(1, "ends=0"))
            await eventually(lambda: state(agent) == "SUCCEEDED")
            assert manager.calls() == []
            await agent.ensure("build", spec(2, "ends=1"))
            await eventually(lambda: state(agent) == "FAILED")
            assert len(manager.calls()) == 1

    asyncio.run(scenario())


def test_a_stop_that_the_manager_does_not_answer_is_said_and_carried_through_later(
    tmp_path: Path, manager: Manager
) -> None:
    async def scenario() -> None:
        async with Life(tmp_path / "agent", manager) as agent:
            await agent.ensure("build", spec(1))
            await eventually(lambda: len(manager.living()) == 1)
            manager.fail(1)
            with pytest.raises(Unavailable, match="Connection refused"):
                await agent.stop("build", 1)
            await eventually(lambda: state(agent) == "STOPPED")
            assert manager.living() == []

    asyncio.run(scenario())


def test_a_driver_that_does_not_go_keeps_its_process_stopping(tmp_path: Path, manager: Manager) -> None:
    async def scenario() -> None:
        async with Life(tmp_path / "agent", manager) as agent:
            await agent.ensure("build", spec(1))
            await eventually(lambda: len(manager.living()) == 1)
            (manager.folder / "immortal").touch()
            with pytest.raises(Unavailable, match="does not go"):
                await agent.stop("build", 1)
            assert state(agent) == "STOPPING"
            (manager.folder / "immortal").unlink()
            await eventually(lambda: state(agent) == "STOPPED")

    asyncio.run(scenario())


@pytest.mark.parametrize("noted", ["PENDING", "RUNNING"])
def test_after_a_crash_of_the_agent_no_driver_is_left_beside_another(
    tmp_path: Path, manager: Manager, noted: str
) -> None:
    """Its process is gone too. PENDING: nobody noted that it had been started."""
    folder = tmp_path / "agent"

    async def before() -> ProcessStatus:
        async with Life(folder, manager) as agent:
            await agent.ensure("build", spec(1))
            await eventually(lambda: len(manager.living()) == 1)
            return agent.get("build")

    async def after() -> None:
        async with Life(folder, manager) as agent:
            if noted == "PENDING":
                await eventually(lambda: len(manager.submitted()) == 2)
                await eventually(lambda: state(agent) == "RUNNING")
                name, again = manager.submitted()
                assert name == again  # it was looked for, and killed, under the name that is noted
                assert any("-kill" in call for call in manager.calls())
                await agent.stop("build", 1)
            await eventually(lambda: state(agent) in {"FAILED", "STOPPED"})
            assert manager.living() == []

    kill(asyncio.run(before()))
    if noted == "PENDING":
        forget_start(StateFile(folder / "state.json"))
    asyncio.run(after())


def forget_start(file: StateFile) -> None:
    (record,) = file.load().processes
    forgotten = ProcessRecord(key=record.key, spec=record.spec, driver=record.driver)
    assert forgotten.state is ProcessState.PENDING
    file.save(type(file.load())(processes=(forgotten,)))


def kill(status: ProcessStatus) -> None:
    pid = status.pid
    assert pid is not None
    os.killpg(pid, signal.SIGKILL)
    until(lambda: not pid_lives(pid))  # one that is still dying would be adopted


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--master", "local[2]"), "Python jobs in client mode only"),
        (("--master", "spark://master:7077"), "Python jobs in client mode only"),
        ((), "Python jobs in client mode only"),
        (("--master", "k8s://https://here"), "spark.kubernetes.namespace"),
    ],
)
def test_a_cluster_mode_that_spark_does_not_have_is_refused(
    tmp_path: Path, argv: tuple[str, ...], expected: str
) -> None:
    (tmp_path / "job.py").write_text("")
    host = Host(tmp_path, tmp_path, "file:///nowhere", argv[1] if argv else "yarn")
    with pytest.raises(DefinitionError, match=expected):
        Commands(host).resolve(("spark-submit", *argv, "--deploy-mode", "cluster", "job.py"))
    assert Commands(host).resolve(("spark-submit", *argv, "--deploy-mode", "client", "job.py"))


def test_a_driver_on_a_cluster_gets_the_requests_file_and_no_address_of_this_host(manager: Manager) -> None:
    commands_ = Commands(manager.host())
    argv = commands_.resolve((*ARGV, "{files}/specs.json", "more"))
    assert argv[argv.index("--files") + 1] == "{files}/specs.json"
    assert argv[-2:] == ("specs.json", "more")
    assert not [word for word in argv if word.startswith(("spark.driver.host", "spark.driver.bindAddress"))]
    assert "spark.yarn.maxAppAttempts=1" in argv
    with pytest.raises(DefinitionError, match="at most one file"):
        commands_.resolve((*ARGV, "{files}/a", "{files}/b"))
    with pytest.raises(DefinitionError, match="one-shot"):
        commands_.check(ProcessSpec(generation=1, argv=ARGV))


def test_what_an_operator_allows_is_let_through_and_nothing_near_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("")
    file = tmp_path / "allowed.yaml"
    file.write_text(
        "settings: {spark.hadoop.fs.s3a.endpoint: 'https://s3[.]here'}\n"
        "jars: [/opt/jars/a.jar, 'hdfs:///jars/b.jar']\n"
    )
    taken = Commands(Host(tmp_path, tmp_path, "file:///nowhere", spark_allowed=read_spark_allowed(file)))
    for words in (
        ("--conf", "spark.hadoop.fs.s3a.endpoint=https://s3.here"),
        ("--jars", "/opt/jars/a.jar"),
        ("--jars", "hdfs:///jars/b.jar,/opt/jars/a.jar"),
    ):
        assert words[1] in taken.resolve(("spark-submit", *words, "job.py"))
        with pytest.raises(DefinitionError, match="refused"):  # where no operator says so
            Commands(Host(tmp_path, tmp_path, "file:///nowhere")).resolve(("spark-submit", *words, "job.py"))
    for words in (
        ("--conf", "spark.hadoop.fs.s3a.endpoint=https://s3.here.example"),
        ("--conf", "spark.hadoop.fs.s3a.endpoint=https://s3xhere"),
        ("--conf", "spark.hadoop.fs.s3a.endpoint=https://s3.here\n"),
        ("--conf", "spark.hadoop.fs.s3a.endpoint.more=https://s3.here"),
        ("--jars", "/opt/jars/a.jar,/tmp/own.jar"),
        ("--jars", ""),
        ("--jars", "/opt/jars/../jars/a.jar"),
    ):
        with pytest.raises(DefinitionError, match="refused"):
            taken.resolve(("spark-submit", *words, "job.py"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("settings: [a]", "does not say"),
        ("setings: {}", "does not say"),
        ("settings: {hadoop.x: y}", "no setting of Spark"),
        ("settings: {spark.x: '('}", "the pattern of spark.x is none"),
        ("jars: [a.zip]", "no jar"),
        ("jars: ['a.jar,b.jar']", "no jar"),
    ],
)
def test_an_operators_file_that_does_not_fit_is_refused_by_name(
    tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "allowed.yaml"
    file.write_text(text)
    with pytest.raises(DefinitionError, match=expected):
        read_spark_allowed(file)
    file.write_text("")
    assert read_spark_allowed(file) == read_spark_allowed(None) == SparkAllowed()
