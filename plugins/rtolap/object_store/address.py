"""The address of an object store: one URI, understood by pyarrow and by Spark in the same way.

    file:///var/lib/rtolap/store
    s3://bucket/prefix?region=eu-west-1                                    Amazon's
    s3://bucket/prefix?endpoint_override=http://127.0.0.1:9000&region=x    any other S3, addressed by path
    hdfs://namenode:8020/rtolap   hdfs://nameservice/rtolap

The URI holds no secrets: it travels in build specifications, records and logs. Credentials of S3 come from
where the AWS SDKs look: AWS_ACCESS_KEY_ID and its kin, a profile of AWS_SHARED_CREDENTIALS_FILE, the host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs

from rtolap.base.errors import DefinitionError
from rtolap.object_store.hdfs import hdfs_filesystem

_PATTERNS = frozenset("*?[]{}\\")
_PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
# S3A's own chain ends before profiles and web identities; this one is the SDK's, as in pyarrow. The first two
# take what Spark has copied out of the driver's environment.
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)


class StoreAddress(NamedTuple):
    """The address of an object store.

    Attributes:
        root: the path that `filesystem` knows.
        uri: the same folder, without settings, as Hadoop and Iceberg read it: nothing in it is escaped.
    """

    filesystem: fs.FileSystem
    root: str
    uri: str
    spark: Mapping[str, str]


def resolve(uri: str) -> StoreAddress:
    """Return what the address stands for. Only S3 without a region is connected to, to look it up. Raises
    DefinitionError."""
    parts = urlsplit(uri)
    if parts.username or parts.password:
        raise DefinitionError(
            "the object store's address holds credentials",
            expected="an address without them, such as s3://bucket/prefix",
            action="put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a credentials file",
        )
    if parts.fragment or (parts.query and parts.scheme != "s3"):
        raise DefinitionError(
            "the object store's address ends before a # or ?",
            expected="a path without them; settings, of S3 alone",
            found=parts.path,
        )
    match parts.scheme:
        case "hdfs":
            return _hdfs(parts.netloc, parts.path, uri)
        case "s3":
            query = parse_qs(parts.query)
            options = {key: values[-1] for key, values in query.items()}
            filesystem, root = _from_uri(urlunsplit(parts._replace(query=_s3_query(options))))
            return StoreAddress(filesystem, root, _unescaped(uri, root), s3a_settings(parts.netloc, options))
    filesystem, root = _from_uri(uri)
    return StoreAddress(filesystem, root, _unescaped(uri, root), {})


def refuse_pattern(root: str) -> None:
    """Raise DefinitionError for a root in which Spark would find other folders, too."""
    if _PATTERNS & set(root):
        raise DefinitionError(
            "Spark would read other folders, too: it takes the object store's path for a pattern",
            expected=f"a path without {' '.join(sorted(_PATTERNS))}",
            found=root,
        )


def _unescaped(uri: str, root: str) -> str:
    """Return the address of a root as Hadoop and Iceberg read it."""
    return f"{urlsplit(uri).scheme or 'file'}://{root}"


def s3a_settings(bucket: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the same place and the same credentials for Spark's S3A, for this bucket only.

    `options` are the URI's. Whatever they leave out stays as Spark's own configuration has it.
    """
    settings: dict[str, str] = {}
    prefix = f"fs.s3a.bucket.{bucket}."
    endpoint = options.get("endpoint_override")
    if endpoint:
        scheme = options.get("scheme", "https")
        settings[f"{prefix}endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        settings[f"{prefix}path.style.access"] = "true"
    if region := options.get("region"):
        settings[f"{prefix}endpoint.region"] = region
    if any(os.environ.get(name) for name in _PROFILE_VARIABLES):
        settings[f"{prefix}aws.credentials.provider"] = ",".join(_PROVIDERS)
    return settings


def _s3_query(options: Mapping[str, str]) -> str:
    """Return the options of S3. With them a small file is a single PUT; without them even one byte is an
    upload in parts."""
    return urlencode({"allow_delayed_open": "true", **options})


def _hdfs(authority: str, path: str, plain: str) -> StoreAddress:
    if not authority or not path.strip("/"):
        raise DefinitionError(
            "not an object store on HDFS", expected="hdfs://namenode:port/folder", found=plain
        )
    return StoreAddress(hdfs_filesystem(authority), path, plain, {})


def _from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        filesystem, root = fs.FileSystem.from_uri(uri)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DefinitionError(
            "not an object store",
            expected="a URI such as file:///var/lib/rtolap/store or s3://bucket/prefix?region=eu-west-1",
            found=str(error),
        ) from error
    return filesystem, root
