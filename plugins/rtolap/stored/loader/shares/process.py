"""A process of a job that several share: its threads, and its end.

    round       lives as a `Member`: keeps its place, leads if it can, takes and gives up shares
    share-N     the run of a share, which has the roles of a loader's process
    report      of the leader, where the job is part of an application: reports what is readable
    partitions  of the leader, where the loader makes the partitions of the table
    supervise   of process 0: has the agent run the others

The process ends when the job is stopped or has failed, when fewer processes are wanted, or when another one
has its number. Its shares are released then, and others take them without waiting for a lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rtolap.base.errors import NotLeader, RtolapError
from rtolap.base.stopping import wait_awake
from rtolap.kafka.interfaces import TopicLog
from rtolap.protocols.loader.messages import EXIT_FAILED, EXIT_OWNED, EXIT_STOPPED, LoaderProcessStatus
from rtolap.stored.loader.job import SharedResources
from rtolap.stored.loader.job_run import LoadJobRun
from rtolap.stored.loader.partition_role import PartitionRole
from rtolap.stored.loader.process import COMMIT_S, GRACE_S, is_passing
from rtolap.stored.loader.shares.leader import Leader
from rtolap.stored.loader.shares.member import Member
from rtolap.stored.loader.shares.share_run import ThreadedRuns, begin_share
from rtolap.stored.loader.shares.status import status_of_process
from rtolap.stored.loader.states import Stopped
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobState
from rtolap.stored.metastore.load_shares import LoadShare

log = logging.getLogger(__name__)

ROUND_S = 0.5
SIDE_ROLE_S = 1.0
SideRole = Callable[["SharedLoaderProcess"], None]


class SharedLoaderProcess:
    """Takes its place on construction: raises NotYet while another process has the number. `run` returns the
    exit code.

    Args:
        log_of: returns the topic as it is now; None where it does not answer.
        partitions: makes partitions of the table while this process leads.
        side_roles: called again and again, each in a thread of its own, with errors that may pass.
    """

    def __init__(
        self,
        job_id: str,
        number: int,
        owner: str,
        resources: SharedResources,
        log_of: Callable[[], TopicLog | None],
        *,
        partitions: PartitionRole | None = None,
        side_roles: tuple[SideRole, ...] = (),
        round_s: float = ROUND_S,
        commit_s: float = COMMIT_S,
    ) -> None:
        self.job_id, self.number, self.owner = job_id, number, owner
        self.resources = resources
        self.partitions = partitions
        self._errors: dict[str, str] = {}  # role → why it did not get on the last time
        self._log_of = log_of
        self._side_roles = side_roles
        self._round_s = round_s
        self.runs = ThreadedRuns(self._begin_share, commit_s=commit_s)
        self.leader = Leader(job_id, owner, resources, log_of, self._may_assign)
        self.member = Member(job_id, number, owner, resources, self.leader, self.runs)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._code: int | None = None

    @property
    def leads(self) -> bool:
        return self.leader.ownership is not None

    @property
    def last_error(self) -> str:
        """Return why roles do not get on; "" where they do."""
        return "; ".join(dict.fromkeys(error for error in dict(self._errors).values() if error))

    def note_error(self, role: str, words: str) -> None:
        """Note why a role does not get on; "" that it does again."""
        self._errors[role] = words

    @property
    def phase(self) -> str:
        """Return the phase of this process, for people."""
        if self._stopping.is_set():
            return "stopping"
        phases = [run.process.phase for run in self.runs.present().values() if run.process is not None]
        return "/".join(sorted(set(phases))) or "idle"

    def stop(self) -> None:
        """End this process. The job's state stays, and other processes take its shares."""
        self._end(EXIT_STOPPED)

    def want(self, event: LoadJobEvent) -> None:
        """Write the requested state to the ledger, which every process follows. Raises IllegalTransition."""
        self.resources.job.jobs.change_state(self.job_id, event, f"asked to {event.lower()}")

    def status(self) -> LoaderProcessStatus:
        read_ms = self.resources.job.clock.now_ms()
        return status_of_process(
            self.number,
            self.owner,
            self.phase,
            self.runs.present(),
            leads=self.leads,
            shares=len(self.member.division.shares),
            log=self._log_of(),
            records_of=self.resources.records.all,
            last_error=self.last_error,
            read_ms=read_ms,
        )

    def run(self) -> int:
        threads = [
            threading.Thread(target=self._guarded, args=(name, role), name=name, daemon=True)
            for name, role in self._roles()
        ]
        for thread in threads:
            thread.start()
        wait_awake(self._stopping)
        clock = self.resources.job.clock
        deadline_s = clock.monotonic_s() + GRACE_S + 1.0
        runs = self.runs.present().values()
        for run in runs:
            run.stop()
        for thread in threads:
            thread.join(max(0.0, deadline_s - clock.monotonic_s()))
        for run in self.runs.present().values():  # a round that was under way may have taken one more
            run.stop()
        for run in self.runs.present().values():
            run.join(max(0.0, deadline_s - clock.monotonic_s()))
        try:
            self.member.leave()
        except RtolapError as error:
            log.warning("not done at the end: %s", error)
        assert self._code is not None, "set before stopping was"
        return self._code

    # --- roles ----------------------------------------------------------------------------------------

    def _roles(self) -> list[tuple[str, Callable[[], None]]]:
        roles: list[tuple[str, Callable[[], None]]] = [("round", self._rounds)]
        if (partitions := self.partitions) is not None:
            roles.append(("partitions", lambda: self._while_leading(partitions)))
        roles += [
            (f"side-{place}", lambda name=f"side-{place}", role=role: self._repeat(name, role))  # type: ignore[misc]
            for place, role in enumerate(self._side_roles)
        ]
        return roles

    def _rounds(self) -> None:
        while not self._stopping.is_set():
            self._passing("round", self._round)
            self._stopping.wait(self._round_s)

    def _round(self) -> None:
        match self.resources.job.jobs.get(self.job_id).state:
            case LoadJobState.STOPPED:
                self._end(EXIT_STOPPED)
            case LoadJobState.FAILED:
                self._end(EXIT_FAILED)
            case _:
                if not self.member.round():
                    log.info("process %d of job %s is not wanted any more", self.number, self.job_id)
                    self._end(EXIT_STOPPED)

    def _repeat(self, name: str, role: SideRole) -> None:
        while not self._stopping.wait(SIDE_ROLE_S):
            self._passing(name, lambda: role(self))

    def _while_leading(self, partitions: PartitionRole) -> None:
        """Keep partitions while this process leads. A leader that has just ended harms nobody: a partition
        that is there is left alone."""
        while not self._stopping.is_set():
            if self.leads:
                partitions.run_once()
            self._stopping.wait(
                min(SIDE_ROLE_S, partitions.every_s) if not self.leads else partitions.every_s
            )

    def _may_assign(self) -> bool:
        """Return False while the first attempt at making partitions is under way: rows would not fit."""
        return self.partitions is None or self.partitions.has_tried

    def _begin_share(self, share: LoadShare) -> LoadJobRun:
        return begin_share(share, len(self.member.division.shares), self.owner, self.resources)

    def _passing(self, name: str, act: Callable[[], object]) -> None:
        """Run `act`; note an error that may pass, as it is retried with the next round."""
        try:
            act()
        except (RtolapError, OSError) as error:
            if not (is_passing(error) or isinstance(error, OSError)):
                raise
            self.note_error(name, str(error))
        else:
            self.note_error(name, "")

    def _guarded(self, name: str, role: Callable[[], None]) -> None:
        try:
            role()
        except NotLeader as error:
            log.error("%s: another process has number %d: %s", name, self.number, error)
            self._end(EXIT_OWNED)
        except Stopped as stopped:
            log.error("%s: %s", name, stopped)  # the job says it already
            self._end(EXIT_FAILED)
        except Exception as error:
            log.exception("%s ended unexpectedly", name)
            self.note_error(name, repr(error))
            self._end(EXIT_OWNED)

    def _end(self, code: int) -> None:
        with self._lock:
            self._code = code if self._code is None else self._code
        self._stopping.set()
