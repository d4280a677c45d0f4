/* From a call's arguments to the file that it is about, as the service sees it. For the thread that serves. */
#pragma once
#include "calls.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

struct place {
	char path[2 * PATH_MAX];	/* canonical: no symbolic link on the way */
	int fd;				/* O_PATH, not following a link at the end; -1: there is nothing yet */
	int parent;			/* O_PATH, of its directory; -1 where that was not needed */
	struct stat facts;		/* where there is something */
};

/* Paths below `home` are nobody's business, nor are those of the kernel's own file systems and of file systems that other machines
 * or programs serve, which this process must never wait for. */
void prepare_resolving(const char *home);

/* Learn which mounts there are; called again when their table changes. From one other thread. */
void learn_mounts(void);

/* Find it. False: nothing that is followed (or the call will fail). The caller closes the descriptors with `leave`. */
bool resolve(const struct seccomp_notif *asked, const struct operand *operand, struct place *place);
void leave(struct place *place);

/* open(2)'s flags of the call; 0 if they cannot be read. */
unsigned flags_of(const struct seccomp_notif *asked, const struct call *call);

/* Paths of some process may begin elsewhere from now on. */
void roots_vary(void);
