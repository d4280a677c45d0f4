"""What the commits and restores of this run cost, told at its end; only noise-free enough to see that nothing is absurd.

A plugin of pytest. The workers of ``pytest -n`` hand their numbers to the process that started them.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

MEASURED: list[tuple[str, str, float]] = []  # service; "pause", "durable" or "restore"; milliseconds


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["measured"] = MEASURED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # A worker that was killed has no output.
    MEASURED.extend(getattr(node, "workeroutput", {}).get("measured", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not MEASURED:
        return
    load = os.getloadavg()[0]
    terminalreporter.section(f"milliseconds per service (load average {load:.1f})")
    terminalreporter.write_line(f"{'service':<28}{'pause':>8}{'durable':>9}  restores")
    for name in dict.fromkeys(name for name, _, _ in MEASURED):
        of = {
            what: [value for one, kind, value in MEASURED if one == name and kind == what]
            for what in ("pause", "durable", "restore")
        }
        restores = " ".join(f"{value:.0f}" for value in of["restore"])
        first = [f"{of[what][0]:.1f}" if of[what] else "-" for what in ("pause", "durable")]
        terminalreporter.write_line(f"{name:<28}{first[0]:>8}{first[1]:>9}  {restores}")
