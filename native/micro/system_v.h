/* System V objects (sysvipc(7)) of the process's IPC namespace, where that is one of its own: a commit holds all of them then.
 *
 * Segments of shared memory are followed where the process has them attached: what lies in them is copied (shared.h), and all else that is
 * known of them is compared. Semaphores and message queues are not followed. */
#pragma once
#include <stdbool.h>

/* Goes to the process's IPC namespace, to see them. */
void enter_ipc(void);

/* Says each segment. To be called by one tracker of a tree, while all threads stand still. False: refused. */
bool say_system_v(void);
