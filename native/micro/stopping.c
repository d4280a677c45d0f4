/* See stopping.h.
 *
 * A thread that has begun a system call which cannot be interrupted (fsync(2) to a slow disk, vfork(2)) does not stop in time; the commit is
 * then refused while others stand still of whose stop nobody has heard yet. Hence `held`: who is not known to stand still is let go by way
 * of one more stop (tracker/stops.h), since what it stopped for may be a signal. */
#define _GNU_SOURCE
#include "stopping.h"

#include "../tracker/stops.h"
#include "base.h"
#include "look.h"
#include "text.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { TRIES = 100 };
#define SUSPEND_SECCOMP 0x200000

bool let_go(void)
{
	bool all_live = true;

	/* First all that stand still: none of them is to wait for one that does not stop. The kernel puts a signal that is blocked back. */
	for (int i = 0; i < thread_count; i++)
		if (threads[i].seized && threads[i].held) {
			all_live &= !ptrace(PTRACE_DETACH, threads[i].tid, 0, (void *)(long)threads[i].owed);
			threads[i].seized = false;
		}
	for (int i = 0; i < thread_count; i++)
		if (threads[i].seized) {
			let_run(threads[i].tid, GIVE_UP_MS);
			threads[i].seized = false;
		}
	return all_live ? true : refuse("it was killed");
}

static bool stop_thread(struct thread *t)
{
	int status;

	for (int i = 0; i < TRIES; i++) {
		if (!stopped(t->tid, &status, GIVE_UP_MS))
			return refuse("thread %d does not stop", (int)t->tid);
		t->held = true;
		if (is_asked_for(status))
			return WSTOPSIG(status) == SIGTRAP ? true : refuse("it is stopped by a signal");
		t->owed = signal_of(status);
		if (ptrace(PTRACE_CONT, t->tid, 0, t->owed))
			return refuse("thread %d cannot be held", (int)t->tid);
		t->held = false;
		t->owed = 0;
		if (ptrace(PTRACE_INTERRUPT, t->tid, 0, 0))
			return refuse("thread %d cannot be held", (int)t->tid);
	}
	return refuse("thread %d gets too many signals", (int)t->tid);
}

bool seize_all(void)
{
	if (!find_threads())
		return false;
	for (int i = 0; i < thread_count; i++) {
		if (ptrace(PTRACE_SEIZE, threads[i].tid, 0, PTRACE_O_TRACESYSGOOD | SUSPEND_SECCOMP) &&
		    ptrace(PTRACE_SEIZE, threads[i].tid, 0, PTRACE_O_TRACESYSGOOD))
			return refuse("thread %d is traced already", (int)threads[i].tid);
		threads[i].seized = true;
	}
	return true;
}

bool stop_all(void)
{
	struct stat facts;

	for (int i = 0; i < thread_count; i++)
		if (ptrace(PTRACE_INTERRUPT, threads[i].tid, 0, 0))
			return refuse("thread %d has ended", (int)threads[i].tid);
	for (int i = 0; i < thread_count; i++)
		if (!stop_thread(&threads[i]))
			return false;
	for (int i = 0; i < thread_count; i++) {
		if (!get_context(threads[i].tid, &threads[i].context))
			return refuse("the registers of thread %d cannot be read", (int)threads[i].tid);
		if (in_rseq(threads[i].tid, &threads[i].context.registers))
			return refuse("thread %d is inside a restartable sequence", (int)threads[i].tid);
	}
	/* Threads made while the others were being stopped. */
	if (stat(of_process("task"), &facts) || (int)facts.st_nlink - 2 != thread_count)
		return refuse("threads begin and end");
	return true;
}
