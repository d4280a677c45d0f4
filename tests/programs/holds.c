/* Holds one thing that cannot be committed, or hardly, and prints a number every few milliseconds.
 *
 *   holds nothing                   what it takes to see that the program itself is no reason
 *   holds ring                      an io_uring
 *   holds descriptors               a table of descriptors with no free place
 *   holds stream PATH               a unix stream to a process outside
 *   holds datagrams PATH            a unix datagram socket connected to a process outside
 *   holds identity                  a real and an effective user that differ
 */
#include "ready.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static int hold_socket(int kind, const char *path)
{
	int held = socket(AF_UNIX, kind, 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	strncpy(name.sun_path, path, sizeof name.sun_path - 1);
	if (connect(held, (struct sockaddr *)&name, sizeof name) < 0)
		exit(2);
	return held;
}

int main(int argc, char **argv)
{
	struct timespec pace = { 0, 2000000 };
	struct rlimit most = { 24, 24 };
	struct io_uring_params parameters = { 0 };
	int log = -1;
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "ring") && syscall(SYS_io_uring_setup, 4, &parameters) < 0)
		return 2;
	if (!strcmp(what, "stream"))
		hold_socket(SOCK_STREAM, argv[2]);
	if (!strcmp(what, "datagrams"))
		log = hold_socket(SOCK_DGRAM, argv[2]);
	if (!strcmp(what, "descriptors")) {
		setrlimit(RLIMIT_NOFILE, &most);
		while (open("/dev/null", O_RDONLY) >= 0)
			;
	}
	if (!strcmp(what, "identity") && setresuid(-1, 65534, 0) < 0)
		return 2;
	for (long number = 1;; number++) {
		say("round %ld", number);
		if (log >= 0)
			dprintf(log, "round %ld\n", number);
		nanosleep(&pace, NULL);
	}
}
