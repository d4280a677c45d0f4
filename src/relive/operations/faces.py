"""Everything that can be asked for, and in which faces: the operations, and what is only looked at or belongs to one face.

Each command, route and tool stands in one row at least; a test compares the rows with what the faces really have, and
docs/faces.md is made of them.
"""

from __future__ import annotations

from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Absent, Faces

__all__ = ["BESIDE", "FACES"]

_NO_TOKENS = Absent("who has a token must not make others, or end those of others")
_A_FACE = Absent("it starts a face")
_OF_A_SERVER = Absent("it is about what a server keeps for its clients")

# What is no operation: it changes nothing and is read in each face's own way, or it belongs to one face.
BESIDE: dict[str, Faces] = {
    "list targets": Faces(("ps",), ("GET /targets",), ("targets",)),
    "list branches": Faces(("ps",), ("GET /branches",), ("branches",)),
    "show a branch": Faces(("ps",), ("GET /branches/{branch}",), ("branches",)),
    "tell protection": Faces(("health",), ("GET /targets",), ("targets",)),
    "list commits": Faces(("log",), ("GET /commits",), ("commits",)),
    "show a commit": Faces(("show",), ("GET /commits/{ref}",), ("commit_detail",)),
    "delete a commit": Faces(
        ("delete",),
        ("DELETE /commits/{ref}",),
        Absent("an agent thins commits by `retain`, which needs `--host`, and no commit is in its way"),
    ),
    "list tags": Faces(("tag",), ("GET /tags",), ("commits",)),
    "tag a commit": Faces(("tag",), ("PUT /tags/{name}",), ("tag",)),
    "remove a tag": Faces(
        ("tag",),
        ("DELETE /tags/{name}",),
        Absent(
            "a tag is how a person keeps a commit; an agent that follows a recording's words is not to free it"
        ),
    ),
    "list incidents": Faces(("incidents",), ("GET /incidents",), ("incidents",)),
    "show an incident": Faces(
        ("show",), ("GET /incidents/{number}",), ("incident", "incident_frames", "incident_timeline")
    ),
    "render an incident": Faces(
        ("show",), ("GET /incidents/{number}/{form}",), Absent("pages and files are for people and programs")
    ),
    "list runs": Faces(
        Absent("`relive replay` prints its verdicts, and `relive dashboard` lists earlier ones"),
        ("GET /runs",),
        ("runs",),
    ),
    "show a run": Faces(
        Absent("`relive replay` prints its verdicts, and `relive dashboard` lists earlier ones"),
        ("GET /runs/{number}", "GET /runs/{number}/verdicts"),
        ("run",),
    ),
    "read recorded requests": Faces(
        ("show",),
        (
            "GET /recordings",
            "GET /recordings/{service}/{life}/requests",
            "GET /recordings/{service}/{life}/requests/{number}",
        ),
        ("incident_timeline",),
    ),
    "read output": Faces(("logs",), ("GET /branches/{branch}/logs",), ("logs",)),
    "end branches": Faces(("stop",), ("DELETE /branches/{branch}",), ("stop_branches",)),
    "foresee gc": Faces(("gc",), ("GET /store/garbage",), ("gc",)),
    "attach": Faces(
        ("attach",),
        Absent("output, signals and exit status go to the process that asks"),
        Absent("output, signals and exit status go to the process that asks"),
    ),
    "make options for podman": Faces(
        ("podman-args",),
        Absent("the options are for a command line on the host"),
        Absent("the options are for a command line on the host"),
    ),
    "make, list and revoke tokens": Faces(
        ("token create", "token list", "token revoke"), _NO_TOKENS, _NO_TOKENS
    ),
    "check the audit log": Faces(
        ("audit verify",),
        Absent("who checks it must not be who writes it"),
        Absent("who checks it must not be who writes it"),
    ),
    "read the audit log": Faces(
        Absent("its files are JSON lines"), ("GET /audit",), Absent("it says what agents did, to people")
    ),
    "keep exports": Faces(
        _OF_A_SERVER,
        (
            "GET /exports",
            "DELETE /exports/{export}",
            "GET /exports/{export}/links",
            "POST /exports/{export}/links",
            "DELETE /exports/{export}/links/{link}",
        ),
        _OF_A_SERVER,
    ),
    "follow tasks": Faces(
        _OF_A_SERVER,
        ("GET /tasks", "GET /tasks/{task}", "DELETE /tasks/{task}", "GET /tasks/{task}/events"),
        _OF_A_SERVER,
    ),
    "ask whether the server answers": Faces(_OF_A_SERVER, ("GET /health",), _OF_A_SERVER),
    "serve": Faces(("serve", "mcp", "dashboard"), _A_FACE, _A_FACE),
}

FACES: dict[str, Faces] = {name: one.faces for name, one in OPERATIONS.items()} | BESIDE
