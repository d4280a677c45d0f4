from relive.inspection.state import CommitState, Descriptor, FileLock, ProcessState, ThreadState
from relive.inspection.state_changes import mapping_changes, near_first, state_changes
from relive.model.commit import CommitId


def process(pid: int = 2, **fields: object) -> ProcessState:
    plain = {
        "parent": 0,
        "group": 2,
        "session": 2,
        "name": "pay",
        "state": "running",
        "uid": 0,
        "command": ["pay"],
    }
    plain |= {"environment": {}, "executable": "/pay", "directory": "/", "threads": [], "descriptors": []}
    return ProcessState(pid=pid, **plain | {"regions": [], "mapped": 0, "stored": 0} | fields)


def state(*processes: ProcessState, locks: list[FileLock] | None = None) -> CommitState:
    return CommitState(
        **{"commit": CommitId("c" * 64), "target": "pay", "taken_wall_ns": 1, "waiting": [], "shared": 0},
        processes=list(processes),
        locks=locks or [],
    )


def test_equal_states_do_not_differ():
    found = state_changes(state(process()), state(process()))
    assert (found.added, found.gone, found.processes, found.locks_added) == ([], [], [], [])


def test_processes_that_came_and_went_are_told_by_number_and_command():
    found = state_changes(state(process(), process(3)), state(process(), process(4, command=[], name="work")))
    assert (found.added, found.gone) == (["4 work"], ["3 pay"])


def test_of_a_process_all_that_differs_is_told():
    lock = FileLock(pid=2, fd=3, path="/l", kind="flock", mode="write", start=0, length=0)
    before = process(
        environment={"A": "1"},
        threads=[
            ThreadState(tid=2, name="m", call=None, registers={}),
            ThreadState(tid=5, name="w", call=None, registers={}),
        ],
        descriptors=[
            Descriptor(fd=3, kind="file", name="/l", offset=1),
            Descriptor(fd=4, kind="pipe", name="p"),
        ],
    )
    after = process(
        uid=5,
        environment={"A": "1", "B": "2"},
        threads=[
            ThreadState(tid=2, name="m", call="read(3)", registers={}),
            ThreadState(tid=6, name="w", call=None, registers={}),
        ],
        descriptors=[
            Descriptor(fd=3, kind="file", name="/l", offset=9),
            Descriptor(fd=5, kind="epoll", name=""),
        ],
    )
    found = state_changes(state(before), state(after, locks=[lock]))
    (one,) = found.processes
    assert [(field.name, field.before, field.after) for field in one.fields] == [("uid", "0", "5")]
    assert [(field.name, field.before, field.after) for field in one.environment] == [("B", None, "2")]
    assert [(field.name, field.after) for field in one.calls] == [("2", "read(3)")]
    assert (one.threads_added, one.threads_gone) == ([6], [5])
    assert [(fd.fd, fd.before, fd.after) for fd in one.descriptors] == [
        (3, "file /l", "file /l"),
        (4, "pipe p", None),
        (5, None, "epoll"),
    ]
    assert [(field.name, field.before, field.after) for field in one.descriptors[0].fields] == [
        ("offset", "1", "9")
    ]
    assert found.locks_added == [lock]


def test_values_by_name_come_in_the_order_of_their_names():
    found = mapping_changes({"b": "1", "c": "2"}, {"a": "1", "c": "3"})
    assert [(one.name, one.before, one.after) for one in found] == [
        ("a", None, "1"),
        ("b", "1", None),
        ("c", "2", "3"),
    ]


def test_a_services_own_values_come_before_what_lies_deep_in_a_library():
    names = [
        "app.Session.kw['bind']._compiled_cache['a']",
        "app.ledger._open[7].balance",
        "prices['a.b[0].c.d']",
    ]
    found = near_first(mapping_changes({}, dict.fromkeys(names, "1")))
    assert [one.name for one in found] == [names[1], names[2], names[0]]
