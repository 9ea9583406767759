"""The offsets up to which a divided job can be read: of every share, whoever owns it."""

from __future__ import annotations

from rtolap.kafka.interfaces import TopicLog
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.job import SharedResources
from rtolap.stored.loader.visible import Visible


class VisibleOfShares:
    """Reads records of all shares, and looks labels up. It writes nothing."""

    def __init__(self, loader: Loader, resources: SharedResources, job_id: str) -> None:
        division = resources.shares.division(job_id)
        sink = resources.job.sink
        self._resources = resources
        self._shares = [share.share_id for share in division.shares]
        self._visible = [Visible(loader, share, resources.records, sink) for share in self._shares]

    def poll(self) -> Offsets:
        """Return the offsets up to which records can be read. Raises as `Visible.poll`."""
        ends: Offsets = {}
        for visible in self._visible:
            ends |= visible.poll()
        return ends

    def log_ends(self, log: TopicLog | None) -> Offsets | None:
        """Return the ends of the topic that is loaded; None too where another one is there."""
        if log is None:
            return None
        for share in self._shares:
            known = self._resources.records.all(share)[-1].topic_id
            if log.topic_id and known not in (None, log.topic_id):
                return None
        return log.ends
