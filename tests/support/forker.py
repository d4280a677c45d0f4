"""Commands of Relive in forks of one process that has imported it already: its start costs more than most commands.

Each command still is a process of its own, with its own environment, streams and exit status, in the session of the tests.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

LIMIT = 100.0  # [s] for one command

# What the commands most used import only when they run. numpy must start no threads, which a fork would not take along.
_PRELOADED = """
numpy.ma zstandard statistics typer._adapters typer._click.decorators
relive.cli.commit_cmd relive.cli.incidents_cmd relive.cli.log_cmd relive.cli.ps_cmd relive.cli.replay_cmd relive.cli.restore_cmd
relive.cli.run_cmd relive.cli.show_cmd relive.cli.stop_cmd relive.cli.params_options
relive.agent.capsule.launch relive.check.command relive.check.lacking relive.checkpoint.dump relive.operations.branches
relive.operations.committing
relive.operations.foreground_run relive.operations.incidents relive.operations.observing relive.operations.policies
relive.operations.replays relive.operations.restoring relive.operations.resuming relive.operations.running
relive.operations.runs
relive.containers.restore.restoring relive.incidents.report.body relive.protocols.registry relive.replay.replay
relive.replay.stubs.process relive.sandbox.restoring relive.store.pages.commit_memory relive.store.pages.materialize
relive.store.pages.ingest relive.store.pages.page_reader relive.store.pages.parent_readback relive.watching.processes.journal
"""

_SERVER = """
import gc, importlib, json, os, sys
gc.disable()
from relive.cli.app import main
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.collect(), gc.freeze(), gc.enable()
for line in sys.stdin:
    words, environment, out, err = json.loads(line)
    child = os.fork()
    if child == 0:
        for number, path in ((0, os.devnull), (1, out), (2, err)):
            os.dup2(os.open(path, os.O_RDWR), number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir("/")
        sys.argv = ["relive", *words]
        status = 1
        try:
            main()
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Forker:
    """The process that forks. Threads may share it; their commands run one after another."""

    def __init__(self, directory: Path) -> None:
        self._out, self._err = directory / "out", directory / "err"
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *_PRELOADED.split()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    def __call__(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run ``relive WORDS`` with nothing but this environment, in ``/``, without input."""
        with self._lock:
            return self._run(list(words), dict(environment))

    def _run(self, words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._out.write_text("")
        self._err.write_text("")
        request = [words, environment, str(self._out), str(self._err)]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ended, _, _ = select.select([self._process.stdout], [], [], LIMIT)
        assert ended, f"relive {' '.join(words)} does not end"
        status = int(self._process.stdout.readline())
        return subprocess.CompletedProcess(
            words, status, self._out.read_text(errors="replace"), self._err.read_text(errors="replace")
        )

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LIMIT)
        self._process.stdout.close()
