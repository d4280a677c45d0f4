"""A commit's files: a branch sees exactly what was there, whatever the service does to them afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.waiting import eventually

from .harness import PROGRAMS, PYTHON, Refused, Relive
from .likeness import differences, likeness
from .obedient import HELPERS, Obedient, seen_in
from .test_file_locks import PROBE

# What is made on the host before the service starts, what the service does before the commit, and after it; in a directory `d`.
# Helpers: w(path, text), x(system call by libc).
CASES: dict[str, tuple[str, str, str]] = {
    "appended": ("w(d/'a', 'old')", "", "w(d/'a', 'more', 'a')"),
    "replaced by rename": ("w(d/'a', 'old')", "", "w(d/'n', 'new'); os.replace(d/'n', d/'a')"),
    "removed": ("w(d/'a', 'old')", "", "(d/'a').unlink()"),
    "truncated by path": ("w(d/'a', 'old')", "", "os.truncate(d/'a', 1)"),
    "mode, owner, times": (
        "w(d/'a', 'old'); (d/'b').mkdir()",
        "",
        "(d/'a').chmod(0o4711); os.chown(d/'a', 7, 8); os.utime(d/'a', (1, 1)); (d/'b').chmod(0o700); os.chown(d/'b', 5, 5)",
    ),
    "attributes": (
        "w(d/'a', 'old'); os.setxattr(d/'a', 'user.one', b'1'); (d/'b').mkdir(); os.setxattr(d/'b', 'user.two', b'2')",
        "os.setxattr(d/'a', 'user.three', b'3')",
        "os.setxattr(d/'a', 'user.one', b'x'); os.removexattr(d/'a', 'user.three'); os.setxattr(d/'b', 'user.two', b'y')",
    ),
    "attributes of a file first changed later": (
        "w(d/'a', 'old'); os.setxattr(d/'a', 'user.one', b'1')",
        "",
        "os.setxattr(d/'a', 'user.one', b'x')",
    ),
    "links of symbolic kind": (
        "(d/'a').symlink_to('b'); (d/'c').symlink_to('b'); (d/'e').symlink_to('b')",
        "",
        "(d/'a').unlink(); (d/'a').symlink_to('else'); os.chown(d/'c', 3, 3, follow_symlinks=False);"
        "os.utime(d/'e', (9, 9), follow_symlinks=False)",
    ),
    "a dangling link is written through": (
        "(d/'a').symlink_to('target')",
        "",
        "w(d/'a', 'through')",
    ),
    "a link of links, written through": (
        "(d/'sub').mkdir(); w(d/'sub/f', 'old'); (d/'one').symlink_to('two'); (d/'two').symlink_to('sub'); ",
        "",
        "w(d/'one/f', 'new'); w(d/'one/g', 'new')",
    ),
    "hard links, made by the service": (
        "w(d/'a', 'old')",
        "os.link(d/'a', d/'b')",
        "w(d/'b', 'new')",
    ),
    "a hard link made later": ("w(d/'a', 'old')", "", "os.link(d/'a', d/'b'); w(d/'b', 'new')"),
    "a tree moved": (
        "(d/'t/u').mkdir(parents=True); w(d/'t/a', '1'); w(d/'t/u/b', '2')",
        "",
        "(d/'t').rename(d/'v'); w(d/'v/a', 'x')",
    ),
    "a tree moved and made anew": (
        "(d/'t/u').mkdir(parents=True); w(d/'t/a', '1'); w(d/'t/u/b', '2')",
        "",
        "(d/'t').rename(d/'v'); (d/'t').mkdir(); w(d/'t/a', 'x'); w(d/'t/new', 'x')",
    ),
    "a tree moved before": (
        "(d/'t/u').mkdir(parents=True); w(d/'t/a', '1'); w(d/'t/u/b', '2')",
        "(d/'t').rename(d/'v')",
        "w(d/'v/u/b', 'x'); (d/'v/a').unlink(); (d/'v').rename(d/'t')",
    ),
    "a tree moved over an empty directory": (
        "(d/'t/u').mkdir(parents=True); w(d/'t/a', '1'); (d/'e').mkdir()",
        "",
        "os.rename(d/'t', d/'e')",
    ),
    "a tree moved over an empty directory before": (
        "(d/'t/u').mkdir(parents=True); w(d/'t/a', '1'); (d/'e').mkdir()",
        "os.rename(d/'t', d/'e')",
        "w(d/'e/a', 'x')",
    ),
    "trees exchanged": (
        "(d/'t').mkdir(); w(d/'t/a', '1'); (d/'s').mkdir(); w(d/'s/b', '2')",
        "",
        "x('renameat2', -100, d/'t', -100, d/'s', 2)",
    ),
    "trees exchanged before": (
        "(d/'t').mkdir(); w(d/'t/a', '1'); (d/'s').mkdir(); w(d/'s/b', '2')",
        "x('renameat2', -100, d/'t', -100, d/'s', 2)",
        "w(d/'t/b', 'x'); w(d/'s/a', 'x')",
    ),
    "files exchanged": (
        "w(d/'a', '1'); w(d/'b', '2')",
        "",
        "x('renameat2', -100, d/'a', -100, d/'b', 2)",
    ),
    "a whiteout left": ("w(d/'a', '1')", "", "x('renameat2', -100, d/'a', -100, d/'b', 4)"),
    "a directory removed and made anew": (
        "(d/'t').mkdir(); w(d/'t/a', '1')",
        "",
        "shutil.rmtree(d/'t'); (d/'t').mkdir(); w(d/'t/b', '2')",
    ),
    "a directory becomes a file": (
        "(d/'t').mkdir(); w(d/'t/a', '1')",
        "",
        "shutil.rmtree(d/'t'); w(d/'t', '2')",
    ),
    "a file becomes a directory": (
        "w(d/'t', '1')",
        "",
        "(d/'t').unlink(); (d/'t').mkdir(); w(d/'t/b', '2')",
    ),
    "a file becomes a link": ("w(d/'t', '1')", "", "(d/'t').unlink(); (d/'t').symlink_to('/etc/passwd')"),
    "what came and went comes again": ("", "w(d/'a', '1'); (d/'a').unlink()", "w(d/'a', '2')"),
    "made before, removed later": ("", "w(d/'a', '1')", "(d/'a').unlink()"),
    "made before, moved later": (
        "",
        "(d/'t').mkdir(); w(d/'t/a', '1')",
        "(d/'t').rename(d/'s'); w(d/'s/a', 'x')",
    ),
    "removed before, made later": ("w(d/'a', '1')", "(d/'a').unlink()", "w(d/'a', '2')"),
    "removed directory before, made later": (
        "(d/'t').mkdir(); w(d/'t/a', '1')",
        "shutil.rmtree(d/'t')",
        "(d/'t').mkdir(); w(d/'t/a', '2'); w(d/'t/b', '3')",
    ),
    "opened before, written later": (
        "w(d/'a', 'old')",
        "f1 = open(d/'a', 'r+')",
        "f1.write('NEW'); f1.flush()",
    ),
    "mapped before, written later": (
        "w(d/'a', 'old' * 2000)",
        "f2 = open(d/'a', 'r+b'); m2 = mmap.mmap(f2.fileno(), 0)",
        "m2[0:3] = b'NEW'; m2.flush()",
    ),
    "mapped and closed": (
        "w(d/'a', 'old' * 2000)",
        "f3 = open(d/'a', 'r+b'); m3 = mmap.mmap(f3.fileno(), 0); f3.close()",
        "m3[0:3] = b'NEW'",
    ),
    "written through a map before": (
        "w(d/'a', 'old' * 2000)",
        "f4 = open(d/'a', 'r+b'); m4 = mmap.mmap(f4.fileno(), 0); m4[0:3] = b'NEW'",
        "m4[0:3] = b'two'",
    ),
    "by a descriptor of the directory": (
        "(d/'t').mkdir(); w(d/'t/a', '1')",
        "",
        "n = os.open(d/'t', os.O_RDONLY); q = os.open('a', os.O_WRONLY, dir_fd=n); os.write(q, b'x'); os.close(q);"
        "os.unlink('a', dir_fd=n); os.close(n)",
    ),
    "by /proc/self/fd": (
        "w(d/'a', '1')",
        "",
        "n = os.open(d/'a', os.O_RDONLY); w(Path(f'/proc/self/fd/{n}'), 'new'); os.close(n)",
    ),
    "by a descriptor": (
        "w(d/'a', '1')",
        "",
        "n = os.open(d/'a', os.O_RDONLY); os.fchmod(n, 0o600); os.fchown(n, 3, 3); os.utime(n, (5, 5)); os.close(n)",
    ),
    "times by a descriptor that was open for writing": (
        "w(d/'a', '1'); w(d/'b', '1')",
        "f7 = os.open(d/'a', os.O_WRONLY); os.utime(f7, (5, 5)); f8 = os.open(d/'b', os.O_RDWR)",
        "os.utime(f7, (9, 9)); os.utime(f8, (9, 9)); os.close(f7); q = os.open(d/'b', os.O_WRONLY); os.utime(q, (7, 7)); os.close(q)",  # noqa: E501 - a table
    ),
    "by descriptors that only name": (
        "w(d/'a', '1')",
        "",
        "n = os.open(d/'a', os.O_PATH); os.chmod(f'/proc/self/fd/{n}', 0o600); os.close(n)",
    ),
    "relative": (
        "w(d/'a', '1')",
        "",
        "os.chdir(d); w(Path('a'), 'x'); w(Path('./b'), 'x'); w(Path('../' + d.name + '/c'), 'x'); os.chdir('/')",
    ),
    "temporary file linked": (
        "",
        "n = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600); os.write(n, b'1'); x('linkat', -100, Path(f'/proc/self/fd/{n}'), -100, d/'a', 0x400); os.close(n)",  # noqa: E501 - a table
        "n = os.open(d, os.O_TMPFILE | os.O_RDWR, 0o600); os.write(n, b'2'); x('linkat', -100, Path(f'/proc/self/fd/{n}'), -100, d/'b', 0x400); w(d/'a', 'x')",  # noqa: E501 - a table
    ),
    "names that are no text": (
        "w(d/os.fsdecode(b'\\xff\\xfe'), '1'); w(d/'new\\nline\\t', '1'); w(d/'back\\\\slash', '1')",
        "",
        "w(d/os.fsdecode(b'\\xff\\xfe'), 'x'); (d/'new\\nline\\t').unlink(); w(d/os.fsdecode(b'\\xfd'), '1'); w(d/'back\\\\slash', '2')",  # noqa: E501 - a table
    ),
    "pipes and sockets": (
        "os.mkfifo(d/'p'); os.mkfifo(d/'q')",
        "s5 = socket.socket(socket.AF_UNIX); s5.bind(str(d/'s')); s5.listen()",
        "(d/'p').unlink(); w(d/'p', 'x'); os.chmod(d/'q', 0o600); os.mkfifo(d/'r');"
        "s6 = socket.socket(socket.AF_UNIX); s6.bind(str(d/'t')); s6.listen()",
    ),
    "sparse": (
        "w(d/'a', ''); os.truncate(d/'a', 20 << 20)",
        "",
        "q = os.open(d/'a', os.O_WRONLY); os.pwrite(q, b'x', 10 << 20); os.close(q)",
    ),
    "directly": (
        "w(d/'a', 'o' * 8192)",
        "",
        "q = os.open(d/'a', os.O_RDWR | os.O_DIRECT); b = mmap.mmap(-1, 4096); b[:] = b'n' * 4096; os.pwrite(q, b, 4096); os.close(q)",  # noqa: E501 - a table
    ),
    "long paths": (
        "deep(d, 3)",
        "",
        "deep(d, 3, 'new')",
    ),
    "another process": (
        "w(d/'a', '1'); w(d/'b', '1')",
        "",
        "subprocess.run(['sh', '-c', 'echo x > a; rm b; mkdir c; mv a c'], cwd=d, check=True)",
    ),
    "changed root": (
        "(d/'r').mkdir(); w(d/'r/a', '1'); (d/'r/l').symlink_to('/a'); (d/'r/dangling').symlink_to('/target'); w(d/'r/c', '1');"
        "(d/'r/near').symlink_to('target2')",
        "",
        "in_root(d/'r', lambda: (w(Path('l'), 'x'), w(Path('/dangling'), 'x'), w(Path('/c'), 'x'), w(Path('near'), 'x')))",
    ),
    "threads": (
        "[w(d/f'a{i}', str(i)) for i in range(50)]",
        "",
        "ts = [threading.Thread(target=w, args=(d/f'a{i}', 'x')) for i in range(50)]; [t.start() for t in ts]; [t.join() for t in ts]",  # noqa: E501 - a table
    ),
    "listing only": ("w(d/'a', '1')", "", "(d/'a').read_text(); list(d.iterdir())"),
}

# What a branch cannot have, by case: CRIU makes sockets anew, and overlayfs ends hard links. While it runs, overlayfs lists
# nothing of a directory that was removed below it, though its files can be opened.
UNLIKE = {
    "pipes and sockets": "mtime is",
    "hard links, made by the service": "names is",
}
UNLIKE_WHILE_RUNNING = UNLIKE | {
    "a directory removed and made anew": "/t/a': is missing",
    "a directory becomes a file": "/t/a': is missing",
}


def _in_each(place: Path, step: int) -> str:
    """The code of one step of all cases."""
    return "\n".join(
        f"d = Path({str(place / str(number))!r})\n{case[step]}" for number, case in enumerate(CASES.values())
    )


def _named(lines: list[str], place: Path, unlike: dict[str, str]) -> list[str]:
    """Differences, with the names of the cases, but for those that are known."""
    names = list(CASES)
    told = []
    for line in lines:
        number = line.partition(f"{place}/")[2].split("/")[0].split("'")[0]
        name = names[int(number)] if number.isdigit() else "?"
        if name not in unlike or unlike[name] not in line:
            told.append(f"{name}: {line}")
    return told


@pytest.mark.parametrize("runs_meanwhile", [False, True], ids=["restored later", "runs meanwhile"])
def test_a_branch_sees_the_commit_whatever_comes_later(
    relive: Relive, place: Path, runs_meanwhile: bool
) -> None:
    names: dict[str, Any] = {}
    exec(HELPERS, names)
    for number in range(len(CASES)):
        (place / str(number)).mkdir()
    exec(_in_each(place, 0), names)
    service = Obedient(relive)
    service(HELPERS)
    service(_in_each(place, 1))
    then = likeness(place)
    commit = relive.commit(service.capsule)
    assert not differences(then, likeness(place)), "nothing changes meanwhile"
    branch = relive.restore(commit) if runs_meanwhile else None
    service(_in_each(place, 2))
    now = likeness(place)
    assert differences(then, now)
    found = seen_in(branch or relive.restore(commit), place)
    unlike = UNLIKE_WHILE_RUNNING if runs_meanwhile else UNLIKE
    assert not _named(differences(then, found), place, unlike)
    # What the branch does is the branch's.
    assert not differences(now, likeness(place))


def test_a_branch_creates_what_its_service_has_created_meanwhile(relive: Relive, place: Path) -> None:
    """Whether it looked for the name before, or never: what hides the service's file from a branch is not in its own way."""
    service = Obedient(relive)
    service(HELPERS)
    service(f"d = Path({str(place)!r})")
    commit = relive.commit(service.capsule)
    branch = relive.restore(commit)
    names = ("seen", "unseen", "linked", "moved", "made")
    assert branch.exec("sh", "-c", f"cd {place}; ls seen linked moved 2>&1 | wc -l").strip() == "3"
    service(f"[w(d/name, 'service') for name in {names}]")
    service("[os.unlink(d/'linked'), w(d/'linked', 'again')]")
    script = "cd $0; echo branch | tee seen unseen one >two; ln one linked; mv two moved; mkdir made; cat seen unseen linked; ls"
    said = branch.exec("sh", "-c", script, str(place)).split()
    assert said == ["branch"] * 3 + sorted((*names, "one"))
    assert {(place / name).read_text() for name in names} == {"service", "again"}


def test_a_branch_of_the_first_life_after_two_more(relive: Relive, place: Path) -> None:
    names: dict[str, Any] = {}
    exec(HELPERS, names)
    for number in range(len(CASES)):
        (place / str(number)).mkdir()
    exec(_in_each(place, 0), names)
    service = Obedient(relive)
    service(HELPERS)
    then = likeness(place)
    commit = relive.commit(service.capsule)
    ends = f"for one in Path({str(place)!r}).iterdir():\n    shutil.rmtree(one); one.mkdir(); w(one/'a', 'end'); w(one/'end', '')"
    for code in (_in_each(place, 1) + "\n" + _in_each(place, 2), ends):
        relive("stop", service.capsule.name)
        service = Obedient(relive)
        service(HELPERS)
        service(code)
    found = seen_in(relive.restore(commit), place)
    assert not _named(differences(then, found), place, UNLIKE)


def program_of_32_bits(place: Path) -> Path:
    """Skips the test where the kernel runs none."""
    program = place / "files32"
    options = ("-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-fno-stack-protector")
    subprocess.run(["gcc", *options, "-Wall", "-Werror", "-o", program, PROGRAMS / "files32.c"], check=True)
    try:
        assert subprocess.run([program, "/nowhere"], check=False).returncode == 12  # chdir(2)
    except OSError as error:
        pytest.skip(f"this kernel runs no program of 32 bits: {error}")
    return program


CHANGED_BY_32_BITS = (
    "open openat openat2 rename renameat exchange-one exchange-two unlink unlinkat link truncate truncate64 chmod fchmodat"
    " chown chown16 utimensat setxattr fchmod mapped"
).split()


def test_what_a_program_of_32_bits_does_is_followed(relive: Relive, place: Path) -> None:
    program = program_of_32_bits(place)
    data = place / "data"
    data.mkdir()
    for name in CHANGED_BY_32_BITS:
        (data / name).write_text(f"{name} as it was")
    (data / "rmdir").mkdir()
    service = Obedient(relive)
    service("import subprocess")
    before = likeness(data)
    first = relive.commit(service.capsule)
    service(f"subprocess.run([{str(program)!r}, {str(data)!r}], check=True)")
    after = likeness(data)
    assert not {str(data / name) for name in CHANGED_BY_32_BITS} & {
        path for path in after if before.get(path) == after[path]
    }
    second = relive.commit(service.capsule)
    for path in sorted(data.iterdir()):
        if not path.is_dir():
            path.unlink()  # by the host: nothing of it is left to be seen below a branch
    found = [
        differences(then, seen_in(relive.restore(commit), data))
        for then, commit in ((before, first), (after, second))
    ]
    # Two names of one file are two files in a branch.
    assert found[0] == [] and [line for line in found[1] if ": names is" not in line] == []


def test_a_process_of_32_bits_has_its_files_and_locks_in_a_branch(relive: Relive, place: Path) -> None:
    """What this CRIU can save of such programs (it may be built without) comes back."""
    program = program_of_32_bits(place)
    data = place / "data"
    (data / "rmdir").mkdir(parents=True)
    for name in CHANGED_BY_32_BITS:
        (data / name).write_text(name)
    capsule = relive.run(program, data, "wait")
    eventually((data / "fifo").exists, "it waits")
    probe = [str(PYTHON), str(PROBE), str(data / "mapped")]
    held = subprocess.run(probe, capture_output=True, text=True, check=True).stdout
    assert "128, 1" in held
    then = likeness(data)
    try:
        commit = relive.commit(capsule)
    except Refused as refused:
        pytest.skip(f"this CRIU saves no program of 32 bits: {refused}")
    (data / "mapped").write_text("changed by the host")
    # The clock that was recorded is given through the vDSO of 64 bits.
    branch = relive.restore(commit, clock="now")
    assert "128, 1" in branch.exec(*probe)
    assert [line for line in differences(then, seen_in(branch, data)) if ": names is" not in line] == []


def test_what_came_and_went_while_it_was_committed_comes_again(relive: Relive, place: Path) -> None:
    service = Obedient(relive)
    service(HELPERS)
    service(
        f"""
d = Path({str(place)!r})
def toggle():
    while not is_done:
        for name in names:
            w(d/name, 'x')
        for name in names:
            (d/name).unlink()
is_done, names = False, [f'a{{i}}' for i in range(20)]
t = threading.Thread(target=toggle); t.start()
"""
    )
    commits = [relive.commit(service.capsule) for _ in range(3)]
    service("is_done = True; t.join(); [w(d/name, 'again') for name in names]")
    for commit in commits:
        branch = relive.restore(commit)
        assert {path.read_text() for path in place.iterdir()} == {"again"}
        found = branch.exec("sh", "-c", f"cat {place}/* 2>&1 | sort -u; true")
        assert "again" not in found
        branch.stop()


def test_a_directory_keeps_its_times_in_a_branch_though_a_deleted_file_is_open(
    relive: Relive, place: Path
) -> None:
    """CRIU gives it a name and removes that again."""
    service = Obedient(relive)
    then = 1_600_000_000_000_000_002
    deleted = "f = open(d/'gone', 'w+'); os.unlink(d/'gone'); f.write('x'); f.flush()"
    service(HELPERS + f"d = Path({str(place)!r}); {deleted}; os.utime(d, ns=({then}, {then}))")
    branch = relive.restore(relive.commit(service.capsule), service.port)
    asked = "said = [os.stat(d).st_mtime_ns, os.listdir(d), os.fstat(f.fileno()).st_size]"
    assert service(asked, branch.ports[service.port]) == [then, [], 1]
