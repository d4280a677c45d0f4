"""Redis: redis-py talks to a real server through a recording pipe, and once more to nobody but the recording."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
import redis.asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.backoff import NoBackoff
from redis.retry import Retry

from protocols.answering import answering, bytes_of
from protocols.continuing import assert_it_continues_everywhere
from protocols.mixing import conversations
from protocols.recording import recording
from protocols.scripted import dialogue
from relive.protocols.call import Call, CallEnd
from relive.protocols.pool import Pool, PoolMatch
from relive.protocols.redis import Redis
from relive.protocols.session import Close, Reset, Resume, Send
from relive.recording.dialogues import Dialogue, Way
from relive.recording.events import EventKind
from support.ports import free_port

REDIS = Redis()
AT = ("10.0.0.7", 6379)
PROGRAM = shutil.which("redis-server")
needs_server = pytest.mark.skipif(PROGRAM is None, reason="needs redis-server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    port = free_port()
    command = [
        str(PROGRAM),
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--requirepass",
        "sesame",
    ]
    process = subprocess.Popen(
        command, cwd=tmp_path_factory.mktemp("redis"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert any("Ready to accept connections" in line for line in process.stdout)
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def twice(server: tuple[str, int], program: Callable[[int], Any]) -> tuple[Any, Any, list[Call]]:
    """What a program gets from a server, what it gets from the recording of that, and the recorded calls."""
    with redis.Redis(*server, password="sesame") as client:
        client.flushall()
    with recording(server) as pipe:
        first = program(pipe.port)
        dialogues = pipe.settle()
    calls = [call for one in dialogues for call in REDIS.calls(one)]
    for one in dialogues:
        assert REDIS.recognises(one)
        assert_it_continues_everywhere(REDIS, one, most=40)
    found: list[PoolMatch] = []
    pool = Pool(sorted(calls, key=lambda call: call.asked_mono_ns), on_found=found.append)
    with answering(REDIS, pool, to=server, port=pipe.port) as port:
        second = program(port)
    assert [one.asked for one in found if one.is_miss] == []
    assert [call.asked for call in pool.left()] == []
    return first, second, calls


def commands(version: int) -> Callable[[int], Any]:
    def program(port: int) -> Any:
        with redis.Redis(
            "127.0.0.1", port, db=3, password="sesame", protocol=version, socket_timeout=30
        ) as client:
            return [
                client.set("a", "1"),
                client.incr("a"),
                client.get("a"),
                client.get("none"),
                client.hset("h", mapping={"x": "1", "y": b"\xff\0"}),
                client.hgetall("h"),
                client.rpush("l", *range(50)),
                client.lrange("l", 0, -1),
                client.zadd("z", {"m": 1.5, "n": 2}),
                client.zrange("z", 0, -1, withscores=True),
                client.sadd("s", "x"),
                client.smembers("s"),
                client.set("long", b"\r\n" * 50_000),
                client.get("long"),
                refusal(lambda: client.incr("h")),
                client.blpop(["nothing"], timeout=0.2),
                client.scan(match="*", count=100)[1].sort(),
                client.info("server")["tcp_port"],
            ]

    return program


def refusal(do: Callable[[], Any]) -> str:
    with pytest.raises(redis.ResponseError) as caught:
        do()
    return str(caught.value)


def pipelines(port: int) -> Any:
    with redis.Redis("127.0.0.1", port, password="sesame", socket_timeout=30) as client:
        found: list[Any] = []
        with client.pipeline(transaction=False) as pipe:
            for number in range(20):
                pipe.set(f"k{number}", number).get(f"k{number}")
            found.append(pipe.execute())
        with client.pipeline(transaction=True) as pipe:
            pipe.incr("n").incr("n").get("n")
            found.append(pipe.execute())
        with client.pipeline(transaction=True) as pipe:
            pipe.watch("n")
            value = int(pipe.get("n"))
            pipe.multi()
            pipe.set("n", value * 10).get("n")
            found.append(pipe.execute())
        with client.pipeline(transaction=True) as pipe:
            pipe.set("t", "x").incr("t").get("t")
            found.append([str(one) for one in pipe.execute(raise_on_error=False)])
        with client.pipeline(transaction=True) as pipe:
            pipe.execute_command("SET", "too-few")
            found.append(refusal(pipe.execute).partition(":")[0])
    return found


def subscriptions(version: int) -> Callable[[int], Any]:
    def program(port: int) -> Any:
        kept = {"password": "sesame", "protocol": version, "socket_timeout": 30}
        with redis.Redis("127.0.0.1", port, **kept) as client, client.pubsub() as subscription:
            subscription.subscribe("news", "other")
            subscription.psubscribe("p*")
            heard = [subscription.get_message(timeout=30) for _ in range(3)]
            for number in range(3):
                client.publish("news", number)
                heard.append(subscription.get_message(timeout=30))
            client.publish("pure", b"\xff")
            heard.append(subscription.get_message(timeout=30))
            subscription.unsubscribe()
            heard += [subscription.get_message(timeout=30) for _ in range(2)]
            return heard

    return program


def asynchronous(port: int) -> Any:
    async def main() -> Any:
        client = redis.asyncio.Redis(port=port, password="sesame", protocol=3, max_connections=5)
        try:
            await asyncio.gather(*[client.set(f"k{number}", number) for number in range(5)])
            values = await asyncio.gather(*[client.get(f"k{number}") for number in range(5)])
            async with client.pipeline(transaction=True) as pipe:
                values.append(await pipe.incr("x").incr("x").execute())
            return values
        finally:
            await client.aclose()

    return asyncio.run(main())


@needs_server
@pytest.mark.parametrize(
    "program",
    [commands(2), commands(3), pipelines, subscriptions(2), subscriptions(3), asynchronous],
    ids=["resp2", "resp3", "pipelines", "messages2", "messages3", "asyncio"],
)
def test_redis_py_gets_from_the_recording_what_it_got_from_the_server(server, program):
    first, second, _ = twice(server, program)
    assert second == first


@needs_server
def test_a_command_that_timed_out_is_met_with_silence_for_as_long(server):
    def program(port: int) -> str:
        once = Retry(NoBackoff(), 0)
        one = {"retry": once, "single_connection_client": True}
        with redis.Redis("127.0.0.1", port, password="sesame", socket_timeout=30, **one) as client:
            assert client.connection is not None
            client.connection._sock.settimeout(
                0.2
            )  # of this command alone: who is asked for the password may be busy
            with pytest.raises(redis.TimeoutError) as caught:
                client.blpop(["nothing"], timeout=30)
        return str(caught.value)

    first, second, calls = twice(server, program)
    assert first == second
    assert calls[-1].end is CallEnd.GIVEN_UP
    assert calls[-1].asked["command"][0] == "BLPOP"


@needs_server
def test_what_waited_waits_again_as_long(server):
    _, _, calls = twice(server, commands(2))
    (waited,) = [call for call in calls if call.asked["command"][0] == "BLPOP"]
    assert (
        waited.pieces[0].after_ns >= 190_000_000
    )  # the server counts from a clock of milliseconds that it had read before
    session = REDIS.open(Pool([waited]), 1, to=server)
    session.feed(b"AUTH x\r\nSELECT 3\r\n")
    (act,) = session.feed(b"*3\r\n$5\r\nBLPOP\r\n$7\r\nnothing\r\n$3\r\n0.2\r\n")
    assert act == Send(b"*-1\r\n", waited.pieces[0].after_ns)


def bulk(*words: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))


def said(*pieces: tuple[Way, bytes], **named: Any) -> Dialogue:
    return dialogue(pieces, to=AT, **named)


def open_to(*dialogues: Dialogue, protocol: Redis = REDIS, ignore: tuple[str, ...] = ()) -> Any:
    """(a session on a new connection, what it found)."""
    found: list[PoolMatch] = []
    calls = [call for one in dialogues for call in protocol.calls(one)]
    return protocol.open(Pool(calls, ignore=ignore, on_found=found.append), 1, to=AT), found


def test_the_same_words_as_the_recorder_in_python_processes_uses():
    one = said(
        (Way.UP, bulk(b"SELECT", b"2") + bulk(b"get", b"k") + bulk(b"GET", b"\xff")),
        (Way.DOWN, b"+OK\r\n$1\r\nv\r\n-ERR no\r\n"),
        (Way.UP, bulk(b"MULTI") + bulk(b"INCR", b"n") + bulk(b"EXEC")),
        (Way.DOWN, b"+OK\r\n+QUEUED\r\n*1\r\n:7\r\n"),
    )
    _, got, failed, transaction = REDIS.calls(one)
    assert got.kind is EventKind.REDIS_COMMAND
    assert got.asked == {"server": "10.0.0.7:6379", "database": 2, "command": ["get", "k"]}
    assert got.answer == {"$": ["utf8", "v"]}
    assert failed.asked["command"] == ["GET", {"$": ["bytes", "/w=="]}]
    assert failed.answer == {
        "error": {"type": "redis.exceptions.ResponseError", "args": {"$": ["tuple", ["no"]]}}
    }
    assert transaction.asked["commands"] == [["INCR", "n"]]
    assert transaction.asked["transaction"] is True
    assert transaction.answer == [{"$": ["utf8", "OK"]}, {"$": ["utf8", "QUEUED"]}, [7]]


def test_secrets_stand_in_no_question():
    one = said(
        (Way.UP, bulk(b"AUTH", b"me", b"sesame") + bulk(b"HELLO", b"3", b"AUTH", b"me", b"sesame")),
        (Way.DOWN, b"+OK\r\n%0\r\n"),
        (Way.UP, bulk(b"CONFIG", b"SET", b"requirepass", b"sesame")),
        (Way.DOWN, b"+OK\r\n"),
    )
    assert "sesame" not in str([call.asked for call in REDIS.calls(one)])


TALK = [
    (Way.UP, bulk(b"HELLO", b"3")),
    (Way.DOWN, b"%1\r\n$5\r\nproto\r\n:3\r\n"),
    (Way.UP, bulk(b"MULTI")),
    (Way.DOWN, b"+OK\r\n"),
    (Way.UP, bulk(b"SET", b"a", b"1")),
    (Way.DOWN, b"+QUEUED\r\n"),
    (Way.UP, bulk(b"GET", b"a")),
    (Way.DOWN, b"+QUEUED\r\n>2\r\n+invalidate\r\n*1\r\n$1\r\na\r\n"),
    (Way.UP, bulk(b"EXEC")),
    (Way.DOWN, b"*2\r\n+OK\r\n"),
    (Way.DOWN, b"$1\r\n1\r\n"),
    (Way.UP, bulk(b"SUBSCRIBE", b"one", b"two")),
    (Way.DOWN, b">3\r\n+subscribe\r\n$3\r\none\r\n:1\r\n>3\r\n+message\r\n$3\r\none\r\n$1\r\nx\r\n"),
    (Way.DOWN, b">3\r\n+subscribe\r\n$3\r\ntwo\r\n:2\r\n"),
    (Way.DOWN, b">3\r\n+message\r\n$3\r\ntwo\r\n$1\r\ny\r\n"),
    (Way.UP, bulk(b"PING")),
    (Way.DOWN, b">3\r\n+message\r\n$3\r\none\r\n$1\r\nz\r\n+PONG\r\n"),
    (Way.UP, bulk(b"MULTI") + bulk(b"INCR", b"a") + bulk(b"DISCARD") + bulk(b"GET", b"a")),
    (Way.DOWN, b"+OK\r\n+QUEUED\r\n+OK\r\n$1\r\n1\r\n"),
]


def test_a_dialogue_of_all_kinds_continues_at_every_byte():
    assert_it_continues_everywhere(REDIS, said(*TALK))


def test_a_transaction_may_be_said_piece_by_piece():
    questions = b"".join(data for way, data in TALK[2:9] if way is Way.UP)
    one = said((Way.UP, questions), (Way.DOWN, b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$1\r\n1\r\n"))
    session, found = open_to(one)
    answers = [bytes_of(session.feed(data)) for way, data in TALK[2:9] if way is Way.UP]
    assert answers == [b"+OK\r\n", b"+QUEUED\r\n", b"+QUEUED\r\n", b"*2\r\n+OK\r\n$1\r\n1\r\n"]
    assert [one.is_miss for one in found] == [False]


def test_a_transaction_under_way_may_go_on_otherwise_and_is_then_another():
    one = said(*TALK[2:11])
    sizes = [len(data) for way, data in TALK[2:6] if way is Way.UP]
    found: list[PoolMatch] = []
    where = Resume(one, sum(sizes), len(b"+OK\r\n+QUEUED\r\n"))
    session, acts = REDIS.resume(Pool(REDIS.calls(one), on_found=found.append), 1, where)
    assert acts == []
    assert bytes_of(session.feed(bulk(b"GET", b"other"))) == b"+QUEUED\r\n"
    assert b"differs in $.commands[1][1]" in bytes_of(session.feed(bulk(b"EXEC")))
    assert [one.is_miss for one in found] == [True]


def test_a_transaction_that_was_not_recorded_fails_at_its_end():
    session, found = open_to(said((Way.UP, bulk(b"GET", b"a")), (Way.DOWN, b"$-1\r\n")))
    answer = bytes_of(session.feed(bulk(b"MULTI") + bulk(b"SET", b"a", b"1") + bulk(b"EXEC")))
    assert answer.startswith(b"+OK\r\n+QUEUED\r\n-ERR relive: SET a 1 was not recorded")
    assert [one.is_miss for one in found] == [True]


def test_a_miss_tells_what_comes_nearest_and_can_be_accepted():
    recorded = said((Way.UP, bulk(b"SET", b"a", b"1", b"EX", b"17")), (Way.DOWN, b"+OK\r\n"))
    live = bulk(b"SET", b"a", b"1", b"EX", b"18")
    session, found = open_to(recorded)
    assert b"Nearest: SET a 1 EX 17, which differs in $.command[4]" in bytes_of(session.feed(live))
    assert found[0].differs == ("$.command[4]",)
    session, _ = open_to(recorded, ignore=found[0].differs)
    assert bytes_of(session.feed(live)) == b"+OK\r\n"


def test_what_was_read_is_given_again_and_what_was_written_is_not():
    one = said((Way.UP, bulk(b"GET", b"a") + bulk(b"INCR", b"n")), (Way.DOWN, b"$1\r\n1\r\n:1\r\n"))
    session, _ = open_to(one)
    assert bytes_of(session.feed(bulk(b"get", b"a") * 2)) == b"$1\r\n1\r\n" * 2
    assert bytes_of(session.feed(bulk(b"INCR", b"n") * 2)).startswith(
        b":1\r\n-ERR relive: INCR n was not recorded once more"
    )


def test_who_connects_anew_may_say_who_he_is():
    session, found = open_to(said((Way.UP, bulk(b"GET", b"a")), (Way.DOWN, b"$1\r\n1\r\n")))
    answer = bytes_of(
        session.feed(
            bulk(b"HELLO", b"3", b"AUTH", b"default", b"x")
            + bulk(b"CLIENT", b"SETINFO", b"LIB-NAME", b"redis-py")
            + bulk(b"SELECT", b"0")
            + bulk(b"SUBSCRIBE", b"a")
            + bulk(b"PING")
        )
    )
    assert answer.startswith(b"%7\r\n$6\r\nserver\r\n")
    assert answer.endswith(b"+OK\r\n+OK\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n+PONG\r\n")
    assert found == []
    assert bytes_of(session.feed(bulk(b"GET", b"a"))) == b"$1\r\n1\r\n"


def test_an_answer_is_said_anew_in_the_version_that_is_spoken():
    recorded = said(
        (Way.UP, bulk(b"HELLO", b"3") + bulk(b"HGETALL", b"h") + bulk(b"GET", b"none")),
        (Way.DOWN, b"%0\r\n%1\r\n$1\r\nx\r\n$1\r\n1\r\n_\r\n"),
    )
    session, _ = open_to(recorded)
    answer = bytes_of(session.feed(bulk(b"HGETALL", b"h") + bulk(b"GET", b"none")))
    assert answer == b"*2\r\n$1\r\nx\r\n$1\r\n1\r\n$-1\r\n"


def test_messages_come_again_after_what_they_came_after():
    session, _ = open_to(said(*TALK))
    session.feed(TALK[0][1])
    assert bytes_of(session.feed(TALK[11][1])) == b"".join(data for _, data in TALK[12:15]) + TALK[16][1][:-7]


def test_who_speaks_before_a_message_is_due_does_not_wait_for_it():
    """The message comes before the answer, as it did, and at once: else a ping would be answered after an hour."""
    subscribed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
    message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"
    one = said((Way.UP, bulk(b"SUBSCRIBE", b"c")), (Way.DOWN, subscribed), (Way.DOWN, message))
    one.pieces[-1] = replace(one.pieces[-1], mono_ns=3_600_000_000_000)
    with (
        answering(REDIS, Pool(REDIS.calls(one)), to=AT) as port,
        socket.create_connection(("127.0.0.1", port), timeout=20) as connection,
    ):
        connection.sendall(bulk(b"SUBSCRIBE", b"c"))
        assert connection.recv(1000) == subscribed
        connection.sendall(bulk(b"PING"))
        got = b""
        while not got.endswith(b"$4\r\npong\r\n$0\r\n\r\n"):
            got += connection.recv(1000)
        assert got.startswith(message)


@pytest.mark.parametrize(("way", "kind"), [("closed", Close), ("reset", Reset)])
def test_an_answer_that_was_cut_is_cut_again(way, kind):
    one = said((Way.UP, bulk(b"GET", b"a")), (Way.DOWN, b"$100\r\nhalf"), **{way: Way.DOWN})
    (call,) = REDIS.calls(one)
    assert call.end is (CallEnd.CLOSED if way == "closed" else CallEnd.RESET)
    assert_it_continues_everywhere(REDIS, one)
    session, _ = open_to(one)
    send, last = session.feed(bulk(b"GET", b"a"))
    assert send.data == b"$100\r\nhalf"
    assert isinstance(last, kind)


def test_behind_a_command_that_was_never_answered_there_is_silence():
    one = said((Way.UP, bulk(b"BLPOP", b"l", b"0") + bulk(b"GET", b"a")), closed=Way.UP)
    session, _ = open_to(one)
    assert session.feed(bulk(b"BLPOP", b"l", b"0") + bulk(b"GET", b"a") + bulk(b"PING")) == []


def test_inline_commands_are_understood():
    one = said((Way.UP, b'SET a "x y"\r\n\r\nget a\n'), (Way.DOWN, b"+OK\r\n$3\r\nx y\r\n"))
    assert [call.asked["command"] for call in REDIS.calls(one)] == [["SET", "a", "x y"], ["get", "a"]]
    assert_it_continues_everywhere(REDIS, one)


def test_a_connection_goes_on_in_the_database_that_it_had_selected():
    before = [(Way.UP, bulk(b"SELECT", b"5")), (Way.DOWN, b"+OK\r\n")]
    one = said(*before, (Way.UP, bulk(b"GET", b"a")), (Way.DOWN, b"$1\r\n1\r\n"))
    pool = Pool(REDIS.calls(one))
    session, _ = REDIS.resume(pool, 1, Resume(one, len(before[0][1]), 5))
    assert bytes_of(session.feed(bulk(b"GET", b"a"))) == b"$1\r\n1\r\n"


MESSAGE = b">3\r\n+message\r\n+c\r\n+hi\r\n"
PAIRS = [
    (bulk(b"GET", b"a"), b"$3\r\nxyz\r\n"),
    (bulk(b"HGETALL", b"h"), b"%1\r\n+a\r\n:1\r\n"),
    (bulk(b"SET", b"a", b"1"), b"+OK\r\n"),
    (bulk(b"MULTI"), b"+OK\r\n"),
    (bulk(b"EXEC"), b"*1\r\n:1\r\n"),
    (bulk(b"DISCARD"), b"+OK\r\n"),
    (bulk(b"SELECT", b"1"), b"+OK\r\n"),
    (bulk(b"HELLO", b"3"), b"%0\r\n"),
    (bulk(b"SUBSCRIBE", b"c", b"d"), MESSAGE.replace(b"message", b"subscribe") * 2),
    (bulk(b"UNSUBSCRIBE", b"c"), MESSAGE.replace(b"message", b"unsubscribe")),
    (b"PING\r\n", b"+PONG\r\n"),
]


@given(conversations(PAIRS, MESSAGE), st.sampled_from([None, *Way]))
@settings(max_examples=40, deadline=None)
def test_whatever_is_said_continues(pieces, closed):
    assert_it_continues_everywhere(REDIS, said(*pieces, closed=closed), most=30)


def test_a_client_may_do_without_answers():
    asked = bulk(b"CLIENT", b"REPLY", b"OFF") + bulk(b"SET", b"a", b"1") + bulk(b"CLIENT", b"REPLY", b"ON")
    asked += bulk(b"CLIENT", b"REPLY", b"SKIP") + bulk(b"SET", b"a", b"2") + bulk(b"GET", b"a")
    one = said((Way.UP, asked), (Way.DOWN, b"+OK\r\n$1\r\n2\r\n"))
    assert [call.end for call in REDIS.calls(one)] == [CallEnd.ANSWERED] * 6
    assert_it_continues_everywhere(REDIS, one)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=10))
@settings(max_examples=25, deadline=None)
def test_how_the_bytes_are_cut_makes_no_difference(cuts):
    whole = said(*TALK)

    def cut() -> Iterator[tuple[Way, bytes]]:
        at = 0
        for way, data in TALK:
            rest = data
            while rest:
                size = cuts[at % len(cuts)]
                yield way, rest[:size]
                rest, at = rest[size:], at + 1

    assert [(c.asked, c.answer, c.up, c.down) for c in REDIS.calls(said(*cut()))] == [
        (c.asked, c.answer, c.up, c.down) for c in REDIS.calls(whole)
    ]


WORDS = st.sampled_from([*TALK, (Way.UP, b"*1\r\n$1"), (Way.DOWN, b">1\r\n+x\r\n"), (Way.DOWN, b"-ERR\r\n")])


@given(
    st.lists(
        st.one_of(WORDS, st.tuples(st.sampled_from(Way), st.binary(min_size=1, max_size=30))), max_size=9
    )
)
@settings(max_examples=80, deadline=None)
def test_nothing_that_is_said_raises(pieces):
    one = said(*pieces)
    calls = REDIS.calls(one)
    assert [call.index for call in calls] == list(range(len(calls)))
    session, _ = open_to(one)
    for way, data in pieces:
        if way is Way.UP:
            session.feed(data)
    session.hang_up()
    size = sum(len(data) for way, data in pieces if way is Way.UP)
    resumed, _ = REDIS.resume(Pool(calls), 1, Resume(one, size // 2, 0))
    resumed.feed(one.text(Way.UP, size // 2))


def test_a_service_that_talks_nonsense_is_told_so_and_left():
    session, _ = open_to()
    send, last = session.feed(b"*1\r\n:1\r\n")
    assert send.data == b"-ERR Protocol error\r\n"
    assert isinstance(last, Close)
    assert session.feed(b"PING\r\n") == []


def test_a_connection_of_nothing_but_silence_is_redis_only_at_its_port():
    assert REDIS.recognises(dialogue([], to=("h", 6379)))
    assert not REDIS.recognises(dialogue([], to=("h", 80)))


def test_the_server_is_told_apart_by_its_address():
    one = said((Way.UP, bulk(b"GET", b"a")), (Way.DOWN, b"$1\r\n1\r\n"))
    session = REDIS.open(Pool(REDIS.calls(one)), 1, to=("10.0.0.8", 6379))
    assert b"differs in $.server" in bytes_of(session.feed(bulk(b"GET", b"a")))
