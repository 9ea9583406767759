"""Requests of commands to all consumers of a subscription, divided by the shares of the rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from rtolap.metadata.store import MetadataStore
from rtolap.sep.delivery.requests import Request, post
from rtolap.sep.shares.division import shares_of
from rtolap.sep.subscriptions.records import SubscriptionRecord


def post_to_shares(store: MetadataStore, record: SubscriptionRecord, request: Request) -> list[str]:
    """Post a request to whoever delivers the rows that it is about; return the nodes that go once it is done.

    A request without rows goes to all shares.
    """
    count = record.subscription.consumers
    return [
        post(store, record.paths.requests_of(share, count), part) for share, part in _divided(request, count)
    ]


def _divided(request: Request, count: int) -> Sequence[tuple[int, Request]]:
    if request.kind != "read":
        return [(share, request) for share in range(count)]
    numbers = shares_of(pa.array(request.rows, pa.binary()), count)
    return [
        (
            int(share),
            msgspec.structs.replace(
                request, rows=tuple(request.rows[place] for place in np.flatnonzero(numbers == share))
            ),
        )
        for share in np.unique(numbers)
    ]
