"""The seam between the consumers that read partitions and a client that reports how far each host is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import ArrayLike


class ProgressReports(Protocol):
    """`watermark_client.client.WatermarkClient` is one. It returns at once."""

    def report_progress(
        self,
        level: str,
        partition: int,
        generation: int,
        hosts: Sequence[str],
        latest_ms: ArrayLike,
        counts: ArrayLike | None = None,
        *,
        partitions: int = 0,
    ) -> None:
        """Report that the consumer of that generation has read each of these hosts so far; see
        `WatermarkSession`."""
