"""Headers of a load that a definition may set."""

from __future__ import annotations

import random

import pytest
from rtolap.model.load_headers import ALLOWED, OWNED, declared_headers, sink_header_problems
from rtolap.model.loader import Loader, LoaderColumn, LoaderSink, LoaderTarget, SinkBackends, SinkMerge
from rtolap.model.validation.loader import loader_problems

TARGETS: tuple[LoaderTarget, ...] = ("rtolap", "doris", "starrocks")


@pytest.mark.parametrize("target", TARGETS)
def test_each_allowed_header_passes_and_each_of_the_loader_is_refused_by_name(target: LoaderTarget) -> None:
    allowed = dict.fromkeys(ALLOWED[target], "1")
    assert not sink_header_problems(LoaderSink(target=target, headers=allowed))
    assert not ALLOWED[target] & OWNED.keys()
    for name, owner in OWNED.items():
        (problem,) = sink_header_problems(LoaderSink(target=target, headers={name.upper(): "1"}))
        assert problem.message == f"a header that belongs to the loader: {owner}"


@pytest.mark.parametrize("target", TARGETS)
def test_any_other_header_is_refused_with_the_choice(target: LoaderTarget) -> None:
    chooser = random.Random(7)
    for _ in range(200):
        name = "".join(chooser.choices("abcdefgh_-.:\r\n ", k=chooser.randrange(0, 12)))
        problems = sink_header_problems(LoaderSink(target=target, headers={name: "1"}))
        assert [problem.expected for problem in problems] == [", ".join(sorted(ALLOWED[target]))]


@pytest.mark.parametrize("value", ["", " ", "a\r\nlabel: x", "a\0", "ü", "a\n"])
def test_a_value_that_no_header_carries_is_refused(value: str) -> None:
    assert sink_header_problems(LoaderSink(target="doris", headers={"where": value}))
    merge = SinkMerge("merge", value)
    assert sink_header_problems(LoaderSink(target="doris", merge=merge))
    assert sink_header_problems(LoaderSink(target="doris", sequence_column=value))


def test_sequence_columns_and_merges_become_the_headers_of_their_target() -> None:
    sink = LoaderSink(
        target="doris",
        sequence_column="n",
        merge=SinkMerge("merge", "op='d'"),
        headers={"where": "k > 0"},
        backends=SinkBackends(redirect_policy="public"),
    )
    assert declared_headers(sink) == {
        "where": "k > 0",
        "function_column.sequence_col": "n",
        "merge_type": "MERGE",
        "delete": "op='d'",
        "redirect-policy": "public",
    }
    assert declared_headers(LoaderSink(target="starrocks", sequence_column="n")) == {"merge_condition": "n"}
    assert declared_headers(LoaderSink(merge=SinkMerge("delete"))) == {"merge_type": "DELETE"}


@pytest.mark.parametrize(
    ("sink", "key"),
    [
        (LoaderSink(merge=SinkMerge("merge")), "sink.merge.delete"),
        (LoaderSink(merge=SinkMerge("delete", "k = 1")), "sink.merge.delete"),
        (
            LoaderSink(urls=("http://fe:1",), target="starrocks", format="json", merge=SinkMerge("delete")),
            "sink.merge.type",
        ),
        (LoaderSink(urls=("http://fe:1",), target="starrocks"), "sink.format"),
        (LoaderSink(target="doris"), "sink.urls"),
        (LoaderSink(backends=SinkBackends(redirect_policy="public")), "sink.backends.redirect_policy"),
        (LoaderSink(backends=SinkBackends(plain=("*",))), "sink.backends.plain[0]"),
        (LoaderSink(backends=SinkBackends(plain=("10.0.0.1/8",))), "sink.backends.plain[0]"),
        (LoaderSink(backends=SinkBackends(plain=("be:0",))), "sink.backends.plain[0]"),
        (LoaderSink(backends=SinkBackends(plain=("be:x",))), "sink.backends.plain[0]"),
    ],
)
def test_a_sink_that_no_server_takes_is_refused(sink: LoaderSink, key: str) -> None:
    loader = Loader(name="l", topic="t", database="d", table="t", sink=sink)
    assert [problem.text().partition(": ")[0] for problem in loader_problems(loader)] == [key]


@pytest.mark.parametrize(
    ("column", "key"),
    [
        (LoaderColumn("op", type="varchar"), "columns[0].type"),
        (LoaderColumn("op", type="int", default="x"), "columns[0].default"),
    ],
)
def test_a_column_that_cannot_be_read_is_refused(column: LoaderColumn, key: str) -> None:
    loader = Loader(name="l", topic="t", database="d", table="t", columns=(column,))
    assert [problem.text().partition(": ")[0] for problem in loader_problems(loader)] == [key]
