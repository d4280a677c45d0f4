/* A shop of one thread that aborts when it was poisoned, or goes round for ever; before, it asks the server of rates at a UNIX
 * domain socket, and aborts when nobody is there: three calls further up than where an abort is made.
 * aborting PORT RATES-PATH [loop], "-" to ask nobody */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int is_poisoned, goes_round;
static volatile unsigned long rounds;

static int reach(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM, 0), failed;
	char byte;

	strncpy(to.sun_path, path, sizeof to.sun_path - 1);
	failed = connect(sock, (struct sockaddr *)&to, sizeof to) || read(sock, &byte, 1) != 1;
	close(sock);
	return failed;
}

static __attribute__((noinline)) void die(void)
{
	abort();
}

static __attribute__((noinline)) void complain(void)
{
	die();
	rounds++; /* so that it is a call */
}

static __attribute__((noinline)) void give_up(void)
{
	complain();
	rounds++;
}

static __attribute__((noinline)) void price(const char *rates)
{
	if (strcmp(rates, "-") && reach(rates))
		give_up();
	while (is_poisoned && goes_round)
		rounds++;
	if (is_poisoned)
		give_up();
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	static const char answer[] = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

	if (argc < 3)
		return 2;
	goes_round = argc > 3;
	own.sin_port = htons(atoi(argv[1]));
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 16))
		return 3;
	for (;;) {
		char line[4096];
		int client = accept(listening, NULL, NULL);
		ssize_t got = read(client, line, sizeof line - 1);

		line[got > 0 ? got : 0] = 0;
		if (strncmp(line, "GET /poison", 11) == 0)
			is_poisoned = 1;
		if (strncmp(line, "GET /price", 10) == 0)
			price(argv[2]);
		if (write(client, answer, sizeof answer - 1) < 0)
			return 4;
		close(client);
	}
}
