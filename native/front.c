/* relive-front: keeps open the port at which clients reach a service that is watched with --listen, whatever else is killed.
 *
 *   relive-front DIRECTORY LISTENER_FD CONTROL_FD ADDRESS PORT
 *
 * Of a capsule process 1 does this; a service that somebody else has started has none of ours. What the arguments from LISTENER_FD on
 * mean is in init/front.h. DIRECTORY is that of the watch: in it a file `closed` is made when that ends, and then this process ends, as
 * it does when the directory is removed.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

/* One translation unit: a program's parts lie in the directory of its name, and these lie in that of relive-init. */
#include "init/front.c"

enum { LOOK_MS = 5000 };

/* By name, now and then: that a directory was removed the kernel tells (IN_DELETE_SELF) once nobody has a file open that was in it. */
static bool is_over(const char *directory)
{
	char closed[PATH_MAX];

	snprintf(closed, sizeof closed, "%s/closed", directory);
	return access(directory, F_OK) < 0 || access(closed, F_OK) == 0;
}

int main(int argc, char **argv)
{
	struct front asked = { .listener = NONE };
	char events[sizeof(struct inotify_event) + NAME_MAX + 1];
	char above[PATH_MAX];
	int changes, code;
	sigset_t ending;

	if (argc != 6) {
		fprintf(stderr, "usage: relive-front DIRECTORY LISTENER_FD CONTROL_FD ADDRESS PORT\n");
		return 2;
	}
	/* A unit's processes are all told to end with whoever started the watch; this one ends with the watch. */
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM), sigaddset(&ending, SIGINT), sigaddset(&ending, SIGHUP), sigaddset(&ending, SIGQUIT);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	asked.listener = atoi(argv[2]), asked.control = atoi(argv[3]);
	code = read_upstream(&asked, argv[4], argv[5]);
	changes = inotify_init1(IN_CLOEXEC);
	if (code == 0 && inotify_add_watch(changes, argv[1], IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF) < 0)
		code = errno;
	snprintf(above, sizeof above, "%s/..", argv[1]);
	inotify_add_watch(changes, above, IN_DELETE); /* without it a removed directory is found some seconds later */
	if (code == 0)
		code = start_front(&asked);
	if (code != 0) {
		fprintf(stderr, "relive-front: %s\n", strerror(code));
		return 1;
	}
	while (!is_over(argv[1])) {
		struct pollfd changed = { changes, POLLIN, 0 };

		if (poll(&changed, 1, LOOK_MS) > 0 && read(changes, events, sizeof events) < 0 && errno != EINTR)
			return 1;
	}
	return 0;
}
