"""A job of a real worker is a request, and what escapes it a failure."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.model.failure import Where, read_package
from relive.recording.events import EventKind

WORKER = """
import sys
from redis import Redis
from rq import Queue, Worker
import jobs
redis = Redis(unix_socket_path=%r)
queue = Queue("work", connection=redis)
queue.enqueue(jobs.add, 2, 3)
queue.enqueue(jobs.pay, 1386, api_key="sk-live-0815")
Worker([queue], connection=redis).work(burst=True, logging_level="ERROR")
"""
JOBS = """
def add(left, right):
    return left + right
def pay(order, api_key):
    return {}[order]
"""
CELERY = """
import os, subprocess, sys
from celery import Celery
from celery.signals import task_postrun
from redis import Redis
here = Redis(unix_socket_path=%r)
task_postrun.connect(lambda **_: here.rpush("ended", 1), weak=False)
app = Celery("shop", broker="redis+socket://%s")
app.conf.update(task_default_queue="work", task_ignore_result=True)
@app.task
def add(left, right):
    return left + right
@app.task
def pay(order, api_key):
    return {}[order]
@app.task(bind=True, max_retries=1)
def again(self):
    if self.request.retries:
        return "in the end"
    raise self.retry(countdown=0)
# The one that sends is a process of its own: beside a worker's threads Celery now and then loses what is sent.
sender = subprocess.Popen(
    [sys.executable, "-c", os.environ["SENDER"]],
    env={name: value for name, value in os.environ.items() if name != "RELIVE_RECORDER"},
)
app.worker_main(["worker", "-P", %r, "-c", "2", "-l", "CRITICAL", "--without-gossip", "--without-mingle"])
sys.exit(sender.wait())
"""
SENDER = """
import os, signal
from celery import Celery
from redis import Redis
app = Celery("shop", broker="redis+socket://%s")
app.conf.update(task_default_queue="work", task_ignore_result=True)
app.send_task("shop.add", (2, 3))
app.send_task("shop.pay", (1386,), {"api_key": "sk-live-0815"})
app.send_task("shop.again")
here = Redis(unix_socket_path=%r)
for _ in range(4):
    assert here.blpop("ended", timeout=50)
os.kill(os.getppid(), signal.SIGTERM)
"""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Path]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    path = tmp_path / "redis"
    server = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", path, "--save", "", "--daemonize", "no"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    for line in server.stdout:
        if "ready to accept connections" in line.lower():
            break
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
    yield path
    server.terminate()
    server.communicate(timeout=30)


def test_jobs_of_an_rq_worker(run_recorded, redis, tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)
    ran = run_recorded(WORKER % str(redis))
    assert "recorder switched off" not in ran.err
    begun = ran.of(EventKind.HANDLING_STARTED)
    assert [(one.fields["server"], one.fields["method"]) for one in begun] == [
        ("rq", "jobs.add"),
        ("rq", "jobs.pay"),
    ]
    assert len(ran.of(EventKind.HANDLING_ENDED)) == 2
    (failure,) = ran.of(EventKind.FAILURE)
    package = read_package(failure.data)
    assert (package.where, package.text) == (Where.JOB, "1386")
    request = package.request
    assert request is not None
    assert (request.server, request.method) == ("rq", "jobs.pay")
    assert request.target.startswith("work/")
    assert request.body is not None
    assert "1386" in request.body
    assert "sk-live-0815" not in failure.data.decode()


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_tasks_of_a_celery_worker(run_recorded, redis, pool, monkeypatch):
    """A task that is tried again begins twice, and is no failure."""
    monkeypatch.setenv("SENDER", SENDER % (redis, str(redis)))
    ran = run_recorded(CELERY % (str(redis), redis, pool))
    assert ran.status == 0, ran.err
    assert "recorder switched off" not in ran.err
    begun = [(one.fields["server"], one.fields["method"]) for one in ran.of(EventKind.HANDLING_STARTED)]
    assert sorted(begun) == [
        ("celery", "shop.add"),
        ("celery", "shop.again"),
        ("celery", "shop.again"),
        ("celery", "shop.pay"),
    ]
    assert len(ran.of(EventKind.HANDLING_ENDED)) == 4
    (failure,) = ran.of(EventKind.FAILURE)
    package = read_package(failure.data)
    assert (package.where, package.type, package.text) == (Where.JOB, "builtins.KeyError", "1386")
    frame = package.failing_frame()
    assert frame is not None
    assert (frame.function, frame.locals["order"]) == ("pay", "1386")
    request = package.request
    assert request is not None
    assert (request.server, request.method) == ("celery", "shop.pay")
    assert request.target.startswith("work/")
    assert "sk-live-0815" not in failure.data.decode()


OVERLAPPING = """
import threading, types
from celery import signals
class Task:
    name = "shop.again"
    request = types.SimpleNamespace(delivery_info={"routing_key": "work"})
task = Task()
first_begun, first_ends, second_begun = threading.Event(), threading.Event(), threading.Event()
def attempt(begun, ends):
    signals.task_prerun.send(sender=task, task_id="t1", task=task, args=(), kwargs={})
    begun.set()
    ends.wait()
    signals.task_postrun.send(sender=task, task_id="t1", task=task)
first = threading.Thread(target=attempt, args=(first_begun, first_ends), daemon=True)
first.start()
assert first_begun.wait(30)
second = threading.Thread(target=attempt, args=(second_begun, first_begun), daemon=True)
second.start()
second.join()
first_ends.set()
first.join()
"""


def test_a_task_that_is_tried_again_before_its_first_try_has_ended(run_recorded):
    ran = run_recorded(OVERLAPPING)
    assert ran.status == 0, ran.err
    begun, ended = ran.of(EventKind.HANDLING_STARTED), ran.of(EventKind.HANDLING_ENDED)
    assert [one.request for one in begun] == [1, 2]
    assert [one.request for one in ended] == [2, 1]
