"""What has to be known of single commands of Redis."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from relive_inprocess.relive_recorder.values import pack

__all__ = ["CONFIRMATIONS", "MESSAGES", "SUBSCRIBING", "is_read", "name_of", "told_answer", "told_command"]

SUBSCRIBING = frozenset("SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE".split())
CONFIRMATIONS = frozenset(name.lower().encode() for name in SUBSCRIBING)
MESSAGES = frozenset((b"message", b"pmessage", b"smessage"))
_INLINE = 64 << 10  # [bytes] longer words and answers are told by their digest
_SECRET = "<secret>"
_READS = frozenset(
    (
        "GET MGET STRLEN GETRANGE SUBSTR GETBIT BITCOUNT BITPOS LCS EXISTS TYPE TTL PTTL EXPIRETIME PEXPIRETIME KEYS SCAN DBSIZE "
        "RANDOMKEY DUMP OBJECT MEMORY HGET HMGET HGETALL HLEN HKEYS HVALS HEXISTS HSTRLEN HRANDFIELD HSCAN LRANGE LLEN LINDEX LPOS "
        "SMEMBERS SISMEMBER SMISMEMBER SCARD SRANDMEMBER SSCAN SINTER SUNION SDIFF SINTERCARD ZRANGE ZREVRANGE ZRANGEBYSCORE "
        "ZREVRANGEBYSCORE ZRANGEBYLEX ZREVRANGEBYLEX ZCARD ZCOUNT ZLEXCOUNT ZSCORE ZMSCORE ZRANK ZREVRANK ZRANDMEMBER ZSCAN ZINTER "
        "ZUNION ZDIFF ZINTERCARD GEODIST GEOHASH GEOPOS GEOSEARCH GEORADIUS_RO GEORADIUSBYMEMBER_RO XRANGE XREVRANGE XLEN XINFO "
        "XPENDING SORT_RO EVAL_RO EVALSHA_RO FCALL_RO PFCOUNT INFO TIME PING ECHO COMMAND PUBSUB LASTSAVE LOLWUT ROLE TOUCH "
        "JSON.GET JSON.MGET JSON.TYPE FT.SEARCH FT.AGGREGATE FT.INFO TS.GET TS.RANGE BF.EXISTS BF.MEXISTS"
    ).split()
)
_READING_WORDS = {
    "CONFIG": ("GET",),
    "CLUSTER": ("SLOTS", "SHARDS", "NODES", "INFO", "MYID", "KEYSLOT"),
    "SENTINEL": ("GET-MASTER-ADDR-BY-NAME", "MASTER", "MASTERS", "REPLICAS", "SLAVES", "SENTINELS", "MYID"),
    "CLIENT": ("ID", "GETNAME", "INFO", "LIST"),
    "SCRIPT": ("EXISTS", "LOAD"),
    "FUNCTION": ("LIST", "DUMP"),
    "ACL": ("WHOAMI", "CAT", "LIST"),
}
_WORD_BEFORE_SECRET = frozenset((b"AUTH2", b"REQUIREPASS", b"MASTERAUTH"))


def name_of(words: list[bytes]) -> str:
    """The command's name in capitals."""
    return words[0].decode("latin-1").upper()


def is_read(words: list[bytes]) -> bool:
    """It changes nothing: its answer may be given again."""
    name = name_of(words)
    if name in _READING_WORDS:
        return len(words) > 1 and words[1].decode("latin-1").upper() in _READING_WORDS[name]
    if name == "XREAD":
        return all(word.upper() != b"BLOCK" for word in words)
    return name in _READS


def told_command(words: list[bytes]) -> list[Any]:
    """A command as the recorder in Python processes tells it: text where it is text; no secrets."""
    name = name_of(words)
    told: list[Any] = []
    for index, word in enumerate(words):
        told.append(_SECRET if index and _is_secret(name, words, index) else _told_word(word))
    return told


def told_answer(said: tuple[bytes, Any]) -> Any:
    """A value as redis-py's parser gives it, packed."""
    kind, content = said
    if kind in b"-!" and isinstance(content, bytes):
        text = content.decode("utf-8", "backslashreplace").removeprefix("ERR ")
        return {"error": {"type": "redis.exceptions.ResponseError", "args": pack((text,))}}
    if isinstance(content, list):
        told = [told_answer(one) for one in content]
        if kind == b"%":
            return {"$": ["dict", [list(pair) for pair in zip(told[::2], told[1::2], strict=True)]]}
        return told
    if not isinstance(content, bytes):
        return pack(content)
    if kind == b",":
        return pack(_double(content))
    if kind == b"(":
        return pack(int(content)) if len(content) <= 4000 else pack(content)
    if len(content) > _INLINE:
        return {"bytes": len(content), "blake2b": blake2b(content, digest_size=16).hexdigest()}
    return pack(content[4:] if kind == b"=" else content)


def _double(text: bytes) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _told_word(word: bytes) -> Any:
    if len(word) > _INLINE:
        return {"bytes": len(word), "blake2b": blake2b(word, digest_size=16).hexdigest()}
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        return pack(word)


def _is_secret(name: str, words: list[bytes], index: int) -> bool:
    if name == "AUTH":
        return True
    before = words[index - 1].upper()
    if name == "HELLO":
        return index >= 4 and words[index - 2].upper() == b"AUTH"
    if name == "ACL":
        return words[index][:1] in (b">", b"<", b"#", b"!")
    if name == "MIGRATE":
        return before in (b"AUTH", b"AUTH2") or (index > 1 and words[index - 2].upper() == b"AUTH2")
    return name == "CONFIG" and before in _WORD_BEFORE_SECRET
