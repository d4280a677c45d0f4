"""Questions to one thread of Node.js, through its inspector: its stack, its modules' values, an expression.

A module's variables are no properties of anything: they live in the scope that its functions were made in. So for each of the
service's own scripts a living function of it is looked for (``Runtime.queryObjects``), and its outermost scope below the global one
is the module's. What no function of the module uses is not kept by V8, and so is not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from relive.errors import UsageError
from relive.inspection.evaluated import EvalOutcome
from relive.inspection.node.inspector import Conversation

__all__ = ["Looker", "chosen_module", "is_own", "module_name", "path_of"]

_PROGRAM = Path(__file__).with_name("program.js")
_MOST_MODULES = 100
_TRIED = 5  # functions of a script: some may be of a copy of it
_MODULE = frozenset({"closure", "module"})
_WAITS = frozenset({"232", "281"})  # epoll_wait(2), epoll_pwait(2)
_LOOKS = 3  # in a row that find the event loop waiting
_NO_NAME = re.compile(r"\W")
# ``with`` is not there in strict code, which a function made so is not.
_EVALUATE = "function ($modules, $own, $text) { with ($modules) { with ($own) { return eval($text); } } }"


@dataclass(frozen=True, slots=True)
class _Module:
    """What holds the names of a module: the scope of its variables, and what it exports; as the inspector numbers them."""

    scope: str | None
    exports: str | None


@dataclass(slots=True)
class Looker:
    """Questions to one process.

    Attributes:
        scripts: URL by number, of all that are loaded, the first first.
    """

    inspector: Conversation
    scripts: dict[str, str] = field(default_factory=dict)
    _program: str = ""

    def __post_init__(self) -> None:
        self.inspector.ask("Debugger.enable")
        parsed = [params for name, params in self.inspector.events if name == "Debugger.scriptParsed"]
        parsed.sort(key=lambda params: int(params["scriptId"]))  # in the order in which they were loaded
        self.scripts = {params["scriptId"]: params["url"] for params in parsed}

    def paused_frames(self, pid: int) -> list[dict[str, Any]]:
        """The stack of the main thread, which stands still from then on; empty where it waits in its event loop."""
        self.inspector.ask("Debugger.pause")
        looks = 0

        def waits() -> bool:
            nonlocal looks
            looks = looks + 1 if _call_of(pid) in _WAITS else 0
            return looks >= _LOOKS

        paused = self.inspector.await_event("Debugger.paused", waits)
        self.inspector.ask("Debugger.setSkipAllPauses", skip=True)  # else it would stop in what is asked next
        return list(paused["callFrames"]) if paused is not None else []

    def paused_worker_frames(self) -> list[dict[str, Any]]:
        """As ``paused_frames``, of a worker thread: it runs an expression of ours on top of what it runs, and stops there."""
        self.inspector.ask("Debugger.pause")
        self.inspector.send("Runtime.evaluate", expression="0")
        paused = self.inspector.await_event("Debugger.paused", lambda: False)
        self.inspector.ask("Debugger.setSkipAllPauses", skip=True)
        frames = list(paused["callFrames"]) if paused is not None else []
        ours = bool(frames) and frames[0]["location"]["scriptId"] not in self.scripts
        return frames[1:] if ours else frames

    def call(self, function: str, *arguments: Mapping[str, Any]) -> Any:
        """What a function of the program gives, as JSON's values."""
        return self._called(function, arguments, returnByValue=True)["value"]

    def names(self, *objects: str | None) -> dict[str, str]:
        """Texts by name of what is in scopes or exports, the first first."""
        found: dict[str, str] = {}
        for one in reversed(objects):
            found |= self.call("names", {"objectId": one}) if one is not None else {}
        return found

    def modules(self) -> tuple[dict[str, _Module], int]:
        """(the service's own modules by file, how many more there are)."""
        own = {number: url for number, url in self.scripts.items() if is_own(url)}
        chosen = dict(list(own.items())[:_MOST_MODULES])
        scopes: dict[str, str] = {}
        for number, scope in self._scopes(chosen):
            scopes.setdefault(path_of(chosen[number]), scope)
        found = {path_of(url): self._module(path_of(url), scopes) for url in chosen.values()}
        return {file: one for file, one in found.items() if one.scope or one.exports}, len(own) - len(chosen)

    def _module(self, file: str, scopes: Mapping[str, str]) -> _Module:
        exports = self._value(f"(require.cache ?? {{}})[{json.dumps(file)}]?.exports")
        return _Module(scopes.get(file), exports.get("objectId"))

    def evaluate(
        self, expression: str, module: str | None, depth: int, most: int
    ) -> tuple[EvalOutcome, dict[str, Any]]:
        """(how it ended, what is to be told of it)."""
        found, _ = self.modules()
        chosen = chosen_module(list(found), module)
        empty = self._value("({})")["objectId"]
        merged = {file: self._merged(one) for file, one in found.items()}
        own = self._merged(found[chosen]) if chosen is not None else empty
        exports = [{"objectId": one.exports} if one.exports else {} for one in found.values()]
        held = [{"objectId": one} for one in merged.values()]
        names = self._called(
            "named", ({"value": list(map(module_name, merged))}, {"objectId": own}, *held, *exports)
        )
        told = self.inspector.ask(
            "Runtime.callFunctionOn",
            objectId=empty,
            functionDeclaration=_EVALUATE,
            arguments=[{"objectId": names["objectId"]}, {"objectId": own}, {"value": expression}],
        )
        if "exceptionDetails" in told:
            return EvalOutcome.RAISED, _raised(told["exceptionDetails"])
        value = _argument(told["result"])
        return EvalOutcome.VALUE, self.call("describe", value) | self.call(
            "parts", value, {"value": depth}, {"value": most}
        )

    def _merged(self, module: _Module) -> str:
        """One object with all names of a module."""
        held = [{"objectId": one} for one in (module.scope, module.exports) if one is not None]
        return str(self._called("merged", held)["objectId"])

    def _scopes(self, scripts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """(number of the script, its module's scope), of the functions that were found of it."""
        prototype = self._value("Function.prototype")["objectId"]
        functions = self.inspector.ask("Runtime.queryObjects", prototypeObjectId=prototype)["objects"]
        sources = [
            self.inspector.ask("Debugger.getScriptSource", scriptId=one).get("scriptSource", "")
            for one in scripts
        ]
        found = self._called(
            "functionsOf", ({"objectId": functions["objectId"]}, {"value": sources}, {"value": _TRIED})
        )
        for one in self._properties(found["objectId"])["result"]:
            if not one["name"].isdecimal():
                continue
            inner = {
                each["name"]: each.get("value", {})
                for each in self._properties(one["value"]["objectId"]).get("internalProperties", [])
            }
            place = inner.get("[[FunctionLocation]]", {}).get("value", {})
            if place.get("scriptId") in scripts and "[[Scopes]]" in inner:
                scope = self._module_scope(inner["[[Scopes]]"]["objectId"])
                if scope is not None:
                    yield place["scriptId"], scope

    def _module_scope(self, scopes: str) -> str | None:
        """The outermost that is a function's or a module's own. To a function each is an object with its kind and its names."""
        held = [one["value"] for one in self._properties(scopes)["result"] if one["name"].isdecimal()]
        own = [one for one in held if str(one.get("description", "")).lower().split(" ")[0] in _MODULE]
        if not own:
            return None
        told = self.inspector.ask(
            "Runtime.callFunctionOn",
            objectId=own[-1]["objectId"],
            functionDeclaration="function () { return this.object; }",
        )
        return str(told["result"]["objectId"])

    def _properties(self, number: str) -> dict[str, Any]:
        return self.inspector.ask("Runtime.getProperties", objectId=number, ownProperties=True)

    def _value(self, expression: str) -> dict[str, Any]:
        """Of an expression of ours, which may use ``require``; as a remote object."""
        told = self.inspector.ask("Runtime.evaluate", expression=expression, includeCommandLineAPI=True)
        if "exceptionDetails" in told:
            raise ValueError(_raised(told["exceptionDetails"])["text"])
        result: dict[str, Any] = told["result"]
        return result

    def _called(self, function: str, arguments: Sequence[Mapping[str, Any]], **how: Any) -> dict[str, Any]:
        if not self._program:
            source = _PROGRAM.read_text()
            modules = 'require("node:util"), require("node:v8")'
            self._program = self._value(f"({source.strip()})({modules})")["objectId"]
        told = self.inspector.ask(
            "Runtime.callFunctionOn",
            objectId=self._program,
            functionDeclaration=f"function (...all) {{ return this.{function}(...all); }}",
            arguments=list(arguments),
            **how,
        )
        if "exceptionDetails" in told:
            raise ValueError(_raised(told["exceptionDetails"])["text"])
        result: dict[str, Any] = told["result"]
        return result


def is_own(url: str) -> bool:
    """A script is the service's own: no part of Node.js, and of no package."""
    path = path_of(url)
    return path.startswith("/") and "/node_modules/" not in path


def module_name(file: str) -> str:
    """How a module is called in expressions: its file's name without the ending; ``index`` by its directory's."""
    path = PurePosixPath(file)
    stem = path.parent.name if path.stem == "index" and path.parent.name else path.stem
    return _NO_NAME.sub("_", stem)


def chosen_module(files: Sequence[str], module: str | None) -> str | None:
    """The file whose names are used: that of a module, or the first that was loaded; raises UsageError."""
    if module is None:
        return files[0] if files else None
    found = [file for file in files if module in (file, module_name(file)) or file.endswith(f"/{module}")]
    if not found:
        raise UsageError(
            f"the process has no module {module} with names that could be used",
            cause=f"its own modules that have are {', '.join(map(module_name, files)) or 'none'}",
            remedy="name one of these, or the end of its path",
        )
    return found[0]


def path_of(url: str) -> str:
    return unquote(url.removeprefix("file://")) if url.startswith("file://") else url


def _argument(remote: Mapping[str, Any]) -> dict[str, Any]:
    """A value that was given, to be handed in again."""
    for name in ("objectId", "unserializableValue", "value"):
        if name in remote:
            return {name: remote[name]}
    return {}


def _raised(details: Mapping[str, Any]) -> dict[str, Any]:
    raised = details.get("exception", {})
    told = str(raised.get("description", raised.get("value", details.get("text", ""))))
    own = [
        line for line in told.splitlines() if "<anonymous>" not in line or not line.lstrip().startswith("at ")
    ]
    message = told.splitlines()[0] if told else ""
    kind, colon, rest = message.partition(": ")
    return {
        "type": raised.get("className", raised.get("type", "")),
        "text": rest if colon and kind.isidentifier() else message,
        "traceback": "\n".join(own),
    }


def _call_of(pid: int) -> str:
    """The number of the system call that the main thread is in (proc_pid_syscall(5)); empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/task/{pid}/syscall").read_text().partition(" ")[0]
    except OSError:
        return ""
