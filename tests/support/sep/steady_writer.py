"""A client that writes to a real HBase without pause, whatever becomes of HBase meanwhile.

An attempt that fails may have been done or not: it is not repeated, the next one has other numbers. Each
leaves a column of its own in the row, so that HBase says in the end which ones there are.
"""

from __future__ import annotations

import struct
import threading
from random import Random
from types import TracebackType
from typing import Self

from rtolap.base.errors import RtolapError

from tests.support.hbase import mutations
from tests.support.hbase.client import HBaseClient
from tests.support.sep.numbered_rows import ROWS
from tests.support.waiting import until

_PAUSE_S = 0.02
_ROWS_MAX = 5
_RECOVERY_S = 120.0  # of an HBase whose servers were all killed


class SteadyWriter:
    """Attempts are numbered by row: number k is the value of `cf:n`, and the name of another column.

    `confirmed`: the numbers that HBase has acknowledged. `failures`: of attempts of which nothing is known.
    """

    def __init__(self, address: str, table: str, random: Random) -> None:
        self.confirmed: dict[bytes, list[int]] = {row: [] for row in ROWS}
        self.failures: list[RtolapError] = []
        self._address, self._table, self._random = address, table, random
        self._numbers = dict.fromkeys(ROWS, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Return when the last attempt is over."""
        self._ended.set()
        self._thread.join()

    @property
    def total(self) -> int:
        return sum(map(len, self.confirmed.values()))

    def wait(self, count: int) -> None:
        """Wait until HBase has acknowledged so many more."""
        wanted = self.total + count

        def is_done() -> bool:
            assert self._thread.is_alive(), "the writer has ended"
            return self.total >= wanted

        until(is_done, f"{count} more writes", timeout_s=_RECOVERY_S)

    def written(self) -> dict[bytes, list[int]]:
        """Return the numbers that HBase has of each row; all that it has acknowledged are among them."""
        with HBaseClient(self._address) as client:
            rows = {
                row: sorted(
                    int(name) for name in (column.removeprefix("cf:") for column in cells) if name != "n"
                )
                for row, cells in client.scan(self._table).items()
            }
        lost = {row: set(numbers) - set(rows.get(row, ())) for row, numbers in self.confirmed.items()}
        assert not any(lost.values()), f"HBase has lost what it has acknowledged: {lost}"
        return rows

    def _run(self) -> None:
        with HBaseClient(self._address, patience_s=0) as client:
            while not self._ended.wait(_PAUSE_S):
                numbers = {
                    row: self._numbers[row] + 1
                    for row in self._random.sample(ROWS, self._random.randint(1, _ROWS_MAX))
                }
                self._numbers |= numbers
                puts = [
                    mutations.put(row, {"cf:n": struct.pack(">q", number), f"cf:{number}": b""})
                    for row, number in numbers.items()
                ]
                try:
                    client.write_all(self._table, puts)
                except RtolapError as error:
                    self.failures.append(error)
                    continue
                for row, number in numbers.items():
                    self.confirmed[row].append(number)
