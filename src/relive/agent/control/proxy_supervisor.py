"""The agent's side of the recording: keeps the proxy running, answers its requests for commits, passes on what it saw."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog

from relive.agent.capsule.listener import written_address
from relive.agent.capsule.lives import Capsule
from relive.agent.commits.committer import Committer
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.commits.protection import retry_pause
from relive.agent.control.background import BackgroundTasks
from relive.agent.control.supervised_process import ProcessSupervisor
from relive.config import Settings
from relive.kernel.namespaces import Namespace, namespace_id
from relive.model.capsule import CaptureWay
from relive.model.commit import Trigger
from relive.proxies.ingress.options import CAPTURE, RELAY

__all__ = ["ProxySupervisor"]

_DAY = 86400.0  # [s]


class ProxySupervisor:
    """Belongs to the agent's event loop.

    Args:
        on_trouble: called with each message of the proxy about a failing request (see ``relive.proxies.ingress.proxy``).
        has_front: somebody keeps the public port, or soon will; None: if somebody does now.
        has_starts: what is observed starts again and again, each time maybe in another network: see ``attend`` and ``leave``.
    """

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        committer: Committer,
        tasks: BackgroundTasks,
        on_trouble: Callable[[dict[str, Any]], None],
        *,
        has_front: bool | None = None,
        has_starts: bool = False,
    ) -> None:
        self._settings = settings
        self._capsule = capsule
        self._has_front = capsule.paths.front_socket.exists() if has_front is None else has_front
        self._has_starts = has_starts
        self._committer = committer
        self._tasks = tasks
        self._on_trouble = on_trouble
        self._log = structlog.get_logger()
        self._held: list[int] = []
        self._held_changed = asyncio.Event()
        self._not_before = 0.0
        self.proxy = committer.proxy = self._make_proxy()
        spec = capsule.facts.spec
        self._begun = asyncio.Event()  # packets can be taken: it is known in which network
        if spec.capture is CaptureWay.BESIDE and spec.upstream is not None:
            committer.beside = spec.upstream[1]
        if committer.beside is None or not has_starts:
            self._begun.set()

    async def run(self) -> None:
        """Keep a proxy running as long as the capsule lives; returns at once when nothing is to be recorded."""
        if self.proxy is None:
            return
        if self._capsule.facts.spec.policy.each_request:
            self._tasks.start_guarded("requests", self._commit_before_requests)
        while self._capsule.is_alive:
            await self._begun.wait()
            await self.proxy.run(lambda: self._capsule.is_alive and self._begun.is_set())

    async def attend(self, pid: int) -> None:
        """A start of what is observed has begun, ``pid`` its first process: packets are taken in its network from now on.

        A recorder that outlived an earlier agent, or an earlier start, goes on where it is in that network.
        """
        if self.proxy is None or self._committer.beside is None:
            return
        try:
            network = namespace_id(pid, Namespace.NETWORK)
        except OSError:  # it has ended
            return
        is_own = network == namespace_id("self", Namespace.NETWORK)
        self.proxy.options = self._options() + ([] if is_own else ["--network", str(pid)])
        if (await self.proxy.status()).get("network", network) != network:
            await self.proxy.end()
        self._begun.set()

    async def leave(self) -> None:
        """A start has ended: nobody stays in a network of its own, which would stay for that alone."""
        if self.proxy is not None and "--network" in self.proxy.options:
            self._begun.clear()
            await self.proxy.end()

    def _make_proxy(self) -> ProcessSupervisor | None:
        spec, paths = self._capsule.facts.spec, self._capsule.paths
        if spec.listen is None:
            return None
        is_beside = spec.capture is CaptureWay.BESIDE
        return ProcessSupervisor(
            "the recorder of packets" if is_beside else "the recording proxy",
            "relive.proxies.ingress.capture" if is_beside else "relive.proxies.ingress.proxy",
            self._options(),
            paths.proxy_socket,
            paths.agent_log,
            self._heard,
            may_fork=self._settings.fork_server,
        )

    def _options(self) -> list[str]:
        is_beside = self._capsule.facts.spec.capture is CaptureWay.BESIDE
        return self._common_options() + (self._capture_options() if is_beside else self._proxy_options())

    def _common_options(self) -> list[str]:
        spec, paths = self._capsule.facts.spec, self._capsule.paths
        assert spec.listen is not None
        assert spec.upstream is not None
        options = [
            *("--listen", written_address(spec.listen), "--upstream", written_address(spec.upstream)),
            *("--recording", str(paths.recording), "--control", str(paths.proxy_socket)),
            *(
                "--body-limit",
                str(self._settings.body_limit),
                "--keep-bytes",
                str(self._settings.ingress_keep),
            ),
            *("--keep-seconds", str(self._settings.ingress_days * _DAY)),
        ]
        if not self._has_starts:
            options += ["--capsule", str(self._capsule.facts.init)]
        for log in paths.logs:
            options += ["--log", str(log)]
        if spec.hang_after is not None:
            options += ["--hang-after", str(spec.hang_after)]
        return options

    def _capture_options(self) -> list[str]:
        tools = self._settings.tools_path
        return [
            *("--capture", str(tools / CAPTURE), "--relay", str(tools / RELAY)),
            *("--answer-limit", str(self._settings.answer_limit)),
        ]

    def _proxy_options(self) -> list[str]:
        spec, paths = self._capsule.facts.spec, self._capsule.paths
        options: list[str] = []
        if spec.policy.each_request:
            options.append("--every-request")
        relay = self._settings.tools_path / RELAY
        if relay.exists():
            options += ["--relay", str(relay)]
        else:
            self._log.warning(
                "requests are carried by Python, which costs more: a library is missing; run `make setup`",
                file=str(relay),
            )
        if spec.stands_in:
            options.append("--stand-in")
        if self._has_front:
            options += ["--front", str(paths.front_socket)]
        return options

    def _heard(self, message: dict[str, Any]) -> None:
        if message.get("op") == "hold":
            self._held.append(message["request"])
            self._held_changed.set()
        elif message.get("op") == "packets-lost":
            self._log.warning("requests are missing in the recording", packets=message.get("packets"))
        elif message.get("op") == "unframed":
            self._log.warning("requests are not told apart", why=message.get("text"))
        else:
            self._on_trouble(message)

    async def _commit_before_requests(self) -> None:
        """Serve held requests. All that wait when a commit begins are covered by it; later ones wait for the next."""
        while True:
            await self._held_changed.wait()
            self._held_changed.clear()
            if not self._held:
                continue
            requests, self._held = self._held, []
            name = None
            try:
                if time.monotonic() >= self._not_before:
                    taken = await self._committer.capture(Trigger.REQUEST)
                    name = taken.name
                    self._tasks.begin(self._store(taken))
            except Exception as error:
                self._note_failure(error)
            finally:  # whatever became of the commit: the clients wait
                if self.proxy is not None and self.proxy.link is not None:
                    self.proxy.link.send("go", requests=requests, commit=name)

    async def _store(self, taken: DumpedCommit) -> None:
        try:
            await self._committer.store(taken)
        except Exception as error:
            self._note_failure(error)

    def _note_failure(self, error: Exception) -> None:
        # The next request tries again; if that fails too, requests go on without: each would stand still for nothing.
        self._not_before = time.monotonic() + self._committer.failed(error) - retry_pause(1)

    async def lacks(self) -> dict[str, int]:
        """What is not recorded as requests, since that process began; 0 where it does not say so at once.

        ``unframed``: connections that carried no HTTP/1; ``gaps``: places at which packets are missing.
        """
        status = await self.proxy.status() if self.proxy is not None else {}
        return {"unframed": int(status.get("unframed", 0)), "gaps": int(status.get("gaps", 0))}

    async def end(self) -> None:
        """End the proxy, which lets answers that are under way end first."""
        if self.proxy is not None:
            await self.proxy.end()
