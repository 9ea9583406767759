"""spark-submit target: a driver that takes builds one after the other, for `rtolap.agent.warm_launcher`.

    spark-submit --master local[2] serve_builds.py SOCKET IDLE_S build_segment.py

It builds as `build_segment.py` does, whose arguments come over the socket, and prints there. The agent starts
it where `RTOLAP_AGENT_SPARK_WARM_S` is set; nobody else has to.
"""

from __future__ import annotations

import sys

from rtolap.base.hidden_pandas import hide_pandas

hide_pandas()  # before pyspark, which imports it where it is there

from rtolap.cubes.build.build import build_named
from rtolap.cubes.build.job_ids import job_of_parent
from rtolap.cubes.build.serving import main
from rtolap.cubes.build.session import open_session

if __name__ == "__main__":
    with job_of_parent():  # without ids: each job brings its own
        spark = open_session()
        try:
            code = main(sys.argv[1:], spark, {"build_segment.py": build_named})
        finally:
            spark.stop()
    sys.exit(code)
