"""A remote: an S3 bucket or a directory, through obstore. What lies where there is ``remote_layout``'s business."""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, ObjectStore, S3Store

from relive.config import is_s3_plain
from relive.errors import StoreVersionUnknown, UsageError
from relive.kernel.atomic_write import sync_directory
from relive.remotes.remote_errors import remote_errors, remote_unknown
from relive.remotes.remote_layout import FORMAT_PATH

__all__ = ["Remote", "open_remote"]

_VERSION = 1
_FORMAT = json.dumps({"version": _VERSION}).encode()
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


class Remote:
    """May be used from several threads. Every method raises RemoteUnreachable, RemoteRefused, RemoteUnknown, DiskFull."""

    def __init__(self, url: str, store: ObjectStore, directory: Path | None) -> None:
        self.url = url
        self._store = store
        self._directory = directory

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes | None:
        """Bytes of what lies there, all or a range; None if there is nothing."""
        with remote_errors(self.url):
            try:
                if size is None:
                    return bytes(obstore.get(self._store, path).bytes())
                return bytes(obstore.get_range(self._store, path, start=offset, length=size))
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    def sizes(self, directory: str) -> dict[str, int]:
        """Names in a directory and their sizes; empty if there is none."""
        with remote_errors(self.url):
            found = [entry for batch in obstore.list(self._store, directory) for entry in batch]
        return {entry["path"].removeprefix(directory + "/"): entry["size"] for entry in found}

    def write(self, path: str, data: bytes) -> None:
        """Put bytes there, replacing what is there; whole or not at all, durable on return."""
        with remote_errors(self.url):
            obstore.put(self._store, path, data, use_multipart=False)
            self._sync(path)

    def write_new(self, path: str, data: bytes) -> bool:
        """The same where there is nothing yet; False, and nothing is changed, where there is."""
        with remote_errors(self.url):
            try:
                obstore.put(self._store, path, data, mode="create")
            except AlreadyExistsError:
                return False
            self._sync(path)
        return True

    def begin_sending(self) -> None:
        """Make the remote ready to be written to; raises StoreVersionUnknown where a newer Relive wrote it."""
        if self.read(FORMAT_PATH) is None:
            self.write_new(FORMAT_PATH, _FORMAT)
        self.check_format()

    def check_format(self) -> None:
        """Raises StoreVersionUnknown where a newer Relive wrote it, RemoteUnknown where nothing was ever pushed to it."""
        found = self.read(FORMAT_PATH)
        if found is None:
            raise remote_unknown(self.url, "nothing was ever pushed to it")
        try:
            version = json.loads(found)["version"]
        except (ValueError, KeyError, TypeError):
            version = None
        if version != _VERSION:
            raise StoreVersionUnknown(
                f"the remote {self.url} has format {version}",
                cause=f"this Relive reads format {_VERSION}",
                remedy="use the Relive that wrote it, or another remote",
            )

    def _sync(self, path: str) -> None:
        """In a directory: make a file that was put there durable, with the names that lead to it."""
        if self._directory is None:
            return
        file = self._directory / path
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        for parent in file.parents:
            sync_directory(parent)
            if parent == self._directory:
                break


def open_remote(url: str, *, make: bool) -> Remote:
    """A remote by its address: ``s3://BUCKET/PREFIX`` or ``file:///PATH``. Nothing is asked of it yet.

    Args:
        make: make the directory where there is none; a bucket is never made.

    Raises:
        UsageError: it is no such address. RemoteUnknown: there is no such directory.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc):
        return Remote(url, _open_bucket(parts.netloc, parts.path), None)
    if parts.scheme == "file" and parts.netloc == "" and len(parts.path) > 1:
        directory = Path(unquote(parts.path))
        if not make and not directory.is_dir():
            raise remote_unknown(url, "there is no such directory")
        with remote_errors(url):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # it will hold the memory of services
            return Remote(url, LocalStore(directory.resolve()), directory.resolve())
    raise UsageError(
        f"{url!r} is no remote",
        cause="it is no address of a kind that is known",
        remedy="write s3://BUCKET/PREFIX or file:///PATH",
    )


def _open_bucket(bucket: str, prefix: str) -> S3Store:
    return S3Store(
        bucket,
        prefix=prefix.strip("/") or None,
        client_options={
            "allow_http": is_s3_plain(),
            "connect_timeout": timedelta(seconds=5),
            "timeout": timedelta(seconds=180),  # of one request; a piece over a slow line takes long
        },
        retry_config={
            "max_retries": 4,
            "retry_timeout": timedelta(seconds=60),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=3),
                "base": 2,
            },
        },
    )
