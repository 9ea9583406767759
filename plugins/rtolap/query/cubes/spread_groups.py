"""The first groups by a sum or count whose parts lie in several sources, by a threshold algorithm.

Each source says its first groups and the largest value that it leaves out (`scan.first_groups`). In a first
round these name candidates. In the next one every source sends the parts of all candidates, whatever else is
as large as a threshold, and again the largest value that it leaves out. A group that is no candidate has at
most the sum of what was sent of it and of those largest values. If that is less than the last total that
counts, for all of them, the totals of the candidates are the answer. If not, those that might count become
candidates.

A round stands by itself: it compares values of one answer of each source, and each answer is of one moment.
So events that arrive between rounds cost a further round at most, and never a group.

The threshold is that of TPUT (Cao and Wang, 2004): the last total that counts, shared by the number of
sources. A group that is below it everywhere is below that total.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.column_types import ColumnType
from rtolap.protocols.receiver.messages import TopGroups
from rtolap.query.plan import CubeRead
from rtolap.scan.first_groups import Chosen, Key, Number

ROUNDS_MAX = 4  # the first one included; then all groups are read
ROWS_MAX = 1_000  # first groups that are looked for so
CANDIDATES_MAX = 20_000
CHARACTERS_MAX = 1 << 18  # of all candidates in a question
_DIGITS = 80  # of sums of decimals, none of which is rounded
_KEYS = frozenset(("string", "int", "bigint"))
_VALUES = frozenset(("int", "bigint", "decimal"))


def is_spreadable(read: CubeRead) -> bool:
    """Tell whether the first groups of a read may be put together from several sources."""
    top = read.top
    if top is None or not top.descending or top.nulls_first or top.rows > ROWS_MAX:
        return False
    partial = next((each for each in read.schema.partials if each.name == top.column), None)
    if partial is None or not partial.accumulator.adds or partial.type.kind not in _VALUES:
        return False
    return len(read.dimensions) == 1 and read.schema.dimension_type(read.dimensions[0]).kind in _KEYS


@dataclass
class SpreadGroups:
    """The rounds of one read.

    Attributes:
        candidates: groups of which all parts are asked for; empty in the first round.
        question: what sources are asked for in the next round.
        is_too_large: True if so much was sent that reading all groups is better.
    """

    key: str
    kind: ColumnType
    top: TopGroups
    candidates: set[Key] = field(default_factory=set)
    question: TopGroups = field(init=False)
    is_too_large: bool = False

    def __post_init__(self) -> None:
        self.question = TopGroups(self.top.column, True, False, self.top.rows, spread=True)

    def take(self, parts: Sequence[Chosen]) -> list[pa.Table] | None:
        """Take the answers to `question`. Return the rows of all groups that may be among the first, with all
        of their parts; None if another round is needed, to which `question` then leads."""
        if all(part.largest_left is None for part in parts):
            return [part.rows for part in parts]
        if sum(part.rows.num_rows for part in parts) > CANDIDATES_MAX:
            self.is_too_large = True
            return None
        with localcontext(prec=_DIGITS):
            return self._compare(parts)

    def _compare(self, parts: Sequence[Chosen]) -> list[pa.Table] | None:
        sent = [self._values(part.rows) for part in parts]
        left = [max(part.largest_left or 0, 0) for part in parts]
        totals = _totals(sent, self.candidates)
        last = _last(totals, self.top.rows)
        if last is None:
            self.candidates.update(*sent)
            self._ask(_last(_totals(sent, self.candidates), self.top.rows), len(parts))
            return None
        others = set[Key]().union(*sent) - self.candidates
        needed = {key for key in others if _at_most(key, sent, left) >= last}
        if not needed and sum(left) < last:
            known = pa.array(list(self.candidates), parts[0].rows.schema.field(self.key).type)
            return [_among(part.rows, self.key, known) for part in parts]
        self.candidates |= needed
        self._ask(last, len(parts))
        return None

    def _ask(self, last: Number | None, sources: int) -> None:
        above = None if last is None or last <= 0 else str(_share(last, sources, self.kind.scale))
        among = tuple(self.candidates)
        characters = sum(len(key) for key in among if isinstance(key, str))
        self.is_too_large = len(among) > CANDIDATES_MAX or characters > CHARACTERS_MAX
        self.question = TopGroups(
            self.top.column, True, False, self.top.rows, spread=True, among=among, above=above
        )

    def _values(self, rows: pa.Table) -> dict[Key, Number | None]:
        keys, values = rows.column(self.key).to_pylist(), rows.column(self.top.column).to_pylist()
        found: dict[Key, Number | None] = {}
        for key, value in zip(keys, values, strict=True):
            known = found.get(key)  # rows of a group that lie apart
            found[key] = value if known is None else known if value is None else known + value
        return found


def _totals(sent: Iterable[dict[Key, Number | None]], keys: Iterable[Key]) -> dict[Key, Number]:
    """Return the totals of these groups that have one."""
    wanted, found = set(keys), dict[Key, Number]()
    for part in sent:
        for key, value in part.items():
            if value is not None and key in wanted:
                found[key] = found.get(key, 0) + value
    return found


def _last(totals: dict[Key, Number], rows: int) -> Number | None:
    ordered = sorted(totals.values(), reverse=True)
    return ordered[rows - 1] if len(ordered) >= rows else None


def _at_most(key: Key, sent: Sequence[dict[Key, Number | None]], left: Sequence[Number]) -> Number:
    total: Number = 0
    for part, beyond in zip(sent, left, strict=True):
        value = part.get(key, beyond)
        total += 0 if value is None else value
    return total


def _share(last: Number, sources: int, scale: int) -> Number:
    """Return the share of one source, rounded up to the digits of the values."""
    unscaled = int(Decimal(last).scaleb(scale)) if scale else int(last)
    share = -(-unscaled // sources)
    return Decimal(share).scaleb(-scale) if scale else share


def _among(rows: pa.Table, key: str, known: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(key), value_set=known))
