"""Process 0 of a job has the agent of its host run the others, as many as are wanted.

The same supervisor runs all of them: it restarts one that has crashed. The agent stops them when process 0
has not renewed them for a while, so they end after process 0 when its task or its command ends that for good.
A process that leaves because fewer are wanted ends with a final code and is not restarted. A process that
runs elsewhere, started by hand say, is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.protocols.agent.messages import LIVE_STATES, ProcessSpec, ProcessStatus, RestartPolicy
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED, process_key

ORPHAN_S = 60.0


class Agent(Protocol):
    """Part of `protocols.agent.client.AgentClient`."""

    def get(self, key: str) -> ProcessStatus: ...

    def ensure(self, key: str, spec: ProcessSpec) -> ProcessStatus: ...

    def renew(self, key: str, generation: int) -> ProcessStatus: ...

    def generation(self, key: str) -> int: ...


class Supervision:
    """Keeps the further processes of a job running.

    Args:
        wanted: returns how many processes the job is to have, and the numbers of those that live.
    """

    def __init__(self, job_id: str, agent: Agent, wanted: Callable[[], tuple[int, Iterable[int]]]) -> None:
        self._job_id = job_id
        self._agent = agent
        self._wanted = wanted

    def round(self) -> None:
        """Start what is missing and renew what runs.

        Raises Unavailable where no agent answers, or the agent refuses: loading goes on, and what is missing
        is tried again.
        """
        number, living = self._wanted()
        try:
            self._keep(number, living)
        except RtolapError as error:
            raise Unavailable(
                f"the further processes of loader {self._job_id} cannot be started",
                expected=f"an agent on this host that runs {number} processes",
                found=str(error),
                action=f"mend the agent, or run `rtolap loader run {self._job_id} --process N` yourself",
            ) from error

    def _keep(self, number: int, living: Iterable[int]) -> None:
        present = set(living)
        for process in range(1, number):
            key = process_key(self._job_id, process)
            found = self._find(key)
            if found is not None and found.state in LIVE_STATES:
                self._agent.renew(key, found.generation)
            elif process not in present:
                self._agent.ensure(key, self._spec(process, self._agent.generation(key) + 1))

    def _find(self, key: str) -> ProcessStatus | None:
        try:
            return self._agent.get(key)
        except NotFound:
            return None

    def _spec(self, process: int, generation: int) -> ProcessSpec:
        return ProcessSpec(
            generation=generation,
            argv=("rtolap", "loader", "run", self._job_id, "--process", str(process)),
            orphan_s=ORPHAN_S,
            restart=RestartPolicy(final_codes=(EXIT_STOPPED, EXIT_FAILED, EXIT_OWNED)),
        )
