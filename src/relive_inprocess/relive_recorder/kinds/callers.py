"""Who calls: the service and its libraries, or Python's own machinery, whose readings are nobody's business.

In a branch the machinery must go by what is really there: time-outs by its clock, locks by its random delays.
"""

import os
from typing import Any, Dict, FrozenSet

__all__ = ["installed", "is_installed", "is_machinery", "is_service", "verdicts"]

# The first part of a module's name.
MACHINERY: FrozenSet[str] = frozenset(
    (
        "asyncio concurrent threading queue selectors socket socketserver ssl subprocess multiprocessing "
        "logging http urllib email sched random uuid tempfile importlib _pydatetime uvloop uvicorn gunicorn "
        "hypercorn daphne twisted autobahn waitress gevent anyio sniffio trio httpx httpcore urllib3 aiohttp "
        "redis psycopg psycopg_pool psycopg2 asyncpg pymysql sqlalchemy celery kombu billiard amqp vine rq botocore "
        "werkzeug relive_recorder _pytest pytest"
    ).split()
)
# Modules of these that call what the service gave them: SQLAlchemy a column's default, such as datetime.now.
_CALLING_BACK: FrozenSet[str] = frozenset(("sqlalchemy.sql.schema",))
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_PACKAGES = ("site-packages", "dist-packages")


verdicts: Dict[str, bool] = {}  # what is_machinery said of modules, by name


def is_machinery(frame: Any) -> bool:
    """The code that runs in a frame is of one of the modules in ``MACHINERY``, for itself. None: a thread or a callback of C."""
    if frame is None:
        return True
    name = frame.f_globals.get("__name__")
    verdict = verdicts.get(name) if type(name) is str else False
    if verdict is None:
        verdict = name.partition(".")[0] in MACHINERY and name not in _CALLING_BACK
        if len(verdicts) < 10_000:  # names may be made up without end
            verdicts[name] = verdict
    return verdict


def _is_python_itself(frame: Any) -> bool:
    """The code that runs in a frame belongs to Python's library, or to the recorder."""
    file = frame.f_code.co_filename
    if file.startswith("<frozen"):
        return True
    if file.startswith(_LIBRARY):
        return not file.startswith(_PACKAGES, len(_LIBRARY))
    return str(frame.f_globals.get("__name__", "")).startswith("relive_recorder")


_files: Dict[str, bool] = {}
installed: Dict[str, bool] = {}  # what is_installed said of the code in a file


def is_installed(frame: Any, passing: FrozenSet[str]) -> bool:
    """The first frame from here upwards that is of none of the modules ``passing`` is of Python's own library, of an installed
    package, or of the recorder.
    """
    while frame is not None and frame.f_globals.get("__name__") in passing:
        frame = frame.f_back
    if frame is None:
        return True
    file = frame.f_code.co_filename
    said = installed.get(file)
    if said is None:
        said = "-packages/" in file or _is_python_itself(frame)
        if len(installed) < 10_000:
            installed[file] = said
    return said


def is_service(frame: Any, passing: FrozenSet[str]) -> bool:
    """The first frame from here upwards that is of none of the modules ``passing`` is not of Python's own library."""
    while frame is not None and frame.f_globals.get("__name__") in passing:
        frame = frame.f_back
    if frame is None:
        return False
    file = frame.f_code.co_filename
    is_own = _files.get(file)
    if is_own is None:
        is_own = _is_python_itself(frame)
        if len(_files) < 10_000:
            _files[file] = is_own
    return not is_own
