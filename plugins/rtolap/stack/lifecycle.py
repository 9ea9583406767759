"""A whole stack: up, down, status."""

from __future__ import annotations

import fcntl
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

import msgspec

from rtolap.base.errors import DefinitionError, NotFound, ProcessFailed, Refused, RtolapError
from rtolap.stack.components import COMPONENTS, DEFAULT_PORTS, Surroundings, needed_first
from rtolap.stack.environment import HOST, rtolap_settings, write_env_file
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import choose_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import ensure_secrets, read_secret
from rtolap.stack.state import StackState, load_state, save_state
from rtolap.stack.sweep import sweep
from rtolap.wire.agent_client import AgentClient

_LOCK_TIMEOUT_S = 5.0
_LOG_LINES = 8

# (component, phase, note); phases: waiting, starting, ready, failed, skipped, stopping, stopped
Progress = Callable[[str, str, str], None]


class PartStatus(msgspec.Struct, frozen=True):
    """state: ready | starting (runs, does not answer) | crashed | stopped; `problem` says more."""

    name: str
    state: str
    address: str
    pid: int | None
    uptime_s: float | None
    log: str
    problem: str = ""


class Stack:
    def __init__(self, layout: StackLayout) -> None:
        self.layout = StackLayout(layout.root.absolute())

    def up(self, only: Collection[str], wanted_ports: Mapping[str, int], progress: Progress) -> StackState:
        """Start what does not run, each part as soon as those it needs answer; returns when all answer.

        Raises ProcessFailed naming the parts that failed; the others stay up, to be looked at or stopped.
        """
        names = checked_names(only) or tuple(COMPONENTS)
        for port_name in wanted_ports:
            if port_name not in DEFAULT_PORTS:
                raise DefinitionError(
                    "unknown port", expected=" | ".join(DEFAULT_PORTS), found=repr(port_name)
                )
        self.layout.root.mkdir(parents=True, exist_ok=True)
        with self._locked():
            ensure_secrets(self.layout)
            self.layout.store.mkdir(parents=True, exist_ok=True)
            state = self._next_state(names, wanted_ports)
            save_state(self.layout, state)
            write_env_file(self.layout, state.settings, state.ports)
            failed = _start_all(self._processes(state, names), progress)
        if failed:
            raise ProcessFailed(
                f"the stack is not complete: {', '.join(failed)}",
                found="\n".join(str(error) for error in failed.values()),
                action="`rtolap stack logs NAME` shows more, `rtolap stack down` stops the rest",
            )
        return state

    def down(self, progress: Progress) -> int:
        """Stop everything, dependants first; returns how many left-over processes had to be ended.

        1. Airflow, so that nobody asks for new processes     2. the agent's children, by the agent
        3. the agent and the query service                    4. what is left of anybody's children
        5. coordinator, Kafka, ZooKeeper                      6. whatever still carries the stack's mark
        A crash in between leaves pid files and marks: the next `down` goes on from there.
        """
        state = load_state(self.layout)
        if state is None:
            return 0
        with self._locked():
            processes = self._processes(state, state.components)
            airflow = [name for name in processes if name.startswith("airflow-")]
            _stop_all(processes, airflow, progress)
            self._stop_agent_children(processes, state)
            _stop_all(processes, ["agent", "query"], progress)
            rest = ["coordinator", "kafka", "zookeeper"]
            spare = {pid for name in rest if name in processes and (pid := processes[name].pid())}
            left = sweep(self.layout, spare)
            for name in rest:
                _stop_all(processes, [name], progress)
            return left + sweep(self.layout, ())

    def status(self) -> tuple[PartStatus, ...]:
        state = load_state(self.layout)
        if state is None:
            raise NotFound(
                "there is no stack here",
                expected=str(self.layout.state_file),
                action="start one: rtolap stack up",
            )
        processes = list(self._processes(state, state.components).values())
        with ThreadPoolExecutor(len(COMPONENTS)) as pool:
            return tuple(pool.map(_status, processes))

    def log_paths(self, name: str | None) -> list[tuple[str, str]]:
        """(component, path of its log) of one part or of all that were started."""
        state = load_state(self.layout)
        names = checked_names([name]) if name else (state.components if state else ())
        return [(part, str(self.layout.run(part) / f"{part}.log")) for part in names]

    def _processes(self, state: StackState, names: Collection[str]) -> dict[str, ManagedProcess]:
        around = Surroundings(self.layout, state.ports, state.settings)
        return {
            name: ManagedProcess(component.spec(around))
            for name, component in COMPONENTS.items()
            if name in names
        }

    def _next_state(self, names: Collection[str], wanted_ports: Mapping[str, int]) -> StackState:
        """While any part runs, ports stay and components are added; otherwise the stack begins anew,
        on the ports of the last time where they are still free."""
        old = load_state(self.layout)
        components = set(names)
        if old and any(process.pid() for process in self._processes(old, old.components).values()):
            moved = {name for name, port in wanted_ports.items() if old.ports[name] != port}
            if moved:
                raise Refused(
                    f"the stack runs, so its ports cannot change: {', '.join(sorted(moved))}",
                    action="rtolap stack down first",
                )
            ports = old.ports
            components |= set(old.components)
        else:
            ports = {}
            for name, default in DEFAULT_PORTS.items():
                preferred = wanted_ports.get(name) or (old.ports.get(name) if old else None) or default
                ports[name] = choose_port(preferred, ports.values())
        ordered = tuple(name for name in COMPONENTS if name in components)
        return StackState(ports, ordered, rtolap_settings(self.layout, ports))

    def _stop_agent_children(self, processes: Mapping[str, ManagedProcess], state: StackState) -> None:
        """Ask the agent, so that it remembers them as stopped. One that does not answer is swept later."""
        agent = processes.get("agent")
        if agent is None or agent.missing() is not None:
            return
        url = f"http://{HOST}:{state.ports['agent']}"
        try:
            with AgentClient(url, read_secret(self.layout, "token")) as client:
                client.shutdown(stop_processes=True)
        except RtolapError as error:
            # `down` goes on: the sweep ends what the agent could not; its log keeps the reason
            with open(agent.log_path, "a", encoding="utf-8") as log:
                log.write(f"stack down: the agent did not stop its processes: {error}\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self.layout.lock_file, "a", encoding="ascii") as lock:
            deadline = time.monotonic() + _LOCK_TIMEOUT_S
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Refused(
                            f"another `rtolap stack up` or `down` works on {self.layout.root}",
                            found=f"a held lock on {socket.gethostname()}",
                            action="wait for it",
                        ) from None
                    time.sleep(0.1)
            yield


def checked_names(names: Collection[str]) -> tuple[str, ...]:
    for name in names:
        if name not in COMPONENTS:
            raise DefinitionError("unknown component", expected=" | ".join(COMPONENTS), found=repr(name))
    return tuple(name for name in COMPONENTS if name in names)


def _start_all(processes: Mapping[str, ManagedProcess], progress: Progress) -> dict[str, RtolapError]:
    """Start all in threads, each as soon as what it needs is ready. Returns the failures by name."""
    for name, need in needed_first(set(processes)).items():
        progress(name, "waiting", ", ".join(sorted(need)))
    with ThreadPoolExecutor(len(processes)) as pool:
        try:
            return _start_with(pool, processes, progress)
        except BaseException:  # an interrupt above all: the threads must not wait on
            for process in processes.values():
                process.cancel()
            raise


def _start_with(
    pool: ThreadPoolExecutor, processes: Mapping[str, ManagedProcess], progress: Progress
) -> dict[str, RtolapError]:
    needs = needed_first(set(processes))
    ready: set[str] = set()
    failed: dict[str, RtolapError] = {}
    running: dict[Future[None], str] = {}
    waiting = list(processes)
    while waiting or running:
        for name in list(waiting):
            broken = sorted(needs[name] & failed.keys())
            if broken:
                waiting.remove(name)
                failed[name] = ProcessFailed(f"{name} was not started", found=f"{broken[0]} failed")
                progress(name, "skipped", f"needs {broken[0]}")
            elif needs[name] <= ready:
                waiting.remove(name)
                already = processes[name].missing() is None
                progress(name, "starting", "runs already" if already else "")
                running[pool.submit(processes[name].start)] = name
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            name = running.pop(future)
            error = future.exception()
            if error is None:
                ready.add(name)
                progress(name, "ready", processes[name].address)
            elif isinstance(error, RtolapError):
                failed[name] = error
                progress(name, "failed", error.message)
            else:
                raise error
    return failed


def _stop_all(processes: Mapping[str, ManagedProcess], names: Collection[str], progress: Progress) -> None:
    chosen = [processes[name] for name in names if name in processes]

    def stop(process: ManagedProcess) -> None:
        progress(process.name, "stopping", "")
        process.stop()
        progress(process.name, "stopped", "")

    with ThreadPoolExecutor(len(COMPONENTS)) as pool:
        list(pool.map(stop, chosen))


def _status(process: ManagedProcess) -> PartStatus:
    missing = process.missing()
    started_s = process.started_s()
    state = "ready" if missing is None else "starting" if started_s is not None else str(process.state())
    problem = missing if missing and state == "starting" else ""
    if state == "crashed":
        problem = f"ended by itself; its log ends with:\n{process.log_tail(_LOG_LINES)}"
    return PartStatus(
        name=process.name,
        state=state,
        address=process.address,
        pid=process.pid(),
        uptime_s=None if started_s is None else round(time.time() - started_s, 1),
        log=str(process.log_path),
        problem=problem,
    )
