"""Random statements as analysts write them over cubes: several relations, windows, sets, weeks, long lists.

They stand on shapes of relations, so that the same writer asks cubes in memory and cubes of real services. A
seed gives the same statements for ever. What MariaDB spells otherwise has a text of its own for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isclose

from tests.support.query.oracles.mariadb_oracle import Row, alike, plain

_PATTERNS = ("%a%", "A%", "_", "%!%%", "!_%", "J%", "%", "", "%n%")
_EXPRESSIONS = ("^A", "a$", "[A-K]", "^.$", "n|o", "^[^a-z]*$", "[[:digit:]]")


@dataclass(frozen=True)
class Cube:
    """A cube that is asked.

    Attributes:
        columns: kind of a dimension (`int`, `text`, `day`, `moment`) → names.
        totals: aggregates; `{0}` stands before each column for the cube's name in the statement.
        values: dimension → constants near those that it has, as SQL writes them.
    """

    name: str
    columns: dict[str, tuple[str, ...]]
    totals: tuple[str, ...]
    values: dict[str, tuple[str, ...]]

    @property
    def dimensions(self) -> tuple[tuple[str, str], ...]:
        return tuple((kind, name) for kind, names in self.columns.items() for name in names)


@dataclass(frozen=True)
class Places:
    """A lookup: `name` is a text for each value of `key`."""

    relation: str
    key: str
    kind: str
    name: str


# the cubes of `tests.support.cubes.flights`
DAYS = ("date '2013-01-01'", "date '2013-01-02'", "'2013-01-03'", "'2013-01-02 05:00:00'")
FLIGHTS = Cube(
    "flights",
    {
        "int": ("gate",),
        "text": ("carrier", "origin"),
        "day": ("flown_on",),
        "moment": ("day_start", "hour_start"),
    },
    (
        *("count(*)", "sum({0}delay)", "count({0}delay)", "min({0}delay)", "max({0}delay)", "sum({0}price)"),
        *(
            "max({0}price)",
            "sum({0}gate)",
            "count(distinct {0}origin)",
            "min({0}carrier)",
            "max({0}flown_on)",
        ),
        *("sum({0}delay * {0}gate)", "sum(case when {0}gate > 0 then {0}delay else 1 end)"),
        *("sum(coalesce({0}delay, 0))", "count(if({0}on_time, 1, null))"),
    ),
    {
        "gate": ("-2", "-1", "0", "1", "2", "3"),
        "carrier": ("'AA'", "'UA'", "'DL'", "'aa'", "'日本 😀'"),
        "origin": ("'JFK'", "'LGA'", "'EWR'", "''"),
        "flown_on": DAYS[:3],
        "day_start": DAYS,
        "hour_start": DAYS,
    },
)
ROUTES = Cube(
    "routes",
    {"text": ("origin", "carrier"), "moment": ("day_start",)},
    ("count(*)", "sum({0}distance)", "max({0}delay)", "count({0}carrier)", "max({0}origin)"),
    {name: FLIGHTS.values[name] for name in ("origin", "carrier", "day_start")},
)


@dataclass(frozen=True)
class Analysis:
    """A statement. `ordered`: its rows come in one order only; `for_oracle`: its text for MariaDB."""

    sql: str
    kind: str
    ordered: bool = False
    for_oracle: str = ""

    @property
    def oracle(self) -> str:
        return self.for_oracle or self.sql


@dataclass
class AnalysisWriter:
    rng: random.Random
    cubes: Sequence[Cube]
    lookup: Places
    kinds: dict[str, Callable[[], Analysis]] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = {
            "roll-up": self._roll_up, "grouping sets": self._grouping_sets, "window": self._window,
            "window over a query": self._window_over, "joined texts": self._joined_texts,
            "membership": self._membership, "existence": self._existence, "lookup": self._with_lookup,
            "pairs": self._pairs, "sets": self._sets, "union of totals": self._union_of_totals,
            "common table": self._common_table, "weeks": self._weeks, "patterns": self._patterns,
            "long list": self._long_list, "top": self._top, "having": self._having,
            "joined totals": self._joined_totals,
        }  # fmt: skip

    def statement(self) -> Analysis:
        return self.kinds[self.rng.choice(tuple(self.kinds))]()

    # -- parts ------------------------------------------------------------------------------------------

    def _cube(self) -> Cube:
        return self.rng.choice(self.cubes)

    def _some(self, cube: Cube, count: int) -> list[str]:
        names = [name for _, name in cube.dimensions]
        return self.rng.sample(names, min(count, len(names)))

    def _total(self, cube: Cube, alias: str = "") -> str:
        return self.rng.choice(cube.totals).format(alias and f"{alias}.")

    def _value(self, cube: Cube, name: str) -> str:
        return self.rng.choice(cube.values[name])

    def _simple(self, cube: Cube, alias: str = "") -> str:
        r = self.rng
        name = r.choice(list(cube.values))
        column = f"{alias}.{name}" if alias else name
        match r.randrange(6):
            case 0:
                return f"{column} is {r.choice(('null', 'not null'))}"
            case 1:
                values = ", ".join(self._value(cube, name) for _ in range(2))
                return f"{column} {r.choice(('in', 'not in'))} ({values})"
            case 2:
                return f"{column} between {self._value(cube, name)} and {self._value(cube, name)}"
            case _:
                return (
                    f"{column} {r.choice(('=', '<>', '<', '<=', '>', '>=', '<=>'))} {self._value(cube, name)}"
                )

    def _where(self, cube: Cube, alias: str = "", *more: str, chance: float = 0.6) -> str:
        terms = [*more, *(self._simple(cube, alias) for _ in range(2) if self.rng.random() < chance / 2)]
        if not more and len(terms) == 2 and self.rng.random() < 0.4:
            return f" where ({terms[0]} {self.rng.choice(('or', 'and'))} {terms[1]})"
        return f" where {' and '.join(terms)}" if terms else ""

    def _from(self, cube: Cube) -> str:
        return f"{cube.name}{self._where(cube)}"

    def _alike_columns(self, one: Cube, other: Cube) -> list[tuple[str, str]]:
        """Return pairs of columns of one kind, the same column first."""
        pairs = [(name, theirs) for kind, name in one.dimensions for theirs in other.columns.get(kind, ())]
        same = [pair for pair in pairs if pair[0] == pair[1]]
        return same if same and self.rng.random() < 0.8 else pairs or [("1", "1")]

    # -- statements -------------------------------------------------------------------------------------

    def _roll_up(self) -> Analysis:
        cube = self._cube()
        keys = self._some(cube, 2)
        sql = (
            f"select {', '.join(keys)}, {self._total(cube)}, {self._total(cube)} from {cube.name}"
            f"{self._where(cube)} group by {', '.join(keys)} with rollup"
        )
        return Analysis(sql, "roll-up")

    def _grouping_sets(self) -> Analysis:
        cube = self._cube()
        one, two = self._some(cube, 2)
        total, where = self._total(cube), self._where(cube)
        sets: list[tuple[str, ...]]
        how = self.rng.choice(("sets", "cube", "rollup"))
        match how:
            case "sets":
                sets = self.rng.sample([(one,), (two,), (one, two), ()], 2)
                written = f"grouping sets ({', '.join('(' + ', '.join(keys) + ')' for keys in sets)})"
            case "cube":
                sets, written = [(one, two), (one,), (two,), ()], f"cube ({one}, {two})"
            case _:
                sets, written = [(one, two), (one,), ()], f"rollup ({one}, {two})"
        named = {key for keys in sets for key in keys}
        shown = [key for key in (one, two) if key in named]
        flags = "".join(f"grouping({key}), " for key in shown)
        sql = f"select {', '.join((*shown, ''))}{flags}{total} from {cube.name}{where} group by {written}"
        parts = []
        for keys in sets:
            cells = [key if key in keys else "null" for key in shown]
            cells += [str(int(key not in keys)) for key in shown]
            group = f" group by {', '.join(keys)}" if keys else ""
            parts.append(f"select {', '.join((*cells, total))} from {cube.name}{where}{group}")
        return Analysis(sql, "grouping sets", for_oracle=" union all ".join(parts))

    def _windowed(self, total: str, keys: list[str]) -> str:
        r = self.rng
        every = ", ".join(keys)
        adds_up = total == "t" or total.startswith(("sum(", "count("))
        match r.randrange(10) if adds_up else r.randrange(3):
            case 0:
                return f"rank() over (order by {total} desc)"
            case 1:
                return f"dense_rank() over (partition by {keys[0]} order by {total})"
            case 2:
                return f"row_number() over (order by {total} desc, {every})"
            case 3:
                return f"sum({total}) over (order by {every} rows between 1 preceding and current row)"
            case 4:
                return f"{r.choice(('lag', 'lead'))}({total}) over (order by {every})"
            case 5:
                return f"{r.choice(('max', 'min', 'count'))}({total}) over (partition by {keys[0]})"
            case 6:
                return f"ntile({r.randint(2, 4)}) over (order by {every})"
            case 7:
                return f"{r.choice(('first_value', 'last_value'))}({total}) over (order by {every})"
            case 8:
                return f"{r.choice(('cume_dist', 'percent_rank'))}() over (order by {total})"
            case _:
                return f"sum({total}) over (order by {every})"

    def _window(self) -> Analysis:
        cube = self._cube()
        keys, total = self._some(cube, self.rng.randint(1, 2)), self._total(cube)
        having = f" having count(*) > {self.rng.randint(1, 9)}" if self.rng.random() < 0.5 else ""
        sql = (
            f"select {', '.join(keys)}, {total}, {self._windowed(total, keys)} w from {cube.name}"
            f"{self._where(cube)} group by {', '.join(keys)}{having}"
        )
        return Analysis(sql, "window")

    def _window_over(self) -> Analysis:
        cube = self._cube()
        keys = self._some(cube, 2)
        named = [f"k{place}" for place in range(len(keys))]
        total = self.rng.choice([each for each in cube.totals if each.startswith(("sum(", "count("))]).format(
            ""
        )
        inner = ", ".join(f"{key} {name}" for key, name in zip(keys, named, strict=True))
        sql = (
            f"select * from (select {', '.join(named)}, t, {self._windowed('t', named)} w from "
            f"(select {inner}, "
            f"{total} t from {self._from(cube)} group by {', '.join(keys)}) q) o"
            f"{self.rng.choice(('', ' where w is not null', ' where t is not null'))}"
        )
        return Analysis(sql, "window over a query")

    def _joined_texts(self) -> Analysis:
        cube = self._cube()
        key, of = self._some(cube, 2)
        order = self.rng.choice((f" order by {of}", f" order by {of} desc"))
        separator = self.rng.choice(("", " separator '|'", " separator ''", " separator ' and '"))
        distinct = self.rng.choice(("distinct ", ""))  # else a value as often as it has events
        sql = (
            f"select {key}, group_concat({distinct}{of}{order}{separator}), count(*) from {cube.name}"
            f"{self._where(cube)} group by {key}"
        )
        return Analysis(sql, "joined texts")

    def _like(self) -> str:
        return self.rng.choice(("like", "not like"))

    def _values(self, cube: Cube, column: str) -> str:
        """Return a query for values that are of the kind of the column."""
        r = self.rng
        kind = next(kind for kind, name in cube.dimensions if name == column)
        if kind == self.lookup.kind and r.random() < 0.6:
            like = (
                f"{self.lookup.name} {r.choice(('like', 'not like'))} '{r.choice(('%a%', 'A%', '%o%', '-'))}'"
            )
            return f"select {self.lookup.key} from {self.lookup.relation} where {like}"
        other = self._cube()
        theirs = other.columns.get(kind)
        if not theirs:
            other, theirs = cube, (column,)
        name = r.choice(theirs)
        if r.random() < 0.3:
            return f"select {name} from {self._from(other)} group by {name} having count(*) > 2"
        terms = r.choice(((), (f"{name} is not null",)))
        return f"select {name} from {other.name}{self._where(other, '', *terms)}"

    def _membership(self) -> Analysis:
        r, cube = self.rng, self._cube()
        key, column = r.choice(self._some(cube, 2)), r.choice(cube.dimensions)[1]
        term = f"{column} {r.choice(('in', 'in', 'not in'))} ({self._values(cube, column)})"
        if r.random() < 0.2:
            term = f"not ({term})"
        sql = (
            f"select {key}, {self._total(cube)} from {cube.name}{self._where(cube, '', term)} group by {key}"
        )
        return Analysis(sql, "membership")

    def _existence(self) -> Analysis:
        r, cube, other = self.rng, self._cube(), self._cube()
        if r.random() < 0.4 and cube.columns.get(self.lookup.kind):
            mine, theirs = r.choice(cube.columns[self.lookup.kind]), self.lookup.key
            source, more = self.lookup.relation, f" and y.{self.lookup.name} like '%a%'"
        else:
            mine, theirs = r.choice(self._alike_columns(cube, other))
            source, more = other.name, f" and {self._simple(other, 'y')}"
        key = r.choice(self._some(cube, 2))
        left, right = (f"x.{mine}", f"y.{theirs}") if mine != "1" else ("1", "1")
        term = f"{r.choice(('', 'not '))}exists (select 1 from {source} y where {right} = {left}{more})"
        sql = (
            f"select x.{key}, {self._total(cube, 'x')} from {cube.name} x{self._where(cube, 'x', term)} "
            f"group by x.{key}"
        )
        return Analysis(sql, "existence")

    def _with_lookup(self) -> Analysis:
        r, look = self.rng, self.lookup
        cube = r.choice([cube for cube in self.cubes if cube.columns.get(look.kind)])
        column = r.choice(cube.columns[look.kind])
        terms = r.choice(
            ((), (f"a.{look.name} like '%a%'",), (f"a.{look.name} <> 'south'",), (f"a.{look.key} is null",))
        )
        on = f"x.{column} = a.{look.key}" + (f" and {self._simple(cube, 'x')}" if r.random() < 0.3 else "")
        sql = (
            f"select a.{look.name}, {self._total(cube, 'x')}, {self._total(cube, 'x')} from {cube.name} x "
            f"{r.choice(('join', 'left join'))} {look.relation} a on {on}{self._where(cube, 'x', *terms)} "
            f"group by a.{look.name}"
        )
        return Analysis(sql, "lookup")

    def _pairs(self) -> Analysis:
        r, one, other = self.rng, self._cube(), self._cube()
        mine, theirs = r.choice(self._alike_columns(one, other))
        on = "1 = 1" if mine == "1" else f"x.{mine} = y.{theirs}"
        on += f" and {self._simple(other, 'y')}" if r.random() < 0.5 else ""
        key = r.choice((f"x.{r.choice(self._some(one, 2))}", f"y.{r.choice(self._some(other, 2))}"))
        where = self._where(one, "x", *((self._simple(other, "y"),) if r.random() < 0.4 else ()))
        sql = (
            f"select {key}, {self._total(one, 'x')}, {self._total(other, 'y')}, count(*) from {one.name} x "
            f"{r.choice(('join', 'join', 'left join'))} {other.name} y on {on}{where} group by {key}"
        )
        return Analysis(sql, "pairs")

    def _sets(self) -> Analysis:
        r, one, other = self.rng, self._cube(), self._cube()
        mine, theirs = r.choice(self._alike_columns(one, other))
        how = r.choice(("union", "intersect", "except"))
        sql = f"select {mine} v from {self._from(one)} {how} select {theirs} v from {self._from(other)}"
        return Analysis(sql, "sets")

    def _union_of_totals(self) -> Analysis:
        one, other = self._cube(), self._cube()
        mine, theirs = self.rng.choice(self._alike_columns(one, other))
        parts = [
            f"select {column} v, count(*) n from {self._from(cube)} group by {column}"
            for cube, column in ((one, mine), (other, theirs))
            if column != "1"
        ]
        return Analysis(
            self.rng.choice((" union all ", " union ")).join(parts or ["select 1 v, 2 n"]), "union of totals"
        )

    def _common_table(self) -> Analysis:
        cube = self._cube()
        key = self._some(cube, 1)[0]
        sql = (
            f"with c as (select {key} k, {self._total(cube)} t, count(*) n from {self._from(cube)} "
            f"group by {key}) select c.k, c.t, d.n from c join c d on c.n <= d.n "
            f"where d.n = (select {self.rng.choice(('max', 'min'))}(n) from c)"
        )
        return Analysis(sql, "common table")

    def _joined_totals(self) -> Analysis:
        one, other = self._cube(), self._cube()
        mine, theirs = self.rng.choice(self._alike_columns(one, other))
        if mine == "1":
            return self._top()
        sql = (
            f"select a.k, a.t, b.t u from (select {mine} k, {self._total(one)} t from {self._from(one)} "
            f"group by {mine}) a {self.rng.choice(('join', 'left join'))} "
            f"(select {theirs} k, {self._total(other)} t "
            f"from {self._from(other)} group by {theirs}) b on a.k = b.k"
        )
        return Analysis(sql, "joined totals")

    def _weeks(self) -> Analysis:
        r = self.rng
        cube = r.choice(
            [cube for cube in self.cubes if cube.columns.get("day") or cube.columns.get("moment")]
        )
        column = r.choice((*cube.columns.get("day", ()), *cube.columns.get("moment", ())))
        moved = f"date_add({column}, interval {r.choice((0, 1, 57, -4, 363, 729))} day)"
        week = f"{r.choice(('week', 'yearweek'))}({moved}, {r.randrange(8)})"
        if r.random() < 0.3:
            week = f"{r.choice(('weekofyear', 'weekday', 'dayofweek', 'yearweek', 'week'))}({moved})"
        sql = f"select {week} w, {self._total(cube)} from {self._from(cube)} group by w"
        oracle = sql
        if week.startswith("week(") and week.count(",") == 1:
            oracle = sql.replace(week, f"{week[:-1]}, 0)", 1)  # as default_week_format is
        return Analysis(sql, "weeks", for_oracle=oracle)

    def _patterns(self) -> Analysis:
        r = self.rng
        cube = r.choice([cube for cube in self.cubes if cube.columns.get("text")])
        column = r.choice(cube.columns["text"])
        term = r.choice(
            (
                f"{column} {self._like()} '{r.choice(_PATTERNS)}' escape '!'",
                f"{column} {r.choice(('regexp', 'rlike', 'not regexp'))} '{r.choice(_EXPRESSIONS)}'",
            )
        )
        key = r.choice((column, term))
        sql = f"select {key} p, {self._total(cube)} from {cube.name}{self._where(cube, '', term)} group by p"
        return Analysis(sql, "patterns")

    def _long_list(self) -> Analysis:
        r, cube = self.rng, self._cube()
        name = r.choice(list(cube.values))
        fill = self._fill(cube.values[name][0])
        values = [*r.sample(cube.values[name], r.randint(1, len(cube.values[name]))), *fill]
        key = self._some(cube, 1)[0]
        term = f"{name} {r.choice(('in', 'not in'))} ({', '.join(values)})"
        where = self._where(cube, "", term) if r.random() < 0.7 else f" where {term} or {self._simple(cube)}"
        return Analysis(
            f"select {key}, {self._total(cube)} from {cube.name}{where} group by {key}", "long list"
        )

    @staticmethod
    def _fill(beside: str) -> list[str]:
        """Return constants of the kind of another one that no dimension has."""
        if beside[0].isdigit() or beside[0] == "-":
            return [str(value) for value in range(1000, 1040)]
        if "20" in beside:
            return [f"'2001-01-{1 + number % 28:02d}'" for number in range(40)]
        return [f"'none {number}'" for number in range(40)]

    def _top(self) -> Analysis:
        r, cube = self.rng, self._cube()
        keys = self._some(cube, r.randint(1, 2))
        limit = f"limit {r.randint(1, 5)}" + (f" offset {r.randint(0, 3)}" if r.random() < 0.4 else "")
        sql = (
            f"select {', '.join(keys)}, {self._total(cube)} t from {self._from(cube)} "
            f"group by {', '.join(keys)} "
            f"order by t{r.choice((' desc', ' desc', ''))}, {', '.join(keys)} {limit}"
        )
        return Analysis(sql, "top", ordered=True)

    def _having(self) -> Analysis:
        r, cube = self.rng, self._cube()
        key = self._some(cube, 1)[0]
        inner = f"select count(*) n from {self._from(cube)} group by {key}"
        sql = (
            f"select {key}, {self._total(cube)} from {self._from(cube)} group by {key} "
            f"having count(*) {r.choice(('>=', '<', '>'))} "
            f"(select {r.choice(('max', 'min'))}(n) from ({inner}) q)"
        )
        return Analysis(sql, "having")


def rows_differ(ours: Sequence[Row], theirs: Sequence[Row], *, ordered: bool) -> str:
    """Return the first difference; empty if both have the same rows as often, `ordered`: in one order."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows, theirs {len(theirs)}: {ours[:3]}, theirs {theirs[:3]}"
    mine, other = (list(rows) if ordered else sorted(rows, key=_place) for rows in (ours, theirs))
    for one, two in zip(mine, other, strict=True):
        if len(one) != len(two) or not all(_same(left, right) for left, right in zip(one, two, strict=True)):
            return f"ours {one}, theirs {two}"
    return ""


def _same(one: object, two: object) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        if one is None or two is None:
            return one is two
        return isclose(float(one), float(two), rel_tol=1e-9, abs_tol=5.1e-5)  # type: ignore[arg-type]
    return alike(one, two)


def _place(row: Row) -> tuple[str, ...]:
    """Return where a row stands among others, whatever its types; doubles of ours are decimals there."""
    return tuple("" if isinstance(cell, float) else repr(plain(cell)) for cell in row)
