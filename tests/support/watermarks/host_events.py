"""A fleet of hosts that write access logs: who they are, and what each of them logs. Seeded and columnar.

Rates are skewed (log-normal), and some hosts hardly have anything to do. A host's events are a Poisson
process. Those of a window depend on the seed and on the window only, not on when they are requested.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SKEW = 1.0  # sigma of the log-normal rates: of a thousand, the largest is some 500 times the least
STATUSES = np.array([200, 304, 404, 500], np.int32)
_STATUS_SHARES = (0.9, 0.06, 0.03, 0.01)
_BYTES_MAX = 50_000

Hosts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Arrays over hosts. `quiet`: indices of those that hardly have anything to do."""

    seed: int
    names: tuple[str, ...]
    events_per_s: NDArray[np.float64]
    partition: NDArray[np.int32]
    quiet: Hosts

    @property
    def hosts(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of one length, by `at_ms`. `host` and `status` are indices, of a fleet and of STATUSES."""

    at_ms: NDArray[np.int64]
    host: NDArray[np.int64]
    status: NDArray[np.int64]
    bytes_sent: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at_ms)

    def only(self, rows: NDArray[np.bool_]) -> Events:
        return Events(self.at_ms[rows], self.host[rows], self.status[rows], self.bytes_sent[rows])


NOTHING = Events(*(np.zeros(0, np.int64) for _ in range(4)))


def fleet(
    seed: int,
    *,
    hosts: int = 1_000,
    partitions: int = 8,
    events_per_s: float = 20_000.0,
    quiet: int = 25,
    quiet_events_per_s: float = 0.5,
) -> Fleet:
    """Return a fleet. `events_per_s` is that of all hosts together. A host logs to one partition, always the
    same."""
    rng = np.random.default_rng([seed, 1])
    few = rng.choice(hosts, quiet, replace=False)
    rates = rng.lognormal(0.0, SKEW, hosts)
    rates[few] = 0.0
    rates *= (events_per_s - quiet * quiet_events_per_s) / rates.sum()
    rates[few] = quiet_events_per_s
    names = tuple(f"web-{number:04d}" for number in range(hosts))
    return Fleet(seed, names, rates, rng.integers(0, partitions, hosts, np.int32), np.sort(few))


def window_events(of: Fleet, start_ms: int, window_ms: int) -> Events:
    """Return everything that is logged in `[start_ms, start_ms + window_ms)`."""
    rng = np.random.default_rng([of.seed, 2, start_ms])
    counts = rng.poisson(of.events_per_s * window_ms / 1000)
    host = np.repeat(np.arange(of.hosts), counts)
    at_ms = start_ms + rng.integers(0, window_ms, len(host))
    order = np.argsort(at_ms, kind="stable")
    return Events(
        at_ms=at_ms[order],
        host=host[order],
        status=rng.choice(len(STATUSES), len(host), p=_STATUS_SHARES),
        bytes_sent=rng.integers(0, _BYTES_MAX, len(host)),
    )


def together(parts: list[Events]) -> Events:
    """Put the parts together in their order; their instants do not overlap."""
    return Events(
        np.concatenate([part.at_ms for part in parts]),
        np.concatenate([part.host for part in parts]),
        np.concatenate([part.status for part in parts]),
        np.concatenate([part.bytes_sent for part in parts]),
    )


def as_json(of: Fleet, events: Events) -> list[bytes]:
    """Return `{"at":…,"host":"…","status":…,"bytes_sent":…}`, one a record."""
    fields = (
        '{"at":',
        pc.cast(pa.array(events.at_ms), pa.string()),
        ',"host":"',
        pa.array(of.names).take(pa.array(events.host)),
        '","status":',
        pc.cast(pa.array(STATUSES[events.status]), pa.string()),
        ',"bytes_sent":',
        pc.cast(pa.array(events.bytes_sent), pa.string()),
        "}",
    )
    texts = pc.binary_join_element_wise(*fields, "")
    found: list[bytes] = pc.cast(texts, pa.binary()).to_pylist()
    return found
