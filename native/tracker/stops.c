/* See stops.h. */
#define _GNU_SOURCE
#include "stops.h"

#include <errno.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

enum { SPINS = 400 };

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void nap_us(long us)
{
	struct timespec t = { 0, us * 1000 };

	nanosleep(&t, NULL);
}

bool stopped(pid_t tid, int *status, uint64_t within_ms)
{
	uint64_t until = 0;

	for (int spins = 0;; spins++) {
		pid_t found = waitpid(tid, status, __WALL | WNOHANG);

		if (found < 0)
			return false;
		if (found == tid)
			return WIFSTOPPED(*status);
		if (spins < SPINS) {
			sched_yield();
			continue;
		}
		if (!until)
			until = now_ms() + within_ms;
		else if (now_ms() > until)
			return false;
		nap_us(20);
	}
}

bool is_asked_for(int status)
{
	return status >> 16 == PTRACE_EVENT_STOP;
}

int signal_of(int status)
{
	return status >> 16 || WSTOPSIG(status) == (SIGTRAP | 0x80) ? 0 : WSTOPSIG(status);
}

void let_run(pid_t tid, uint64_t within_ms)
{
	int status;

	if (!ptrace(PTRACE_INTERRUPT, tid, 0, 0) && stopped(tid, &status, within_ms))
		ptrace(PTRACE_DETACH, tid, 0, (void *)(long)signal_of(status));
}
