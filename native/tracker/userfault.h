/* How a process is made to hand out a userfaultfd for its memory, with which writes to it are noted from outside.
 *
 * The danger: a process whose registers are borrowed while this program is killed. Hence, before anything is changed, a signal frame
 * is laid on its stack (frame.h). What may then remain is an open userfaultfd that was never put to use, with which CRIU
 * cannot dump the process; the next tracker closes it. A process is skipped that has no such code, or whose first thread is not on its
 * main stack, where memory below the stack pointer may be in use (coroutines).
 */
#pragma once
#include "process.h"

extern bool mending;	/* nothing is to be tracked; what a tracker that was killed has left is closed */
extern bool with_files; /* private mappings of files are tracked, too, and those that are not writable now */

/* A number of /proc/PID/status. */
long status_number(pid_t pid, const char *name, long missing);

/* Makes p->uffd, with all that is to be tracked registered, and finds p->call, p->restore and p->stack; p->pid and p->handle are there.
 * Returns NULL, or the reason why the process cannot be tracked; it runs on in either case. */
const char *make_userfaultfd(struct process *p);

/* For who holds the process and has it make the userfaultfd by himself: finds p->call, p->restore and p->stack before (p->uffd < 0), and
 * begins the tracking with p->uffd. NULL, or the reason why that cannot be. */
const char *find_what_is_borrowed(struct process *p);
const char *put_to_use(struct process *p);
