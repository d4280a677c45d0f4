"""A transaction that is rolled back when it is recorded and committed the second time, by PyMySQL."""

import pymysql


def main(address, keep):
    keep["runs"] = keep.get("runs", 0) + 1
    fails = keep["runs"] == 1
    given = {"host": "127.0.0.1", "port": int(address), "user": "root", "password": "a-password-of-mine"}
    connection = pymysql.connect(**given)
    with connection.cursor() as cursor:
        connection.begin()
        yield cursor.execute("select 1"), cursor.fetchall()
        yield connection.server_status & 1
        connection.rollback() if fails else connection.commit()
        yield connection.server_status & 1
        yield cursor.execute("rollback" if fails else "COMMIT")
    connection.close()
