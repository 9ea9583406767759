"""Writers of the cuboids of a batch of large segments, each into the batch's scratch folder.

`PieceWriter` works by columns, in tasks of ours that Spark runs, distributes and repeats. Two jobs. Spark's
shuffle carries rows of a piece as few large values that it need not understand, so that nothing on the way is
made of objects for each row or number.

`CuboidWriter` works by Spark's own operators, for executors that run no Python of ours: a job for the base,
then few for the others. It takes several times the processor time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyspark import SparkContext
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from rtolap.base.ids import CarryingPool
from rtolap.columnar.schema import field_ids
from rtolap.cubes.build.grouping import GROUPED_DIMENSIONS_MAX, group, spark_schema
from rtolap.cubes.build.job_ids import InTask
from rtolap.cubes.build.job_progress import report_cuboid
from rtolap.cubes.build.jvm_ids import in_thread
from rtolap.cubes.format.build_batch import CUBOID_COLUMN, SEGMENT_COLUMN
from rtolap.cubes.format.build_pieces import (
    BuildTasks,
    PiecePlan,
    Spooled,
    WrittenFile,
    plan_combined,
    plan_pieces,
)
from rtolap.cubes.format.pages import SPARK_READS
from rtolap.cubes.format.tries import scratch_of
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cube import Cuboid, cuboids, smallest_parents
from rtolap.object_store.store import ObjectStore

PARENT_BYTES_SMALL = 16 << 20  # reading less than this costs less than another job
_JOBS = 4  # at once, of a cuboid each: most of a short one is its start
_PATH_PARTS = 4  # segment/version/part/file or segment/version/cuboid/file: all that differs in a batch
_PATH = "__path"
_FIELD_ID = "parquet.field.id"  # Spark's name for the id of a column in a Parquet file


class PieceWriter:
    """Writes the cuboids of a batch into its scratch folder, split by cuboid and segment."""

    def __init__(
        self, spark: SparkSession, store: ObjectStore, tried: str, specs: Sequence[BuildSpec]
    ) -> None:
        self._context: SparkContext = spark.sparkContext
        self._store = store
        self._specs = specs
        self._folder = scratch_of(tried, specs[0].location)
        self.cuboids = cuboids(specs[0].cube_definition)
        self._tasks = BuildTasks(specs[0].object_store, specs[0].schema, self.cuboids, self._folder)
        self._bytes = [0] * len(self.cuboids)

    @property
    def folders(self) -> list[str]:
        """Return the folder of each cuboid, below which files lie by segment."""
        return [self._tasks.folder_of(number) for number in range(len(self.cuboids))]

    def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
        """Write all cuboids. `inputs` are the files of each segment of the batch, in its order."""
        plan = plan_pieces(self._store, inputs, self._context.defaultParallelism)
        spooled = []
        for result in self._merge(plan):
            if isinstance(result, Spooled):
                spooled.append(result)
            else:
                self._bytes[result.cuboid] += result.bytes
        waiting = {part.cuboid for part in spooled}
        done = [number for number in range(len(self.cuboids)) if number not in waiting]
        self._report(done, len(done))
        if spooled:
            for written in self._combine(spooled):
                self._bytes[written.cuboid] += written.bytes
            self._report(sorted(waiting), len(self.cuboids))

    def _merge(self, plan: PiecePlan) -> list[WrittenFile | Spooled]:
        tasks, pieces = self._tasks, plan.pieces

        def merge(place: int, sent: Iterable[tuple[int, bytes]]) -> Iterator[WrittenFile | Spooled]:
            return tasks.merge(pieces[place], [data for _, data in sent])

        if not plan.reads:
            return self._context.parallelize((), len(pieces)).mapPartitionsWithIndex(InTask(merge)).collect()
        reads = self._context.parallelize(plan.reads, len(plan.reads))
        sent = reads.flatMap(InTask(tasks.read)).partitionBy(len(pieces), int)
        return sent.mapPartitionsWithIndex(InTask(merge)).collect()

    def _combine(self, spooled: Sequence[Spooled]) -> list[WrittenFile]:
        planned = plan_combined(spooled)
        return self._context.parallelize(planned, len(planned)).map(InTask(self._tasks.combine)).collect()

    def _report(self, numbers: Sequence[int], done: int) -> None:
        first = done - len(numbers)
        for place, number in enumerate(numbers, start=first + 1):
            cuboid, size = self.cuboids[number], self._bytes[number]
            report_cuboid(self._specs[0], cuboid, size, place, len(self.cuboids))


class CuboidJob(NamedTuple):
    """Cuboids that one job writes out of one parent."""

    parent: Cuboid
    cuboids: tuple[Cuboid, ...]


class CuboidWriter:
    """Writes the cuboids of a batch into its scratch folder, split by cuboid and segment."""

    def __init__(
        self, spark: SparkSession, store: ObjectStore, tried: str, specs: Sequence[BuildSpec]
    ) -> None:
        self._spark = spark
        self._store = store
        self._specs = specs
        self._schema = specs[0].schema
        self._folders: dict[str, str] = {}  # of cuboids, by name, below `_folder`
        self._sizes: dict[str, int] = {}
        self._folder = scratch_of(tried, specs[0].location)
        self.cuboids = cuboids(specs[0].cube_definition)

    @property
    def folders(self) -> list[str]:
        """Return the folder of each cuboid, below which files lie by segment."""
        return [self._folders[cuboid.name] for cuboid in self.cuboids]

    def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
        """Write all cuboids: the base first, each other one from the smallest written so far that contains
        it, in few jobs.

        `inputs`: files of each segment of the batch, in its order.
        """
        self._write(self._inputs(inputs), self.cuboids[:1])
        while (job := next_job(self.cuboids, self._sizes)) is not None:
            self._write(self._written(job.parent), job.cuboids)

    def _reader(self) -> DataFrameReader:
        """Return a reader for one frame: it remembers the schema given to it, and jobs run side by side."""
        return self._spark.read.options(**SPARK_READS)

    def _inputs(self, inputs: Sequence[Sequence[str]]) -> DataFrame:
        """Return rows of all segments in one scan, each with its place in the batch, out of its file's
        path.
        """
        columns = spark_schema(self._schema, self.cuboids[0])
        paths = [(path, place) for place, of_segment in enumerate(inputs) for path in of_segment]
        if not paths:
            return self._spark.createDataFrame([], columns.add(SEGMENT_COLUMN, T.IntegerType()))
        files = sorted({path for path, _ in paths})
        rows = self._reader().schema(columns).parquet(*(self._store.spark_uri(path) for path in files))
        if len(inputs) == 1:
            return rows.withColumn(SEGMENT_COLUMN, F.lit(0))
        places = self._spark.createDataFrame(
            [("/".join(path.split("/")[-_PATH_PARTS:]), place) for path, place in paths],
            f"{_PATH} string, {SEGMENT_COLUMN} int",
        )
        path = F.substring_index(F.col("_metadata.file_path"), "/", -_PATH_PARTS)
        return rows.withColumn(_PATH, path).join(F.broadcast(places), _PATH).drop(_PATH)

    def _written(self, cuboid: Cuboid) -> DataFrame:
        """Return a cuboid of this batch; Spark finds the place in the batch in the folders' names."""
        columns = spark_schema(self._schema, cuboid).add(SEGMENT_COLUMN, T.IntegerType())
        folder = self._folders[cuboid.name]
        if not self._store.exists(folder):  # nothing was written: there are no events
            return self._spark.createDataFrame([], columns)
        return self._reader().schema(columns).parquet(self._store.spark_uri(folder))

    def _write(self, source: DataFrame, written: Sequence[Cuboid]) -> None:
        """Write rows sorted in their files.

        Rows of several segments are rebalanced into files of about `session.FILE_BYTES`, so each segment is
        one file unless it is large. For a single segment, the groups' own shuffle has done that.
        """
        folder = f"{self._folder}/job-{len(self._folders)}"
        numbers = [self.cuboids.index(cuboid) for cuboid in written]
        frame = group(source, self._schema, written, numbers)
        if len(self._specs) > 1:
            frame = frame.hint("rebalance", CUBOID_COLUMN, SEGMENT_COLUMN)
        wanted = {name for cuboid in written for name in cuboid.dimensions}
        keys = [name for name in self.cuboids[0].dimensions if name in wanted]
        if len(written) == 1:
            frame = frame.sortWithinPartitions(SEGMENT_COLUMN, *keys)
        else:
            frame = frame.sortWithinPartitions(CUBOID_COLUMN, SEGMENT_COLUMN, *keys)
        self._write_files(frame, folder, CUBOID_COLUMN, SEGMENT_COLUMN)
        for cuboid, number in zip(written, numbers, strict=True):
            self._folders[cuboid.name] = f"{folder}/{CUBOID_COLUMN}={number}"
        with CarryingPool(_JOBS) as pool:
            narrow = in_thread(self._spark, self._narrow)
            list(pool.map(narrow, [each for each in written if wanted - set(each.dimensions)]))
        for cuboid in written:
            own = self._folders[cuboid.name]
            self._sizes[cuboid.name] = sum(file.bytes for file in self._store.list(own))
            size, done = self._sizes[cuboid.name], len(self._sizes)
            report_cuboid(self._specs[0], cuboid, size, done, len(self.cuboids))

    def _narrow(self, cuboid: Cuboid) -> None:
        """Write a cuboid's files again without the columns of the cuboids that it shared a job with.

        Executors do it: no row passes the driver.
        """
        frame = self._written(cuboid).sortWithinPartitions(SEGMENT_COLUMN, *cuboid.dimensions)
        folder = f"{self._folder}/cuboid-{self.cuboids.index(cuboid)}"
        self._write_files(frame, folder, SEGMENT_COLUMN)
        self._folders[cuboid.name] = folder

    def _write_files(self, frame: DataFrame, folder: str, *split_by: str) -> None:
        for name, number in field_ids(self._schema).items():
            if name in frame.columns:
                frame = frame.withMetadata(name, {_FIELD_ID: number})
        frame.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").partitionBy(
            *split_by
        ).parquet(self._store.spark_uri(folder), compression="zstd")


def next_job(all_cuboids: tuple[Cuboid, ...], sizes: dict[str, int]) -> CuboidJob | None:
    """Return the next cuboids to write and their parent; None when all cuboids are written.

    `sizes` gives the bytes of the written cuboids, by name. The base, which is the first, is written. The
    largest missing cuboids that share their smallest parent make one job. If that parent is small, the other
    missing cuboids that it contains belong to the job too.
    """
    missing = [cuboid for cuboid in all_cuboids if cuboid.name not in sizes]
    if not missing:
        return None
    written = tuple(cuboid for cuboid in all_cuboids if cuboid.name in sizes)
    first, level = missing[0], len(missing[0].dimensions)
    parents = smallest_parents((*written, *missing), sizes)
    parent = next(cuboid for cuboid in written if cuboid.name == parents[first.name])
    if len(parent.dimensions) > GROUPED_DIMENSIONS_MAX:
        return CuboidJob(parent, (first,))
    small = sizes[parent.name] <= PARENT_BYTES_SMALL
    return CuboidJob(
        parent,
        tuple(
            cuboid
            for cuboid in missing
            if (small and set(cuboid.dimensions) <= set(parent.dimensions))
            or (len(cuboid.dimensions) == level and parents[cuboid.name] == parent.name)
        ),
    )
