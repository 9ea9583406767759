"""Generations, leases, restarts and adoption, on real processes."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from rtolap.agent import records, watch
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.processes import FOLDER_VARIABLE, GENERATION_VARIABLE, KEY_VARIABLE, Processes
from rtolap.agent.records import StateFile
from rtolap.agent.supervisor import Supervisor
from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import DefinitionError, NotFound, Refused, Unavailable
from rtolap.base.pids import pid_lives
from rtolap.protocols.agent.messages import LastGeneration, ProcessSpec, ProcessStatus, RestartPolicy

from tests.support.agent_harness import TICK_S, shell
from tests.support.twins.clock import ManualClock
from tests.support.waiting import patience_s
from tests.support.waiting import until as wait_until

DEADLINE_S = 15.0


def spec(generation: int, script: str, **more: Any) -> ProcessSpec:
    return ProcessSpec(**{"generation": generation, "argv": ("sh", script), "stop_grace_s": 5.0, **more})


def supervisor(folder: Path, clock: Clock | None = None, programs: Sequence[str] = ("sh",)) -> Supervisor:
    commands = Commands(Host(folder, folder, "file:///nowhere"), dict.fromkeys(programs, shell))
    return Supervisor(folder, commands, clock, tick_s=TICK_S)


def run(
    folder: Path,
    scenario: Callable[[Supervisor], Coroutine[Any, Any, None]],
    *,
    stop: bool = True,
    clock: Clock | None = None,
    programs: Sequence[str] = ("sh",),
) -> None:
    """One life of an agent; with `stop` false its processes outlive it."""

    async def life() -> None:
        agent = supervisor(folder, clock, programs)
        loop = asyncio.create_task(agent.run())
        try:
            await scenario(agent)
            if stop:
                await agent.stop_all()
        finally:
            loop.cancel()
            agent.close()

    asyncio.run(life())


async def until(agent: Supervisor, key: str, *states: str) -> ProcessStatus:
    deadline_s = time.monotonic() + patience_s(DEADLINE_S)
    while time.monotonic() < deadline_s:
        status = agent.get(key)
        if status.state in states:
            return status
        await asyncio.sleep(0.02)
    raise AssertionError(f"{key} is {agent.get(key)}, not {states}, after {DEADLINE_S} s")


def running_pid(status: ProcessStatus) -> int:
    assert status.pid is not None, status
    return status.pid


def test_same_generation_is_the_same_process(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        first = await agent.ensure("r0", spec(1, "sleep 60"))
        assert (await agent.ensure("r0", spec(1, "sleep 61"))).pid == first.pid
        assert len(agent.list()) == 1

    run(tmp_path, scenario)


def test_a_higher_generation_starts_after_the_old_one_is_gone(tmp_path: Path) -> None:
    """The old process holds a lock folder until it has ended; the new one cannot get it before."""
    leave = f"trap 'sleep 0.3; rmdir {tmp_path}/held; exit 0' TERM"
    script = f"mkdir {tmp_path}/held || exit 9; {leave}; sleep 60 & wait"

    async def scenario(agent: Supervisor) -> None:
        old = await agent.ensure("r0", spec(1, script))
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.01)
        new = await agent.ensure("r0", spec(2, script, restart=RestartPolicy(max=0)))
        assert not pid_lives(running_pid(old))
        assert new.pid != old.pid
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.01)
        assert agent.get("r0").state == "RUNNING"

    run(tmp_path, scenario)


def test_a_lower_generation_is_refused(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("r0", spec(5, "sleep 60"))
        with pytest.raises(Refused, match="above 5"):
            await agent.ensure("r0", spec(4, "sleep 60"))
        with pytest.raises(Refused):
            await agent.renew("r0", 4)
        assert (await agent.stop("r0", 4)).reason == "replaced by generation 5"
        assert agent.get("r0").state == "RUNNING"

    run(tmp_path, scenario)


def test_a_stopped_generation_stays_stopped(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("r0", spec(1, "sleep 60"))
        assert (await agent.stop("r0", 1)).state == "STOPPED"
        assert (await agent.ensure("r0", spec(1, "sleep 60"))).state == "STOPPED"
        assert (await agent.stop("r0", 1)).state == "STOPPED"

    run(tmp_path, scenario)


def test_stop_kills_the_whole_session_of_a_deaf_process(tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/child; wait; wait"

    async def scenario(agent: Supervisor) -> None:
        status = await agent.ensure("r0", spec(1, script, stop_grace_s=0.3))
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text().strip():
            await asyncio.sleep(0.01)
        child = int((tmp_path / "child").read_text())
        assert (await agent.stop("r0", 1)).state == "STOPPED"
        assert not pid_lives(running_pid(status))
        assert not pid_lives(child)

    run(tmp_path, scenario)


def test_the_end_of_a_lease_stops_nothing_and_only_an_orphan_is_stopped(
    tmp_path: Path,
) -> None:
    clock = ManualClock()

    async def scenario(agent: Supervisor) -> None:
        kept = await agent.ensure("kept", spec(1, "sleep 60", lease_s=10, orphan_s=100))
        left = await agent.ensure("left", spec(1, "sleep 60", lease_s=10, orphan_s=100))
        await asyncio.sleep(0)  # as the regular look begins, it renews all leases once
        clock.advance_ms(99_000)
        await asyncio.sleep(TICK_S * 5)  # looks at which the lease is over
        for status in (agent.get("kept"), agent.get("left")):
            assert (status.state, status.is_unattended) == ("RUNNING", True)
            assert status.reason.endswith("; unattended")
        renewed = await agent.renew("kept", 1)
        assert (renewed.pid, renewed.is_unattended, renewed.lease_left_s) == (kept.pid, False, 10.0)
        clock.advance_ms(2_000)
        assert "orphaned" in (await until(agent, "left", "STOPPED")).reason
        assert not pid_lives(running_pid(left))
        assert (agent.get("kept").state, agent.get("kept").pid) == ("RUNNING", kept.pid)

    run(tmp_path, scenario, clock=clock)


def test_an_unattended_process_runs_until_its_successor_takes_over(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(agent: Supervisor) -> None:
        old = await agent.ensure("r0", spec(1, "sleep 60", lease_s=10))
        await asyncio.sleep(0)
        clock.advance_ms(3_600_000)
        await asyncio.sleep(TICK_S * 5)
        assert (agent.get("r0").pid, agent.get("r0").is_unattended) == (old.pid, True)
        new = await agent.ensure("r0", spec(2, "sleep 60", lease_s=10))
        assert not pid_lives(running_pid(old))
        assert (new.state, new.is_unattended) == ("RUNNING", False)

    run(tmp_path, scenario, clock=clock)


def test_the_status_tells_every_step_of_a_process_and_numbers_them_without_a_gap(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("r0", spec(1, "exit 3", restart=RestartPolicy(max=1, backoff_s=0.01)))
        steps = (await until(agent, "r0", "FAILED")).steps
        assert [step.number for step in steps] == list(range(1, len(steps) + 1))
        assert [step.event for step in steps] == ["SPAWNED", "CRASHED", "RETRY", "SPAWNED", "GAVE_UP"]
        assert "exit code 3" in steps[1].reason

    run(tmp_path, scenario)


def test_a_crash_is_restarted_and_after_too_many_it_has_failed_with_its_last_lines(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        policy = RestartPolicy(max=2, backoff_s=0.01)
        await agent.ensure("r0", spec(1, "echo no broker; exit 3", restart=policy))
        failed = await until(agent, "r0", "FAILED")
        assert failed.restarts == 2
        assert failed.exit_code == 3
        assert failed.log_tail == ("no broker",) * 3
        assert "after 2 restarts" in failed.reason

    run(tmp_path, scenario)


class WildClock(SystemClock):
    """Its wall time is set with every look."""

    def __init__(self, step_ms: int) -> None:
        self._step_ms, self._set_ms = step_ms, 0

    def now_ms(self) -> int:
        self._set_ms += self._step_ms
        return super().now_ms() + self._set_ms


@pytest.mark.parametrize("step_ms", [3_600_000, -3_600_000])
def test_how_long_a_process_was_up_is_counted_by_no_clock_that_somebody_sets(
    tmp_path: Path, step_ms: int
) -> None:
    async def scenario(agent: Supervisor) -> None:
        brief = RestartPolicy(max=2, backoff_s=0.01, forget_after_s=600.0)
        await agent.ensure("brief", spec(1, "exit 3", restart=brief))
        assert (await until(agent, "brief", "FAILED")).restarts == 2
        long = RestartPolicy(max=1, backoff_s=0.01, forget_after_s=0.1)
        await agent.ensure("long", spec(1, "sleep 0.3; exit 3", restart=long))
        deadline_s = time.monotonic() + patience_s(DEADLINE_S)
        while sum(step.event == "SPAWNED" for step in agent.get("long").steps) < 4:
            assert agent.get("long").state != "FAILED"
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.02)

    run(tmp_path, scenario, clock=WildClock(step_ms))


async def eventually(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + patience_s(DEADLINE_S)
    while not is_so():
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


def test_a_command_that_this_agent_no_longer_allows_fails_its_process_alone(tmp_path: Path) -> None:
    pids = {}

    async def first(agent: Supervisor) -> None:
        for key, program in (("gone", "old"), ("stays", "sh")):
            policy = RestartPolicy(backoff_s=0.01)
            started = spec(1, "", argv=(program, "sleep 60"), restart=policy)
            pids[key] = running_pid(await agent.ensure(key, started))

    async def second(agent: Supervisor) -> None:
        assert "command refused" in (await until(agent, "gone", "FAILED")).reason
        os.kill(pids["stays"], signal.SIGKILL)
        await eventually(lambda: agent.get("stays").pid not in (None, pids["stays"]))

    run(tmp_path, first, stop=False, programs=("sh", "old"))
    os.kill(pids["gone"], signal.SIGKILL)
    run(tmp_path, second)


@pytest.mark.parametrize("seed", range(4))
def test_an_agent_whose_disk_takes_nothing_for_a_while_loses_no_process_and_starts_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng, is_full = random.Random(seed), [True]
    write = records.write_atomic

    def full_now_and_then(path: Path, data: bytes, *, mode: int) -> None:
        if is_full[0] and rng.random() < 0.6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data, mode=mode)

    async def ensured(agent: Supervisor, key: str, wanted: ProcessSpec) -> None:
        for _ in range(100):
            try:
                await agent.ensure(key, wanted)
            except Unavailable:
                await asyncio.sleep(0.01)
            else:
                return
        raise AssertionError(key)

    async def scenario(agent: Supervisor) -> None:
        wanted = {
            "done": spec(1, f"echo done >> {tmp_path}/done", one_shot=True),
            "wrong": spec(1, "exit 4", one_shot=True),
            "crashing": spec(1, "exit 3", restart=RestartPolicy(max=3, backoff_s=0.01)),
            "service": spec(1, "sleep 60", restart=RestartPolicy(max=1000, backoff_s=0.01)),
            "replaced": spec(1, "sleep 60"),
        }
        for key in rng.sample(sorted(wanted), len(wanted)):
            await ensured(agent, key, wanted[key])
        for _ in range(10):
            pid = agent.get("service").pid
            if pid is not None and pid_lives(pid):
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.1 * rng.random())
        await ensured(agent, "replaced", spec(2, "sleep 60"))
        is_full[0] = False
        assert (await until(agent, "done", "SUCCEEDED")).exit_code == 0
        assert (tmp_path / "done").read_text() == "done\n", "it was started once"
        assert (await until(agent, "wrong", "FAILED")).exit_code == 4
        assert "after 3 restarts" in (await until(agent, "crashing", "FAILED")).reason
        for key in ("service", "replaced"):
            await until(agent, key, "RUNNING")
        await eventually(lambda: sorted(marked(tmp_path)) == ["replaced", "service"])

    monkeypatch.setattr(records, "write_atomic", full_now_and_then)
    monkeypatch.setattr(watch, "RETRY_S", 0.02)
    run(tmp_path, scenario)


@pytest.mark.parametrize("ends", [False, True])
def test_a_start_that_the_disk_did_not_take_is_stopped_before_its_successor_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    write, calls = records.write_atomic, []

    def second_fails(path: Path, data: bytes, *, mode: int) -> None:
        calls.append(data)
        if len(calls) == 2:  # PENDING is on the disk, the process is not
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, data, mode=mode)

    async def scenario(agent: Supervisor) -> None:
        script = f"echo >> {tmp_path}/starts" + ("" if ends else "; sleep 60")
        with pytest.raises(Unavailable, match="No space left on device"):
            await agent.ensure("r0", spec(1, script, one_shot=ends))
        if ends:
            assert (await until(agent, "r0", "SUCCEEDED")).exit_code == 0
            assert (tmp_path / "starts").read_text() == "\n"
            return
        second = await agent.ensure("r0", spec(2, "sleep 60"))
        assert second.state == "RUNNING"
        assert marked(tmp_path) == ["r0"]

    monkeypatch.setattr(records, "write_atomic", second_fails)
    run(tmp_path, scenario)


def marked(folder: Path) -> list[str]:
    """Return the keys of the leaders of sessions that carry marks of this agent, one for each process."""
    keys = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) != process.pid or not pid_lives(process.pid):
                continue
            environment = process.environ()
        except (psutil.Error, ProcessLookupError, PermissionError):
            continue
        if environment.get(FOLDER_VARIABLE, "").startswith(str(folder.resolve())):
            keys.append(environment[KEY_VARIABLE])
    return keys


def test_a_killed_process_comes_back(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        first = running_pid(
            await agent.ensure("r0", spec(1, "sleep 60", restart=RestartPolicy(backoff_s=0.01)))
        )
        os.kill(first, signal.SIGKILL)
        deadline_s = time.monotonic() + patience_s(DEADLINE_S)
        while agent.get("r0").restarts == 0 or agent.get("r0").state != "RUNNING":
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.02)
        assert agent.get("r0").pid != first

    run(tmp_path, scenario)


def test_a_command_that_cannot_start_has_failed(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("b", spec(1, "exec /no/such/program", one_shot=True))
        assert (await until(agent, "b", "FAILED")).exit_code == 127

    run(tmp_path, scenario)


@pytest.mark.parametrize(("code", "state"), [(0, "SUCCEEDED"), (4, "FAILED")])
def test_a_one_shot_reports_its_exit_code_until_acknowledged(tmp_path: Path, code: int, state: str) -> None:
    async def scenario(agent: Supervisor) -> None:
        await agent.ensure(
            "b", spec(1, f"echo built; exit {code}", one_shot=True, labels={"cube": "flights"})
        )
        ended = await until(agent, "b", "SUCCEEDED", "FAILED")
        assert (ended.state, ended.exit_code, ended.log_tail) == (state, code, ("built",))
        assert ended.labels == {"cube": "flights"}
        assert agent.get("b") == ended
        await agent.acknowledge("b", 1)
        with pytest.raises(NotFound):
            agent.get("b")
        assert b"built" in agent.log("b", 100)
        assert agent.last("b").labels == {"cube": "flights"}, "whose log it is"
        with pytest.raises(Refused, match="above 1"):
            await agent.ensure("b", spec(1, "exit 0", one_shot=True))

    run(tmp_path, scenario)


def test_whose_log_it_is_outlives_the_agent_and_goes_with_the_next_process(tmp_path: Path) -> None:
    async def first_life(agent: Supervisor) -> None:
        await agent.ensure("b", spec(1, "exit 0", one_shot=True, labels={"cube": "flights"}))
        await until(agent, "b", "SUCCEEDED")
        await agent.acknowledge("b", 1)

    async def second_life(agent: Supervisor) -> None:
        assert agent.last("b") == LastGeneration(1, {"cube": "flights"})
        assert agent.last("c") == LastGeneration(0)
        await agent.ensure("b", spec(2, "exit 0", one_shot=True))
        assert agent.last("b") == LastGeneration(2)

    run(tmp_path, first_life, stop=False)
    run(tmp_path, second_life)


def test_a_restarted_agent_adopts_what_runs(tmp_path: Path) -> None:
    pids: list[int] = []

    async def first_life(agent: Supervisor) -> None:
        pids.append(running_pid(await agent.ensure("r0", spec(1, "sleep 60"))))

    async def second_life(agent: Supervisor) -> None:
        assert agent.get("r0").pid == pids[0]
        assert (await agent.ensure("r0", spec(1, "sleep 60"))).pid == pids[0]
        assert (await agent.stop("r0", 1)).state == "STOPPED"
        assert not pid_lives(pids[0])

    run(tmp_path, first_life, stop=False)
    run(tmp_path, second_life)


def test_a_one_shot_that_ends_while_no_agent_is_there_is_still_reported(tmp_path: Path) -> None:
    async def first_life(agent: Supervisor) -> None:
        await agent.ensure(
            "b", spec(1, f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 7", one_shot=True)
        )

    async def second_life(agent: Supervisor) -> None:
        assert (await until(agent, "b", "FAILED")).exit_code == 7

    run(tmp_path, first_life, stop=False)
    (tmp_path / "go").touch()
    wait_until(lambda: (tmp_path / "logs" / "b.1.exit").exists())
    run(tmp_path, second_life)


def test_a_process_started_but_not_noted_is_found_by_its_mark(tmp_path: Path) -> None:
    pids: list[int] = []

    async def first_life(agent: Supervisor) -> None:
        pids.append(running_pid(await agent.ensure("r0", spec(1, "sleep 60; true"))))

    async def second_life(agent: Supervisor) -> None:
        assert (await until(agent, "r0", "RUNNING")).pid == pids[0]

    run(tmp_path, first_life, stop=False)
    # What a crash between starting the process and noting its pid leaves on disk:
    state = tmp_path / "state.json"
    text = state.read_text()
    before = StateFile(state).load().processes[0]
    assert before.handle is not None
    state.write_text(text.replace('"RUNNING"', '"PENDING"').replace(f'"pid":{pids[0]}', '"pid":1'))
    run(tmp_path, second_life)


def test_a_process_that_was_forked_and_does_not_execute_its_program_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL of an agent between fork and exec leaves a child without marks, which goes on."""
    processes = Processes(tmp_path)
    marks = {KEY_VARIABLE: "r0", GENERATION_VARIABLE: "1", FOLDER_VARIABLE: str(tmp_path)}
    go = tmp_path / "go"
    program = f"""
import os, sys
while not os.path.exists({str(go)!r}):
    os.sched_yield()
os.execvpe("sleep", ["sleep", "60"], {{**os.environ, **{marks!r}}})
"""
    looks = psutil.process_iter

    def looked(*args: Any) -> Iterator[psutil.Process]:
        yield from looks(*args)
        go.touch()  # the first look is over

    with processes.log_path("r0", 1).open("ab") as output:
        fcntl.flock(output, fcntl.LOCK_SH)
        child = subprocess.Popen([sys.executable, "-c", program], stdout=output, start_new_session=True)
    monkeypatch.setattr(psutil, "process_iter", looked)
    try:
        found = processes.find("r0", 1)
        assert found is not None
        assert found.pid == child.pid
    finally:
        child.kill()
        child.wait()
    assert processes.find("r0", 1) is None


def test_a_process_holds_its_log_as_long_as_it_lives(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    handle = processes.spawn("r0", 1, ["sleep", "60"], {}, keep_exit=False)
    try:
        with processes.log_path("r0", 1).open("rb") as output, pytest.raises(BlockingIOError):
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert processes.find("r0", 1) == handle
    finally:
        processes.kill_session(handle)
    wait_until(lambda: not processes.alive(handle))
    assert processes.find("r0", 1) is None


def test_a_process_of_another_agent_with_the_same_key_is_not_adopted(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    pids: list[int] = []

    async def of_theirs(agent: Supervisor) -> None:
        pids.append(running_pid(await agent.ensure("r0", spec(1, "sleep 60; true"))))

    async def of_ours(agent: Supervisor) -> None:
        assert (await until(agent, "r0", "RUNNING")).pid not in pids

    run(theirs, of_theirs, stop=False)
    ours.mkdir()
    # in our folder the process is noted, and was never started
    text = (theirs / "state.json").read_text()
    (ours / "state.json").write_text(text.replace('"RUNNING"', '"PENDING"'))
    run(ours, of_ours)

    async def theirs_again(agent: Supervisor) -> None:
        assert running_pid(agent.get("r0")) == pids[0]

    run(theirs, theirs_again)


def test_two_agents_do_not_share_a_folder(tmp_path: Path) -> None:
    first = supervisor(tmp_path)
    try:
        with pytest.raises(Refused, match="another agent"):
            supervisor(tmp_path)
    finally:
        first.close()


def test_a_callers_files_are_there_for_the_process_and_go_with_it(tmp_path: Path) -> None:
    async def scenario(agent: Supervisor) -> None:
        wanted = ProcessSpec(
            generation=1, argv=("sh", 'cat "$0"', "{files}/a.json"), files={"a.json": "[1]"}, one_shot=True
        )
        await agent.ensure("b", wanted)
        assert (await until(agent, "b", "SUCCEEDED", "FAILED")).log_tail == ("[1]",)
        assert "[1]" not in (tmp_path / "state.json").read_text().replace('"[1]"', "")
        await agent.acknowledge("b", 1)
        assert not list((tmp_path / "logs").glob("*.files"))
        with pytest.raises(DefinitionError, match="file name"):
            await agent.ensure("b", spec(2, "true", files={"../x": ""}))

    run(tmp_path, scenario)


@pytest.mark.parametrize(("code", "state"), [(0, "SUCCEEDED"), (3, "FAILED")])
def test_a_final_exit_code_ends_a_long_running_process_without_a_restart(
    tmp_path: Path, code: int, state: str
) -> None:
    final = RestartPolicy(max=5, backoff_s=0.01, final_codes=(0, 3))

    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("l0", spec(1, f"echo said; exit {code}", restart=final))
        status = await until(agent, "l0", "SUCCEEDED", "FAILED")
        assert (status.state, status.exit_code, status.restarts) == (state, code, 0)
        assert status.log_tail[-1] == "said"

    run(tmp_path, scenario)


def test_any_other_exit_code_is_a_crash_that_is_restarted(tmp_path: Path) -> None:
    final = RestartPolicy(max=2, backoff_s=0.01, final_codes=(0, 3))

    async def scenario(agent: Supervisor) -> None:
        await agent.ensure("l0", spec(1, "exit 4", restart=final))
        status = await until(agent, "l0", "SUCCEEDED", "FAILED")
        assert (status.state, status.exit_code, status.restarts) == ("FAILED", 4, 2)

    run(tmp_path, scenario)


def test_a_final_exit_code_is_known_to_the_agent_that_comes_after(tmp_path: Path) -> None:
    """The process ends while no agent is there: it was not a crash."""
    final = RestartPolicy(final_codes=(0,))
    pid = 0

    async def first(agent: Supervisor) -> None:
        nonlocal pid
        go = tmp_path / "go"
        status = await agent.ensure("l0", spec(1, f"until [ -e {go} ]; do sleep 0.05; done", restart=final))
        pid = running_pid(status)

    async def second(agent: Supervisor) -> None:
        status = await until(agent, "l0", "SUCCEEDED", "FAILED", "BACKOFF")
        assert (status.state, status.exit_code, status.restarts) == ("SUCCEEDED", 0, 0)

    run(tmp_path, first, stop=False)
    (tmp_path / "go").touch()
    wait_until(lambda: not pid_lives(pid))
    run(tmp_path, second)
