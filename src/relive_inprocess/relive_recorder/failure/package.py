"""The error package: all that is kept of a failure without a commit. Its shape is ``ErrorPackage`` in ``relive.model.failure``."""

import json
import os
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from relive_recorder import context
from relive_recorder.failure import chain, revision, versions
from relive_recorder.failure.frames import main_directory
from relive_recorder.failure.representation import Representer
from relive_recorder.recorder import recorder

__all__ = ["make"]

MOST_BYTES = 512 << 10  # [bytes] what is longer is refused by whoever reads it
_VARIABLES = 300
_VALUE = 1000  # [characters] of one variable
_BODY = 32 << 10  # [bytes] of the request's body
_mono = time.monotonic_ns
_wall = time.time_ns
# UTF-8 as such: half a surrogate pair, which JSON could hold as an escape, is replaced when it becomes bytes.
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, ensure_ascii=False).encode


def make(error: BaseException, where: str, fingerprint: str, representer: Representer) -> bytes:
    """The package as JSON, at most ``MOST_BYTES`` long; what was left out is said in it.

    Args:
        where: "handler", "thread", "task", "main", "job" or "log".
    """
    cut: List[str] = []
    links = chain.describe(error, representer, cut)
    package: Dict[str, Any] = {
        "version": 1,
        "type": links[0]["type"],
        "text": links[0]["text"],
        "fingerprint": fingerprint,
        "where": where,
        "wall_ns": _wall(),
        "mono_ns": _mono(),
        "pid": os.getpid(),
        "thread": threading.current_thread().name,
        "lane": context.lane(),
        "request": _request(cut),
        "chain": links,
        "environment": _environment(cut),
        "versions": {
            "python": sys.version.split()[0],
            "packages": versions.of_packages(_mono() + 30_000_000),
        },
        "revision": revision.of(_code_directory(links)),
        "argv": [word[:_VALUE] for word in recorder.arguments()],
        "cwd": os.getcwd(),
        "cut": cut,
    }
    if representer.is_exhausted:
        cut.append(
            "values that there was no time or room to look at; frames are looked at from the innermost one outward"
        )
    return _fitting(package)


def _code_directory(links: List[Dict[str, Any]]) -> str:
    """Where the service's code lies that failed; a server that runs it (``uvicorn app:app``) mostly lies elsewhere."""
    own = [frame["file"] for frame in links[0]["frames"] if frame["own"]]
    return os.path.dirname(os.path.abspath(own[-1])) if own and own[-1][:1] != "<" else main_directory()


def _request(cut: List[str]) -> Optional[Dict[str, Any]]:
    request = context.here()
    if request.number == 0:
        return None
    about = request.about
    handling = request.handling
    body = handling.body_so_far() if handling is not None else b""
    kept = recorder.scrubber.data(body[:_BODY]).decode("utf-8", "replace")
    if len(body) > _BODY:
        cut.append("the end of the request's body")
    return {
        "number": request.number,
        "server": about.get("server", ""),
        "method": about.get("method", ""),
        "target": about.get("target", ""),
        "peer": about.get("peer") or [],
        "headers": about.get("headers", []),
        "query": _query(about.get("target", "")),
        "path_params": handling.path_params() if handling is not None else {},
        "body": kept if body else None,
        "body_cut": max(0, len(body) - _BODY),
    }


def _query(target: str) -> Dict[str, Any]:
    """Parameters by name, scrubbed; those that came several times as a list."""
    from urllib.parse import parse_qsl

    found: Dict[str, Any] = {}
    try:
        pairs = parse_qsl(target.partition("?")[2], keep_blank_values=True, max_num_fields=200)
    except ValueError:  # more than that
        return found
    for name, value in pairs:
        shown = recorder.scrubber.named(name, value)
        known = found.get(name)
        if known is None:
            found[name] = shown
        else:
            found[name] = [*known, shown] if type(known) is list else [known, shown]
    return found


def _environment(cut: List[str]) -> Dict[str, str]:
    # Not through os.environ's own methods: readings of it may be what is recorded.
    held = getattr(os.environ, "_data", {})
    if len(held) > _VARIABLES:
        cut.append(f"{len(held) - _VARIABLES} environment variables")
    found = {}
    for name, value in sorted(held.items())[:_VARIABLES]:
        key, text = os.fsdecode(name), os.fsdecode(value)
        if key != "RELIVE_RECORDER":
            found[key] = recorder.scrubber.named(key, text)[:_VALUE]
    return found


def _fitting(package: Dict[str, Any]) -> bytes:
    """Encoded; when it is too long, without what matters least: step by step, and said."""
    data = _encode(package).encode("utf-8", "replace")
    for what, drop in (
        ("locals of libraries", _drop_library_locals),
        ("all source lines", lambda one: _drop(one, "source", None)),
        ("the environment", lambda one: one.update(environment={})),
        ("all locals", lambda one: _drop(one, "locals", {})),
        ("all frames but the last ones", _drop_frames),
    ):
        if len(data) <= MOST_BYTES:
            break
        drop(package)
        package["cut"].append(what)
        data = _encode(package).encode("utf-8", "replace")
    return data


def _drop_library_locals(package: Dict[str, Any]) -> None:
    for link in package["chain"]:
        for frame in link["frames"]:
            if not frame["own"]:
                frame["locals_cut"] += len(frame["locals"])
                frame["locals"] = {}


def _drop(package: Dict[str, Any], name: str, nothing: Any) -> None:
    for link in package["chain"]:
        for frame in link["frames"]:
            if name == "locals":
                frame["locals_cut"] += len(frame["locals"])
            frame[name] = nothing


def _drop_frames(package: Dict[str, Any]) -> None:
    for link in package["chain"]:
        link["frames"] = link["frames"][-5:]
