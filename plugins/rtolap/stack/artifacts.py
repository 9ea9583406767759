"""The Java side of the stack: what pyspark ships, and Kafka and HBase fetched by pyspark's own Ivy.

    <cache>/java/<digest of ivy.xml>/kafka/*.jar   the broker
    <cache>/java/<digest of ivy.xml>/spark/*.jar   Spark's Kafka connector (for `spark.jars`)
    <cache>/java/<digest of ivy.xml>/hbase/*.jar   HBase, fetched when it is first started
    <cache>/java/<digest of ivy.xml>/complete      written last: the folder is whole
    <cache>/ivy/                                   Ivy's own cache

The cache is `RTOLAP_CACHE_DIR`, or `.cache` in the project. A mirror of Maven Central is taken from
`RTOLAP_MAVEN_MIRROR` or from Spark's `DEFAULT_ARTIFACT_REPOSITORY`, proxies from the environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rtolap.base.errors import NotFound, ProcessFailed
from rtolap.base.files import checkout
from rtolap.model.quantities import size_text
from rtolap.stack.inherited import java_proxy_options
from rtolap.stack.jar_checksums import HBASE, STACK, listed, verify

Report = Callable[[str, str, str], None]  # part, phase, note: as the progress of a stack
_REPORT: ContextVar[Report] = ContextVar("report", default=lambda part, phase, note: None)
_WATCH_S, _SHOWN_EACH_BYTES = 0.5, 4 << 20

# Kafka 4.4.0's pom needs an artefact that is not published. The connector and its token provider lag behind
# pyspark, hence the four separate, non-transitive dependencies.
_DEPENDENCIES = (
    ("kafka", "org.apache.kafka", "kafka_2.13", "4.3.1", True),
    ("spark", "org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", False),
    ("spark", "org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", False),
    ("spark", "org.apache.kafka", "kafka-clients", "3.9.2", False),
    ("spark", "org.apache.commons", "commons-pool2", "2.13.1", False),
)
_IVY = (
    '<ivy-module version="2.0"><info organisation="local" module="stack"/>\n'
    '<configurations><conf name="kafka"/><conf name="spark"/></configurations>\n<dependencies>\n'
    + "".join(
        f'<dependency org="{org}" name="{name}" rev="{rev}" transitive="{str(transitive).lower()}"'
        f' conf="{conf}-&gt;default"/>\n'
        for conf, org, name, rev, transitive in _DEPENDENCIES
    )
    + "</dependencies></ivy-module>\n"
)
# Of the versions for Hadoop 3, later ones need artefacts that are not published.
_HBASE_IVY = """<ivy-module version="2.0"><info organisation="local" module="hbase"/>
<configurations><conf name="hbase"/></configurations>
<dependencies>
<dependency org="org.apache.hbase" name="hbase-server" rev="2.6.4-hadoop3" conf="hbase-&gt;default"/>
</dependencies></ivy-module>
"""
# Without a root, ibiblio's own default is Maven Central. By default Ivy's cache does not stand two at a time;
# with this strategy a file is locked while it is fetched.
_IVY_SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<caches lockStrategy="artifact-lock-nio"/><resolvers>
<ibiblio name="central" m2compatible="true" useMavenMetadata="false" usepoms="{poms}"{root}/>
</resolvers></ivysettings>
"""
_FETCH_TIMEOUT_S = 900
# What ZooKeeper needs of pyspark's 300 jars; the whole folder works too but starts more slowly.
_ZOOKEEPER_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "netty-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "commons-io-*.jar",
    "commons-cli-*.jar",
)


@dataclass(frozen=True)
class JavaArtifacts:
    """`java` and class paths, each a list of existing files."""

    java: str
    zookeeper: tuple[Path, ...]
    kafka: tuple[Path, ...]
    spark_kafka: tuple[Path, ...]


def cache_dir() -> Path:
    configured = os.environ.get("RTOLAP_CACHE_DIR")
    if configured:
        return Path(configured).absolute()
    root = checkout()
    return root / ".cache" if root else Path.home() / ".cache" / "rtolap"


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    for candidate in [*candidates, "java"]:
        found = shutil.which(candidate)
        if found:
            return found
    raise NotFound(
        "Java is needed for ZooKeeper, Kafka and Spark",
        expected="java 17 on the PATH or under JAVA_HOME",
        found="none",
        action="install it, on Debian: apt-get install openjdk-17-jre-headless",
    )


def pyspark_jars() -> Path:
    """Return the folder of jars that pyspark brings; pyspark itself is not imported."""
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or []) if spec else []:
        jars = Path(location) / "jars"
        if jars.is_dir():
            return jars
    raise NotFound(
        "pyspark's jars are needed for ZooKeeper and Ivy",
        expected="the package pyspark with its folder jars",
        action="install pyspark (pyspark-client has no jars and must not be installed over it)",
    )


def java_artifacts(cache: Path | None = None) -> JavaArtifacts:
    """Return all jars, fetched first when the cache lacks them (about 53 MB, once)."""
    jars = pyspark_jars()
    java = find_java()
    folder = fetch_jars(_IVY, ("kafka", "spark"), "Kafka", cache, checksums=listed(STACK))
    logging_jars = [*jars.glob("slf4j-api-*.jar"), *jars.glob("log4j-slf4j2-impl-*.jar")]
    return JavaArtifacts(
        java=java,
        zookeeper=tuple(sorted(jar for pattern in _ZOOKEEPER_JARS for jar in jars.glob(pattern))),
        # pyspark's pair of logging jars goes first: Kafka's own log4j has no binding for its slf4j
        kafka=(*logging_jars, *sorted((folder / "kafka").glob("*.jar"))),
        spark_kafka=tuple(sorted((folder / "spark").glob("*.jar"))),
    )


def hbase_jars(cache: Path | None = None) -> tuple[Path, ...]:
    """Return HBase's class path, fetched first when the cache lacks it (122 MB, once)."""
    folder = fetch_jars(_HBASE_IVY, ("hbase",), "HBase", cache, checksums=listed(HBASE))
    return tuple(sorted((folder / "hbase").glob("*.jar")))


def fetch_jars(
    ivy: str,
    confs: Sequence[str],
    what: str,
    cache: Path | None = None,
    *,
    checksums: Mapping[str, str] | None = None,
    poms: bool = True,
) -> Path:
    """Return the folder with a sub-folder of jars for each conf of an Ivy module, fetched unless the cache
    has it.

    Ivy writes into a temporary folder that is renamed when it is whole: a crash leaves either nothing or a
    whole folder under the final name. Who fetches holds the folder's lock; other folders are fetched beside
    it. `what` names it in errors. `checksums` as in `jar_checksums`: other jars are Corrupted, and none is
    kept. An archive is fetched as a jar is: its artifact has the type `jar` and an extension of its own.
    `poms`: dependencies are read; False for artifacts that need none, and whose parents are not published.
    """
    cache = cache or cache_dir()
    digest = hashlib.sha256(ivy.encode()).hexdigest()[:12]
    folder = cache / "java" / digest
    if (folder / "complete").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"fetch-{digest}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").is_file():  # somebody else was quicker
            _fetch(ivy, confs, what, cache, folder, checksums, poms)
    return folder


def _fetch(
    ivy: str,
    confs: Sequence[str],
    what: str,
    cache: Path,
    folder: Path,
    checksums: Mapping[str, str] | None,
    poms: bool,
) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as temporary:
        work = Path(temporary)
        (work / "ivy.xml").write_text(ivy)
        _run_ivy(confs, what, cache / "ivy", work, poms)
        if checksums is not None:
            verify(work / "out", checksums)
        (work / "out" / "complete").touch()
        if folder.exists():
            shutil.rmtree(folder)
        os.rename(work / "out", folder)


def _run_ivy(confs: Sequence[str], what: str, ivy_cache: Path, work: Path, poms: bool) -> None:
    mirror = os.environ.get("RTOLAP_MAVEN_MIRROR") or os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    settings = _IVY_SETTINGS.format(root=' root="${repo.root}"' if mirror else "", poms=str(poms).lower())
    (work / "ivysettings.xml").write_text(settings)
    jars = pyspark_jars()
    ivy = next(iter(sorted(jars.glob("ivy-*.jar"))), None)
    if ivy is None:
        raise NotFound(f"Ivy is needed to fetch {what}", expected=f"ivy-*.jar in {jars}", found="none")
    command = [
        find_java(),
        *java_proxy_options(),
        *([f"-Drepo.root={mirror}"] if mirror else []),
        *("-jar", str(ivy), "-settings", str(work / "ivysettings.xml"), "-cache", str(ivy_cache)),
        *("-ivy", str(work / "ivy.xml"), "-confs", *confs),
        # `jar` alone drops jars of type bundle; a comma between the two would retrieve nothing at all
        *("-types", "jar", "bundle"),
        # two native jars of one module differ in nothing but their classifier
        *("-retrieve", str(work / "out" / "[conf]" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    log_file = work / "ivy.log"
    code = _run_watched(command, what, log_file, ivy_cache)
    if code != 0 or not all(list((work / "out" / conf).glob("*")) for conf in confs):
        tail = "\n".join(log_file.read_text(errors="replace").splitlines()[-15:])
        raise ProcessFailed(
            f"the jars of {what} could not be fetched from Maven Central",
            found=f"exit code {code}:\n{tail}",
            action="check the network, or name a mirror in RTOLAP_MAVEN_MIRROR",
        )


def _run_watched(command: Sequence[str], what: str, log_file: Path, ivy_cache: Path) -> int:
    """Run Ivy, its output into `log_file`; report the fetched bytes while it runs."""
    report, before_bytes = _REPORT.get(), _folder_bytes(ivy_cache)
    deadline_s = time.monotonic() + _FETCH_TIMEOUT_S
    with log_file.open("w") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as ivy:
        report(what, "fetching", "once, into the cache")
        shown_bytes = 0
        while True:
            try:
                code = ivy.wait(_WATCH_S)
                break
            except subprocess.TimeoutExpired:
                come_bytes = _folder_bytes(ivy_cache) - before_bytes
            except BaseException:
                ivy.kill()
                raise
            if come_bytes - shown_bytes >= _SHOWN_EACH_BYTES:
                shown_bytes = come_bytes
                report(what, "fetching", f"{size_text(come_bytes)} so far")
            if time.monotonic() > deadline_s:
                ivy.kill()
                raise ProcessFailed(f"fetching the jars of {what} took longer than {_FETCH_TIMEOUT_S} s")
    if code == 0:
        report(what, "fetched", size_text(max(_folder_bytes(ivy_cache) - before_bytes, 0)))
    return code


def _folder_bytes(folder: Path) -> int:
    """Return what the files below the folder hold; Ivy renames some meanwhile."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(at, name)).st_size
    return total


@contextmanager
def fetches_reported(report: Report) -> Iterator[None]:
    """Report the fetches meanwhile: the part, its phase, and how much has come."""
    token = _REPORT.set(report)
    try:
        yield
    finally:
        _REPORT.reset(token)
