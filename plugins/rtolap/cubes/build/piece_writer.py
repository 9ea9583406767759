"""The cuboids of a batch of large segments, by columns: Spark runs, distributes and repeats the tasks.

Two jobs. Spark's shuffle carries rows of a piece as few large values that it need not understand, so that
nothing on the way is made of objects for each row or number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext
from pyspark.sql import SparkSession

from rtolap.cubes.build.job_progress import report
from rtolap.cubes.format.build_batch import new_scratch
from rtolap.cubes.format.build_pieces import (
    BuildTasks,
    PiecePlan,
    Spooled,
    Written,
    plan_combined,
    plan_pieces,
)
from rtolap.model.build_spec import BuildSpec
from rtolap.model.cuboids import cuboids
from rtolap.object_store.store import ObjectStore


class PieceWriter:
    """Writes the cuboids of a batch into its scratch folder, split by cuboid and segment."""

    def __init__(self, spark: SparkSession, store: ObjectStore, specs: Sequence[BuildSpec]) -> None:
        self._context: SparkContext = spark.sparkContext
        self._store = store
        self._specs = specs
        self.folder = new_scratch(specs)
        self.cuboids = cuboids(specs[0].cube_definition)
        self._tasks = BuildTasks(specs[0].object_store, specs[0].schema, self.cuboids, self.folder)
        self._bytes = [0] * len(self.cuboids)

    @property
    def folders(self) -> list[str]:
        """Return the folder of each cuboid, below which files lie by segment."""
        return [self._tasks.folder_of(number) for number in range(len(self.cuboids))]

    def write_all(self, inputs: Sequence[Sequence[str]]) -> None:
        """`inputs`: files of each segment of the batch, in its order."""
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

    def _merge(self, plan: PiecePlan) -> list[Written | Spooled]:
        tasks, pieces = self._tasks, plan.pieces

        def merge(place: int, sent: Iterable[tuple[int, bytes]]) -> Iterator[Written | Spooled]:
            return tasks.merge(pieces[place], [data for _, data in sent])

        if not plan.reads:
            return self._context.parallelize((), len(pieces)).mapPartitionsWithIndex(merge).collect()
        reads = self._context.parallelize(plan.reads, len(plan.reads))
        sent = reads.flatMap(tasks.read).partitionBy(len(pieces), int)
        return sent.mapPartitionsWithIndex(merge).collect()

    def _combine(self, spooled: Sequence[Spooled]) -> list[Written]:
        planned = plan_combined(spooled)
        return self._context.parallelize(planned, len(planned)).map(self._tasks.combine).collect()

    def _report(self, numbers: Sequence[int], done: int) -> None:
        first = done - len(numbers)
        for place, number in enumerate(numbers, start=first + 1):
            report(
                "cuboid",
                self._specs[0],
                name=self.cuboids[number].name,
                bytes=self._bytes[number],
                done=place,
                total=len(self.cuboids),
            )
