"""Uses libraries while the recorder records, and goes on with the same connections when it has switched itself off.

Usage: switched_off.py POSTGRES REDIS; prints what each round saw.
"""

import asyncio
import sys

import asyncpg
import psycopg
import psycopg2
import redis

from relive_recorder.recorder import recorder


async def main(postgres, address):
    third, second = psycopg.connect(postgres), psycopg2.connect(postgres)
    client, asynchronous = redis.Redis.from_url(address), await asyncpg.connect(postgres)
    for number in range(3):
        if number == 1:
            recorder.switch_off(ValueError("as a test"))
        cursor = second.cursor()
        cursor.execute("select 2")
        with client.pipeline() as pipe:
            said = pipe.set("off", 1).incr("off").execute()
        row = await asynchronous.fetchval("select 4")
        print(third.execute("select 3").fetchall(), cursor.fetchall(), said, client.get("off"), row)
        third.commit()
        second.commit()
    third.close()
    second.close()
    client.close()
    await asynchronous.close()


asyncio.run(main(*sys.argv[1:]))
