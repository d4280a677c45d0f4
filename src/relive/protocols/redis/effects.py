"""What commands of Redis do to keys: which only read, which write, and which of their words name keys.

One table for who answers commands again and for who looks where a value came from. It holds what services use; of a command that
is not in it nothing is known: it is no read, and writes nothing that could be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from relive.protocols.redis.commands import name_of

__all__ = ["is_read", "names_read", "names_written"]


class _Keys(Enum):
    """Where keys stand in the words behind a command's name."""

    FIRST = auto()
    TWO = auto()  # the first two
    ALL = auto()
    PAIRS = auto()  # every second, before its value
    FIELDS = auto()  # a hash, then fields of it
    FIELD_PAIRS = auto()  # a hash, then fields of it, each before its value
    ELSEWHERE = auto()  # nowhere, or not to be told from the position


def _table(names: Mapping[_Keys, str]) -> dict[str, _Keys]:
    return {name: where for where, text in names.items() for name in text.split()}


_READS = _table(
    {
        _Keys.FIRST: "GET STRLEN GETRANGE SUBSTR GETBIT BITCOUNT BITPOS TYPE TTL PTTL EXPIRETIME PEXPIRETIME DUMP HGETALL HLEN"
        " HKEYS HVALS HRANDFIELD HSCAN LRANGE LLEN LINDEX LPOS SMEMBERS SISMEMBER SMISMEMBER SCARD SRANDMEMBER SSCAN ZRANGE"
        " ZREVRANGE ZRANGEBYSCORE ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZCARD ZCOUNT ZLEXCOUNT ZSCORE ZMSCORE ZRANK"
        " ZREVRANK ZRANDMEMBER ZSCAN GEODIST GEOHASH GEOPOS GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO XRANGE XREVRANGE XLEN"
        " XPENDING SORT_RO JSON.GET JSON.TYPE TS.GET TS.RANGE BF.EXISTS BF.MEXISTS",
        _Keys.TWO: "LCS",
        _Keys.ALL: "MGET EXISTS TOUCH SINTER SUNION SDIFF PFCOUNT",
        _Keys.FIELDS: "HGET HMGET HEXISTS HSTRLEN",
        _Keys.ELSEWHERE: "KEYS SCAN DBSIZE RANDOMKEY OBJECT MEMORY SINTERCARD ZINTER ZUNION ZDIFF ZINTERCARD XINFO EVAL_RO"
        " EVALSHA_RO FCALL_RO INFO TIME PING ECHO COMMAND PUBSUB LASTSAVE LOLWUT ROLE JSON.MGET FT.SEARCH FT.AGGREGATE FT.INFO",
    }
)
# Whether these only read depends on their words.
_READING_WORDS = {
    "CONFIG": ("GET",),
    "CLUSTER": ("SLOTS", "SHARDS", "NODES", "INFO", "MYID", "KEYSLOT"),
    "SENTINEL": ("GET-MASTER-ADDR-BY-NAME", "MASTER", "MASTERS", "REPLICAS", "SLAVES", "SENTINELS", "MYID"),
    "CLIENT": ("ID", "GETNAME", "INFO", "LIST"),
    "SCRIPT": ("EXISTS", "LOAD"),
    "FUNCTION": ("LIST", "DUMP"),
    "ACL": ("WHOAMI", "CAT", "LIST"),
}
_TELL_AND_CHANGE = {"GETEX": _Keys.FIRST}  # the value is read, though the key's time to live may change
_WRITES = _table(
    {
        _Keys.FIRST: "SET SETEX PSETEX SETNX GETSET APPEND SETRANGE INCR INCRBY INCRBYFLOAT DECR DECRBY EXPIRE PEXPIRE EXPIREAT"
        " PEXPIREAT PERSIST LPUSH RPUSH LPUSHX RPUSHX LPOP RPOP LREM LTRIM LSET LINSERT SADD SREM SPOP ZADD ZREM ZINCRBY"
        " ZREMRANGEBYSCORE ZREMRANGEBYRANK XADD XDEL XTRIM SETBIT",
        _Keys.TWO: "RENAME RENAMENX SMOVE",
        _Keys.ALL: "DEL UNLINK GETDEL",
        _Keys.PAIRS: "MSET MSETNX",
        _Keys.FIELDS: "HDEL",
        _Keys.FIELD_PAIRS: "HSET HSETNX HMSET HINCRBY HINCRBYFLOAT",
    }
)


def is_read(words: list[bytes]) -> bool:
    """It changes nothing: its answer may be given again."""
    name = name_of(words)
    if name in _READING_WORDS:
        return len(words) > 1 and words[1].decode("latin-1").upper() in _READING_WORDS[name]
    if name == "XREAD":
        return all(word.upper() != b"BLOCK" for word in words)
    return name in _READS


def names_read(command: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    """(key, field of a hash) of what a command reads, its name in capitals first; None for the whole of a key."""
    return _named(command, _READS.get(command[0]) or _TELL_AND_CHANGE.get(command[0]))


def names_written(command: Sequence[str]) -> Iterable[tuple[str, str | None]]:
    """(key, field of a hash) of what a command changes, as ``names_read`` gives them."""
    return _named(command, _WRITES.get(command[0]))


def _named(command: Sequence[str], where: _Keys | None) -> Iterable[tuple[str, str | None]]:
    words = command[1:]
    return _NAMED[where](words) if words and where in _NAMED else ()


def _keys(words: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    return ((word, None) for word in words)


def _fields(words: Sequence[str], step: int) -> Iterator[tuple[str, str | None]]:
    if len(words) == 1:
        return _keys(words)
    return ((words[0], field) for field in words[1::step])


_NAMED: Mapping[_Keys | None, Callable[[Sequence[str]], Iterable[tuple[str, str | None]]]] = {
    _Keys.FIRST: lambda words: _keys(words[:1]),
    _Keys.TWO: lambda words: _keys(words[:2]),
    _Keys.ALL: _keys,
    _Keys.PAIRS: lambda words: _keys(words[::2]),
    _Keys.FIELDS: lambda words: _fields(words, 1),
    _Keys.FIELD_PAIRS: lambda words: _fields(words, 2),
}
