"""Bytes at rest: fragments (local), staged parts and history (object store). FORMAT.md comes first.

`schema` maps the model's types to Arrow; `manifest` holds the manifests of staged parts and history;
`object_store` is the seam to local disk, S3 and HDFS through pyarrow.fs.
"""
