"""spark-submit target: build versions of segments out of staged parts.

    spark-submit --master local[2] build_segment.py SPEC [SPEC ...]

SPEC is a path or URI of JSON: one BuildSpec, or a list of them. Specs of one cube are built together: many
small segments in one Spark job for all of their cuboids, their rows in the driver's memory; large ones in a
few jobs through files. `rtolap` has to be importable in the driver (PYTHONPATH or --py-files), and where
`spark.rtolap.executorsRunPython` is true, as it is on local masters, in executors; others run no Python.

One batch, and what a crash after each step leaves behind:

1. inputs are verified (ranges join, manifests, checksums)     nothing
2. leftovers of an earlier try are deleted                     nothing
3. all cuboids are grouped: small segments in one job          nothing
   large ones: in pieces, the base, then the others            files in a scratch folder, never read
4. each segment's files are written, or moved, to `location`   folders without a manifest, never read
5. events are counted again from the files                     the same
6. the manifests are written, each atomically, in order        versions that can be promoted

Running a finished build again verifies and reports it; nothing is written twice. A batch that fails is built
again segment by segment, so that a bad segment costs only itself.

Exit codes   0 everything was built
             2 no usable spec                        correct the call
             3 a build was refused, or corrupted     a retry cannot help: queue the segment again, or restore
             4 a build failed otherwise              retry
Progress goes to stdout, a line `rtolap-progress: {json}` per step; the last one of a build has "event":
"built" or "failed".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rtolap.base.hidden_pandas import hide_pandas

hide_pandas()  # before pyspark, which imports it where it is there

from rtolap.base.errors import RtolapError
from rtolap.cubes.build.build import EXIT_USAGE, build_all
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.build_inputs import read_specs


def main(arguments: Sequence[str]) -> int:
    try:
        specs = [spec for argument in arguments for spec in read_specs(argument)]
    except RtolapError as error:
        print(f"build_segment: {error}", file=sys.stderr)
        return EXIT_USAGE
    if not specs:
        print(__doc__, file=sys.stderr)
        return EXIT_USAGE
    spark = open_session()
    try:
        return build_all(spark, specs)
    finally:
        spark.stop()


if __name__ == "__main__":
    with job_of_parent():
        sys.exit(main(sys.argv[1:]))
