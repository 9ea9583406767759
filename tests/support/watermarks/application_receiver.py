"""A receiver of a cube that closes by an application, stepped: what it believes may be old."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from rtolap.base.errors import Refused
from rtolap.cubes.receiver.closing_rules import Takeover, generation_of
from rtolap.cubes.receiver.core.closing_commits import close_segment
from rtolap.cubes.receiver.host_reports import WatermarkReports
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.cubes.receiver.views import CubeView
from rtolap.metadata.records import CubeControl
from rtolap.metadata.store import Operation
from rtolap.model.application import CubeWatermark
from rtolap.model.completeness import Completeness
from rtolap.protocols.watermark.messages import ReportAnswer, ReportBatch

from tests.support.cubes.stepped_receiver import Receiver, Surroundings
from tests.support.watermarks.application_client import SteppedClient


class Around(Surroundings, Protocol):
    random: random.Random
    leads: dict[str, tuple[str, int]]

    def deliver(self, batch: ReportBatch) -> ReportAnswer: ...


class ApplicationReceiver(Receiver):
    """A receiver. `belief` is the term as which it believes to lead. The cluster knows better, and so does a
    commit."""

    def __init__(self, around: Around, name: str, replica_set: str, settings: ReceiverSettings) -> None:
        super().__init__(around, name, replica_set, settings)
        self.around = around
        self.started = 0
        self.change_habits()
        self._begin()

    def _begin(self) -> None:
        self.belief: int | None = None
        self.windows: tuple[Completeness, ...] = ()
        self.takeover: Takeover | None = None
        self.started += 1
        name = f"{self.name}-{self.started}"
        self.client = SteppedClient(name, self.around.random, self.around.deliver)
        mark = self.around.schema.cube.watermark
        assert isinstance(mark, CubeWatermark)
        self.reports = WatermarkReports(
            mark,
            self.core,
            views=self,
            clock=self.around.clock,
            ask=lambda what: what(),
            coordinators=lambda: ("somewhere",),
            open_client=lambda urls: self.client,
        )

    def change_habits(self) -> None:
        """Choose how likely it does each step of a round."""
        choose = self.around.random.choice
        names = [action.__name__ for action in self.everything]
        self.diligence = {name: choose((0.1, 0.6, 1.0, 1.0)) for name in names}

    def crash(self) -> None:
        super().crash()
        self._begin()

    # -- what reports ask for (`watermark_reports.Views`) -------------------------------------------------

    def generation(self, control: CubeControl) -> int | None:
        if self.belief is None or not control.assignment_epoch:
            return None
        return generation_of(control.generation_base, control.assignment_epoch, self.belief)

    def offer_takeover(self, takeover: Takeover | None) -> None:
        self.takeover = takeover

    # -- steps --------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """Read who leads, as ZooKeeper knows it."""
        name, term = self.around.leads[self.replica_set]
        self.belief = term if name == self.name else None

    def hear(self) -> None:
        """Take a heartbeat's response. What was received before is not taken back."""
        windows = self.around.metadata.published_watermark(self.around.cube).windows
        last_ms = self.windows[-1].window_end_ms if self.windows else -1
        if windows and windows[-1].window_end_ms > last_ms:
            self.windows = windows

    def report(self) -> None:
        self.reports.turn()

    def send(self) -> None:
        self.client.send()

    def look_up_ends(self) -> None:
        self.core.look_up_log_ends()

    def consume(self) -> bool:
        return self.core.step(self._present())

    def close_due(self) -> None:
        for one in self.core.closings():
            close_segment(
                self.around.metadata,
                self.around.schema,
                one,
                by=f"{self.name}: {one.why}",
                require=self._leading,
            )

    def _present(self) -> CubeView:
        return replace(
            self.view,
            leading=self.belief is not None,
            windows=self.windows,
            generation=self.generation(self.view.control),
            takeover=self.takeover,
        )

    def _leading(self) -> Sequence[Operation]:
        if self.around.leads[self.replica_set] != (self.name, self.belief):
            raise Refused("somebody else leads")
        epoch = self.core.assignment_epoch
        return (self.around.metadata.under_epoch(self.around.cube, epoch),)

    @property
    def everything(self) -> tuple[Callable[[], object], ...]:
        """Run one round of a receiver that works."""
        return (
            self.notice,
            self.look,
            self.consume,
            self.realign,
            self.hear,
            self.report,
            self.send,
            self.look_up_ends,
            self.report,
            self.consume,
            self.close_due,
        )
