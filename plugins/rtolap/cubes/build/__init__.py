"""The part that runs in a Spark driver: sessions, and building history. Executors run no Python of ours.

    session         the session of spark-submit, with settings that fail loudly
    grouping        a cube's columns in Spark, and merging partial aggregates into several cuboids at once
    small_batch     the cuboids of small segments: one job, rows to Spark and back as Arrow
    cuboid_writer   the cuboids of large segments: a few jobs through files
    build           a batch from verified inputs to manifests, step by step

Invariants: everything that decides the result stands in the BuildSpec; a version is whole when its
manifest is there, and nothing reads it before. Only this room and `spark_jobs/` import pyspark.
"""
