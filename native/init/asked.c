/* See asked.h. */
#define _GNU_SOURCE
#include "asked.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/ioctl.h>

struct waiting {
	struct waiting *next;
	struct asked *asked;
};

pthread_mutex_t lock;
int listener = -1;

void prepare_asking(int given)
{
	pthread_mutexattr_t inherits;

	listener = given;
	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lock, &inherits);
}

void answer(uint64_t id)
{
	struct seccomp_notif_resp go_on = { .id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	/* ENOENT: it was interrupted before it was received, or the process was killed. */
	while (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on) < 0 && errno == EINTR)
		;
}

void settled(struct asked *asked)
{
	if (--asked->pending > 0)
		return;
	answer(asked->id);
	free(asked);
}

void wait_for(struct path *path, struct asked *asked)
{
	struct waiting *waiting = malloc(sizeof *waiting);

	if (!waiting)
		return; /* without memory it goes on at once, and what it changes may be in the base */
	*waiting = (struct waiting){ path->waiting, asked };
	path->waiting = waiting;
	asked->pending++;
}

void release_waiting(struct path *path)
{
	struct waiting *waiting = path->waiting;

	path->waiting = NULL;
	while (waiting) {
		struct waiting *next = waiting->next;

		settled(waiting->asked);
		free(waiting);
		waiting = next;
	}
}
