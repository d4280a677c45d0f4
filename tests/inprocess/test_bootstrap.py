"""The recorder comes up in every Python of the host, stays out of the way, and gets out of it when something is wrong."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from relive.recording.events import EventKind

from .conftest import INPROCESS, each_python

MODULES = sorted(INPROCESS.rglob("*.py"))


@each_python
def test_readings_are_recorded_in_order(run_recorded, python):
    ran = run_recorded("import time, uuid; print(time.time()); print(uuid.uuid4())", python)
    assert (ran.status, ran.err) == (0, "")
    clock, random = ran.of(EventKind.CLOCK), ran.of(EventKind.RANDOM)
    assert repr(clock[-1].fields["value"]) == ran.out.split()[0]
    assert random[-1].fields["source"] == "uuid.uuid4"
    assert [event.seq for event in ran.events] == list(range(1, len(ran.events) + 1))


def test_a_uuid_of_the_c_library_is_the_same_again(run_recorded):
    """uuid1 is what redis-py's locks are marked with."""
    ran = run_recorded(
        "import uuid\nfrom relive_recorder import calls\nfrom relive_recorder.recorder import REPLAY, recorder\n"
        "from relive_recorder.ring import MODE\nkept = []\nemit = recorder.emit\n"
        "def keep(kind, fields, data=b'', request=None):\n"
        "    kept.append((fields['source'], fields['value']))\n    return emit(kind, fields, data, request)\n"
        "recorder.emit = keep\nfirst = [uuid.uuid1(), uuid.uuid1()]\nsources = dict(kept)\nleft = [*kept]\n"
        "calls.answer_with(None, lambda kind, source: (left.pop(0)[1], True))\nrecorder._ring.words[MODE] = REPLAY\n"
        "print(list(sources), [uuid.uuid1(), uuid.uuid1()] == first)"
    )
    assert (ran.err, ran.out) == ("", "['uuid.uuid1'] True\n")


@each_python
def test_a_fork_has_a_ring_of_its_own(run_recorded, python):
    ran = run_recorded(
        "import os, time\npid = os.fork()\nif pid == 0:\n    time.time()\n    os._exit(0)\n"
        "print(pid)\nos.waitpid(pid, 0)\ntime.time_ns()",
        python,
    )
    assert (ran.status, ran.err) == (0, "")
    began = ran.of(EventKind.PROCESS_STARTED)
    assert [event.fields.get("forked_from") is not None for event in began] == [False, True]
    assert sorted(event.fields["source"] for event in ran.of(EventKind.CLOCK)) == [
        "time.time",
        "time.time_ns",
    ]


def test_an_existing_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customized = sys.path[:]\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.customized == sys.path[1:], sys.path)"],
        env=os.environ | {"PYTHONPATH": f"{INPROCESS}:{tmp_path}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("True")
    assert str(INPROCESS) not in done.stdout


@pytest.mark.parametrize(
    "options", ["{", '{"ring_bites": 1}', '{"rings": "/nowhere"}', '{"ring_bytes": "x"}']
)
def test_a_fault_at_the_start_is_one_line(options):
    done = subprocess.run(
        [sys.executable, "-c", "print('served')"],
        env=os.environ | {"PYTHONPATH": str(INPROCESS), "RELIVE_RECORDER": options},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "served\n")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("relive: not recording this process: ")


@pytest.mark.parametrize("quick", [False, True])
def test_a_fault_later_switches_it_off_with_one_line(run_recorded, quick):
    """GIVEN that an event can no more be written, by the one or the other way WHEN there is one THEN the service goes on."""
    breaks = (
        "recorder.quick = type('Broken', (), {'emit': broken, 'last': lambda _: 0})()"
        if quick
        else "recorder._put = broken"
    )
    ran = run_recorded(
        "import time\nfrom relive_recorder.recorder import recorder\n"
        f"def broken(*_): raise ValueError('no more')\n{breaks}\n"
        "print(time.time() > 0, time.time() > 0)",
        quick=quick,
    )
    assert (ran.status, ran.out) == (0, "True True\n")
    assert len(ran.err.splitlines()) == 1
    assert "recorder switched off" in ran.err


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(INPROCESS).as_posix())
def test_it_imports_only_the_standard_library_and_itself(path):
    allowed = sys.stdlib_module_names | {"relive_recorder"}
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level <= 1  # the host imports a few of them by another name of the package
            names = [node.module or ""] if node.level == 0 else []
        assert {name.partition(".")[0] for name in names} <= allowed


def test_a_ring_has_its_name_only_when_its_header_is_whole(run_recorded, tmp_path, monkeypatch):
    """A reader that finds no header never looks at that file again."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    ran = run_recorded(
        "import mmap, os\nfrom relive_recorder import ring\n"
        "real, seen = mmap.mmap, []\n"
        "def look(*given):\n    seen.append(sorted(os.listdir('.')))\n    return real(*given)\n"
        "os.chdir(os.environ['HOME'])\nring.mmap.mmap = look\nring.Ring('1-a.ring', 4096, 1)\n"
        "print(seen, sorted(os.listdir('.')))"
    )
    assert ran.out == "[['1-a.ring.new']] ['1-a.ring']\n", ran.err
