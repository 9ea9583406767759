"""Spark makes large reads of history: it is the second engine behind `query.cubes.history.LargeScans`.

A read names dimensions, partials and a filter over the files of READY versions. Spark filters the rows and
merges the partials of each group, by the texts that builds use (`aggregates.spark_sql`). No SQL of a user
reaches it. What comes back is a table of partials, as the embedded engine gives.

Nouns: a **connection** is a session of a Spark Connect service, which one scan has at a time. A **scan** is
one read. Its **tag** names its jobs in Spark.

Invariants: files are compared with their manifests before their rows count. A read is repeated in a new
session at most once, and only where the old session is gone. A statement that is over has no job left in
Spark. Nothing in here is imported, and no pyspark with it, unless a service is declared.

Never: transpile a user's SQL, write, read a file that no manifest names, or fall back to the other engine
without being asked to.
"""
