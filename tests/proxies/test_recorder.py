"""The recorder at the border, with real sockets on both sides and the service played by the test."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernel.helpers import needs_root
from relive.recording.dialogues import Dialogue, Way, read_dialogues
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from support.bordered import Bordered
from support.waiting import LIMIT, eventually

pytestmark = needs_root
_RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bordered]:
    """One network for many tests."""
    border = Bordered(tmp_path_factory.mktemp("border"))
    border.start()
    yield border
    border.close()


@pytest.fixture
def border(tmp_path: Path) -> Iterator[Bordered]:
    """A network for one test, whose recorder it may kill."""
    border = Bordered(tmp_path)
    border.start()
    yield border
    border.close()


class Server:
    """A listening socket of the host; every connection is served in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None], address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=256)
        self.name = self._listener.getsockname()[:2]
        self._serve = serve
        self.peers: list[tuple[str, int]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, peer = self._listener.accept()
            except OSError:
                return
            self.peers.append(peer[:2])
            threading.Thread(target=self._run, args=(sock,), daemon=True).start()

    def _run(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionResetError):  # some tests end a connection so
            sock.settimeout(LIMIT)
            self._serve(sock)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def echo_until_reset(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        echo(sock)


def exactly(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        part = sock.recv(min(1 << 20, size - len(got)))
        assert part, f"ended after {len(got)} of {size}"
        got += part
    return bytes(got)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_is_said_is_recorded_with_the_addresses_that_the_service_sees(shared, address):
    with Server(echo, address) as server, shared.connect(server.name) as sock:
        assert sock.getpeername()[:2] == server.name
        sock.sendall(b"question")
        assert exactly(sock, 8) == b"question"
        # Recorded before it was let out: no waiting here.
        dialogue = shared.dialogue(sock)
        assert (dialogue.to, dialogue.error) == (server.name, None)
        assert dialogue.text(Way.UP) == dialogue.text(Way.DOWN) == b"question"
        assert dialogue.endings == {}


def test_a_server_to_which_the_service_is_connected_can_be_started_anew(shared):
    """The recorder's end has the server's port on this host, too."""
    listener = socket.create_server(("127.0.0.1", 0))
    name = listener.getsockname()
    with shared.connect(name) as sock:
        taken, _ = listener.accept()
        with taken:
            sock.sendall(b"x")
            assert exactly(taken, 1) == b"x"  # the recorder has taken it in
            listener.close()
            socket.create_server(name).close()


def test_a_refused_connection_is_refused_for_the_service(shared):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        destination = listener.getsockname()
    with pytest.raises(ConnectionRefusedError):
        shared.connect(destination)
    assert [one.error for one in shared.dialogues() if one.to == destination] == ["ECONNREFUSED"]


def test_a_real_connection_without_a_way_fails_for_the_service_with_the_same_error(tmp_path):
    """In a host of its own, where packets without a mark have no way: the recorder's."""
    prepare = "ip link set lo up; ip link add one type veth peer name other; ip link set one up; ip link set other up;"
    prepare += "ip addr add 10.1.0.1/8 dev one; ip route add unreachable default table 99;"
    for number, end in (("2", "lookup 99"), ("3", "unreachable")):
        prepare += f"ip rule add fwmark 0/0xffff0000 to 10.{number}.0.0/16 {end};"
    words = ["unshare", "--net", "sh", "-c", prepare + "echo; exec cat"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdin is not None and host.stdout is not None
        host.stdout.readline()
        border = Bordered(tmp_path, ["nsenter", f"--net=/proc/{host.pid}/ns/net"])
        border.start()
        expected = {
            "10.2.0.1": errno.EHOSTUNREACH,
            "10.3.0.1": errno.ENETUNREACH,
            "192.0.2.1": errno.ENETUNREACH,
        }
        for address, number in expected.items():
            with border.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
                sock.settimeout(LIMIT)
                assert sock.connect_ex((address, 80)) == number
        # For the last one no packet left the service's own socket.
        assert [one.error for one in border.dialogues()] == ["EHOSTUNREACH", "ENETUNREACH"]
        border.close()
        host.stdin.close()


def test_a_service_that_stops_waiting_is_recorded_as_timed_out(shared):
    """A listener whose backlog is full answers nobody."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        destination = deaf.getsockname()
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(destination)
        with pytest.raises(TimeoutError):
            shared.connect(destination, timeout=0.3)
        found = eventually(
            lambda: [one for one in shared.dialogues() if one.to == destination], "it is recorded"
        )
        assert [one.error for one in found] == ["ETIMEDOUT"]
        assert found[0].connect_ns >= 0.2e9
        for filler in fillers:
            filler.close()


def test_half_a_connection_lives_on_after_the_other_half_has_ended(shared):
    def answer_at_the_end(sock: socket.socket) -> None:
        said = b""
        while data := sock.recv(100):
            said += data
        sock.sendall(said.upper())

    with Server(answer_at_the_end) as server, shared.connect(server.name) as sock:
        sock.sendall(b"all of it")
        sock.shutdown(socket.SHUT_WR)
        assert exactly(sock, 9) == b"ALL OF IT"
        assert sock.recv(1) == b""
        dialogue = eventually(
            lambda: (d := shared.dialogue(sock)) and len(d.endings) == 2 and d, "both ends are recorded"
        )
        assert {way: (end.how, end.total, end.cut) for way, end in dialogue.endings.items()} == {
            Way.UP: ("closed", 9, 0),
            Way.DOWN: ("closed", 9, 0),
        }


def test_a_reset_of_the_other_end_resets_the_service(shared):
    def slam(sock: socket.socket) -> None:
        sock.recv(100)
        sock.sendall(b"part")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    with Server(slam) as server, shared.connect(server.name) as sock:
        sock.sendall(b"x")
        assert exactly(sock, 4) == b"part"
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        endings = shared.dialogue(sock).endings
        assert {end.how for end in endings.values()} == {"reset"}
        assert endings[Way.DOWN].seq < endings[Way.UP].seq  # so the server is known as who ended it


def test_a_reset_of_the_service_resets_the_other_end(shared):
    seen: list[BaseException | bytes] = []
    done = threading.Event()

    def listen(sock: socket.socket) -> None:
        try:
            while data := sock.recv(100):
                seen.append(data)
        except OSError as error:
            seen.append(error)
        done.set()

    with Server(listen) as server:
        sock = shared.connect(server.name)
        name = sock.getsockname()
        sock.sendall(b"x")
        eventually(lambda: seen, "it has arrived")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        sock.close()
        assert done.wait(LIMIT)
        assert seen[0] == b"x" and isinstance(seen[1], ConnectionResetError)
        endings = shared.dialogue(name).endings
        assert {end.how for end in endings.values()} == {"reset"}
        assert endings[Way.UP].seq < endings[Way.DOWN].seq


def test_what_the_service_listens_on_is_reached_past_the_recorder(shared):
    """By itself, by the host with its true address, and while nobody listens by nobody."""
    with shared.server(("0.0.0.0", 0)) as listener:
        name = ("127.0.0.1", listener.getsockname()[1])
        listener.settimeout(LIMIT)
        before = len(shared.dialogues())
        for connect in (shared.connect, socket.create_connection):
            with connect(name) as client:
                taken, peer = listener.accept()
                with taken:
                    assert peer == client.getsockname()
                    client.sendall(b"hello")
                    assert exactly(taken, 5) == b"hello"
                    assert not taken.getsockopt(socket.SOL_SOCKET, socket.SO_MARK)
                assert client.recv(1) == b""
    assert len(shared.dialogues()) == before
    with socket.socket() as sock:
        assert sock.connect_ex(name) == errno.ECONNREFUSED


def test_a_hundred_connections_at_once_do_not_get_mixed_up(shared):
    with Server(echo) as server, contextlib.ExitStack() as stack:

        def talk(number: int) -> tuple[tuple[str, int], bytes]:
            sock = stack.enter_context(shared.connect(server.name))
            said = f"{number}:".encode() * 500
            sock.sendall(said)
            assert exactly(sock, len(said)) == said
            return sock.getsockname()[:2], said

        with ThreadPoolExecutor(100) as pool:
            said_by = dict(pool.map(talk, range(100)))
        assert len(said_by) == 100  # none is closed yet

        def recorded() -> bool:
            of = {one.origin: one.text(Way.DOWN) for one in shared.dialogues() if one.to == server.name}
            return of == said_by

        # What the peers have got is recorded, and may not be written yet.
        eventually(recorded, "all of it is recorded")


def test_a_hundred_megabytes_pass_unchanged(border):
    size = 100 << 20
    block = bytes(range(256)) * 4096

    def pour(sock: socket.socket) -> None:
        for _ in range(size // len(block)):
            sock.sendall(block)

    with Server(pour) as server, border.connect(server.name) as sock:
        left = size
        while left:
            assert exactly(sock, len(block)) == block
            left -= len(block)
        assert sock.recv(1) == b""
        eventually(lambda: Way.DOWN in border.dialogue(sock).endings, "its end is recorded")
        dialogue = border.dialogue(sock)
        assert sum(len(piece.data) for piece in dialogue.of(Way.DOWN)) == size
        assert dialogue.endings[Way.DOWN].cut == 0
        # The last segment can be read without those before it, which a bound on the recording drops.
        segment = Recording(border.recording).segments()[-1]
        (rest,) = read_dialogues(Recording(border.recording).events(after=int(segment.stem)))
        assert (rest.to, rest.origin, rest.down_base) == (dialogue.to, dialogue.origin, dialogue.down_base)
        first = rest.of(Way.DOWN)[0]
        assert first.at > 0 and rest.text(Way.DOWN, first.at, first.at + 9) == first.data[:9]


def test_a_full_disk_switches_the_recording_off_and_traffic_goes_on(tmp_path):
    border = Bordered(tmp_path)
    border.recording.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", border.recording], check=False
    ).returncode:
        border.close()
        pytest.skip("no right to mount")
    try:
        border.start()
        with Server(echo) as server, border.connect(server.name) as sock:
            for _ in range(100):
                sock.sendall(b"x" * 50_000)
                assert exactly(sock, 50_000) == b"x" * 50_000
            dialogue = border.dialogue(sock)
            kept = sum(len(piece.data) for piece in dialogue.pieces)
            assert 0 < kept < 1 << 20
        border.end()
    finally:
        border.close()
        subprocess.run(["umount", "--lazy", border.recording], check=True)


def test_a_recorder_without_a_keeper_takes_its_connections_along_and_the_next_one_carries_new_ones(tmp_path):
    border = Bordered(tmp_path, in_python=True)
    border.start()
    with contextlib.closing(border), Server(echo) as server:
        sock = border.connect(server.name)
        sock.sendall(b"x")
        assert exactly(sock, 1) == b"x"
        border.kill()
        sock.settimeout(LIMIT)
        with sock, contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        border.start()
        with border.connect(server.name) as again:
            again.sendall(b"y")
            assert exactly(again, 1) == b"y"
            assert border.dialogue(again).text(Way.UP) == b"y"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_begins_while_nobody_records_goes_its_own_way_and_stays_there(border, address):
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else 2) as listener:
        nobody = listener.getsockname()[:2]
    with (
        Server(echo, address) as server,
        border.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as anew,
    ):
        with pytest.raises(ConnectionRefusedError):
            anew.connect(nobody)
        anew.settimeout(LIMIT)
        border.kill()
        with border.connect(server.name) as sock:
            anew.connect(server.name)  # it has a mark since the first time
            for one in (sock, anew):
                assert answers(one)
                assert one.getsockname()[:2] in server.peers, "it has passed nobody"
            border.start()
            assert answers(sock) and answers(anew)
            with border.connect(server.name) as recorded:
                assert answers(recorded)
                assert [one.origin for one in border.dialogues() if one.error is None] == [
                    recorded.getsockname()[:2]
                ]


def test_a_question_to_a_name_server_goes_its_own_way_while_nobody_records(border):
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        border.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.7.7.9", 53))
        server.settimeout(LIMIT)
        client.settimeout(LIMIT)
        client.connect(server.getsockname())
        border.kill()
        client.send(b"question")
        question, peer = server.recvfrom(100)
        assert (question, peer) == (b"question", client.getsockname())
        server.sendto(b"answer", peer)
        assert client.recv(100) == b"answer"


class Talk:
    """Blocks that are said and come back, two at a time, until it is enough; a byte missing, doubled or out of place is noticed."""

    def __init__(self, sock: socket.socket, size: int) -> None:
        self.sock = sock
        self.name = sock.getsockname()[:2]
        self.size = size
        self.heard = 0  # blocks
        self.is_enough = False
        self._room = threading.Semaphore(2)

    def block(self, number: int) -> bytes:
        return f"{number:010d};".encode() * (self.size // 11)

    def speak(self) -> int:
        """Returns how many blocks were said."""
        said = 0
        while not self.is_enough:
            assert self._room.acquire(timeout=LIMIT), "no answer comes"
            self.sock.sendall(self.block(said))
            said += 1
        self.sock.shutdown(socket.SHUT_WR)
        return said

    def hear(self) -> None:
        while first := self.sock.recv(1):
            block = self.block(self.heard)
            assert first + exactly(self.sock, len(block) - 1) == block
            self.heard += 1
            self._room.release()


def test_no_connection_notices_that_recorders_are_killed_under_traffic(border):
    """Each byte arrives once, in both directions, and is in the recording once, whatever the recorder was doing."""
    with Server(echo) as server, ThreadPoolExecutor(8) as pool, contextlib.ExitStack() as stack:
        sizes = (11, 2_200, 55_000, 1_100_000)
        talks = [Talk(stack.enter_context(border.connect(server.name)), size) for size in sizes]
        silent = stack.enter_context(border.connect(server.name))
        under_way = [(pool.submit(talk.speak), pool.submit(talk.hear)) for talk in talks]
        try:
            for _ in range(4):
                heard = [talk.heard for talk in talks]
                eventually(
                    lambda before=heard: all(t.heard > one for t, one in zip(talks, before, strict=True)),
                    "all are under way",
                )
                border.kill()
                border.start()
        finally:
            for talk in talks:
                talk.is_enough = True
        said = [(speaking.result(LIMIT), hearing.result(LIMIT))[0] for speaking, hearing in under_way]
        assert [talk.heard for talk in talks] == said
        silent.sendall(b"still here")
        assert exactly(silent, 10) == b"still here"

        def recorded() -> dict[tuple[str, int], Dialogue] | None:
            found = {one.origin: one for one in border.dialogues()}
            return found if all(len(found[talk.name].endings) == 2 for talk in talks) else None

        found = eventually(recorded, "their ends are recorded")
        for talk in talks:
            text = b"".join(talk.block(number) for number in range(talk.heard))
            dialogue = found[talk.name]
            assert dialogue.text(Way.UP) == text
            assert dialogue.text(Way.DOWN) == text
            assert {(end.how, end.total) for end in dialogue.endings.values()} == {("closed", len(text))}
        assert found[silent.getsockname()[:2]].text(Way.DOWN) == b"still here"


def test_a_recorder_whose_keeper_is_killed_tells_the_next_one_everything(border):
    with Server(echo) as server, border.connect(server.name) as talks, border.connect(server.name) as silent:
        talks.sendall(b"x")
        assert exactly(talks, 1) == b"x"
        first = border.keepers()
        for keeper in first:
            os.kill(keeper, signal.SIGKILL)
        eventually(lambda: border.keepers() and border.keepers() != first, "there is another keeper")
        with border.connect(server.name) as later:  # when this stands, the keeper has been told of the others
            later.sendall(b"l")
            assert exactly(later, 1) == b"l"
            border.kill()
            border.start()
            for sock in (talks, silent, later):
                sock.sendall(b"y")
                assert exactly(sock, 1) == b"y"


def descriptors_of(pid: int) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}


def leave_descriptors(pid: int, count: int) -> None:
    """From now on a process can open so many more."""
    used = descriptors_of(pid)
    most = [number for number in range(len(used) + count) if number not in used][count - 1] + 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))


def answers(sock: socket.socket) -> bool:
    """Whether it still leads to an echo."""
    with contextlib.suppress(OSError):
        sock.sendall(b"y")
        return sock.recv(1) == b"y"
    return False


def test_a_keeper_without_descriptors_left_keeps_what_it_can_and_the_next_recorder_starts(border):
    with Server(echo_until_reset) as server, contextlib.ExitStack() as stack:
        first = stack.enter_context(border.connect(server.name))
        assert answers(first)
        (keeper,) = border.keepers()
        eventually(lambda: len(descriptors_of(keeper)) == 8, "it has both ends")  # 3, listener, capsule, line
        leave_descriptors(keeper, 1)  # for one of the two ends of the next connection
        second = stack.enter_context(border.connect(server.name))
        assert answers(second)
        border.kill()
        border.start()
        assert answers(first)
        assert not answers(second)  # it has ended, and does not hang


def held_by(keepers: Iterable[int]) -> int:
    """How many sockets they have open."""
    links = (os.readlink(path) for keeper in keepers for path in Path(f"/proc/{keeper}/fd").iterdir())
    return sum(link.startswith("socket:") for link in links)


def test_a_recorder_with_few_descriptors_left_tells_the_next_keeper_everything(border):
    with Server(echo) as server, contextlib.ExitStack() as stack:
        socks = [stack.enter_context(border.connect(server.name)) for _ in range(20)]
        assert all(answers(sock) for sock in socks[::2])
        assert border.recorder is not None
        (keeper,) = first = border.keepers()
        # Of those that were not asked anything some may be on their way; they would take of the twelve.
        eventually(lambda: len(server.peers) == 20 and held_by([keeper]) >= 2 * 20, "all are taken and kept")
        leave_descriptors(border.recorder.pid, 12)
        os.kill(keeper, signal.SIGKILL)
        eventually(lambda: border.keepers() and border.keepers() != first, "there is another keeper")
        later = stack.enter_context(border.connect(server.name))
        assert answers(later)
        # Those from before are told when there is room for their descriptors, which may be after the later one.
        # The first that was started may lack a descriptor itself: it ends, and the next one comes later.
        eventually(lambda: held_by(border.keepers()) >= 2 * 21, "the keeper has all connections")
        border.kill()
        border.start()
        assert all(answers(sock) for sock in [*socks, later])


def test_a_keeper_that_does_not_answer_is_ended_and_with_it_what_nobody_would_carry(border):
    with Server(echo_until_reset) as server, border.connect(server.name) as sock:
        assert answers(sock)
        (keeper,) = border.keepers()
        os.kill(keeper, signal.SIGSTOP)
        border.kill()
        border.start()
        assert not answers(sock)
        with border.connect(server.name) as later:
            assert answers(later)
            border.kill()
            border.start()
            assert answers(later)


def test_a_connection_reset_while_nobody_records_is_reset_for_the_service(border):
    ended = threading.Event()

    def serve(sock: socket.socket) -> None:
        sock.sendall(exactly(sock, 1))
        ended.wait(LIMIT)
        sock.sendall(b"last")
        assert exactly(sock, 1) == b"u"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    with Server(serve) as server, border.connect(server.name) as sock:
        sock.sendall(b"x")
        assert exactly(sock, 1) == b"x"
        border.kill()
        ended.set()
        border.start()
        assert exactly(sock, 4) == b"last"
        sock.sendall(b"u")
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
        eventually(lambda: Way.DOWN in border.dialogue(sock).endings, "its end is recorded")
        assert border.dialogue(sock).endings[Way.DOWN].how == "reset"


@pytest.mark.parametrize("address", ["127.7.7.7", "::1"])
def test_questions_to_name_servers_are_carried_recorded_and_refused_as_on_the_host(shared, address):
    name = address, 53
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with (
        socket.socket(family, socket.SOCK_DGRAM) as server,
        shared.socket(family, socket.SOCK_DGRAM) as client,
    ):
        try:
            server.bind(name)
        except OSError as error:
            pytest.skip(str(error))
        client.settimeout(LIMIT)
        client.connect(name)
        client.send(b"\x12\x34question")
        question, peer = server.recvfrom(100)
        assert peer[1] != client.getsockname()[1], "it has passed the recorder"
        server.sendto(b"\x12\x34answer", peer)
        assert client.recv(100) == b"\x12\x34answer"
        server.close()
        client.send(b"\x12\x35again")
        with pytest.raises(ConnectionRefusedError):
            client.recv(1)
    (event,) = [
        one
        for one in shared.events()
        if one.kind is EventKind.NAME_LOOKUP and tuple(one.fields["to"]) == name and one.data
    ]
    assert event.fields["question"] == question
    assert event.data == b"\x12\x34answer"


def test_datagrams_to_others_go_their_own_way(shared):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        with shared.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"x", server.getsockname())
            assert server.recvfrom(1) == (b"x", ("127.0.0.1", client.getsockname()[1]))


def test_while_the_gate_is_closed_nothing_reaches_the_service_and_all_of_it_later(shared):
    """What it says flows on; an answer, a new connection, a refusal and the answer of a name server wait."""
    with Server(echo) as server, shared.connect(server.name) as sock, ThreadPoolExecutor(2) as pool:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            nobody = listener.getsockname()
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.7.7.8", 53))
        asker = shared.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with udp, asker, Agent(shared.control) as agent:
            cursor = agent.ask("close")["cursor"]
            sock.sendall(b"question")
            asker.sendto(b"datagram", udp.getsockname())
            answer, peer = udp.recvfrom(100)
            udp.sendto(answer, peer)
            stands = pool.submit(shared.connect, server.name)
            refused = pool.submit(shared.connect, nobody)
            eventually(lambda: len(server.peers) == 2, "the real connection stands")
            eventually(lambda: any(one.to == nobody for one in shared.dialogues()), "the refusal is known")
            eventually(lambda: shared.dialogue(sock).text(Way.UP) == b"question", "it flows on")
            assert is_silent(sock) and is_silent(asker) and not stands.done() and not refused.done()
            assert shared.dialogue(sock).text(Way.DOWN) == b""
            assert agent.ask("open", commit="abc")["op"] == "opened"
            assert exactly(sock, 8) == b"question"
            asker.settimeout(LIMIT)
            assert asker.recv(100) == b"datagram"
            stands.result(LIMIT).close()
            with pytest.raises(ConnectionRefusedError):
                refused.result(LIMIT)
        (taken,) = [event for event in shared.events() if event.kind is EventKind.COMMIT_TAKEN]
        assert (taken.fields["commit"], taken.fields["cursor"]) == ("abc", cursor)


def is_silent(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        sock.settimeout(LIMIT)


class Agent:
    """The agent's line to the recorder."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(LIMIT)
        self._sock.connect(str(path))
        self._lines = self._sock.makefile("rb")

    def ask(self, op: str, **fields: object) -> dict[str, object]:
        self._sock.sendall(json.dumps({"op": op, "id": 1, **fields}).encode() + b"\n")
        answer: dict[str, object] = json.loads(self._lines.readline())
        return answer

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._sock.close()
