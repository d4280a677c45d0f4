"""An operation as a value: its name, what is asked, what comes back, the function that does it, and which faces have it.

CLI, REST and MCP follow from it: options of a command are the fields of the params (``relive.cli.params_options``), so are the body
of a ``Route`` (``relive.server.routers.derived``) and the arguments of a ``Tool`` (``relive.mcp.acting``). Where a face does not
have it, the reason stands in its place; ``relive.operations.faces`` lists all.

Long lists come in pages, everywhere in the same way: the params have ``after``, a cursor behind which the page begins in the list's
order (without it, the list's begin), and the page has ``next``, the cursor for the page that follows, None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from relive.config import Settings
from relive.model.token_scope import Scope
from relive.operations.conversation import Conversation
from relive.operations.progress import Progress

__all__ = [
    "Absent",
    "Effect",
    "Face",
    "Faces",
    "Only",
    "Operation",
    "Params",
    "Result",
    "Route",
    "Tool",
    "named_target",
]

# Fields of params that say what something is done to, for the audit log. Never one that may hold a secret.
_TARGETS = (
    "target",
    "ref",
    "refs",
    "good",
    "bad",
    "branch",
    "what",
    "incident",
    "number",
    "file",
    "output",
    "branches",
    "name",
    "names",
    "unit",
    "service",
    "remote",
    "source",
    "command",
)


class Params(BaseModel):
    """Base of what is asked: immutable, and a misspelt name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Result(BaseModel):
    """Base of what comes back: immutable."""

    model_config = ConfigDict(frozen=True)


def named_target(given: Mapping[str, Any]) -> str | None:
    """What params with these fields are about, as the audit log has it; None where nothing is named."""
    named = [f"{name}={given[name]}" for name in _TARGETS if given.get(name) not in (None, [], "")]
    return " ".join(named) or None


class Effect(Enum):
    """What a tool changes, as its hints tell an agent."""

    READS = auto()
    ADDS = auto()
    DESTROYS = auto()


@dataclass(frozen=True, slots=True)
class Absent:
    """A face does not have it, for this reason: half a sentence, without a full stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the server: its body is the params (for GET the query), its answer the result.

    Attributes:
        summary: its first line in the API's page.
        is_task: it takes long: the answer is 202 and a task. Else it is done while the request waits.
    """

    method: str
    path: str
    scopes: frozenset[Scope]
    summary: str
    is_task: bool = False

    @property
    def text(self) -> str:
        """``POST /pushes``."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of MCP: its arguments are the fields of the params; ``about`` is read by an agent.

    Attributes:
        is_for_host: it acts on the host as the server's user, and is there only where that is asked for.
        is_acting: what it makes or changes stays: commits, branches, files. There only where that is asked for; the others
            look, and go back to what was recorded, in branches that are gone when they answer.
        acting_fields: fields of the params that only one of those takes which act.
        name: where it is not the operation's with underscores.
    """

    effect: Effect
    about: str
    is_for_host: bool = False
    is_acting: bool = False
    acting_fields: tuple[str, ...] = ()
    name: str = ""


class Face(Enum):
    """One of the three that requests come by."""

    CLI = "CLI"
    REST = "API"
    MCP = "MCP"


@dataclass(frozen=True, slots=True)
class Only:
    """Fields that some faces have alone, for a reason: half a sentence, without a full stop."""

    fields: tuple[str, ...]
    faces: frozenset[Face]
    reason: str


@dataclass(frozen=True, slots=True)
class Faces:
    """Where something can be asked for.

    Attributes:
        cli: the words of commands behind ``relive``.
        rest: a ``Route`` follows from the operation; names such as ``POST /commits`` are written by hand in ``server.routers``.
        mcp: a ``Tool`` follows from the operation; names are written by hand in ``relive.mcp``.
    """

    cli: tuple[str, ...] | Absent
    rest: Route | tuple[str, ...] | Absent
    mcp: Tool | tuple[str, ...] | Absent
    only: tuple[Only, ...] = ()


W = TypeVar("W", bound=Params)
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Operation(Generic[W, R]):
    """Something that acts.

    Attributes:
        name: in kebab-case, unique.
        run: raises ReliveError; to be called in a process with one thread.
        look_up: raises what ``run`` would where something that the params name is not there; in any thread, and at once. None: it
            names nothing, or nothing that could be looked up so.
        converse: as ``run``, and while it goes on it is told what to do next. None: all is told by the params.
    """

    name: str
    params: type[W]
    result: type[R]
    run: Callable[[Settings, W, Progress], R]
    faces: Faces
    look_up: Callable[[Settings, W], None] | None = None
    converse: Callable[[Settings, W, Progress, Conversation], R] | None = None

    @property
    def identifier(self) -> str:
        """The name as programs write it: of its route in the API's page."""
        return self.name.replace("-", "_")

    @property
    def tool_name(self) -> str:
        """What its tool is called."""
        return (self.faces.mcp.name if isinstance(self.faces.mcp, Tool) else "") or self.identifier
