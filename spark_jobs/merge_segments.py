"""spark-submit target: write merged sets, each holding the rows of several segments of a cube.

    spark-submit --master local[2] merge_segments.py SPECS

SPECS is a path or URI of a JSON list of MergeSpecs, as the coordinator's plans have them. `rtolap` and its
libraries have to be importable in the driver. See `rtolap.cubes.build.merge` for the steps. Running a merge
again that is written already verifies and reports it.

Exit codes   0 all sets are written
             2 no usable specs                   correct the call
             3 a merge was refused               plan it again: a retry of this one cannot help
             4 one failed otherwise              retry
Progress goes to stdout, a line `rtolap-progress: {json}`; the last of each merge has "event": "merged" or
"failed".
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rtolap.base.hidden_pandas import hide_pandas

hide_pandas()  # before pyspark, which imports it where it is there

from rtolap.cubes.build.build import EXIT_USAGE
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.merge import merge_named
from rtolap.cubes.build.session import open_session


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print(__doc__, file=sys.stderr)
        return EXIT_USAGE
    spark = open_session()
    try:
        return merge_named(spark, arguments)
    finally:
        spark.stop()


if __name__ == "__main__":
    with job_of_parent():
        sys.exit(main(sys.argv[1:]))
