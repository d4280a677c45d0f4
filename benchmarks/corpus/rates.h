/* What the C services of the corpus share: a server of one thread, and how they ask the server of rates, which no recording holds. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The rate, -1 where there is none; RATES as in rates.py. */
static int rate(const char *rates)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	int is_unix = rates[0] == '/', sock, got;
	char text[16] = "";

	if (strcmp(rates, "0") == 0)
		return 2;
	in.sin_port = htons(atoi(rates));
	strncpy(un.sun_path, rates, sizeof un.sun_path - 1);
	sock = socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
	got = !connect(sock, is_unix ? (void *)&un : (void *)&in, is_unix ? sizeof un : sizeof in) && read(sock, text, 9) > 0;
	close(sock);
	return got && text[0] >= '0' && text[0] <= '9' ? atoi(text) : -1;
}

/* Serve: what ANSWER writes into its second argument for a path, whose return value is the status. */
static int serve(const char *port, int (*answer)(const char *, char *))
{
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
	int listening = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	signal(SIGPIPE, SIG_IGN);
	setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listening, (struct sockaddr *)&own, sizeof own) || listen(listening, 16))
		return 3;
	for (;;) {
		char line[4096], head[256], path[256] = "", text[256] = "ok";
		int client = accept(listening, NULL, NULL), status;
		ssize_t got = read(client, line, sizeof line - 1);

		line[got > 0 ? got : 0] = 0;
		sscanf(line, "GET %255s", path);
		status = answer(path, text);
		snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", status, strlen(text));
		if (write(client, head, strlen(head)) < 0 || write(client, text, strlen(text)) < 0)
			fprintf(stderr, "a client went away\n");
		close(client);
	}
}
