"""A process of a divided job: it keeps its place, leads if it can, and follows what is assigned to it.

    1. renew the lease of its number     a process of the same number has it: this one ends
    2. lead, if it owns the job or can
    3. read the shares and the living processes
    4. for each share: `states` has the action, which is executed
    5. leave, where fewer processes are wanted and it has no share any more

Nothing waits in a round: a share is taken and given up by a run of its own (`ShareRuns`). A share that is
assigned to another process is given up at once: its run finishes the requests under way and releases the
lease, and the other process, which has been waiting for it, owns it then. Other shares go on meanwhile.
"""

from __future__ import annotations

from typing import Protocol

from rtolap.stored.loader.job import LEASE_MS, SharedResources
from rtolap.stored.loader.shares.assignment import staying
from rtolap.stored.loader.shares.leader import Leader
from rtolap.stored.loader.shares.states import ShareAction, ShareEvent, ShareState, transition
from rtolap.stored.metastore.leases import Lease
from rtolap.stored.metastore.load_shares import Division, LoadShare

RENEW_MS = LEASE_MS // 3


class ShareRuns(Protocol):
    """The runs of shares in this process. No method waits."""

    def take(self, share: LoadShare) -> None:
        """Begin a run, which takes the share once it is free."""

    def give_up(self, number: int) -> None:
        """Have a run end. What it has sent is finished first."""

    def ended(self) -> set[int]:
        """Return the shares whose runs have ended and are not forgotten."""

    def forget(self, number: int) -> None: ...


class Member:
    """A member of the processes of a job. Of one thread. Raises NotYet where its number is another's.

    Attributes:
        lease: that of its number.
        states: the state of each share that is or was its own.
        division: as it was read last.
    """

    def __init__(
        self,
        job_id: str,
        number: int,
        owner: str,
        resources: SharedResources,
        leader: Leader,
        runs: ShareRuns,
    ) -> None:
        self._job_id = job_id
        self.number = number
        self.leader = leader
        self._resources = resources
        self._runs = runs
        self._clock = resources.job.clock
        self.lease: Lease = resources.shares.join(job_id, number, owner, LEASE_MS)
        self._renewed_s = self._clock.monotonic_s()
        self.states: dict[int, ShareState] = {}
        self.division = Division((), ())

    def renew(self) -> None:
        """Renew the lease of its number. Raises NotLeader."""
        if self._clock.monotonic_s() - self._renewed_s >= RENEW_MS / 1000:
            self.lease = self._resources.shares.process_leases.renew(self.lease, LEASE_MS)
            self._renewed_s = self._clock.monotonic_s()

    def round(self) -> bool:
        """Do what is due; return False once the process is not wanted any more.

        Raises Stopped, NotLeader where another process has its number, and errors that may pass.
        """
        self.renew()
        self.leader.round()
        self.division = self._resources.shares.division(self._job_id)
        self.follow(self.division)
        return self._is_wanted() or any(state is not ShareState.NOT_OWNED for state in self.states.values())

    def follow(self, division: Division) -> None:
        """Take and give up shares, as they are assigned."""
        for number in sorted(self._runs.ended()):
            self._step(number, ShareEvent.ENDED, None)
        for share in division.shares:
            is_mine = share.assigned == self.number
            self._step(share.number, ShareEvent.ASSIGNED if is_mine else ShareEvent.UNASSIGNED, share)

    def leave(self) -> None:
        """Let others have its place and the job at once."""
        self.leader.release()
        self._resources.shares.process_leases.release(self.lease)

    def _step(self, number: int, event: ShareEvent, share: LoadShare | None) -> None:
        state = self.states.get(number, ShareState.NOT_OWNED)
        self.states[number], action = transition(number, state, event)
        match action:
            case ShareAction.TAKE:
                assert share is not None, "a share is taken because it is assigned"
                self._runs.take(share)
            case ShareAction.GIVE_UP:
                self._runs.give_up(number)
            case ShareAction.FORGET:
                self._runs.forget(number)
            case ShareAction.NOTHING:
                pass

    def _is_wanted(self) -> bool:
        wanted = self._resources.job.jobs.get(self._job_id).processes
        living = {process.number for process in self.division.processes} | {self.number}
        return wanted is None or self.number in staying(living, wanted)
