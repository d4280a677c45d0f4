"""A health check by HTTP: whether a service answers at a URL, asked by the watch."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from functools import partial

from relive.errors import UsageError
from relive.kernel.sklookup import PASSED
from relive.model.watched import WatchSpec
from relive.watching.state import HealthCheck

__all__ = ["Answering", "answering_of", "check_url"]

INTERVAL = 2.0  # [s] between two checks
STREAK = 2  # checks that fail in a row until a service counts as unhealthy
_LIMIT = 5.0  # [s] for an answer


def check_url(url: str) -> str:
    """A URL that can be asked, if it is one; raises UsageError."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            f"--health-url cannot be {url!r}",
            cause="it does not begin with http:// or https://",
            remedy="write a URL that answers with a status below 400 while all is well",
        )
    return url


class _From(urllib.request.HTTPHandler):
    """Asks by HTTP from an address of this host's."""

    def __init__(self, source: str | None) -> None:
        super().__init__()
        self._address = (source, 0) if source is not None else None

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """See the base."""
        return self.do_open(partial(http.client.HTTPConnection, source_address=self._address), req)


class Answering:
    """The health of one service. ``check`` and ``health`` may be called in several threads.

    Args:
        source: address to ask from; None: the one that the kernel chooses.
    """

    def __init__(self, url: str, source: str | None) -> None:
        self._url = url
        self._health = HealthCheck("starting", 0, "", INTERVAL, None)
        # The service itself is meant, and no proxy on the way to it.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _From(source))

    @property
    def health(self) -> HealthCheck:
        """As it was at the last check."""
        return self._health

    def check(self) -> None:
        """Ask once."""
        trouble = self._ask()
        streak = self._health.streak + 1 if trouble else 0
        status = "healthy" if not trouble else "unhealthy" if streak >= STREAK else self._health.status
        self._health = HealthCheck(status, streak, trouble, INTERVAL, time.time())

    def _ask(self) -> str:
        """What was wrong; empty when nothing was."""
        try:
            with self._opener.open(self._url, timeout=_LIMIT) as answer:
                answer.read(1)
        except urllib.error.HTTPError as error:
            error.close()
            return f"{self._url} was answered with status {error.code}"
        except (OSError, http.client.HTTPException) as error:
            return f"{self._url} was not answered: {getattr(error, 'reason', None) or error}"
        return ""


def answering_of(spec: WatchSpec | None) -> Answering | None:
    """What a watch was asked for; None for none. Where the service's port is taken, the checks are not recorded as requests."""
    if spec is None or spec.health_url is None:
        return None
    return Answering(spec.health_url, PASSED if spec.stands_in else None)
