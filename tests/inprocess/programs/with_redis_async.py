"""redis-py on asyncio: commands, pipelines, scripts, errors, time-outs, decoded and not, both protocols."""

import redis.asyncio as redis
from redis import exceptions


async def main(address, keep):
    kept = keep.setdefault("open", redis.Redis.from_url(address))
    yield await kept.set("a", b"\xff\x00", ex=100), await kept.get("a"), await kept.get("none")
    for protocol, decode in ((2, False), (3, True)):
        client = redis.Redis.from_url(address, protocol=protocol, decode_responses=decode)
        async for seen in on(client, f"p{protocol}:"):
            yield seen
        await client.aclose()


async def on(client, p):
    yield (
        await client.flushdb(),
        await client.hset(p + "h", mapping={"x": 1, "y": "two"}),
        await client.hgetall(p + "h"),
    )
    yield (
        await client.rpush(p + "l", 1, 2.5, "c"),
        await client.lrange(p + "l", 0, -1),
        await client.blpop([p + "l"], timeout=1),
    )
    yield await client.sadd(p + "s", "m"), await client.smembers(p + "s")
    yield await client.zadd(p + "z", {"a": 1.5, "b": 2}), await client.zrange(p + "z", 0, -1, withscores=True)
    yield (
        await client.xadd(p + "x", {"k": "v"}, id="1-1"),
        await client.xrange(p + "x"),
        await client.xread({p + "x": "0"}),
    )
    yield await client.exists(p + "none"), await client.ttl(p + "h"), await client.type(p + "h")
    yield await client.blpop([p + "nothing"], timeout=0.01)
    yield await client.dump(p + "h") is not None, sorted([key async for key in client.scan_iter(p + "*")])
    yield sorted(await client.info("server"))[:3], await client.config_get("maxmemory")
    try:
        await client.incr(p + "h")
    except exceptions.ResponseError as error:
        yield error
    try:
        await client.evalsha("0" * 40, 0)
    except exceptions.NoScriptError as error:
        yield error
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('get', 'nothing')}")
    yield await script(keys=["k"], args=["v"]), await script(keys=["k"], args=["w"])
    async with client.pipeline() as pipe:
        yield await pipe.set(p + "n", 1).incr(p + "n").hgetall(p + "h").execute()
    async with client.pipeline(transaction=False) as pipe:
        yield await pipe.get(p + "n").incr(p + "h").get(p + "n").execute(raise_on_error=False)
        try:
            await pipe.incr(p + "h").execute()
        except exceptions.ResponseError as error:
            yield error
    async with client.pipeline() as pipe:
        await pipe.watch(p + "n")
        yield int(await pipe.get(p + "n"))
        pipe.multi()
        yield await pipe.set(p + "n", 9).execute()
        await pipe.watch(p + "n")
        await client.incr(p + "n")
        pipe.multi()
        try:
            await pipe.set(p + "n", 9).execute()
        except exceptions.WatchError as error:
            yield error
        yield await script(keys=["q"], args=["p"], client=pipe) is pipe, await pipe.execute()
    lock = client.lock(p + "lock", timeout=5)
    yield await lock.acquire(token="mine"), await lock.owned(), await lock.release()
    try:
        await client.execute_command("AUTH", "someone", "a-password-of-mine")
    except exceptions.AuthenticationError as error:
        yield error
    yield await client.set(p + "big", "x" * 200_000), len(await client.get(p + "big"))
    subscription = client.pubsub(ignore_subscribe_messages=True)
    await subscription.subscribe(p + "news")
    try:
        while True:
            if await subscription.get_message(timeout=1) is None:
                break
    except exceptions.ConnectionError:
        pass
    await subscription.aclose()
