"""Failures of a remote, told in Relive's own errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from relive.errors import (
    DiskFull,
    PermissionMissing,
    ReliveError,
    RemoteRefused,
    RemoteUnknown,
    RemoteUnreachable,
)

__all__ = ["remote_errors"]

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_FULL, _FORBIDDEN = {28, 122}, {1, 13, 30}  # ENOSPC, EDQUOT | EPERM, EACCES, EROFS
# It looked for those of a machine in EC2.
_NO_CREDENTIALS = re.compile(r"169\.254\.|credential", re.IGNORECASE)
_REFUSED = re.compile(r"status code: 40[13]|AccessDenied|SignatureDoesNotMatch|InvalidAccessKeyId")


@contextlib.contextmanager
def remote_errors(url: str) -> Iterator[None]:
    """Turn what obstore raises into errors that name the remote; FileNotFoundError passes unless the bucket is missing."""
    try:
        yield
    except FileNotFoundError as error:
        if "NoSuchBucket" not in str(error):
            raise
        raise remote_unknown(url, "there is no such bucket") from error
    except (BaseError, OSError) as error:
        raise _translated(url, error) from error


def remote_unknown(url: str, cause: str) -> RemoteUnknown:
    """The error of a remote that is not there."""
    return RemoteUnknown(
        f"there is no remote {url}",
        cause=cause,
        remedy="correct its address, or make the bucket or directory",
    )


def _translated(url: str, error: Exception) -> ReliveError:
    text = str(error)
    cause = text.partition("\n\nDebug source")[0].strip()
    number = _OS_ERROR.search(text)
    if number is not None and int(number[1]) in _FULL:
        return DiskFull(f"no space left at {url}", cause=cause, remedy="free space there, then run it again")
    if number is not None and int(number[1]) in _FORBIDDEN:
        return PermissionMissing(
            f"no right to use {url}", cause=cause, remedy="run it as the directory's owner"
        )
    if "NoSuchBucket" in text:
        return remote_unknown(url, "there is no such bucket")
    if _NO_CREDENTIALS.search(text):
        return RemoteRefused(
            f"there are no credentials for {url}",
            cause=cause,
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or _REFUSED.search(text):
        return RemoteRefused(
            f"the remote {url} refuses",
            cause=cause,
            remedy="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and what they may do there",
        )
    return RemoteUnreachable(
        f"the remote {url} does not answer",
        cause=cause,
        remedy="check the network and AWS_ENDPOINT_URL, then run it again; it goes on where it ended",
    )
