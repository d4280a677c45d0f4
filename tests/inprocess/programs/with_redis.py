"""redis-py: commands, pipelines, scripts, errors, time-outs, decoded and not, both protocols."""

import redis


def main(address, keep):
    kept = keep.setdefault("open", redis.Redis.from_url(address))
    yield kept.set("a", b"\xff\x00", ex=100), kept.get("a"), kept.get("none")
    for protocol, decode in ((2, False), (3, True)):
        client = redis.Redis.from_url(address, protocol=protocol, decode_responses=decode)
        yield from on(client, f"p{protocol}:")
        client.close()


def on(client, p):
    yield client.flushdb(), client.hset(p + "h", mapping={"x": 1, "y": "two"}), client.hgetall(p + "h")
    yield (
        client.rpush(p + "l", 1, 2.5, "c"),
        client.lrange(p + "l", 0, -1),
        client.blpop([p + "l"], timeout=1),
    )
    yield client.sadd(p + "s", "m"), client.smembers(p + "s")
    yield client.zadd(p + "z", {"a": 1.5, "b": 2}), client.zrange(p + "z", 0, -1, withscores=True)
    yield client.xadd(p + "x", {"k": "v"}, id="1-1"), client.xrange(p + "x"), client.xread({p + "x": "0"})
    yield client.exists(p + "none"), client.ttl(p + "h"), client.type(p + "h")
    yield client.blpop([p + "nothing"], timeout=0.01)
    yield client.dump(p + "h") is not None, sorted(client.scan_iter(p + "*"))
    yield sorted(client.info("server"))[:3], client.config_get("maxmemory")
    try:
        client.incr(p + "h")
    except redis.ResponseError as error:
        yield error
    try:
        client.evalsha("0" * 40, 0)
    except redis.exceptions.NoScriptError as error:
        yield error
    script = client.register_script("return {KEYS[1], ARGV[1], redis.call('get', 'nothing')}")
    yield script(keys=["k"], args=["v"]), script(keys=["k"], args=["w"])
    with client.pipeline() as pipe:
        yield pipe.set(p + "n", 1).incr(p + "n").hgetall(p + "h").execute()
    with client.pipeline(transaction=False) as pipe:
        yield pipe.get(p + "n").incr(p + "h").get(p + "n").execute(raise_on_error=False)
        try:
            pipe.incr(p + "h").execute()
        except redis.ResponseError as error:
            yield error
    with client.pipeline() as pipe:
        pipe.watch(p + "n")
        yield int(pipe.get(p + "n"))
        pipe.multi()
        yield pipe.set(p + "n", 9).execute()
        pipe.watch(p + "n")
        client.incr(p + "n")
        pipe.multi()
        try:
            pipe.set(p + "n", 9).execute()
        except redis.WatchError as error:
            yield error
        yield script(keys=["q"], args=["p"], client=pipe) is pipe, pipe.execute()
    lock = client.lock(p + "lock", timeout=5)
    yield lock.acquire(token="mine"), lock.owned(), lock.release()
    try:
        client.execute_command("AUTH", "someone", "a-password-of-mine")
    except redis.exceptions.AuthenticationError as error:
        yield error
    yield client.set(p + "big", "x" * 200_000), len(client.get(p + "big"))
    subscription = client.pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(p + "news")
    try:
        while True:
            if subscription.get_message(timeout=1) is None:
                break
    except redis.ConnectionError:
        pass
    subscription.close()
