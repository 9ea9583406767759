"""The seam to the server that takes rows. Implementations: `protocols.stream_load.client` and `memory`.

One contract suite runs on both. A call that raises Unavailable may have been carried out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SendOptions,
    TableSchema,
    TwoPhaseAnswer,
)


class Sink(Protocol):
    """Takes rows under labels, each label once.

    Attributes:
        requests_may_join: True where a request of an earlier attempt that comes late may add its rows to a
            later transaction of the same label. A transaction that nobody has counted is then rolled back.
    """

    requests_may_join: bool

    def load(
        self,
        db: str,
        table: str,
        label: str,
        body: bytes,
        options: SendOptions,
        *,
        two_phase: bool = False,
    ) -> LoadAnswer: ...

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer: ...

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        """Abort what is not committed under the label."""

    def mark(self, db: str, table: str, label: str) -> bool:
        """Finish a transaction without rows under the label: the sink remembers the label from now on.

        Return False where it does not.
        """

    def state(self, db: str, label: str) -> LoadState: ...

    def close_label(self, db: str, label: str) -> LoadState:
        """Take no load under the label any more, where labels are retained; return its outcome: COMMITTED,
        VISIBLE or ABORTED. A load under way is aborted."""

    def schema(self, db: str, table: str) -> TableSchema:
        """Return the schema of a table. Raises NotFound for an unknown one."""

    def keeps_labels(self) -> bool:
        """Return True if labels are retained until they are acknowledged."""

    def error_log(self, url: str) -> str:
        """Return the beginning of what a load has rejected, with reasons. NotFound when it is gone."""

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        """Release labels, where the sink retains them.

        Raises Refused while one of them is not visible. Nothing is lost by a retry with all of them.
        """
