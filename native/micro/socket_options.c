/* See socket_options.h. */
#define _GNU_SOURCE
#include "socket_options.h"

#include "text.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#define COUNT(list) (sizeof list / sizeof *list)

void say_name(const char *label, int result, const struct sockaddr_storage *name, socklen_t size)
{
	say(" %s=", label);
	if (result)
		return;
	say_bytes(name, size < sizeof *name ? size : sizeof *name);
}

static void say_option(int fd, int level, int option)
{
	unsigned char value[128];
	socklen_t size = sizeof value;

	if (getsockopt(fd, level, option, value, &size))
		return;
	say_number(" ", (unsigned long)level);
	say_number(".", (unsigned long)option);
	append("=", 1);
	say_bytes(value, size < sizeof value ? size : sizeof value);
}

static bool is_changing(int level, int option)
{
	if (level == SOL_SOCKET)
		return option == SO_REUSEADDR || option == SO_SNDBUF || option == SO_RCVBUF;
	return level == IPPROTO_TCP && (option == TCP_MAXSEG || option == TCP_WINDOW_CLAMP);
}

static void say_some(int fd, bool is_connection, int level, const int *options, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!is_connection || !is_changing(level, options[i]))
			say_option(fd, level, options[i]);
}

void say_options(int fd, bool is_connection)
{
	static const int general[] = { 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 20, 21, 25, 26, 29, 30, 34, 36, 38, 39, 44, 46, 72 };
	static const int tcp[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 23, 31 };
	static const int ip[] = { 1, 2, 8, 15, 19 };
	static const int ip6[] = { 26, 49, 67, 75, 78 };

	say_some(fd, is_connection, SOL_SOCKET, general, COUNT(general));
	say_some(fd, is_connection, IPPROTO_TCP, tcp, COUNT(tcp));
	say_some(fd, is_connection, IPPROTO_IP, ip, COUNT(ip));
	say_some(fd, is_connection, IPPROTO_IPV6, ip6, COUNT(ip6));
}
