"""The part that runs in a Spark driver: sessions, and building history. Executors run no Python of ours.

    session         the session of spark-submit, with settings that fail loudly
    frames          a cube's columns in Spark, and merging partial aggregates
    cuboid_writer   the cuboids of a batch of segments, one Spark job each
    build           a batch from verified inputs to manifests, step by step

Invariants: everything that decides the result stands in the BuildSpec; a version is whole when its
manifest is there, and nothing reads it before. Only this room and `spark_jobs/` import pyspark.
"""
