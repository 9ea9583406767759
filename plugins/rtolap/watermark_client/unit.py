"""Work that holds an application's watermark until it is done: for batch jobs, loaders and Spark drivers.

    with unfinished(client, "enrich", "nightly", oldest_work_ms=oldest_ms, generation=started_ms):
        frame.write.parquet(...)

Whoever drives the work says it; those that do parts of it, as Spark's executors, need no client.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rtolap.base.errors import Refused
from rtolap.watermark_client.client import TIMEOUT_S, WatermarkClient


@contextmanager
def unfinished(
    client: WatermarkClient,
    level: str,
    processor: str,
    key_group: int = 0,
    *,
    oldest_work_ms: int,
    generation: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Iterator[None]:
    """The body runs once the server holds the level's output at the oldest event that is worked on.

    Whoever hands the events over keeps them until then. Afterwards the unit has nothing to do and stays; call
    `client.leave` when no more is to come. If the body fails the work counts as unfinished: another try says
    it again, else the unit's lease ends it with the client. Raises Unavailable when the server does not take
    it within `timeout_s`, Refused when it refuses it; then nothing was done.
    """
    client.set_oldest_work(level, processor, key_group, oldest_work_ms, generation=generation)
    client.flush(timeout_s)
    refusal = client.unit_refused(level, processor, key_group)
    if refusal is not None:
        raise Refused(
            "the watermark server does not hold the work",
            expected="that it takes its oldest event",
            found=f"{refusal.what}: {refusal.why}",
        )
    yield
    client.set_oldest_work(level, processor, key_group, None, generation=generation)
