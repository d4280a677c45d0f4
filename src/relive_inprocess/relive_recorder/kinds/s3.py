"""Calls of the S3 protocol, known by how they look on the network: a signature of its kind, or a host named like S3.

Such a call is an event ``s3-call``: an ``http-call`` whose ``asked`` has also ``operation`` ("GetObject", ...), ``bucket``, ``key``
(both absent where there is none) and ``range`` (the header of that name).
"""

import re
from typing import Any, Dict, Optional, Tuple
from urllib.parse import unquote, urlsplit

__all__ = ["operation_of"]

_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]*)\.)?s3[a-z-]*(?:[.-](?:dualstack\.)?[a-z0-9-]+)?\.(?:amazonaws\.com(?:\.cn)?|"
    r"[a-z0-9.-]*(?:wasabisys|digitaloceanspaces|backblazeb2|scaleway|scw|ovh)\.[a-z]+)$"
)
_NAMES: Dict[Tuple[str, str, str], str] = {
    # (method, what it is about, first telling word of the query)
    ("GET", "key", ""): "GetObject",
    ("HEAD", "key", ""): "HeadObject",
    ("PUT", "key", ""): "PutObject",
    ("DELETE", "key", ""): "DeleteObject",
    ("PUT", "key", "copy"): "CopyObject",
    ("PUT", "key", "partnumber"): "UploadPart",
    ("GET", "key", "uploadid"): "ListParts",
    ("POST", "key", "uploads"): "CreateMultipartUpload",
    ("POST", "key", "uploadid"): "CompleteMultipartUpload",
    ("DELETE", "key", "uploadid"): "AbortMultipartUpload",
    ("POST", "key", "select"): "SelectObjectContent",
    ("GET", "bucket", ""): "ListObjects",
    ("GET", "bucket", "list-type"): "ListObjectsV2",
    ("GET", "bucket", "versions"): "ListObjectVersions",
    ("GET", "bucket", "uploads"): "ListMultipartUploads",
    ("GET", "bucket", "location"): "GetBucketLocation",
    ("POST", "bucket", "delete"): "DeleteObjects",
    ("HEAD", "bucket", ""): "HeadBucket",
    ("PUT", "bucket", ""): "CreateBucket",
    ("DELETE", "bucket", ""): "DeleteBucket",
    ("GET", "service", ""): "ListBuckets",
}
_TELLING = frozenset(word for _, _, word in _NAMES if word)


def operation_of(method: str, url: str, headers: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """The fields of the module for a request, or None when it is none of S3.

    Args:
        headers: lower-case name to value, scrubbed or not.
    """
    signed = "x-amz-content-sha256" in headers or "X-Amz-Signature=" in url or "AWSAccessKeyId=" in url
    if not signed and ".s3" not in url and "//s3" not in url:
        return None
    parts = urlsplit(url)
    host = _HOST.match(parts.hostname or "")
    if host is None and not signed:
        return None
    bucket, key = _place(parts.path, host["bucket"] if host is not None else None)
    about = "key" if key else "bucket" if bucket else "service"
    asked: Dict[str, Any] = {"operation": _operation(method, about, parts.query, headers)}
    if bucket:
        asked["bucket"] = bucket
    if key:
        asked["key"] = key
    if "range" in headers:
        asked["range"] = headers["range"]
    return asked


def _place(path: str, bucket: Optional[str]) -> Tuple[str, str]:
    path = unquote(path).lstrip("/")
    if bucket:
        return bucket, path
    bucket, _, key = path.partition("/")
    return bucket, key


def _operation(method: str, about: str, query: str, headers: Dict[str, str]) -> str:
    words = [pair.partition("=")[0].lower() for pair in query.split("&") if pair]
    if "x-amz-copy-source" in headers:
        words.insert(0, "copy")
    telling = sorted(
        (word for word in words if word in _TELLING), key=lambda word: (word != "partnumber", word)
    )
    for word in telling:
        name = _NAMES.get((method, about, word))
        if name is not None:
            return name
    odd = [
        word
        for word in words
        if not word.startswith(("x-", "prefix", "marker", "max-", "delimiter", "encoding-"))
    ]
    if odd and not telling and about != "key":  # sub-resources such as ?acl
        return f"{method} {about} {odd[0]}"
    return _NAMES.get((method, about, ""), f"{method} {about}")
