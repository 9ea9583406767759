"""A whole stack: up, down, status."""

from __future__ import annotations

import fcntl
import socket
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from rtolap.base.errors import DefinitionError, NotFound, ProcessFailed, Refused, RtolapError
from rtolap.protocols.agent.client import AgentClient
from rtolap.stack.artifacts import fetches_reported
from rtolap.stack.components import COMPONENTS, Surroundings
from rtolap.stack.environment import STACK_MARK, rtolap_settings, write_env_file
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import HOST, PortClaims, choose_ports
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import ensure_secrets, read_secret
from rtolap.stack.state import DEFAULT_PORTS, StackState, adapt, load_state, refuse_other_version, save_state
from rtolap.stack.together import Progress, marked_processes, start_all, stop_all, sweep

_LOCK_TIMEOUT_S = 5.0
_NO_LETTERS = frozenset(',:"')  # of Kafka's log folders, of a class path, of Spark's options
_AIRFLOW = frozenset(name for name in COMPONENTS if name.startswith("airflow-"))
_SERVICES = ("agent", "query", "spark", "storage", "stream-load")
_SERVERS = ("coordinator", "kafka-3", "kafka-2", "kafka", "zookeeper", "mariadb", "hbase")
# Those that need others go first; servers at last, one by one.
_STOPPED_IN_TURN = (_AIRFLOW, frozenset(_SERVICES), *({name} for name in _SERVERS))


class Stack:
    def __init__(self, layout: StackLayout, claims: PortClaims | None = None) -> None:
        self.layout = StackLayout(layout.root.absolute())
        self._claims = claims or PortClaims()

    def up(
        self,
        only: Collection[str],
        wanted_ports: Mapping[str, int],
        progress: Progress,
        *,
        also: Collection[str] = (),
    ) -> StackState:
        """Start what does not run, each part as soon as those it needs answer; returns when all answer.

        `only` these, without it all that need not be asked for; and in any case those of `also`.

        Raises ProcessFailed naming the parts that failed; the others stay up, to be looked at or stopped. An
        interrupt stops what this call has started, and raises KeyboardInterrupt again.
        """
        usual = [name for name, component in COMPONENTS.items() if not component.on_request]
        names = checked_names({*(only or usual), *also})
        for port_name in wanted_ports:
            if port_name not in DEFAULT_PORTS:
                raise DefinitionError(
                    "unknown port", expected=" | ".join(DEFAULT_PORTS), found=repr(port_name)
                )
        self._make_folder()
        with self._locked():
            ensure_secrets(self.layout)
            state = self._next_state(names, wanted_ports)
            save_state(self.layout, state)
            write_env_file(self.layout, state.settings, state.ports)
            with fetches_reported(progress):
                processes = self._processes(state, names)
            failed = self.start(processes, progress)
        if failed:
            raise ProcessFailed(
                f"the stack is not complete: {', '.join(failed)}",
                found="\n".join(str(error) for error in failed.values()),
                action="`rtolap stack logs NAME` shows more, `rtolap stack down` stops the rest",
            )
        return state

    def _make_folder(self) -> None:
        if _NO_LETTERS & set(str(self.layout.root)):
            raise DefinitionError(
                f"a stack cannot be in {self.layout.root}",
                expected=f"no {' '.join(sorted(_NO_LETTERS))} in its path: to some servers it ends there",
                action="name another folder with --dir",
            )
        try:
            self.layout.store.mkdir(parents=True, exist_ok=True)
            self.layout.root.chmod(0o700)
            self.layout.lock_file.touch(mode=0o600)
        except OSError as error:
            raise DefinitionError(
                f"the stack's folder {self.layout.root} cannot be made or written",
                found=error.strerror or str(error),
                action="name another one with --dir",
            ) from error

    def start(self, processes: Mapping[str, ManagedProcess], progress: Progress) -> dict[str, RtolapError]:
        """Start the processes, and return the failures by name.

        An interrupt stops those that did not run before.
        """
        ran = {name for name, process in processes.items() if process.pid() is not None}
        try:
            return start_all(processes, progress)
        except KeyboardInterrupt:
            for group in _STOPPED_IN_TURN:
                stop_all(
                    processes, [name for name in processes if name in group and name not in ran], progress
                )
            raise

    def down(self, progress: Progress) -> int:
        """Stop everything, dependants first; returns how many left-over processes had to be ended.

        1. Airflow, so that nobody asks for new processes     2. the agent's children, by the agent
        3. agent, query service, storage, stream load         4. what is left of anybody's children
        5. coordinator, Kafka, ZooKeeper, MariaDB, HBase      6. whatever still carries the stack's mark
        A crash in between leaves pid files and marks: the next `down` goes on from there.
        """
        old = load_state(self.layout)
        if old is None:
            return 0
        state, _ = adapt(old)
        with self._locked():
            processes = self._processes(state, state.components)
            airflow = [name for name in processes if name.startswith("airflow-")]
            stop_all(processes, airflow, progress)
            self._stop_agent_children(processes, state)
            stop_all(processes, _SERVICES, progress)
            spare = {pid for name in _SERVERS if name in processes and (pid := processes[name].pid())}
            left = sweep(self.layout, spare)
            for name in _SERVERS:
                stop_all(processes, [name], progress)
            return left + sweep(self.layout, ())

    def status(self) -> tuple[PartStatus, ...]:
        old = load_state(self.layout)
        if old is None:
            raise NotFound(
                "there is no stack here",
                expected=str(self.layout.state_file),
                action="start one: rtolap stack up",
            )
        state, differences = adapt(old)
        if differences and self._runs(state):
            raise refuse_other_version(self.layout, differences)
        processes = list(self._processes(state, state.components).values())
        with ThreadPoolExecutor(len(COMPONENTS)) as pool:
            return tuple(pool.map(part_status, processes))

    def log_paths(self, name: str | None) -> list[tuple[str, Path]]:
        """Return (component, path of its log) of one part or of all that were started."""
        old = load_state(self.layout)
        names = checked_names([name]) if name else (adapt(old)[0].components if old else ())
        return [(part, self.layout.run(part) / f"{part}.log") for part in names]

    def _runs(self, state: StackState) -> bool:
        """Return True if anything of the stack runs, known parts or whatever else carries its mark."""
        parts = self._processes(state, state.components).values()
        return any(part.pid() for part in parts) or bool(marked_processes(self.layout))

    def _processes(self, state: StackState, names: Collection[str]) -> dict[str, ManagedProcess]:
        around = Surroundings(self.layout, state.ports, state.settings)
        specs = {name: component.spec(around) for name, component in COMPONENTS.items() if name in names}
        mark = {STACK_MARK: str(self.layout.root)}
        return {name: ManagedProcess(replace(spec, env={**spec.env, **mark})) for name, spec in specs.items()}

    def _next_state(self, names: Collection[str], wanted_ports: Mapping[str, int]) -> StackState:
        """Return the state to start with. While any part runs, ports stay and components are added; otherwise
        the stack starts over, on the ports of the last time where they are still free."""
        last = load_state(self.layout)
        old, differences = adapt(last) if last else (None, ())
        if old and differences and self._runs(old):
            raise refuse_other_version(self.layout, differences)
        components = set(names)
        if old and any(process.pid() for process in self._processes(old, old.components).values()):
            moved = {name for name, port in wanted_ports.items() if old.ports[name] != port}
            if moved:
                raise Refused(
                    f"the stack runs, so its ports cannot change: {', '.join(sorted(moved))}",
                    action="rtolap stack down first",
                )
            components |= set(old.components)
            old_ports = old.ports
            ports = self._claims.choose(self.layout, lambda taken: old_ports)
        else:
            usual = old.ports if old else DEFAULT_PORTS
            # those that were asked for choose first
            preferred = {**wanted_ports, **{name: usual[name] for name in usual if name not in wanted_ports}}
            ports = self._claims.choose(self.layout, lambda taken: choose_ports(preferred, taken))
            ports = {name: ports[name] for name in DEFAULT_PORTS}
        ordered = tuple(name for name in COMPONENTS if name in components)
        settings = rtolap_settings(
            self.layout, ports, mariadb="mariadb" in components, spark="spark" in components
        )
        _check_ledger(old, settings)
        return StackState(ports, ordered, settings)

    def _stop_agent_children(self, processes: Mapping[str, ManagedProcess], state: StackState) -> None:
        """Ask the agent, so that it remembers them as stopped. If it does not answer, they are swept
        later."""
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


def _check_ledger(old: StackState | None, settings: Mapping[str, str]) -> None:
    """Raise Refused for another kind of ledger: loaded rows are in the old one, and no stack changes its
    database by itself.
    """
    if old is None or "stream-load" not in old.components:
        return
    before, after = old.settings.get("RTOLAP_LEDGER", ""), settings["RTOLAP_LEDGER"]
    if before.partition(":")[0] != after.partition(":")[0]:
        raise Refused(
            "the stack's stored tables are in another database",
            expected=f"{before.partition(':')[0]}, as before",
            found=after.partition(":")[0],
            action="start it as before (with or without mariadb), or in another folder",
        )


def checked_names(names: Collection[str]) -> tuple[str, ...]:
    for name in names:
        if name not in COMPONENTS:
            raise DefinitionError("unknown component", expected=" | ".join(COMPONENTS), found=repr(name))
    return tuple(name for name in COMPONENTS if name in names)


_LOG_LINES = 8


class PartStatus(msgspec.Struct, frozen=True):
    """The status of a component.

    Attributes:
        state: ready, starting (runs, but does not answer), crashed or stopped.
        problem: Why it is not ready. Empty when it is.
    """

    name: str
    state: str
    address: str
    pid: int | None
    uptime_s: float | None
    log: str
    problem: str = ""


def part_status(process: ManagedProcess) -> PartStatus:
    missing = process.missing()
    started_s = process.started_s()
    state = "ready" if missing is None else "starting" if started_s is not None else str(process.state())
    problem = missing if missing and state == "starting" else ""
    if started_s is not None and not problem and not process.log_is_written():
        problem = "its log is lost: the process that writes it has ended; down and up begin it again"
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
