/* Ends that are failures: a process of the service that is about to exit with a status other than 0 waits until it has been committed.
 *
 * It waits stopped (SIGSTOP) right before its exit_group(2), which it makes again when it goes on. Whoever wants to commit it connects
 * to the socket `ends` (unix(7), SOCK_SEQPACKET) in the directory of the journal; one at a time. It is told, one a message, in decimal:
 *   PROCESS STATUS   the process, in this PID namespace, is about to exit with STATUS (1 to 255); it stands still in a moment
 * and answers
 *   PROCESS          it may go on
 * Without anybody connected nobody waits. When the connection ends, or after HOLD_MOST_MS, all go on: this process cannot be killed without
 * the service, so nothing stays stopped, whoever else is killed.
 *
 * Only those wait whose end can be a failure of the service: its first process, and children of that one or of process 1 that have
 * lived for LIVED_MS; where the first process has one child only, as a script that starts the service, children of that one too. Shells and
 * build tools run thousands of others, to which an exit status is an answer.
 */
#pragma once
#include <linux/seccomp.h>
#include <sys/types.h>

enum { HOLD_MOST_MS = 120000, LIVED_MS = 1000 };

/* Returns 0 or an errno. To be called before anything is answered. */
int listen_for_ends(int directory, pid_t main_process);

/* Answer a call that `is_end` covers, and hold its process where that is due. Takes some ten microseconds. */
void answer_end(const struct seccomp_notif *notification);
