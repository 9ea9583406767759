"""Random lives of a table's regions: they split and merge, and their edits have ids as HBase gives them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.support.sep.batches import Event


@dataclass(eq=False)
class Region:
    """`first` to below `end` are its rows, by number."""

    name: str
    first: int
    end: int
    next_id: int


def row_of(number: int) -> bytes:
    return b"row-%04d" % number


def written_events(
    random: Random, steps: int, rows: int = 20, table: str = "t", first_id: int = 1, first_write_ms: int = 0
) -> list[Event]:
    """Return one event for each edit, in the order of writing. Each region's ids are far from its
    neighbours'."""
    middle = rows // 2
    regions = [
        Region(f"{table}-0", 0, middle, first_id),
        Region(f"{table}-1", middle, rows, first_id + random.choice((0, 1000))),
    ]
    made, events = len(regions), []
    for step in range(steps):
        at = random.randrange(len(regions))
        region = regions[at]
        action = random.random()
        if action < 0.06 and region.end - region.first > 1:
            border = random.randint(region.first + 1, region.end - 1)
            regions[at : at + 1] = [
                Region(f"{table}-{made}", region.first, border, region.next_id + 1),
                Region(f"{table}-{made + 1}", border, region.end, region.next_id + 1),
            ]
            made += 2
        elif action < 0.09 and at + 1 < len(regions):
            other = regions[at + 1]
            above = max(region.next_id, other.next_id) + 1
            regions[at : at + 2] = [Region(f"{table}-{made}", region.first, other.end, above)]
            made += 1
        else:
            row = row_of(random.randrange(region.first, region.end))
            events.append(Event(region.name, region.next_id, row, first_write_ms + step, table))
            region.next_id += random.choice((1, 1, 4))
    return events
