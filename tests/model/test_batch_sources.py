"""Sources of batches: the examples of the page are taken, what contradicts itself is refused."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from rtolap.base.errors import DefinitionError
from rtolap.model.batch import BatchSource, check_source

from tests.support.cubes.builders import small_schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "batches.md"
TABLE = small_schema().table
URL = "jdbc:mariadb://db/sales"


def jdbc(**options: str) -> BatchSource:
    return BatchSource(format="jdbc", options={"url": URL, "dbtable": "orders", **options})


def iceberg(**options: str) -> BatchSource:
    return BatchSource(format="iceberg", path="lake.db.orders", options=options)


def test_the_examples_of_the_page_are_taken() -> None:
    blocks = re.findall(r"```yaml\n(format: .*?)```", PAGE.read_text(), re.DOTALL)
    sources = [msgspec.convert(yaml.safe_load(block), BatchSource) for block in blocks]
    assert [source.format for source in sources] == ["jdbc", "iceberg"]
    for source in sources:
        check_source(source, TABLE, ("ts",))


@pytest.mark.parametrize(
    "url",
    [
        f"{URL}?user=a&password=hid-den",
        f"{URL};PWD=hid-den",
        "jdbc:mysql://a:hid-den@db/sales",
        "jdbc:oracle:thin:a/hid-den@db",
    ],
)
def test_a_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(DefinitionError, match="holds a password") as refused:
        check_source(jdbc(url=url), TABLE, ("ts",))
    assert "hid-den" not in str(refused.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (jdbc(partitionColumn="id", numPartitions="2"), "lowerBound"),
        (jdbc(numPartitions="two"), "option numPartitions"),
        (iceberg(**{"snapshot-id": "x"}), "option snapshot-id"),
        (iceberg(**{"snapshot-id": "1", "branch": "main"}), "at most one"),
        (iceberg(**{"as-of-timestamp": "2024-01-01"}), "milliseconds since 1970"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(source: BatchSource, said: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(said)):
        check_source(source, TABLE, ("ts",))
