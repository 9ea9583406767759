"""What the shell of whoever starts a stack says of proxies, and of another Spark and Airflow."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from rtolap.stack import artifacts
from rtolap.stack.inherited import inherited, java_proxy_options, of_others

from tests.support.demonstrated import BEHIND_A_PROXY, ELSEWHERE
from tests.support.hostile.recording_proxy import VARIABLES, recording_proxy

_POM = b"""<project><modelVersion>4.0.0</modelVersion><groupId>example</groupId><artifactId>small</artifactId>
<version>1</version></project>"""
_IVY = """<ivy-module version="2.0"><info organisation="rtolap" module="fetched"/>
<configurations><conf name="small"/></configurations><dependencies>
<dependency org="example" name="small" rev="1" conf="small->default"/></dependencies></ivy-module>"""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_jars_are_fetched_through_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as writing:
        writing.writestr("hello", "there")
    files = {"small-1.pom": _POM, "small-1.jar": jar.getvalue()}
    for name, data in tuple(files.items()):
        files[f"{name}.sha1"] = hashlib.sha1(data).hexdigest().encode()
    with recording_proxy(lambda url: files.get(url.rsplit("/", 1)[-1])) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("RTOLAP_MAVEN_MIRROR", "http://repository.invalid/maven2")
        folder = artifacts.fetch_jars(_IVY, ("small",), "a small jar", tmp_path)
    assert (folder / "small" / "small-1.jar").read_bytes() == jar.getvalue()
    assert "http://repository.invalid/maven2/example/small/1/small-1.jar" in proxy.asked


def test_a_java_program_has_the_proxies_and_their_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert java_proxy_options() == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "plain.example")
    monkeypatch.setenv("NO_PROXY", "inside.example, .corp.example,*.lab")
    assert sorted(java_proxy_options()) == [
        "-Dhttp.nonProxyHosts=inside.example|*.inside.example|corp.example|*.corp.example|lab|*.lab"
        "|127.0.0.1|*.127.0.0.1|localhost|*.localhost",
        "-Dhttp.proxyHost=plain.example",
        "-Dhttp.proxyPort=80",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
    ]


def test_services_of_the_stack_reach_each_other_beside_the_exceptions_that_were_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert inherited()["no_proxy"] == "127.0.0.1,localhost"
    monkeypatch.setenv("NO_PROXY", "inside.example,localhost")
    assert inherited()["no_proxy"] == inherited()["NO_PROXY"] == "inside.example,127.0.0.1,localhost"


def test_variables_of_another_spark_and_airflow_are_left_out_and_all_others_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, left_out = inherited(), of_others()
    others = ELSEWHERE.keys() - BEHIND_A_PROXY.keys()
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    assert others <= set(of_others())
    assert set(of_others()) == others | set(left_out)
    assert inherited() == {**before, **{name: ELSEWHERE[name] for name in VARIABLES}}


@pytest.mark.parametrize(
    ("locale", "inherits"), [("C", "C.UTF-8"), ("POSIX", "C.UTF-8"), ("de_AT.UTF-8", "de_AT.UTF-8")]
)
def test_names_of_files_have_all_letters(monkeypatch: pytest.MonkeyPatch, locale: str, inherits: str) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    assert inherited()["LC_ALL"] == inherits


def test_variables_of_a_cluster_stay_where_builds_run_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert {"HADOOP_CONF_DIR", "SPARK_CONF_DIR"} <= set(of_others())
    monkeypatch.setenv("RTOLAP_SPARK_MASTER", "yarn")
    assert not {"HADOOP_CONF_DIR", "SPARK_CONF_DIR"} & set(of_others())
    assert inherited()["HADOOP_CONF_DIR"] == "/etc/hadoop"
