"""Random expressions answer as MariaDB does, or are refused by name and in our words."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import closing

import pyarrow.parquet as pq
import pymysql
import pytest
from rtolap.base.errors import OutOfRange, QueryError, RtolapError
from rtolap.query.mysql.codes import error_code
from rtolap.query.statement_service import QueryService
from rtolap.stack.process import ManagedProcess

from tests.support.cubes.flights import flights_world
from tests.support.query.oracles.expression_oracle import compared, our_rows
from tests.support.query.oracles.mariadb_oracle import MariaOracle, open_maria
from tests.support.query.random_expressions import SAMPLE_ROWS, SAMPLES, random_expression_statement
from tests.support.seeds import so_many

pytestmark = pytest.mark.integration
BLOCKS, STATEMENTS_A_BLOCK = 8, so_many(500, 250)
REFUSED_SHARE_MAX = 0.25
ER_DATA_OUT_OF_RANGE, ER_UNKNOWN_ERROR = 1690, 1105
ENGINES_WORDS = re.compile(r"\w+ Error:|LINE \d|candidate|explicit type cast|Could not|__relation_|MYSQL_")
SHOWN_MAX = 8


@pytest.fixture(scope="module")
def asked() -> Iterator[QueryService]:
    with closing(flights_world(11, 20)) as world:
        pq.write_table(SAMPLE_ROWS, world.folder / str(SAMPLES.file))
        world.metadata.create_lookup(SAMPLES)
        with closing(world.service()) as service:
            yield service


@pytest.fixture(scope="module")
def maria(mariadb_server: ManagedProcess) -> Iterator[MariaOracle]:
    socket = str(mariadb_server.spec.folder / "s.sock")
    with open_maria(socket, "random_expressions", {"samples": SAMPLE_ROWS}) as oracle:
        yield oracle


@pytest.mark.seeded
@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_expressions_answer_as_mariadb_does_or_are_refused_by_name(
    block: int, asked: QueryService, maria: MariaOracle
) -> None:
    rng = random.Random(40_000 + block)
    wrong: list[str] = []
    refused = 0
    for _ in range(STATEMENTS_A_BLOCK):
        sql = random_expression_statement(rng)
        try:
            ours = our_rows(asked.execute(sql).table())
        except RtolapError as error:
            refused += 1
            if not is_named(error):
                wrong.append(f"{sql}: {type(error).__name__} {error}")
            continue
        try:
            theirs = maria.rows(sql)
        except pymysql.MySQLError as error:
            # their numbers are narrower in part: of 64 bits where a sum of ours has 128
            if error.args[0] != ER_DATA_OUT_OF_RANGE:
                raise AssertionError(f"{error}: {sql}") from error
            continue
        found = compared(ours, theirs)
        if found:
            wrong.append(f"{sql}: {found}")
    shown = "\n".join(wrong[:SHOWN_MAX])
    assert not wrong, f"block {block}: {len(wrong)} of {STATEMENTS_A_BLOCK}:\n{shown}"
    assert refused < STATEMENTS_A_BLOCK * REFUSED_SHARE_MAX


def is_named(error: RtolapError) -> bool:
    """Is it an error of the statement, in our words, with an error number of MySQL's own?"""
    if not isinstance(error, QueryError) or ENGINES_WORDS.search(str(error)):
        return False
    return isinstance(error, OutOfRange) or error_code(error)[0] != ER_UNKNOWN_ERROR
