/* See held.h. */
#define _GNU_SOURCE
#include "held.h"

#include "../micro/look.h"
#include "../tracker/stops.h"

#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SUSPEND_SECCOMP 0x200000
#define HELD_OPTIONS (PTRACE_O_TRACESYSGOOD | SUSPEND_SECCOMP | PTRACE_O_EXITKILL)

bool take_over(void)
{
	int status;

	if (!find_threads())
		return false;
	for (int i = 0; i < thread_count; i++) {
		if (ptrace(PTRACE_SEIZE, threads[i].tid, 0, HELD_OPTIONS))
			return refuse("thread %d cannot be held: %s", (int)threads[i].tid, strerror(errno));
		threads[i].seized = true;
	}
	for (int i = 0; i < thread_count; i++) {
		if (!stopped(threads[i].tid, &status, GIVE_UP_MS))
			return refuse("thread %d does not stop", (int)threads[i].tid);
		threads[i].held = true;
		if (!is_asked_for(status))
			return refuse("thread %d was sent signal %d", (int)threads[i].tid, WSTOPSIG(status));
		if (!get_context(threads[i].tid, &threads[i].context))
			return refuse("the registers of thread %d cannot be read", (int)threads[i].tid);
		if (in_rseq(threads[i].tid, &threads[i].context.registers))
			return refuse("thread %d is inside a restartable sequence", (int)threads[i].tid);
	}
	return true;
}

/* SIGCONT waits to be delivered (it waits for whoever is traced, also where it does nothing). */
static bool is_continuing(void)
{
	char path[64], line[256];
	unsigned long long pending = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/status", (int)process.pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f))
		if (sscanf(line, "ShdPnd: %llx", &pending) == 1)
			break;
	if (f)
		fclose(f);
	return pending >> (SIGCONT - 1) & 1;
}

bool is_stop_taken_away;

bool take_stop_away(void)
{
	int status;

	/* Each stops again before it comes to run. */
	for (int i = 0; i < thread_count; i++)
		if (ptrace(PTRACE_INTERRUPT, threads[i].tid, 0, 0))
			return refuse("thread %d has ended", (int)threads[i].tid);
	if (kill(process.pid, SIGCONT))
		return refuse("it has ended");
	is_stop_taken_away = true;
	for (int i = 0; i < thread_count; i++) {
		if (ptrace(PTRACE_CONT, threads[i].tid, 0, 0) || !stopped(threads[i].tid, &status, GIVE_UP_MS))
			return refuse("thread %d does not stop", (int)threads[i].tid);
		if (!is_asked_for(status) || WSTOPSIG(status) != SIGTRAP)
			return refuse("thread %d stopped for signal %d", (int)threads[i].tid, WSTOPSIG(status));
	}
	for (int i = 0; i < thread_count && is_continuing(); i++) {
		if (threads[i].context.mask >> (SIGCONT - 1) & 1)
			continue;
		/* It is told of the signal before it runs, and goes on without it. */
		if (ptrace(PTRACE_CONT, threads[i].tid, 0, 0) || !stopped(threads[i].tid, &status, GIVE_UP_MS) ||
		    signal_of(status) != SIGCONT)
			return refuse("thread %d stopped for another signal", (int)threads[i].tid);
	}
	return is_continuing() ? refuse("it blocks SIGCONT") : true;
}

bool die_with_us(void)
{
	for (int i = 0; i < thread_count; i++)
		if (ptrace(PTRACE_SETOPTIONS, threads[i].tid, 0, HELD_OPTIONS))
			return refuse("thread %d has ended", (int)threads[i].tid);
	return true;
}

static bool stand_before_call(const struct thread *t, long number, long first, long second, long third)
{
	struct user_regs_struct r = t->context.registers;
	uint64_t all = ~0ULL;

	r.rip = process.call;
	r.rax = (unsigned long)number;
	r.rdi = (unsigned long)first;
	r.rsi = (unsigned long)second;
	r.rdx = (unsigned long)third;
	r.orig_rax = (unsigned long)-1;
	r.eflags &= ~0x100UL;
	return !ptrace(PTRACE_SETREGS, t->tid, 0, &r) && !ptrace(PTRACE_SETSIGMASK, t->tid, sizeof all, &all);
}

long call(long number, long first, long second, long third)
{
	const struct thread *t = &threads[0];
	struct user_regs_struct r;
	int status;

	if (!stand_before_call(t, number, first, second, third))
		return -EIO;
	for (int i = 0; i < 2; i++)
		if (ptrace(PTRACE_SYSCALL, t->tid, 0, 0) || !stopped(t->tid, &status, GIVE_UP_MS) ||
		    WSTOPSIG(status) != (SIGTRAP | 0x80))
			return -EIO;
	return ptrace(PTRACE_GETREGS, t->tid, 0, &r) ? -EIO : (long)r.rax;
}

bool end_thread(const struct thread *t)
{
	const uint64_t until = now_ms() + THREAD_ENDS_MS;
	int status;

	if (!stand_before_call(t, SYS_exit, 0, 0, 0) || ptrace(PTRACE_CONT, t->tid, 0, 0))
		return refuse("thread %d cannot be ended", (int)t->tid);
	while (now_ms() < until) {
		const pid_t found = waitpid(t->tid, &status, __WALL | WNOHANG);

		if (found < 0 || (found == t->tid && !WIFSTOPPED(status)))
			return true;
		if (found == t->tid && ptrace(PTRACE_CONT, t->tid, 0, 0) && errno != ESRCH)
			break;
		nap_us(5);
	}
	return refuse("thread %d does not end", (int)t->tid);
}

bool set_registers(const struct thread *t)
{
	struct iovec x = { (void *)t->context.xstate, t->context.xsize };
	struct user_regs_struct r = t->context.registers;

	return !ptrace(PTRACE_SETREGSET, t->tid, NT_X86_XSTATE, &x) &&
	       !ptrace(PTRACE_SETSIGMASK, t->tid, sizeof t->context.mask, &t->context.mask) && !ptrace(PTRACE_SETREGS, t->tid, 0, &r);
}
