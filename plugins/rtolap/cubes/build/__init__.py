"""The part that runs in a Spark driver: sessions, and building history.

    session         the session of spark-submit, with settings that fail loudly
    grouping        a cube's columns in Spark, and merging partial aggregates into several cuboids at once; of
                    small segments in one job, rows to Spark and back as Arrow
    cuboid_writers  the cuboids of large segments, by tasks of ours (two jobs, rows as columns throughout) or,
                    where executors run no Python of ours, by Spark's own operators (a few jobs)
    build           a batch from verified inputs to manifests, step by step

Invariants: everything that decides the result stands in the BuildSpec; a version is whole when its
manifest is there, and nothing reads it before. Only this room and `spark_jobs/` import pyspark.
"""
