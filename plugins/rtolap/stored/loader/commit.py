"""The commit role: the end of the longest row of loaded batches moves on; labels are given back.

    1. commit         the end of the row without a hole is durable
    2. acknowledge    labels of the row's batches, except the newest, once no request of theirs is taken any
                      more (`not_after_ms`): one that came after its label is forgotten would be taken again
    3. delete         their records, with the next commit

A record stays until its batch is known to be visible: that is how far the table can be read. Where a sink
drops labels by itself, the witness of a batch that is not settled stays too (`label_retention`).

A crash after 2 acknowledges again, which is harmless; no label is left behind, for its record is still there.
"""

from __future__ import annotations

from itertools import takewhile

from rtolap.base.errors import RtolapError, Unavailable
from rtolap.model.loader import Loader
from rtolap.stored.loader.job import LeftLabels, Ownership, label_of
from rtolap.stored.loader.label_retention import witness_of_all
from rtolap.stored.loader.sink import Sink
from rtolap.stored.loader.visible import Visible
from rtolap.stored.metastore.offsets import OffsetsRecord, OffsetsRecords

CLOCKS_APART_MS_MAX = 60_000  # of a loader and a front end: who sends says until when by its own
LABELS_MAX = 500  # in one request: a sink bounds it, and after a long pause there are many


class Committer:
    def __init__(
        self,
        loader: Loader,
        records: OffsetsRecords,
        ownership: Ownership,
        sink: Sink,
        *,
        labels_retained: bool,
        visible: Visible,
        left: tuple[LeftLabels, ...] = (),
    ) -> None:
        self._loader = loader
        self._records = records
        self._ownership = ownership
        self._sink = sink
        self._labels_retained = labels_retained
        self._visible = visible
        self._left = left if labels_retained else ()

    def run_once(self, now_ms: int) -> int | None:
        """Commit the row once, and return the number of its last batch.

        Raises the sink's and the ledger's errors: nothing is lost by them, the next round does it.
        """
        lease = self._ownership.lease
        records = self._records.all(lease.name)
        row = _row(records)
        if not row:
            return None
        if not row[-1].committed:
            self._records.commit(lease, keep_from=row[0].sequence_id)
        self._visible.poll()
        witness = None if self._labels_retained else witness_of_all(records)
        ripe = list(
            takewhile(
                lambda record: (
                    self._is_ripe(record, now_ms)
                    and (witness is None or record.sequence_id < witness.sequence_id)
                ),
                row[:-1],
            )
        )
        for first in range(0, len(ripe), LABELS_MAX):
            part = ripe[first : first + LABELS_MAX]
            if self._labels_retained and (sent := [record.label for record in part if record.attempts]):
                self._give_back(sent)
            self._records.commit(lease, keep_from=part[-1].sequence_id + 1)
        for left in self._left:
            if self._is_past(left.loaded_at_ms, now_ms):
                self._give_back_left(left)
        return row[-1].sequence_id

    def _give_back_left(self, left: LeftLabels) -> None:
        """Give labels back that an earlier process left, once per process.

        Labels that were given back before are unknown to the sink, which is no error.
        """
        labels = [
            label_of(self._loader.name, left.incarnation, number, left.share)
            for number in range(left.first, left.last + 1)
        ]
        for first in range(0, len(labels), LABELS_MAX):
            self._give_back(labels[first : first + LABELS_MAX])
        self._left = tuple(each for each in self._left if each != left)

    def _give_back(self, labels: list[str]) -> None:
        try:
            self._sink.acknowledge(self._loader.database, labels)
        except Unavailable:
            raise
        except RtolapError as error:  # committed and not visible yet, say: nothing is lost by waiting
            raise Unavailable("labels cannot be given back yet", found=str(error)) from error

    def _is_ripe(self, record: OffsetsRecord, now_ms: int) -> bool:
        if record.sequence_id > self._visible.sequence:
            return False
        return record.loaded_at_ms is not None and (
            record.attempts == 0 or self._is_past(record.loaded_at_ms, now_ms)
        )

    def _is_past(self, loaded_at_ms: int, now_ms: int) -> bool:
        """Return whether no request of that batch is taken any more."""
        return loaded_at_ms + self._loader.sink.timeout_ms + CLOCKS_APART_MS_MAX <= now_ms


def _row(records: tuple[OffsetsRecord, ...]) -> list[OffsetsRecord]:
    """Return the loaded batches from the first one up to a hole."""
    row = []
    for record in records:
        if not record.loaded:
            break
        row.append(record)
    return row
