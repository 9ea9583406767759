"""The allow-list: what is let through, and what is not."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.spark_allowed import SparkAllowed
from rtolap.base.errors import DefinitionError
from rtolap.cubes.format.tries import new_try
from rtolap.model.batch import ROWS_FOLDER, BatchSource, BatchSpec
from rtolap.model.build_spec import BuildPart, BuildSpec
from rtolap.model.merging.specs import MergeMember, MergeSpec
from rtolap.model.offsets import PartRange
from rtolap.protocols.agent.messages import FILES_MARK, ProcessSpec
from rtolap.stack.artifacts import pyspark_jars

from tests.support.class_constants import spark_setting_names
from tests.support.cubes.staging import CUBE, TABLE

STORE = "file:///srv/rtolap/store"
SEGMENT = "20131103000000_20131103010000"


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "build_segment.py").write_text("")
    (tmp_path / "outside.py").write_text("")
    (jobs / "own_job.py").write_text("")
    return Commands(Host(jobs, tmp_path / "data", STORE, "spark://master:7077"))


def test_rtolap_runs_with_this_interpreter(commands: Commands) -> None:
    argv = commands.resolve(("rtolap", "receiver", "serve", "--id", "r0"))
    assert argv[0] == sys.executable
    assert argv[-4:] == ("receiver", "serve", "--id", "r0")


def test_the_mover_of_a_kafka_cluster_is_let_through(commands: Commands) -> None:
    asked = ("fleet", "serve", "--cluster", "logs.eu", "--metrics-port", "9108", "--look-every-s", "0.5")
    assert commands.resolve(("rtolap", *asked))[-8:] == asked


def test_the_spark_service_of_large_reads_is_let_through_on_the_hosts_own_masters(commands: Commands) -> None:
    for master in ("local[2]", "spark://master:7077"):
        asked = ("spark", "serve", "--memory-mb", "700", "--master", master)
        assert commands.resolve(("rtolap", *asked))[-6:] == asked


def test_a_mover_may_give_way_to_writes_by_the_sources_that_the_host_declares(tmp_path: Path) -> None:
    sources = tmp_path / "sources.yaml"
    host = Host(tmp_path, tmp_path, STORE, fleet_sources=sources)
    limits = ("--produce-p99-ms-max", "300", "--produce-every-s", "5")
    asked = ("fleet", "serve", *limits, "--sources", str(sources))
    assert Commands(host).resolve(("rtolap", *asked))[-8:] == asked
    for own, named in ((host, "/etc/passwd"), (Host(tmp_path, tmp_path, STORE), str(sources))):
        assert Commands(own).resolve(("rtolap", "fleet", "serve", *limits))[-4:] == limits
        with pytest.raises(DefinitionError, match="--sources of fleet serve refused"):
            Commands(own).resolve(("rtolap", "fleet", "serve", "--sources", named))


def test_spark_submit_runs_a_job_by_name(commands: Commands) -> None:
    argv = commands.resolve(
        (
            "spark-submit",
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            "build_segment.py",
            "{files}/specs.json",
        )
    )
    assert Path(argv[0]).name == "spark-submit"
    assert Path(argv[0]).is_file()
    assert Path(argv[-2]).name == "build_segment.py"
    assert argv[-1] == "{files}/specs.json"


def test_builds_alone_have_drivers_that_wait_and_only_where_the_host_says_so(tmp_path: Path) -> None:
    for name in ("build_segment.py", "stage_batch.py", "own_job.py"):
        (tmp_path / name).write_text("")
    cold = Commands(Host(tmp_path, tmp_path, STORE))
    warm = Commands(Host(tmp_path, tmp_path, STORE, spark_warm_s=60))
    build = ("spark-submit", "--master", "local[2]", "build_segment.py", f"{FILES_MARK}/s.json")
    words = warm.resolve(build)
    at = words.index("--")
    assert words[at + 1 :] == cold.resolve(build)
    assert Path(words[3]).name == "warm_launcher.py"
    assert words[4:6] == (str(tmp_path / "agent" / "spark"), "60")
    assert words[6] == str(tmp_path / "serve_builds.py")
    for other in (
        ("spark-submit", "--master", "local[2]", "stage_batch.py", f"{FILES_MARK}/s.json"),
        ("spark-submit", "--master", "local[2]", "own_job.py"),
    ):
        assert warm.resolve(other) == cold.resolve(other)
    clustered = Host(tmp_path, tmp_path, STORE, "yarn", spark_warm_s=60)
    on_cluster = ("spark-submit", "--master", "yarn", "--deploy-mode", "cluster", *build[3:])
    assert "warm_launcher.py" not in " ".join(Commands(clustered).resolve(on_cluster))


def spark_settings(argv: tuple[str, ...]) -> dict[str, str]:
    """As spark-submit understands them: of two values of a setting the last one counts."""
    given = [argv[at + 1].partition("=") for at, word in enumerate(argv) if word == "--conf"]
    return {name: value for name, _, value in given}


@pytest.mark.parametrize(
    ("master", "authenticated"),
    [
        (None, True),
        ("local", True),
        ("local[2]", True),
        ("yarn", True),
        ("k8s://https://here", True),
        ("spark://master:7077", False),  # its secret is in the host's spark-defaults.conf
    ],
)
def test_drivers_listen_where_the_host_says_and_know_who_connects(
    tmp_path: Path, master: str | None, authenticated: bool
) -> None:
    (tmp_path / "own_job.py").write_text("")
    named = () if master is None else ("--master", master)
    for address in ("127.0.0.1", "10.1.2.3"):
        host = Host(tmp_path, tmp_path, STORE, master or "local[2]", address)
        found = Commands(host).resolve(("spark-submit", *named, "own_job.py"))
        expected = {"spark.driver.host": address, "spark.driver.bindAddress": address}
        expected["spark.ui.enabled"] = "false"
        if authenticated:
            expected["spark.authenticate"] = "true"
        assert spark_settings(found) == expected
        assert Commands(host).environment()["SPARK_LOCAL_IP"] == address
    left = Host(tmp_path, tmp_path, STORE, spark_host="")
    found = Commands(left).resolve(("spark-submit", "own_job.py"))
    assert "spark.driver.bindAddress" not in spark_settings(found)
    assert "SPARK_LOCAL_IP" not in Commands(left).environment()


# All that a caller may set, of what Spark knows.
LET_THROUGH = {
    "spark.app.name",
    "spark.cores.max",
    "spark.default.parallelism",
    "spark.driver.cores",
    "spark.driver.maxResultSize",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.executorIdleTimeout",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.kubernetes.namespace",
    "spark.network.timeout",
    "spark.shuffle.service.enabled",
    "spark.log.structuredLogging.enabled",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.coalescePartitions.enabled",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
    "spark.sql.adaptive.coalescePartitions.minPartitionNum",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst",
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.skewJoin.enabled",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxRecordsPerFile",
    "spark.sql.files.openCostInBytes",
    "spark.sql.parquet.compression.codec",
    "spark.sql.shuffle.partitions",
    "spark.task.maxFailures",
    "spark.ui.enabled",
    "spark.ui.showConsoleProgress",
    "spark.yarn.queue",
}
VALUES = ("true", "false", "7", "2g", "word")


def test_of_all_settings_that_spark_knows_these_and_no_others_are_let_through(commands: Commands) -> None:
    """The names stand in Spark's own classes: those that listen, read files or run code are among them."""
    names = spark_setting_names(pyspark_jars().glob("spark-*.jar"))
    assert len(names) > 800
    assert {"spark.driver.bindAddress", "spark.blockManager.port", "spark.plugins", "spark.jars"} <= names

    def is_taken(name: str) -> bool:
        for value in VALUES:
            try:
                commands.resolve(("spark-submit", "--conf", f"{name}={value}", "own_job.py"))
            except DefinitionError:
                continue
            return True
        return False

    assert {name for name in names if is_taken(name)} == LET_THROUGH


def test_no_value_of_a_setting_says_more_than_a_plain_word(commands: Commands) -> None:
    """Drawn: some values reach command lines of a cluster's executors."""
    rng = random.Random(11)
    for _ in range(3_000):
        name, mark = rng.choice(sorted(LET_THROUGH)), rng.choice("$`\\\"'/;|&<>(){}*?!~#@%^=,\t\n\0")
        text = "".join(rng.choices("abc012 .-", k=rng.randrange(5)))
        value = text + mark + "".join(rng.choices("abc012 .-", k=rng.randrange(5)))
        with pytest.raises(DefinitionError):
            commands.resolve(("spark-submit", "--conf", f"{name}={value}", "own_job.py"))


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("sh", "-c", "true"),
        ("/bin/sh",),
        ("rtolap",),
        ("rtolap", "drop", "cube"),
        ("rtolap", "agent", "serve"),
        ("rtolap", "receiver", "serve", "--id", "a\0b"),
        ("rtolap", "receiver", "serve", "--id", "../r"),
        ("rtolap", "receiver", "serve", "--id", "r", "--data-dir", "/etc"),
        ("rtolap", "receiver", "serve", "--id", "r", "--data-dir", "{data}/../elsewhere"),
        ("rtolap", "receiver", "serve", "--id", "r", "--flush-rows", "many"),
        ("rtolap", "receiver", "serve", "--id", "r", "--install-completion", "x"),
        ("rtolap", "receiver", "serve", "--id"),
        ("rtolap", "receiver", "serve", "--help"),
        ("rtolap", "loader", "run"),
        ("rtolap", "loader", "run", "clicks", "--process", "one"),
        ("rtolap", "loader", "run", "--port", "1"),
        ("rtolap", "loader", "run", "clicks", "--port", "1", "more"),
        ("rtolap", "query", "serve", "--tls-key", "/etc/shadow"),
        ("rtolap", "coordinator", "serve", "--anything", "x"),
        ("rtolap", "spark", "serve", "--master", "spark://elsewhere:7077"),
        ("rtolap", "spark", "serve", "--conf", "spark.plugins=x"),
        ("rtolap", "fleet", "serve", "--cluster", "../other"),
        ("rtolap", "fleet", "serve", "--look-every-s", "often"),
        ("rtolap", "fleet", "submit", "plan.json"),
        ("rtolap", "fleet", "cancel", "--all"),
        ("spark-submit",),
        ("spark-submit", "build_segment.py"),
        ("spark-submit", "build_segment.py", "/tmp/spec.json"),
        ("spark-submit", "build_segment.py", "s3://elsewhere/spec.json"),
        ("spark-submit", "--master", "spark://elsewhere:7077", "own_job.py"),
        ("spark-submit", "--master", "k8s://https://elsewhere", "own_job.py"),
        ("spark-submit", "--deploy-mode", "else", "own_job.py"),
        *(
            ("spark-submit", "--conf", f"{setting}=x", "own_job.py")
            for setting in (
                "spark.sql.hive.metastore.jars",
                "spark.sql.cache.serializer",
                "spark.sql.adaptive.customCostEvaluatorClass",
                "spark.sql.parquet.output.committer.class",
                "spark.sql.ansi.enabled",
                "spark.hadoop.fs.s3a.endpoint",
                "spark.hadoop.fs.defaultFS",
                "spark.kubernetes.container.image",
                "spark.driver.host",
                "spark.driver.bindAddress",
                "spark.driver.port",
                "spark.blockManager.port",
                "spark.authenticate",
                "spark.authenticate.secret",
                "spark.ui.port",
                "spark.ui.enabled",
                "spark.driver.memory",
                "spark.local.dir",
            )
        ),
        ("spark-submit", "--master", "local"),
        ("spark-submit", "missing.py"),
        ("spark-submit", "../outside.py"),
        ("spark-submit", "--jars", "http://elsewhere/x.jar", "build_segment.py"),
        ("spark-submit", "--py-files", "x.zip", "build_segment.py"),
        ("spark-submit", "--conf", "spark.driver.extraJavaOptions=-javaagent:x", "build_segment.py"),
        ("spark-submit", "--conf", "spark.jars=x", "build_segment.py"),
        ("spark-submit", "--conf", "spark.sql.extensions=x.Y", "build_segment.py"),
        ("spark-submit", "--conf", "spark.pyspark.python=/tmp/x", "build_segment.py"),
    ],
)
def test_everything_else_is_refused(commands: Commands, argv: tuple[str, ...]) -> None:
    with pytest.raises(DefinitionError):
        commands.resolve(argv)


def build(**other: object) -> BuildSpec:
    """As the coordinator gives one out."""
    part = BuildPart("rs1", f"staged/sales_cube/{SEGMENT}/v2/rs1-0f", (PartRange(0, 0, 5),), 5, 5)
    return msgspec.structs.replace(
        BuildSpec(
            build_id="b1",
            cube="sales_cube",
            segment=SEGMENT,
            start_ms=1383436800000,
            end_ms=1383440400000,
            version=2,
            table_definition=TABLE,
            cube_definition=CUBE,
            parts=(part,),
            previous_location=f"history/sales_cube/{SEGMENT}/v1-b0",
            covered={0: 5},
            object_store=STORE,
            location=f"history/sales_cube/{SEGMENT}/v2-b1",
        ),
        **other,
    )


def asked_for(*specs: BuildSpec, **more: object) -> ProcessSpec:
    text = msgspec.json.encode(list(specs)).decode()
    argv = ("spark-submit", "build_segment.py", "{files}/specs.json")
    return ProcessSpec(**{"generation": 1, "argv": argv, "files": {"specs.json": text}, **more})


def test_builds_of_the_hosts_own_store_are_taken(commands: Commands) -> None:
    assert commands.check(asked_for(build(), build(object_store=f"{STORE}/")))[-1] == "{files}/specs.json"


def test_builds_whose_folders_carry_the_cubes_id_are_taken(commands: Commands) -> None:
    """The version before may be of a time when folders had none."""
    of_cube = f"sales_cube/{'0f' * 16}/{SEGMENT}"
    part = BuildPart("rs1", f"staged/{of_cube}/v2/rs1-0f", (PartRange(0, 0, 5),), 5, 5)
    spec = asked_for(build(parts=(part,), location=f"history/{of_cube}/v2-b1"))
    assert commands.check(spec)[-1] == "{files}/specs.json"


@pytest.mark.parametrize(
    "other",
    [
        {"object_store": "file:///home"},
        {"location": f"history/sales_cube/another/{SEGMENT}/v2-b1"},
        {"location": f"history/sales_cube/{'0f' * 16}/{'0f' * 16}/{SEGMENT}/v2-b1"},
        {"object_store": "s3://elsewhere/x?endpoint_override=http://elsewhere"},
        {"location": "history"},
        {"location": f"history/sales_cube/{SEGMENT}"},
        {"location": f"history/other_cube/{SEGMENT}/v2-b1"},
        {"location": f"history/sales_cube/{SEGMENT}/v2-b1/../../.."},
        {"cube": "..", "location": f"history/../{SEGMENT}/v2-b1"},
        {"build_id": "b1/../../x", "location": f"history/sales_cube/{SEGMENT}/v2-b1/../../x"},
        {"previous_location": "history/other_cube/x/v1-b0"},
        {"previous_location": f"history/sales_cube/{SEGMENT}/v1-.."},
        {"parts": (BuildPart("rs1", "staged/other_cube/x/v2/rs1-0f", (), 5, 5),)},
        {"parts": (BuildPart("rs1", f"staged/sales_cube/{SEGMENT}/v2/../../../x", (), 5, 5),)},
    ],
)
def test_a_build_elsewhere_is_refused(commands: Commands, other: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="build refused"):
        commands.check(asked_for(build(), build(**other)))


BATCH = BatchSpec(
    batch="b-1",
    cube=CUBE.name,
    table_definition=TABLE,
    cube_definition=CUBE,
    object_store=STORE,
    folder=f"batches/{CUBE.name}/{'0' * 32}/b-1",
    start_ms=0,
    end_ms=1,
    segments=(),
    source=BatchSource(format="parquet", path="file:///data/exports/2013/"),
)


def staging_job(spec: BatchSpec) -> ProcessSpec:
    return ProcessSpec(
        generation=1,
        argv=("spark-submit", "stage_batch.py", "{files}/batch.json"),
        one_shot=True,
        files={"batch.json": msgspec.json.encode(spec).decode()},
    )


@pytest.fixture
def reading(tmp_path: Path) -> Commands:
    (tmp_path / "stage_batch.py").write_text("")
    sources = ("file:///data/exports/", "jdbc:postgresql://db/sales", "lake.db.orders")
    return Commands(Host(tmp_path, tmp_path, STORE, spark_allowed=SparkAllowed(sources=sources)))


def test_a_batch_is_staged_out_of_a_source_that_the_operator_allows(reading: Commands) -> None:
    of_table = BatchSource(format="iceberg", path="lake.db.orders")
    of_database = BatchSource(
        format="jdbc",
        options={"url": "jdbc:postgresql://db/sales", "dbtable": "public.orders"},
        secrets={"password": "SALES_PASSWORD"},
    )
    for source in (BATCH.source, of_table, of_database):
        argv = reading.check(staging_job(msgspec.structs.replace(BATCH, source=source)))
        assert Path(argv[-2]).name == "stage_batch.py"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"object_store": "file:///elsewhere"}, "another object store"),
        ({"folder": "batches/other/b-1"}, "its folder lies outside"),
        ({"folder": f"history/{CUBE.name}/b-1"}, "its folder lies outside"),
        ({"batch": "../b"}, "its batch lies outside"),
        ({"source": BatchSource(format="parquet", path="file:///etc/")}, "its source is not allowed"),
        (
            {"source": BatchSource(format="csv", path="file:///data/exports/../x")},
            "its source is not allowed",
        ),
        ({"source": BatchSource(format="iceberg", path="lake.db.orders2")}, "its source is not allowed"),
        (
            {"source": BatchSource(format="jdbc", options={"url": "jdbc:h2:mem", "dbtable": "a"})},
            "its source is not allowed",
        ),
        (
            {"source": BatchSource(format="jdbc", options={"url": "jdbc:x", "dbtable": "(SELECT 1) t"})},
            "the name of a table or view",
        ),
        (
            {"source": BatchSource(format="jdbc", options={"url": "jdbc:x", "dbtable": "a", "driver": "X"})},
            "options of a batch source",
        ),
        (
            {"source": BatchSource(format="parquet", path="file:///data/exports/", columns={"shop": "a`b"})},
            "no expression",
        ),
    ],
)
def test_a_batch_that_reads_or_writes_elsewhere_is_refused(
    reading: Commands, other: dict[str, Any], said: str
) -> None:
    with pytest.raises(DefinitionError, match=re.escape(said)):
        reading.check(staging_job(msgspec.structs.replace(BATCH, **other)))


def from_batch(rows: str) -> ProcessSpec:
    """A build of what a batch has staged, in a folder of rows."""
    path = f"batches/sales_cube/{'0f' * 16}/b-1/{rows}/__segment=3"
    return asked_for(build(batch="b-1", parts=(BuildPart("b-1", path, (), 5, 5),)))


def test_what_a_try_of_a_batch_has_staged_is_built(commands: Commands) -> None:
    for rows in (*(f"rows-{new_try()}" for _ in range(20)), "rows"):  # the last: of an earlier version
        assert ROWS_FOLDER.fullmatch(rows)
        assert commands.check(from_batch(rows))[-1] == "{files}/specs.json"


@pytest.mark.parametrize("rows", ["rows-", "rows-..", "rows-0f/../x", "rows-0123456789ab/rows", "other"])
def test_rows_of_no_try_are_not_built(commands: Commands, rows: str) -> None:
    with pytest.raises(DefinitionError, match="its part lies outside"):
        commands.check(from_batch(rows))


def test_an_agent_reads_no_source_that_its_operator_has_not_named(tmp_path: Path) -> None:
    (tmp_path / "stage_batch.py").write_text("")
    with pytest.raises(DefinitionError, match="none is"):
        Commands(Host(tmp_path, tmp_path, STORE)).check(staging_job(BATCH))


MERGE = MergeSpec(
    merge="0" * 32,
    cube=CUBE.name,
    level="day",
    start_ms=0,
    end_ms=86_400_000,
    members=(MergeMember("s", 2, f"history/{CUBE.name}/{'a' * 32}/s/v2-b", 3),),
    table_definition=BATCH.table_definition,
    cube_definition=BATCH.cube_definition,
    object_store=STORE,
    folder=f"merged/{CUBE.name}/{'a' * 32}/day/{'0' * 32}",
)


def merging_job(spec: MergeSpec) -> ProcessSpec:
    return ProcessSpec(
        generation=1,
        argv=("spark-submit", "merge_segments.py", "{files}/merges.json"),
        one_shot=True,
        files={"merges.json": msgspec.json.encode([spec]).decode()},
    )


def test_a_merge_reads_its_members_and_writes_its_folder(reading: Commands, tmp_path: Path) -> None:
    (tmp_path / "merge_segments.py").write_text("")
    assert Path(reading.check(merging_job(MERGE))[-2]).name == "merge_segments.py"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"object_store": "file:///elsewhere"}, "another object store"),
        ({"folder": f"history/{CUBE.name}/day/{'0' * 32}"}, "its folder lies outside"),
        ({"folder": f"merged/{CUBE.name}/month/{'0' * 32}"}, "its folder lies outside"),
        ({"merge": "../m"}, "its id lies outside"),
        ({"members": (MergeMember("s", 2, "history/other/s/v2-b", 3),)}, "its member lies outside"),
        ({"members": (MergeMember("../s", 2, "history/x/s/v2-b", 3),)}, "its name lies outside"),
    ],
)
def test_a_merge_that_reads_or_writes_elsewhere_is_refused(
    reading: Commands, tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    (tmp_path / "merge_segments.py").write_text("")
    with pytest.raises(DefinitionError, match=re.escape(said)):
        reading.check(merging_job(msgspec.structs.replace(MERGE, **other)))


@pytest.mark.parametrize(
    "more",
    [
        {"files": {"specs.json": "{}"}},
        {"files": {"specs.json": "not JSON"}},
        {"files": {"other.json": "[]"}},
        {"argv": ("spark-submit", "build_segment.py", "{files}/../specs.json")},
    ],
)
def test_a_build_without_specifications_of_its_request_is_refused(
    commands: Commands, more: dict[str, object]
) -> None:
    with pytest.raises(DefinitionError, match=r"(build|job) refused"):
        commands.check(asked_for(build(), **more))


def test_environment_additions_name_no_code_no_file_and_no_server(commands: Commands) -> None:
    def with_env(**env: str) -> ProcessSpec:
        return ProcessSpec(generation=1, argv=("rtolap", "agent", "sleep"), env=env)

    commands.check(with_env(RTOLAP_LOG_LEVEL="DEBUG", AWS_REGION="eu-west-1", TZ="Europe/Berlin"))
    for name in (
        *("LD_PRELOAD", "PYTHONPATH", "PATH", "SPARK_HOME", "PYSPARK_PYTHON", "JAVA_TOOL_OPTIONS"),
        *("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "SPARK_CONF_DIR"),
        *("AWS_CONFIG_FILE", "AWS_PROFILE", "AWS_ENDPOINT_URL", "HADOOP_CONF_DIR", "KAFKA_OPTS"),
        *("RTOLAP_SPARK_JOBS_DIR", "RTOLAP_OBJECT_STORE", "RTOLAP_TOKEN_FILE", "SPARK_LOCAL_DIRS"),
    ):
        with pytest.raises(DefinitionError, match="environment addition refused"):
            commands.check(with_env(**{name: "x"}))
    with pytest.raises(DefinitionError, match="environment addition refused"):
        commands.check(with_env(TZ="/etc/passwd"))
