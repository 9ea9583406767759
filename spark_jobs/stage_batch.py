"""spark-submit target: stage a batch, which says what segments of a cube hold in place of its topic.

    spark-submit --master local[2] stage_batch.py SPEC

SPEC is a path or URI of the JSON of a BatchSpec, as the coordinator's plan has it. `rtolap` and its libraries
have to be importable in the driver and in executors. See `rtolap.cubes.build.batch_stage` for the steps.
Running a staged batch again reports it; nothing is read twice.

Exit codes   0 the batch is staged
             2 no usable spec                    correct the call
             3 the batch was refused             mend the source, or the plan: a retry cannot help
             4 it failed otherwise               retry
Progress goes to stdout, a line `rtolap-progress: {json}`; the last one has "event": "staged" or "failed".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rtolap.base.errors import RtolapError
from rtolap.cubes.build.batch_stage import attempt
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.session import open_session
from rtolap.cubes.format.build_inputs import read_batch_spec

EXIT_USAGE = 2


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return EXIT_USAGE
    try:
        spec = read_batch_spec(arguments[0])
    except RtolapError as error:
        print(f"stage_batch: {error}", file=sys.stderr)
        return EXIT_USAGE
    spark = open_session()
    try:
        return attempt(spark, spec, dict(os.environ))
    finally:
        spark.stop()


if __name__ == "__main__":
    with job_of_parent():
        sys.exit(main(sys.argv[1:]))
