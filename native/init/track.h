/* Following what the service changes in file systems: each change is written down before it happens, and what was there is kept where
 * a commit may need it. The kernel asks by the listener of a seccomp filter (seccomp_unotify(2)).
 *
 * All of this lives in process 1 itself: without a process that answers, covered calls of the service would fail with ENOSYS, and
 * process 1 is the one whose end is the service's end anyway.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct tracked {
	int listener;
	int directory;		/* of the journal and the bases, see journal.h */
	const char *home;	/* nothing below it is followed */
	uint64_t limit;		/* [bytes] a larger file is not copied while the service waits */
	pid_t main_process;	/* the service's first, see ends.h */
};

/* Start to answer, in threads of their own. To be called with CAP_SYS_NICE, which the threads then give up, and with all signals
 * blocked. Returns 0 or an errno. */
int start_tracking(const struct tracked *tracked);
