"""The object store seam: whole files below one root, on local disk, S3 or HDFS."""
