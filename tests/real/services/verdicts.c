/* A shop of one thread that falls over a wild pointer when it was poisoned; before, it asks the server of rates, and gives up
 * with a null pointer when nobody is there.  verdicts PORT RATES-PORT */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile int *factor;
static int two = 2;

static int reach(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int sock = socket(AF_INET, SOCK_STREAM, 0), failed;
	char byte;

	failed = connect(sock, (struct sockaddr *)&to, sizeof to) || read(sock, &byte, 1) != 1;
	close(sock);
	return failed ? -1 : 0;
}

static __attribute__((noinline)) int give_up(void)
{
	return *(volatile int *)0;
}

static __attribute__((noinline)) int look_up(void)
{
	return *factor;
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1, rates;

	if (argc < 3)
		return 2;
	rates = atoi(argv[2]);
	factor = &two;
	own.sin_port = htons(atoi(argv[1]));
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 16))
		return 3;
	for (;;) {
		char line[4096], answer[256], text[32] = "ok";
		int client = accept(listening, NULL, NULL);
		ssize_t got = read(client, line, sizeof line - 1);

		line[got > 0 ? got : 0] = 0;
		if (strncmp(line, "GET /poison", 11) == 0)
			factor = (int *)0x5000;
		if (strncmp(line, "GET /price", 10) == 0)
			snprintf(text, sizeof text, "%d", rates && reach(rates) ? give_up() : look_up());
		snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(text), text);
		if (write(client, answer, strlen(answer)) < 0)
			return 4;
		close(client);
	}
}
