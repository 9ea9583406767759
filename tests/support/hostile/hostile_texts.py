"""Statements that nobody would write by mistake alone: seeded, cheap to send, hard on whoever reads them."""

from __future__ import annotations

import random

# What the servers' own clients write, over `flights` of `tests.support.cubes.flights` or any other table.
_PLAIN = (
    "select count(*) from {t}",
    "select carrier, count(*) n, sum(delay) from {t} group by carrier order by n desc limit 3",
    "select a.n from (select count(*) n from {t}) a where a.n > 1 and a.n < 10 or a.n between 2 and 4",
    "select case when 1 then 'a' else 'b' end, cast('1.5' as decimal(4,2)), now() + interval 1 day",
    "show full columns from `{t}` like 'a%'",
    "show variables where Variable_name like 'sql%'",
    "explain select * from {t} limit 1",
    "with x as (select 1 a) select * from x union all select 2",
    "set @a = concat('x', 'y'), sql_mode = 'ANSI_QUOTES', max_execution_time = 5000",
    "select @@version, @@sql_mode, database(), user(), connection_id()",
    "create table s.t (a int, b varchar(10)) duplicate key(a) distributed by hash(a) buckets 1",
    "show transaction from s where label = 'x'",
)
# What would do more than a query may: each has to be refused, or answered as the text that it is.
_FORBIDDEN = (
    "select extract(`day from now()); create or replace macro main.sum(x) as 1; "
    "select extract(day` from now())",
    "create table stolen as select 1",
    "create or replace macro count(x) as 0",
    "attach 'stolen.db' as stolen",
    "copy (select 1) to 'stolen.csv'",
    "install httpfs",
    "load httpfs",
    "pragma memory_limit='100GB'",
    "set memory_limit = '100GB'",
    "set global sql_mode = ''",
    "call pragma_version()",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from glob('/*')",
    "select `current_setting`('temp_directory')",
    "select * from duckdb_settings()",
    "select getenv('HOME')",
    "select load_file('/etc/passwd')",
    "select 1 into outfile 'stolen.txt'",
    "load data infile '/etc/passwd' into table {t}",
    "insert into {t} values (1)",
    "update {t} set a = 1",
    "delete from {t}",
    "drop table {t}",
    "truncate table {t}",
    "alter table {t} add column stolen int",
    "kill 1",
    "kill query 2",
    "begin; drop table {t}; commit",
    "select 1; select 2",
    "prepare x from 'select 1'",
    "handler {t} open",
    "do sleep(100)",
    "grant all on *.* to ann",
    "create user eve",
    "show grants for root",
    "select sleep(3600), benchmark(1000000000, md5('a'))",
)
_DIGITS = "(" + " union all ".join(f"select {digit} d" for digit in range(10)) + ") "
_TEN_MILLION = "replace(replace(repeat('x', 10000), 'x', repeat('y', 1000)), 'y', repeat('z', 100))"
# By function: each wants gigabytes of one worker.
GREEDY = {
    "nested REPLACE": f"select length(replace({_TEN_MILLION}, 'z', 'zz')) n",
    "GROUP_CONCAT": "select length(group_concat(concat(repeat('x', 60000), a.d, b.d, c.d, d.d, e.d))) n from "
    + ", ".join(_DIGITS + name for name in "abcde"),
    "CONCAT": f"select length(concat({', '.join([_TEN_MILLION] * 4)})) n",
    "HEX": "select length(hex(hex(hex(hex(hex(replace(repeat('x', 10000), 'x', repeat('y', 5000)))))))) n",
}
# What bounds of functions refuse before anything is made, or an engine that runs for ever.
ENDLESS = (
    "select length(repeat('x', 4000000000))",
    "select length(lpad('x', 3000000000, 'ab'))",
    "select count(*) from range(100000000000)",
    "select rpad('', 2000000000, 'x')",
    "select space(4000000000)",
)
STATEMENT_BEGINNINGS = (
    "select ",
    "use ",
    "kill ",
    "set ",
    "show ",
    "describe ",
    "explain ",
    "with ",
    "create table ",
    "from ",
)
_PIECES = (
    *STATEMENT_BEGINNINGS,
    *(
        "(",
        ")",
        "'",
        '"',
        "`",
        "\\",
        "/*",
        "/*!",
        "/*!50000 ",
        "*/",
        "--",
        "-- ",
        "#",
        ";",
        ",",
        ".",
        "@@",
        "@",
    ),
    *(
        "?",
        ":",
        "=",
        "$1",
        "{",
        "}",
        "[",
        "]",
        "%",
        "||",
        "&&",
        "<=>",
        "->",
        "->>",
        ":=",
        "\x1a",
        "\ufeff",
        "\0",
    ),
    *(" ", "\n", "\t", "\u00a0", "a", "1", "1e", "1e999", "0x", "0b", "x'", "b'", "n'", "_utf8'", "é", "😀"),
    *(
        "case ",
        "when ",
        " or ",
        " and ",
        " not ",
        " like ",
        " in (",
        "interval ",
        "cast(",
        "extract(",
        " over (",
    ),
    *(
        "99999999999999999999999999999999999999999",
        "-",
        "date '0000-00-00'",
        "limit -1",
        "offset 1e9",
        "null",
    ),
)


def statement(rng: random.Random, table: str, *, bombs: bool = False) -> str:
    """Return a statement. `bombs` are also those that ask for gigabytes, which only a server whose memory is
    bounded may be sent."""
    choice = rng.random()
    if bombs and choice < 0.01:
        return rng.choice(tuple(GREEDY.values()) if choice < 0.005 else ENDLESS)
    if choice < 0.25:
        return rng.choice(_FORBIDDEN).format(t=table)
    if choice < 0.60:
        return _damaged(rng, rng.choice((*_PLAIN, *_FORBIDDEN)).format(t=table))
    if choice < 0.63:
        return rng.choice(_PIECES) * rng.choice((1_000, 10_000, 30_000)) + rng.choice(_PIECES)
    pieces = rng.sample(_PIECES, rng.randint(1, 6))
    return "".join(rng.choice(pieces) * rng.choice((1, 1, 1, 2, 40)) for _ in range(rng.randint(1, 12)))


def _damaged(rng: random.Random, text: str) -> str:
    """Return the text with some characters gone, doubled, or in the place of others."""
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text = text[:at]
            case 1:
                text = text[:at] + text[at + rng.randint(1, 5) :]
            case 2:
                text = text[:at] + rng.choice(_PIECES) * rng.randint(1, 3) + text[at:]
            case 3:
                text = text[:at] + text[: rng.randrange(len(text) + 1)]
            case 4:
                text = text.upper()
    return text
