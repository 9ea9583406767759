"""Parquet files of cubes have a checksum in every page, and whoever reads a page compares it.

Files are compared with their manifests as well, before they are read. Between the two a disk may lose bytes:
a page that is damaged then is refused where it is read, and gets into no answer and no other file. Files of
earlier versions have pages without checksums, which are read as they are.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.dataset as ds
import pyarrow.parquet as pq

# How files are written, by whichever of pyarrow's writers. Spark's writes checksums by itself.
WRITTEN: Final[dict[str, Any]] = {
    "compression": "zstd",
    "coerce_timestamps": "us",
    "version": "2.6",
    "write_page_checksum": True,
}
SPARK_READS: Final = {"parquet.page.verify-checksum.enabled": "true"}


def open_parquet(source: Any, **options: Any) -> pq.ParquetFile:
    """Open a file; `source` and `options` as pyarrow takes them. Reading a damaged page raises OSError."""
    return pq.ParquetFile(source, page_checksum_verification=True, **options)


def parquet_format() -> ds.ParquetFileFormat:
    """Return the format of data sets of such files. Reading a damaged page raises OSError."""
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return ds.ParquetFileFormat(default_fragment_scan_options=options)
