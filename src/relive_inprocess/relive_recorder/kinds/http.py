"""HTTP calls: each library that makes them is changed when it is imported, and only then is the code for it loaded.

One call is one event: what stands on ``http.client`` (requests, urllib3, urllib.request, botocore) is seen there, httpx in
httpcore.
"""

from typing import Any

from relive_recorder.imports import when_imported

__all__ = ["install"]


def install() -> None:
    """Wait for the libraries."""
    when_imported("http.client", _change_http_client)
    when_imported("urllib3.connectionpool", _change_urllib3)
    when_imported("httpcore", _change_httpcore)
    when_imported("aiohttp.client", _change_aiohttp)


def _change_http_client(module: Any) -> None:
    from relive_recorder.kinds import http_client

    http_client.change(module)


def _change_urllib3(module: Any) -> None:
    from relive_recorder.kinds import http_client

    http_client.change_urllib3(module)


def _change_httpcore(module: Any) -> None:
    from relive_recorder.kinds import httpcore_pool

    httpcore_pool.change(module)


def _change_aiohttp(_module: Any) -> None:
    from relive_recorder.kinds import aiohttp_client

    aiohttp_client.change()
