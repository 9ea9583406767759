"""The agent's records on disk are one JSON file, which is replaced atomically and readable by its owner
only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rtolap.agent.states import ProcessEvent, ProcessState, transition
from rtolap.base.errors import Unavailable
from rtolap.base.files import read_from_disk, write_atomic
from rtolap.base.pids import Start
from rtolap.base.undecodable import decode_own
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStep

HISTORY_ENTRIES_MAX = 20
FORGOTTEN_MAX = 10_000  # keys for which only the highest generation is remembered


class Handle(msgspec.Struct, frozen=True):
    """A process of the host: the pid alone is reused, together with its start it is not. `create_time_s`, in
    epoch seconds, is compared in records from before there was a `start`."""

    pid: int
    create_time_s: float
    start: Start | None = None


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A generation of one key.

    Attributes:
        handle: the process that was started last for it.
        driver: name of the driver on a cluster that the process waits for; None where it does the work.
    """

    key: str
    spec: ProcessSpec
    state: ProcessState = ProcessState.PENDING
    reason: str = ""
    handle: Handle | None = None
    driver: str | None = None
    started_ms: int | None = None
    changed_ms: int = 0
    restarts: int = 0
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()
    steps: tuple[ProcessStep, ...] = ()

    @property
    def generation(self) -> int:
        return self.spec.generation

    @property
    def running_as(self) -> Handle:
        assert self.handle is not None, (
            f"{self.key} is {self.state}: its handle was noted when it was started"
        )
        return self.handle

    def after(self, event: ProcessEvent, *, reason: str, now_ms: int) -> ProcessRecord:
        """Return the record after one step of the lifecycle; raises IllegalTransition."""
        state = transition(
            self.state, event, subject=f"{self.key} generation {self.generation}", history=self.steps
        )
        number = self.steps[-1].number + 1 if self.steps else 1
        step = ProcessStep(number, now_ms, event.value, state.value, reason)
        return msgspec.structs.replace(
            self,
            state=state,
            reason=reason,
            changed_ms=now_ms,
            steps=(*self.steps, step)[-HISTORY_ENTRIES_MAX:],
        )


class AgentState(msgspec.Struct, frozen=True):
    """The state that an agent stores on its disk.

    Attributes:
        processes: the newest generation of every key.
        forgotten: key → highest generation of processes that were acknowledged.
        labels: key → labels of those, since their logs are still there and belong to somebody.
    """

    processes: tuple[ProcessRecord, ...] = ()
    forgotten: dict[str, int] = {}
    labels: dict[str, dict[str, str]] = {}


class StateFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> AgentState:
        action = "stop the processes that it names, then remove the file"
        try:
            with read_from_disk(self._path, action=action):
                data = self._path.read_bytes()
        except FileNotFoundError:
            return AgentState()
        return decode_own(data, AgentState, f"agent state {self._path} cannot be read", action=action)

    def save(self, state: AgentState) -> None:
        """Write the state. Raises Unavailable; the file is as it was then, or has the new state."""
        try:
            # Environment additions may hold credentials: owner only.
            write_atomic(self._path, msgspec.json.encode(state), mode=0o600)
        except OSError as error:
            raise Unavailable(
                f"the agent's state {self._path} cannot be written",
                found=error.strerror,
                action="make room on its disk; what was to be done is tried again",
            ) from error
