"""The cubes that a receiver serves: one runner each, and one ahead of it while a move prepares an assignment.

`follow` is for the control thread alone, which is the only one that begins and ends runners; the rest is for
any thread.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from rtolap.base.errors import Corrupted, NotFound, Unavailable
from rtolap.cubes.receiver.ahead import AheadRunner, HeldElection, moving, runner_of
from rtolap.cubes.receiver.assembly import UNREACHABLE, CubeAssembly
from rtolap.cubes.receiver.runner import CubeRunner
from rtolap.cubes.receiver.states import ConsumerState
from rtolap.metadata import paths
from rtolap.metadata.records import ChangeLog, CubeControl, NextAssignment
from rtolap.metadata.store import Election
from rtolap.metadata.updates import read, read_each
from rtolap.model.cube import Cube, Schema
from rtolap.model.evolution.cube_changes import begins_again

log = logging.getLogger(__name__)

START_RETRY_S = 10.0
ENDED_WAIT_S = 5.0  # query services have looked at the assignment by then
LEADER_WAIT_S = 5.0  # its followers have begun again with a changed cube by then


class StartRefusal(NamedTuple):
    reason: str
    retry_at_s: float  # of the monotonic clock


class ServedCubes:
    """`look_again` has the control thread follow at once: a statement may know of an assignment before."""

    def __init__(self, cubes: CubeAssembly, election: Election, look_again: Callable[[], None]) -> None:
        self._cubes = cubes
        self._metadata = cubes.metadata
        self._election = election
        self._look_again = look_again
        self._runners: dict[str, CubeRunner] = {}
        self._ahead: dict[str, AheadRunner] = {}
        self._changed_since_s: dict[str, float] = {}  # cubes that it has to begin again with
        self._ended_since_s: dict[str, float] = {}  # revisions whose runners wait for their end
        self._refusals: dict[str, StartRefusal] = {}  # cubes of its own that it cannot start
        self._lock = threading.Lock()
        self._begun = threading.Condition(self._lock)

    # -- for any thread ---------------------------------------------------------------------------------

    def wait_begun(self, cube: str, epoch: int | None, timeout_s: float) -> None:
        """Wait until there is a runner that answers for the assignment of that epoch."""
        with self._begun:
            if runner_of(cube, epoch, self._runners, self._ahead) is None:
                self._look_again()
                self._begun.wait_for(
                    lambda: runner_of(cube, epoch, self._runners, self._ahead) is not None, timeout_s
                )

    def runner(self, cube: str, epoch: int | None = None) -> CubeRunner:
        """Return the runner that answers for the assignment of that epoch. Raises Unavailable."""
        with self._lock:
            runner = runner_of(cube, epoch, self._runners, self._ahead)
        if runner is None:
            raise Unavailable(
                f"receiver {self._cubes.receiver_id} does not serve cube {cube}",
                found=f"cubes {', '.join(sorted(self._runners)) or 'none'}",
                action="ask another receiver, or try again after the assignment",
            )
        return runner

    def served(self) -> dict[str, CubeRunner]:
        with self._lock:
            return dict(self._runners)

    def read_ahead(self) -> dict[str, CubeRunner]:
        """Return the runners that read for an assignment that does not stand yet."""
        with self._lock:
            return {name: one.runner for name, one in self._ahead.items()}

    def not_started(self) -> dict[str, str]:
        """Return, by cube, why this receiver cannot start it: Kafka does not let it, or its folder is
        damaged."""
        with self._lock:
            return {name: refusal.reason for name, refusal in self._refusals.items()}

    def failed(self) -> list[str]:
        """Return the cubes that are read no more, because going on would be wrong."""
        return [
            name
            for name, runner in self.served().items()
            if runner.core.consumer_state is ConsumerState.FAILED
        ]

    def stop(self) -> None:
        """Stop all runners; each writes a checkpoint. The control thread has ended before."""
        with self._lock:
            runners = [*self._runners.values(), *(one.runner for one in self._ahead.values())]
            self._runners, self._ahead = {}, {}
        for runner in runners:
            runner.stop()

    # -- for the control thread -------------------------------------------------------------------------

    def follow(self) -> None:
        """Start a runner where this replica set is named, end it where the cube is gone or another one, begin
        again where its definition has changed. A cube whose records cannot be read stays as it is."""
        names = self._metadata.cubes()
        ids = read_each(names, self._cube_id)
        self._end_dropped(ids.found, ids.unreadable)
        unserved: dict[str, CubeControl] = {}
        for name, cube_id in ids.found.items():  # first: what a move has made ready serves at once
            with _apart(name):
                self._follow_cube(name, cube_id, unserved)
        definitions = self._metadata.cube_definitions().found
        for name, runner in self.served().items():
            if name in definitions:
                with _apart(name):
                    self._take_change(name, runner, definitions[name])
        for name, control in unserved.items():
            try:
                if name not in self._runners:
                    self._begin_assigned(name, ids.found[name], control)
            except NotFound:
                self._forget_refusal(name)  # dropped in between
        for name in set(self._refusals) - set(names):
            self._forget_refusal(name)

    def _follow_cube(self, name: str, cube_id: str, unserved: dict[str, CubeControl]) -> None:
        """Follow what its control says. One that is to be begun is entered into `unserved`."""
        serving = self._runners.get(name)
        try:
            control = self._metadata.control(name) if serving is None else serving.control()
            with _apart(name):
                self._follow_move(name, cube_id, control)
        except NotFound:
            return  # dropped in between
        if control.ended:
            self._leave_ended(name, cube_id, control)
        elif serving is None:
            unserved[name] = control

    def _end_dropped(self, cubes: Mapping[str, str], unreadable: Container[str]) -> None:
        """End the runners of cubes that are gone, that others have taken the place of, or whose metadata was
        restored from a backup meanwhile."""

        def is_over(name: str, runner: CubeRunner) -> bool:
            return name not in unreadable and _is_over(runner, cubes.get(name))

        for name in [name for name, one in self._ahead.items() if is_over(name, one.runner)]:
            self._discard_ahead(name)
        for name in [name for name, runner in self._runners.items() if is_over(name, runner)]:
            with self._lock:
                runner = self._runners.pop(name)
            log.info("cube %s was dropped or restored", name)
            runner.stop(checkpoint=False)
            shutil.rmtree(self._cubes.slots(name, runner.cube_id).base, ignore_errors=True)

    def _leave_ended(self, name: str, cube_id: str, control: CubeControl) -> None:
        """End the runner of a revision that accepts no event any more, and delete what it has here.

        It waits until query services have looked: a statement whose assignment is older is told so.
        """
        self._forget_refusal(name)
        runner = self._runners.get(name)
        if runner is not None:
            since_s = self._ended_since_s.setdefault(name, time.monotonic())
            if time.monotonic() - since_s < ENDED_WAIT_S:
                return
            with self._lock:
                del self._runners[name]
            log.info("cube %s has ended", name)
            runner.stop(checkpoint=False)
        self._ended_since_s.pop(name, None)
        shutil.rmtree(self._cubes.slots(name, cube_id).base, ignore_errors=True)

    def _take_change(self, name: str, runner: CubeRunner, definition: Cube) -> None:
        """Begin again with a cube whose definition has changed. A leader does so a while after its followers,
        so that one of a replica set answers meanwhile; a cube that moves does so afterwards, because its
        folders are open."""
        if name in self._ahead or not begins_again(runner.schema.cube, definition):
            self._changed_since_s.pop(name, None)
            return
        since_s = self._changed_since_s.setdefault(name, time.monotonic())
        if self._election.is_leader() and time.monotonic() - since_s < LEADER_WAIT_S:
            return
        log.info("cube %s has changed: beginning again", name)
        with self._lock:
            del self._runners[name]
        runner.stop()
        self._changed_since_s.pop(name, None)
        try:
            self._begin_assigned(name, runner.cube_id, self._metadata.control(name))
        except NotFound:
            return  # dropped meanwhile

    def _follow_move(self, name: str, cube_id: str, control: CubeControl) -> None:
        """Begin ahead of an assignment that is prepared; when it stands, serve by it. Crash orderings:
        docs/decisions/0074."""
        one = self._ahead.get(name)
        if one is not None and one.stands(control):
            with one.logged(name):
                self._promote(name, cube_id, one)
        elif one is not None and one.void(control):
            with one.logged(name):
                self._discard_ahead(name)
        planned = control.warms(self._cubes.replica_set) if control.enabled else None
        if planned is not None and name not in self._ahead:
            with moving(name, planned):
                self._begin_ahead(name, cube_id, planned)

    def _begin_ahead(self, name: str, cube_id: str, planned: NextAssignment) -> None:
        self._cubes.slots(name, cube_id).clean(planned.epoch)
        election = HeldElection(self._election)
        runner = self._cubes.runner(self._metadata.schema(name), cube_id, election, ahead=planned)
        with self._begun:
            self._ahead[name] = AheadRunner(runner, planned, election)
            self._begun.notify_all()
        runner.start()
        log.info("cube %s: warming up for epoch %d", name, planned.epoch)

    def _promote(self, name: str, cube_id: str, one: AheadRunner) -> None:
        slots = self._cubes.slots(name, cube_id)
        with self._begun:  # 1. statements of every epoch go to it
            before = self._runners.get(name)
            self._runners[name] = one.runner
            del self._ahead[name]
            self._begun.notify_all()
        one.election.release()
        one.runner.stand()
        slots.promote(one.runner.core.file.folder)  # 2. a start begins with what it has read
        if before is not None:
            before.stop(checkpoint=False)  # 3. at this moment statements want the disk and the processor
        slots.clean()  # 4.
        log.info("cube %s: serving by epoch %d", name, one.planned.epoch)

    def _discard_ahead(self, name: str) -> None:
        with self._lock:
            one = self._ahead.pop(name)
        one.runner.stop(checkpoint=False)
        shutil.rmtree(one.runner.core.file.folder, ignore_errors=True)
        log.info("cube %s: epoch %d is given up", name, one.planned.epoch)

    def _begin_assigned(self, name: str, cube_id: str, control: CubeControl) -> None:
        if self._cubes.replica_set not in control.assignment:
            self._forget_refusal(name)
            return
        ahead = self._ahead.get(name)
        if ahead is not None and ahead.stands(control):
            return  # the next round lets it serve: its folder is open
        refusal = self._refusals.get(name)
        if refusal is not None and time.monotonic() < refusal.retry_at_s:
            return
        try:
            self._begin(self._metadata.schema(name), cube_id, control)
        except (*UNREACHABLE, Corrupted, OSError) as error:
            # Other cubes go on. The right may be granted, and the folder mended, at any time.
            log.error("cube %s is not started: %s", name, error)
            with self._lock:
                self._refusals[name] = StartRefusal(
                    f"it is not started: {error}", time.monotonic() + START_RETRY_S
                )

    def _forget_refusal(self, name: str) -> None:
        with self._lock:
            self._refusals.pop(name, None)

    def _cube_id(self, cube: str) -> str:
        log_of_changes = read(self._metadata.store, paths.cube_changes(cube), ChangeLog)
        return log_of_changes.cube_id if log_of_changes is not None else ""

    def _begin(self, schema: Schema, cube_id: str, control: CubeControl) -> None:
        epoch = control.assignment_epoch
        runner = self._cubes.runner(schema, cube_id, self._election, epoch=epoch)
        slots = self._cubes.slots(schema.cube.name, cube_id)
        slots.clean(control.next.epoch if control.next is not None else None)
        with self._begun:
            self._runners[schema.cube.name] = runner
            self._refusals.pop(schema.cube.name, None)
            self._begun.notify_all()
        runner.start()
        log.info("cube %s: serving", schema.cube.name)


@contextmanager
def _apart(cube: str) -> Iterator[None]:
    """Log what is the matter with the folder of one cube: the others are followed all the same."""
    try:
        yield
    except (Corrupted, OSError) as error:
        log.error("cube %s is not followed: %s", cube, error)


def _is_over(runner: CubeRunner, cube_id: str | None) -> bool:
    """Return True if the runner's state belongs to no cube that stands. `cube_id`: of that which stands."""
    return runner.cube_id != cube_id or runner.control().restored != runner.restored
