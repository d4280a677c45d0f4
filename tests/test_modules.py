"""Every module says what it is and keeps its word about what it offers; every room has tests that come to each of its modules."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "relive"
GENERATED = ("_pb2.py",)

# Rooms whose work is done by processes that tests start, and so by no import: where these tests are, besides the room's own.
LIVE = {
    "cli": ("real/test_replay.py", "wrong_input/test_commands.py"),
    "containers": ("real/test_containers.py", "real/test_boxes.py", "real/test_docker.py"),
    "dashboard": (
        "dashboard/test_views.py",
        "dashboard/test_journey.py",
    ),  # they run the pages by their files
    "forkserver": ("forkserver/test_starting.py", "real/test_fork_server.py"),
    "inspection": ("real/test_inspection.py",),
    "kernel": ("real/test_watched_services.py", "real/test_attach.py"),
    "mcp": ("server/test_mcp.py",),  # over HTTP it is a part of the server
    "operations": ("real/test_tasks_of_operations.py", "server/test_host_operations.py"),
    "proxies": ("proxies/test_recorder.py", "proxies/test_proxy.py"),  # each a process of its own
    "remotes": (
        "cli/test_exchange.py",
        "remotes/test_archive.py",
    ),  # through the operations that push, pull and import
    "replay": ("real/test_reproduce.py", "real/test_debug.py", "real/test_stubs.py"),
    "sandbox": ("real/test_kinds.py", "real/test_sandbox.py", "real/test_seal.py"),
    "stepping": ("real/test_stepping.py",),
    "trial": ("real/test_trial.py",),
    "watching": ("real/test_watching.py", "real/test_watched_services.py"),
}


def modules() -> list[str]:
    found = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(path for path in found if not path.endswith(GENERATED))


MODULES = modules()


@cache
def texts() -> dict[str, str]:
    """Of all modules. Read as texts: ruff has formatted them, and parsing them and their tests took 7 s."""
    return {path: (SOURCE / path).read_text() for path in MODULES}


def name_of(path: str) -> str:
    return ".".join(
        ("relive", *path.removesuffix(".py").removesuffix("__init__").strip("/").split("/"))
    ).rstrip(".")


def test_each_opens_with_a_docstring():
    assert MODULES
    assert [path for path, text in texts().items() if re.match(r'r?"""[ \t]*[^\s"]', text) is None] == []


def test_every_public_name_that_one_lists_is_there_and_the_list_is_in_order():
    wrong = []
    for path in MODULES:
        module = importlib.import_module(name_of(path))
        listed = getattr(module, "__all__", None)
        if listed is not None:
            wrong += [f"{path}: {name} is not there" for name in listed if not hasattr(module, name)]
            wrong += [f"{path}: a name is listed twice"] * (len(set(listed)) != len(listed))
    assert wrong == []


def test_a_module_that_offers_something_lists_it():
    """Names that do not begin with ``_`` and are defined in it; but for a package's door, which may offer nothing."""
    offers = re.compile(r"^(?:def|async def|class) (?!_)", re.MULTILINE)
    has_list = re.compile(r"^__all__\b", re.MULTILINE)
    assert any(offers.search(text) for text in texts().values())
    assert [path for path, text in texts().items() if offers.search(text) and not has_list.search(text)] == []


def room_of(path: str) -> str:
    """The package below ``relive`` that a module lies in; of one that lies in none, its own name."""
    return path.partition("/")[0].removesuffix(".py")


# ``import a.b as c, d`` and ``from .a import b as c, d``, also within functions and over several lines; and names as a text.
_IMPORT = re.compile(r"^[ \t]*import[ \t]+([\w., \t]+)", re.MULTILINE)
_FROM = re.compile(r"^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|.*)", re.MULTILINE)
_TEXT = re.compile(r"""["'](relive\.[\w.]+)["']""")


def imported_by(text: str, name: str, *, is_package: bool) -> Iterator[str]:
    """Dotted names that a module imports, or names as a text; some may be no modules."""
    for found in _IMPORT.finditer(text):
        yield from (one.split()[0] for one in found[1].split(",") if one.strip())
    for dots, written, names in _FROM.findall(text):
        base = written
        if dots:
            above = name.split(".")[: None if is_package else -1]
            base = ".".join((*above[: len(above) + 1 - len(dots)], *written.split("."))).rstrip(".")
        yield base
        plain = re.sub(r"#.*", "", names).strip("() \t\n")
        yield from (f"{base}.{one.split()[0]}" for one in plain.split(",") if one.strip())
    yield from _TEXT.findall(text)


def test_a_module_whose_name_begins_with_an_underscore_is_imported_only_within_its_package():
    private = {name_of(path) for path in MODULES if re.search(r"/_[^_][^/]*$", path)}
    assert private
    wrong = [
        f"{path} imports {name}"
        for path, text in texts().items()
        for name in set(imported_by(text, name_of(path), is_package=path.endswith("__init__.py"))) & private
        if not f"{name_of(path)}.".startswith(f"{name.rpartition('.')[0]}.")
    ]
    assert wrong == []


@cache
def files() -> frozenset[Path]:
    return frozenset(TESTS.rglob("*.py"))


@cache
def imported_by_test(file: Path) -> frozenset[str]:
    return frozenset(imported_by(file.read_text(), "", is_package=False))


def come_to(room: str) -> set[str]:
    """The modules of a room that its tests import, or come to from there without leaving it; and those that another's import."""
    paths = {name_of(path): path for path in MODULES if room_of(path) == room}
    own = {*(one for one in files() if one.is_relative_to(TESTS / room)), TESTS / f"test_{room}.py"} & files()
    waiting = [name for file in own for name in imported_by_test(file)]
    found: set[str] = set()
    while waiting:
        path = paths.get(waiting.pop())
        if path is not None and path not in found:
            found.add(path)
            waiting += imported_by(texts()[path], name_of(path), is_package=path.endswith("__init__.py"))
    others = {paths.get(name) for file in files() if file not in own for name in imported_by_test(file)}
    return found | {path for path in others if path is not None}


def test_every_room_has_tests_that_come_to_each_of_its_modules():
    """Add a test to the room's folder that imports it, or a module of the room that does; see also LIVE."""
    rooms = {room_of(path) for path in MODULES} - {"__init__"}
    without = {
        path
        for room in rooms - set(LIVE)
        for path in MODULES
        if room_of(path) == room and Path(path).name != "__init__.py"
    } - {path for room in rooms for path in come_to(room)}
    assert sorted(without) == []
    assert [
        room
        for room in sorted(rooms)
        if not (TESTS / room).is_dir() and not (TESTS / f"test_{room}.py").exists()
    ] == []


def test_the_tests_that_rooms_name_are_there():
    assert [path for paths in LIVE.values() for path in paths if not (TESTS / path).is_file()] == []
    assert [room for room in LIVE if not (SOURCE / room).is_dir()] == []


def test_each_command_is_run_by_a_test():
    """With its name as a word of its own: that is how a command line is written down here."""
    commands = {
        Path(path).stem.removesuffix("_cmd").replace("_", "-") for path in MODULES if path.endswith("_cmd.py")
    }
    words = {word for file in files() for word in re.findall(r'"([a-z-]+)"', file.read_text())}
    assert sorted(commands - words) == []


def test_none_holds_a_note_of_work_left_to_do():
    notes = re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b")
    assert [path for path in MODULES if notes.search(texts()[path])] == []


def test_none_names_a_file_where_everybody_may_make_one():
    """What is made for a while outside of RELIVE_HOME has a name that nobody knows before (``tempfile``).

    But for the file that a JVM looks for there, in the root of a throw-away branch.
    """
    wanted = SOURCE / "inspection/java/attach.py"
    shared = re.compile(r"/(var/)?tmp\b|\bmktemp\(")
    every = [SOURCE / path for path in MODULES] + [*(TESTS.parent / "native").rglob("*.[ch]")]
    assert [path for path in every if shared.search(path.read_text())] == [wanted]
