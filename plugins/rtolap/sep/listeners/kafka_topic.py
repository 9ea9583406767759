"""The Kafka listener: a record for each event, in one transaction with the journal's note of them.

So a reader that reads what is committed sees each event once, whatever was killed when, and a process that
was replaced writes nothing any more. The key is the row: events of a row stand in one partition, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rtolap.base.errors import TooLarge
from rtolap.kafka.transactions import Headers, OutColumns
from rtolap.sep.delivery.journal import Journal
from rtolap.sep.delivery.poison import held_back
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.listener import EventGroup, Failure, Mask, Outcome


@dataclass(frozen=True)
class EncodedEvents:
    """A record for each event, by columns of one length; refused events have a reason, and no record."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: Sequence[Headers]
    refused: Mapping[int, str] = field(default_factory=dict)


Encode = Callable[[EditBatch, Mask], EncodedEvents]
"""(events, which of them are late) → their records"""


class KafkaTopicListener:
    """Listener."""

    def __init__(self, topic: str, encode: Encode) -> None:
        self._topic = topic
        self._encode = encode

    def deliver(self, group: EventGroup) -> Outcome:
        encoded = self._encode(group.batch, group.late)
        try:
            return self._commit(group, encoded)
        except TooLarge as error:
            # the broker does not say which it was: the largest one first, the others with the next pass
            largest = int(np.argmax([len(value) for value in encoded.values]))
            nothing = np.zeros(group.batch.num_events, bool)
            return Outcome(nothing, {largest: Failure(str(error), final=True)})

    def _commit(self, group: EventGroup, encoded: EncodedEvents) -> Outcome:
        if not encoded.refused:
            everything = np.ones(group.batch.num_events, bool)
            group.commit(everything, [OutColumns(self._topic, encoded.keys, encoded.values, encoded.headers)])
            return Outcome(everything)
        delivered = ~held_back(group.batch, set(encoded.refused))
        places = np.flatnonzero(delivered).tolist()
        if places:
            columns = [[column[place] for place in places] for column in (encoded.keys, encoded.values)]
            headers = [encoded.headers[place] for place in places]
            group.commit(delivered, [OutColumns(self._topic, columns[0], columns[1], headers)])
        refused = {place: Failure(reason, final=True) for place, reason in encoded.refused.items()}
        return Outcome(delivered, refused)

    def recover(self, journal: Journal) -> None:
        """Nothing is ever left open: the journal is in the transaction of the events."""

    def close(self) -> None:
        """The journal's producer is the only connection."""
