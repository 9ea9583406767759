"""Protocol between the consumers of a capture subscription, Arrow Flight: messages.

do_exchange  events of one share. Descriptor: a `PartHead` as JSON. Two batches of the column `ipc`, each one
             value: the events, then their cells, as Arrow IPC streams. The last message has no batch. The
             answer is a `PartDone` as metadata, and comes once all events are durable.

An error means that some events may not be delivered; whoever sent them has HBase send them again.
"""

from __future__ import annotations

import msgspec

PART_COLUMN = "ipc"


class PartHead(msgspec.Struct, frozen=True):
    """The head of a part: the kind of its events, and what to do with them.

    Attributes:
        cluster_id: the subscription's own: one that was dropped and made again has another.
        share: the number of the share whose rows the events have.
        remaining_ms: the time within which the delivery must begin, else the source sends the events again.
        set_apart: why the events are dead letters; empty for events to deliver.
    """

    cluster_id: str
    share: int
    remaining_ms: int
    set_apart: str = ""


class PartDone(msgspec.Struct, frozen=True):
    events: int
