/* A server of one thread, or of a worker beside its first process, that dies or hangs as a request asks it to: by itself
 * (/segv, /abort, /exit, /hang), or only when it was poisoned (/segv?, ...). It needs its environment.  dying PORT [worker] */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int is_poisoned;

static __attribute__((noinline)) int look_up(volatile int *factor)
{
	return *factor;
}

static void do_as(const char *what)
{
	const char *end = what + strcspn(what, " ");

	if (strncmp(what, "poison", 6) == 0)
		is_poisoned = 1;
	if (end[-1] == '?' && !is_poisoned)
		return;
	if (strncmp(what, "segv", 4) == 0)
		look_up((int *)16);
	if (strncmp(what, "abort", 5) == 0)
		abort();
	if (strncmp(what, "exit", 4) == 0) {
		fprintf(stderr, "no room for request %d any more\n", 41);
		_exit(3);
	}
	while (strncmp(what, "hang", 4) == 0)
		pause();
}

static void serve(int listening)
{
	static const char answer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

	for (;;) {
		char line[4096];
		int client = accept(listening, NULL, NULL);
		ssize_t got = read(client, line, sizeof line - 1);

		line[got > 0 ? got : 0] = 0;
		if (strncmp(line, "GET /", 5) == 0)
			do_as(line + 5);
		if (write(client, answer, sizeof answer - 1) < 0)
			return;
		close(client);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (getenv("NEEDED") == NULL || argc < 2)
		return 7;
	signal(SIGPIPE, SIG_IGN);
	own.sin_port = htons(atoi(argv[1]));
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 16))
		return 2;
	while (argc > 2) {
		if (fork() == 0) {
			serve(listening);
			return 0;
		}
		wait(NULL);
	}
	serve(listening);
	return 0;
}
