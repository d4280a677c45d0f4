"""A client that asks as wrk does: kept connections, each of which sends its next request when the answer to the last is whole.

Each connection is opened anew after 200 answers. The kernel gives a connection to one of the processes that accept at a port, and
which is chance: of gunicorn's two one may get all four, and answers at half the rate then. So a round has many such draws, not one.

It is C, so that it is not what is measured; one thread, epoll. ``pgbench`` does the same for PostgreSQL.
"""

from __future__ import annotations

import array
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Asked", "HttpClient", "SqlClient"]

_SOURCE = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
enum { ANSWERS_OF_A_CONNECTION = 200 };
struct ask { int fd, answers; int64_t begun, left; size_t head; char text[16384]; };
static char question[512], buffer[1 << 18];
static int port, set;
static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void fail(const char *what)
{
	fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
	exit(1);
}
static void send_question(struct ask *ask)
{
	ask->left = -1;
	ask->head = 0;
	if (send(ask->fd, question, strlen(question), MSG_NOSIGNAL) != (ssize_t)strlen(question) && errno != EPIPE)
		fail("send");
}
static void open_connection(struct ask *ask)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = ask };
	int one = 1;
	ask->answers = 0;
	ask->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (ask->fd < 0 || connect(ask->fd, (struct sockaddr *)&to, sizeof to))
		fail("connect");
	setsockopt(ask->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	epoll_ctl(set, EPOLL_CTL_ADD, ask->fd, &event);
	send_question(ask);
}
/* The answer is whole: 1; more is to come: 0; the server hung up: -1. */
static int take(struct ask *ask)
{
	ssize_t got = recv(ask->fd, buffer, sizeof buffer, MSG_DONTWAIT);
	if (got <= 0)
		return got < 0 && errno == EAGAIN ? 0 : -1;
	if (ask->left < 0) {
		size_t room = sizeof ask->text - 1 - ask->head, copied = (size_t)got < room ? (size_t)got : room;
		memcpy(ask->text + ask->head, buffer, copied);
		ask->text[ask->head + copied] = 0;
		char *body = strstr(ask->text, "\r\n\r\n"), *length = strcasestr(ask->text, "\r\ncontent-length:");
		if (!body && copied == room)
			fail("a head without an end");
		if (!body) {
			ask->head += got;
			return 0;
		}
		if (strncmp(ask->text, "HTTP/1.1 200", 12) || !length || length > body) {
			fprintf(stderr, "error: an answer that is none: %.300s\n", ask->text);
			exit(1);
		}
		ask->left = atoll(length + 17) - ((int64_t)ask->head + got - (body + 4 - ask->text));
	} else {
		ask->left -= got;
	}
	return ask->left <= 0;
}
int main(int count, char **words)
{
	int connections = atoi(words[3]);
	int64_t end = now() + (int64_t)(atof(words[4]) * 1e9);
	struct ask *asks = calloc(connections, sizeof *asks);
	struct epoll_event events[64];
	port = atoi(words[1]);
	set = epoll_create1(EPOLL_CLOEXEC);
	snprintf(question, sizeof question,
			"GET %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench/1\r\nAccept: */*\r\n\r\n", words[2]);
	for (int i = 0; i < connections; i++) {
		asks[i].begun = now();
		open_connection(&asks[i]);
	}
	for (int open = connections; open > 0;) {
		int n = epoll_wait(set, events, 64, 60000);
		if (n == 0)
			fail("no answer within 60 s");
		for (int i = 0; i < n; i++) {
			struct ask *ask = events[i].data.ptr;
			int whole = take(ask);
			if (whole < 0) {
				close(ask->fd);
				open_connection(ask); /* the time goes on */
			}
			if (whole <= 0)
				continue;
			int64_t times[2] = { ask->begun, now() };
			fwrite(times, sizeof times, 1, stdout);
			ask->begun = times[1];
			if (times[1] < end && ++ask->answers < ANSWERS_OF_A_CONNECTION) {
				send_question(ask);
				continue;
			}
			close(ask->fd);
			if (times[1] < end)
				open_connection(ask);
			else
				open--;
		}
	}
	return count != 5;
}
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client saw: (begin, end) of each request, in nanoseconds of the monotonic clock."""

    times: Sequence[tuple[int, int]]

    @property
    def per_second(self) -> float:
        """Answers a second, from the first question to the last answer."""
        took = max(end for _, end in self.times) - min(begin for begin, _ in self.times)
        return len(self.times) / took * 1e9

    def percentiles(self, *shares: float) -> list[float]:
        """Microseconds that these shares of the requests took at most."""
        taken = sorted(end - begin for begin, end in self.times)
        return [taken[min(len(taken) - 1, int(len(taken) * share))] / 1e3 for share in shares]


class HttpClient:
    """Built in a directory; ``ask`` runs it."""

    def __init__(self, directory: Path) -> None:
        self._program = directory / "client"
        source = directory / "client.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O2", "-o", self._program, source], check=True)

    def ask(self, port: int, path: str, connections: int, seconds: float) -> Asked:
        """Ask for so long; ends the benchmark where an answer is none."""
        words = [str(port), path, str(connections), str(seconds)]
        done = subprocess.run([self._program, *words], stdout=subprocess.PIPE, check=False)
        if done.returncode:
            raise SystemExit(f"error: the client ended with status {done.returncode}")
        found = array.array("q", done.stdout)
        return Asked(list(zip(found[::2], found[1::2], strict=True)))


class SqlClient:
    """pgbench with a script of one statement; writes the time of each into its log."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self._directory, self._pgbench = directory, programs / "pgbench"

    def ask(self, port: int, statement: str, connections: int, seconds: float) -> Asked:
        """Ask for so long, in whole seconds; for longer where nothing was answered in that time."""
        for whole in (max(1, round(seconds)), 10, 60):
            times = self._ask_once(port, statement, connections, whole)
            if times:
                return Asked(times)
        raise SystemExit("error: PostgreSQL answered nothing within 60 s")

    def _ask_once(self, port: int, statement: str, connections: int, seconds: int) -> list[tuple[int, int]]:
        script, prefix = self._directory / "script.sql", self._directory / "times"
        script.write_text(statement + ";\n")
        words = ["-n", "-c", str(connections), "-T", str(seconds), "-f", str(script)]
        to = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
        done = subprocess.run(
            [self._pgbench, *words, "-l", "--log-prefix", str(prefix), *to],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"error: pgbench: {done.stderr}")
        times = []
        for log in self._directory.glob("times.*"):
            for line in log.read_text().splitlines():
                # client, transaction, microseconds, script, and when it ended: seconds and microseconds
                fields = [int(word) for word in line.split()]
                end = fields[4] * 1_000_000_000 + fields[5] * 1000
                times.append((end - fields[2] * 1000, end))
            log.unlink()
        return times
