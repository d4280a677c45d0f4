"""Jobs of Celery and RQ workers: a job is a request, its method the function's name, its target the queue and the job's id."""

import functools
import threading
from typing import Any, Dict, Optional, Tuple

from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.recorder import OFF, recorder
from relive_recorder.servers.handling import Handling, begin
from relive_recorder.values import pack, to_json

__all__ = ["install"]


def install() -> None:
    """Celery tells by signals; of RQ the class ``Job`` is changed."""
    when_imported("celery.signals", _celery)
    when_imported("rq.job", _rq)


def _rq(module: Any) -> None:
    perform = module.Job.perform

    @functools.wraps(perform)
    def perform_recorded(self: Any) -> Any:
        handling = attempt(_begin_rq, self) if recorder.mode() != OFF else None
        if handling is None:
            return perform(self)
        try:
            return perform(self)
        except BaseException as error:
            attempt(handling.failed, error, "job")
            raise
        finally:
            handling.ended()

    module.Job.perform = perform_recorded


def _begin_rq(job: Any) -> Optional[Handling]:
    return _begin("rq", str(job.func_name), f"{job.origin}/{job.id}", job.args, job.kwargs)


def _begin(server: str, function: str, target: str, args: Any, named: Any) -> Optional[Handling]:
    handling = begin(server, function, target, [], [])
    if handling is not None:
        arguments = recorder.scrubber.packed({"args": pack(args, 6), "kwargs": pack(named, 6)})
        handling.received(to_json(arguments).encode("utf-8", "replace"), is_last=True)
    return handling


_running: Dict[Tuple[str, int], Handling] = {}  # of Celery, see ``_place``


def _celery(module: Any) -> None:
    module.task_prerun.connect(_celery_begins, weak=False)
    module.task_failure.connect(_celery_fails, weak=False)
    module.task_postrun.connect(_celery_ends, weak=False)


def _celery_begins(
    task_id: Any = None, task: Any = None, args: Any = None, kwargs: Any = None, **_: Any
) -> None:
    attempt(_begin_celery, task_id, task, args, kwargs)


def _begin_celery(task_id: Any, task: Any, args: Any, named: Any) -> None:
    queue = (getattr(task.request, "delivery_info", None) or {}).get("routing_key", "")
    handling = _begin("celery", str(task.name), f"{queue}/{task_id}", args, named)
    if handling is not None:
        _running[_place(task_id)] = handling


def _place(task_id: Any) -> Tuple[str, int]:
    """A task that is tried again may begin in another thread before its first try has ended in this one."""
    return str(task_id), threading.get_ident()  # looked up each time: gevent changes it


def _celery_fails(task_id: Any = None, exception: Any = None, **_: Any) -> None:
    handling = _running.get(_place(task_id))
    if handling is not None and isinstance(exception, BaseException):
        attempt(handling.failed, exception, "job")


def _celery_ends(task_id: Any = None, **_: Any) -> None:
    handling = _running.pop(_place(task_id), None)
    if handling is not None:
        handling.ended()
