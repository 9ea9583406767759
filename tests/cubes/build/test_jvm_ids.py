"""What lines of the JVM name is what the work is for, at any depth of drawn jobs; a dead JVM spoils none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.protocol import Py4JNetworkError
from rtolap.base.ids import bound, ids, note
from rtolap.cubes.build.jvm_ids import MDC, PROPERTY, in_thread, shown, tell, told


class Jvm:
    """Properties of a JVM and of a thread's jobs. `dead`: it does not answer."""

    def __init__(self) -> None:
        self.properties: dict[str, str] = {}
        self.of_jobs: dict[str, str] = {}
        self.dead = False

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - as in pyspark
        return self

    @property
    def _jvm(self) -> Any:
        return self

    @property
    def java(self) -> Any:
        return self

    lang = System = java

    def _answers(self) -> None:
        if self.dead:
            raise Py4JNetworkError("it is gone")

    def getProperty(self, name: str) -> str | None:  # noqa: N802
        self._answers()
        return self.properties.get(name)

    def setProperty(self, name: str, value: str) -> None:  # noqa: N802
        self._answers()
        self.properties[name] = value

    def clearProperty(self, name: str) -> None:  # noqa: N802
        self._answers()
        self.properties.pop(name, None)

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        self._answers()
        return self.of_jobs.get(name)

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        self._answers()
        if value is None:
            self.of_jobs.pop(name, None)
        else:
            self.of_jobs[name] = value


NAMES = st.dictionaries(st.sampled_from(["cube", "build", "try", "merge"]), st.sampled_from(["a", "b"]))
JOBS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4)


def names(jvm: Jvm) -> None:
    """Assert that lines name what this thread works for, and nothing else."""
    assert jvm.properties.get(PROPERTY, "") == shown(ids(), as_json=False)
    assert jvm.of_jobs == {f"{MDC}{name}": value for name, value in ids().items()}


@given(jobs=JOBS)
def test_lines_name_the_ids_of_drawn_jobs_within_each_other(jobs: list[tuple[dict[str, str], ...]]) -> None:
    jvm: Any = Jvm()

    def work(left: list[tuple[dict[str, str], ...]]) -> None:
        if not left:
            return
        (own, later), *rest = left
        with bound(own), told(jvm):
            names(jvm)
            work(rest)
            names(jvm)
            note(**later)
            tell(jvm)
            names(jvm)

    work(jobs)
    assert (jvm.properties, jvm.of_jobs) == ({}, {})


@pytest.mark.parametrize("dies", ["before", "within"])
def test_a_jvm_that_is_gone_leaves_the_error_of_the_build(dies: str) -> None:
    jvm: Any = Jvm()
    jvm.dead = dies == "before"

    def build() -> None:
        with bound(build="b"), told(jvm):
            jvm.dead = True
            raise ValueError("of the build")

    with pytest.raises(ValueError, match="of the build"):
        build()


def test_jobs_of_another_thread_name_the_ids_of_who_made_it() -> None:
    jvm: Any = Jvm()
    with bound(build="b"):
        made = in_thread(jvm, lambda: dict(jvm.of_jobs))
    assert made() == {f"{MDC}build": "b"}


def test_ids_are_fields_of_a_line_of_json() -> None:
    known = {"build": "b1", "segment": "2013_2014"}
    assert json.loads(f'{{"message": ""{shown(known, as_json=True)}}}') == {"message": "", **known}
