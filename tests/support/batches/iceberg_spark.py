"""A Spark that Iceberg's runtime fits, with that runtime: the runtime lags behind the Spark of the lock.

Spark comes from the package index that the machine is configured with, the jars from Maven Central.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rtolap.stack.artifacts import cache_dir, fetch_jars
from rtolap.stack.jar_checksums import listed

_VERSION = "4.1.4"
_SHA256 = "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73"
_WANTED = ("pyspark", "deps/bin", "deps/jars")  # of the source distribution: what drivers need
_IVY = """<ivy-module version="2.0"><info organisation="local" module="iceberg"/>
<configurations><conf name="iceberg"/></configurations><dependencies>
<dependency org="org.apache.iceberg" name="iceberg-spark-runtime-4.1_2.13" rev="1.12.0" transitive="false"
 conf="iceberg-&gt;default"/>
<dependency org="org.xerial" name="sqlite-jdbc" rev="3.50.3.0" transitive="false" conf="iceberg-&gt;default"/>
</dependencies></ivy-module>
"""
_CHECKSUMS = Path(__file__).with_name("iceberg_jars.sha256")


def iceberg_jars() -> str:
    """Return Iceberg's runtime and SQLite's driver as spark-submit takes them, fetched first when the cache
    lacks them."""
    folder = fetch_jars(_IVY, ("iceberg",), "Iceberg's runtime", checksums=listed(_CHECKSUMS))
    return ",".join(str(jar.absolute()) for jar in sorted((folder / "iceberg").glob("*.jar")))


def iceberg_spark() -> Path:
    """Return the folder of a pyspark 4.1, fetched first when the cache lacks it (455 MB, once): `pyspark` is
    its package, `deps` its home.
    """
    folder = cache_dir() / f"spark-{_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        wanted = Path(temporary, "wanted.txt")
        wanted.write_text(f"pyspark=={_VERSION} --hash=sha256:{_SHA256}\n")
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation")
        command = (*pip, "--require-hashes", "--requirement", str(wanted), "--dest", temporary)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"pyspark {_VERSION} is not to be had: {done.stderr[-2000:]}"
        made = Path(temporary, "made")
        with tarfile.open(Path(temporary, f"pyspark-{_VERSION}.tar.gz")) as archive:
            archive.extractall(made, _wanted(archive), filter="data")
        shutil.move(made / f"pyspark-{_VERSION}", folder)


def _wanted(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in archive:
        _, _, path = member.name.partition("/")
        if any(path == wanted or path.startswith(f"{wanted}/") for wanted in _WANTED):
            yield member
