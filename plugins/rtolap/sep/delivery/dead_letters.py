"""Events that were given up, as records of a dead-letter topic: whole, with where they came from and why.

`rtolap sep dead-letters` reads them. As a record's topic their headers name the table, as its offset the
sequence id. The value is the event as JSON: its cells with families, qualifiers, values and tags in base64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from rtolap.events.rejects import DETAIL_CHARS_MAX
from rtolap.kafka.transactions import Headers, OutColumns
from rtolap.sep.events.edit_batch import EditBatch

VALUE_BYTES_MAX = 12 << 20  # below what the producer takes; of a larger one the beginning is kept


def dead_letter_topic(subscription: str) -> str:
    return f"rtolap-sep-{subscription}.dead-letters"


def dead_letters(topic: str, batch: EditBatch, reasons: Mapping[int, str]) -> OutColumns:
    """One record for each event of `reasons`, by its place in the batch."""
    chosen = batch.take(np.fromiter(reasons, np.int64, len(reasons)))
    cells = chosen.cells.to_pylist()
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for event, reason in zip(chosen.events.to_pylist(), reasons.values(), strict=True):
        first = event["first_cell"]
        value = _value(event, cells[first : first + event["cell_count"]])
        about = {
            "topic": event["table"].encode(),
            "partition": b"-1",
            "offset": str(event["sequence_id"]).encode(),
            "region": event["region"].encode(),
            "reason": b"not_delivered",
            "detail": reason[:DETAIL_CHARS_MAX].encode("utf-8", "replace"),
        }
        if len(value) > VALUE_BYTES_MAX:
            about["value_bytes"] = str(len(value)).encode()
            value = value[:VALUE_BYTES_MAX]
        keys.append(b"%s/%s/%d/" % (about["topic"], about["region"], event["sequence_id"]) + event["row"])
        values.append(value)
        headers.append(list(about.items()))
    return OutColumns(topic, keys, values, headers)


def _value(event: dict[str, Any], cells: list[dict[str, Any]]) -> bytes:
    known = {name: event[name] for name in ("table", "region", "sequence_id", "write_time_ms", "row")}
    whole = [{name: cell[name] for name in cell if name != "event"} for cell in cells]
    return msgspec.json.encode({**known, "cells": whole})
