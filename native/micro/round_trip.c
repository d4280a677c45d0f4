/* See round_trip.h. */
#define _GNU_SOURCE
#include "round_trip.h"

#include "../tracker/stops.h"
#include "audit.h"
#include "base.h"
#include "connections.h"
#include "mappings.h"
#include "regions.h"
#include "text.h"
#include "timers.h"
#include "unchanged.h"

#include <elf.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

enum {
	CALLS_MOST = 128,
	INTERVAL_WORDS = 12, /* of the three that setitimer(2) has: period and what is left, in seconds and microseconds */
	FRAME = 8 + 304, /* return address, and as much of ucontext_t as the kernel reads */
	CUSHION_S = 2, /* so long has whoever started us for what has to be put back when we are killed */
	ASIDE_MOST = 64 << 10, /* [bytes] of an alternate stack */
	NAP_US = 20,
};
_Static_assert(12 + 2 * POSIX_TIMERS_MOST + 64 < CALLS_MOST, "two calls for each timer, one for each signal, and all others");

struct call {
	long number, first, second;
	uint64_t third, fourth;
	bool saved; /* its answer goes to where its third argument points */
};

/* Code that keeps what a call answers. All registers that may lead to where it is to be kept do; and the link in the frame that lies behind,
 * which the kernel does not read, is as good. */
static const struct keeping {
	unsigned char code[6];
	size_t size;
	bool is_in_link;
} keepings[] = {
	{ { 0x48, 0x89, 0x02, 0xc3 }, 4, false }, /* mov %rax,(%rdx); ret */
	{ { 0x48, 0x89, 0x03, 0xc3 }, 4, false }, /* (%rbx) */
	{ { 0x49, 0x89, 0x00, 0xc3 }, 4, false }, /* (%r8) */
	{ { 0x49, 0x89, 0x01, 0xc3 }, 4, false }, /* (%r9) */
	{ { 0x48, 0x89, 0x44, 0x24, 0x10, 0xc3 }, 6, true }, /* 16(%rsp), as programs in Go have it */
};
static const struct keeping *keeping;
static uint64_t keep_answer; /* its address */
static int wake; /* the signal at which a round trip ends; 0: in a sleep, from which we take it */

static void find_keeping(uint64_t start, size_t size)
{
	for (size_t i = 0; !keep_answer && i < sizeof keepings / sizeof *keepings; i++) {
		const unsigned char *found = memmem(buffer, size, keepings[i].code, keepings[i].size);

		if (!found)
			continue;
		keeping = &keepings[i];
		keep_answer = start + (uint64_t)(found - buffer);
	}
}

bool find_gadget(void)
{
	char path[64], line[512], rights[8];
	unsigned long long start, end;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/maps", (int)process.pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	while (!keep_answer && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%llx-%llx %7s", &start, &end, rights) != 3 || strncmp(rights, "r-xp", 4))
			continue;
		for (; start < end && !keep_answer; start += (uint64_t)(WINDOW - 1) * PAGE) {
			size_t room = (size_t)WINDOW * PAGE, size = end - start < room ? end - start : room;

			if (!peek(process.pid, start, buffer, size))
				break;
			find_keeping(start, size);
		}
	}
	fclose(f);
	return keep_answer != 0;
}

/* Whether a thread stands on the stack that its library made for it: below the library's account of the thread, in one mapping with that. The
 * account begins with its own address (glibc, musl). */
static bool is_on_own_stack(const struct user_regs_struct *r, struct unused *found)
{
	const struct mapping *at = mapping_of(r->rsp);
	uint64_t account;

	return at && !at->is_file && r->fs_base > r->rsp && r->fs_base < at->end && peek(process.pid, r->fs_base, &account, sizeof account) &&
	       account == r->fs_base && is_unused_below(r->rsp, at->start, r->fs_base, found);
}

/* The alternate stack of a thread, as far as is of use: nobody stands on it, and it is no other thread's as well. */
static bool is_aside_free(const struct thread *t, struct unused *found)
{
	static struct unused all[THREADS_MOST];
	const struct mapping *at;

	if (!alternate_stacks_read(all))
		return false;
	*found = all[t - threads];
	for (int i = 0; i < thread_count; i++) {
		const uint64_t stands = threads[i].context.registers.rsp;

		if ((stands > found->lowest && stands <= found->top) ||
		    (&threads[i] != t && all[i].lowest < found->top && found->lowest < all[i].top))
			return false;
	}
	at = mapping_of(found->lowest);
	if (!at || at->is_file || at->is_special || found->top > at->end || found->top <= found->lowest)
		return false;
	if (found->top - found->lowest > ASIDE_MOST)
		found->lowest = found->top - ASIDE_MOST;
	return true;
}

static unsigned char *saved_of(const struct thread *t)
{
	static unsigned char *saved;

	if (!saved)
		saved = room_for((size_t)THREADS_MOST * ASIDE_MOST);
	return saved + (size_t)(t - threads) * ASIDE_MOST;
}

static bool is_on_stack(struct thread *t)
{
	const struct user_regs_struct *r = &t->context.registers;

	return t->tid == process.pid ? is_unused_below(r->rsp, process.stack, process.stack_end, &t->unused) : is_on_own_stack(r, &t->unused);
}

bool have_all_room(void)
{
	if (!is_any_asked() && is_hidden_known())
		return true;
	for (int i = 0; i < thread_count; i++)
		if (!is_on_stack(&threads[i]) && !is_aside_free(&threads[i], &threads[i].unused))
			return false;
	return true;
}

static bool find_unused(struct thread *t)
{
	t->is_aside = false;
	if (is_on_stack(t))
		return true;
	if (!is_aside_free(t, &t->unused))
		return refuse("thread %d is not on a stack that is known to be its own, and has no other that is free", (int)t->tid);
	if (!peek(process.pid, t->unused.lowest, saved_of(t), t->unused.top - t->unused.lowest))
		return refuse("the alternate stack of thread %d cannot be read", (int)t->tid);
	t->is_aside = true;
	t->cushion = t->unused.lowest; /* all of it may be written to from here on */
	return true;
}

static int find_calls(const struct thread *t, struct call *calls, uint64_t results, uint64_t *room)
{
	const bool is_first = t->tid == process.pid;
	uint64_t at = results;
	int count = 0;

#define ASK(size, ...)                                    \
	do {                                              \
		calls[count++] = (struct call){ __VA_ARGS__ }; \
		at += (size);                             \
	} while (0)
	ASK(24, SYS_sigaltstack, 0, (long)at, 0, 0, false);
	ASK(8, SYS_prctl, PR_GET_TID_ADDRESS, (long)at, 0, 0, false);
	ASK(8, SYS_prctl, PR_GET_PDEATHSIG, (long)at, 0, 0, false);
	ASK(8, SYS_prctl, PR_GET_SECUREBITS, 0, at, 0, true);
	if (is_first) {
		ASK(8, SYS_prctl, PR_GET_CHILD_SUBREAPER, (long)at, 0, 0, false);
		ASK(8, SYS_prctl, PR_GET_DUMPABLE, 0, at, 0, true);
		if (!break_read(NULL)) /* else the lock that it takes would have mappings count as changed (unchanged.h) */
			ASK(8, SYS_brk, 0, 0, at, 0, true);
		ASK(8, SYS_membarrier, 1 << 9 /* GET_REGISTRATIONS */, 0, at, 0, true);
		for (int which = 0; which < 3; which++)
			ASK(32, SYS_getitimer, which, (long)at, 0, 0, false);
		for (int i = 0; i < posix_timer_count; i++) {
			ASK(32, SYS_timer_gettime, posix_timers[i], (long)at, 0, 0, false);
			ASK(8, SYS_timer_getoverrun, posix_timers[i], 0, at, 0, true);
		}
		for (int signal = 1; signal <= 64; signal++)
			if (signal == SIGCHLD || caught >> (signal - 1) & 1)
				ASK(32, SYS_rt_sigaction, signal, 0, at, 8, false);
	}
	if (wake)
		ASK(0, SYS_tgkill, threads[0].inside, t->inside, (uint64_t)wake, 0, false);
	else
		ASK(0, SYS_nanosleep, (long)at, 0, 0, 0, false);
	at += sizeof(struct timespec); /* of the cushion, and of that */
#undef ASK
	*room = at - results;
	return count;
}

static void lay_call(unsigned char *to, const struct call *call, uint64_t stack, bool ends)
{
	ucontext_t *u = (ucontext_t *)(void *)(to + 8);
	greg_t *g = u->uc_mcontext.gregs;
	uint64_t mask = ends && wake ? ~(1ULL << (wake - 1)) : ~0ULL;
	struct user_regs_struct *r = &threads[0].context.registers;

	u->uc_flags = 6; /* ss as it was; without extended state, which the last frame brings */
	u->uc_stack.ss_flags = 0x7fffffff;
	g[REG_RAX] = call->number;
	g[REG_RDI] = call->first;
	g[REG_RSI] = call->second;
	g[REG_RDX] = (greg_t)call->third;
	g[REG_R10] = (greg_t)call->fourth;
	g[REG_RBX] = g[REG_R8] = g[REG_R9] = (greg_t)call->third;
	g[REG_RSP] = (greg_t)stack;
	g[REG_RIP] = (greg_t)process.call;
	g[REG_EFL] = 0x202;
	g[REG_CSGSFS] = (greg_t)((r->cs & 0xffff) | (r->ss & 0xffff) << 48);
	memcpy((unsigned char *)u + 296, &mask, sizeof mask);
}

/* Whether what a round trip runs is where it was found: after exec, or when a library was unloaded, it is not. */
static bool has_code(void)
{
	static const unsigned char call[] = { 0x0f, 0x05, 0xc3 }, wide[] = { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 },
				   narrow[] = { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 };
	unsigned char found[3 + 9 + sizeof keeping->code];
	struct iovec here = { found, 3 + 9 + keeping->size },
		     there[] = { { (void *)process.call, 3 }, { (void *)process.restore, 9 }, { (void *)keep_answer, keeping->size } };

	for (int i = 0; i < 3; i++) {
		const struct mapping *at = mapping_of((uint64_t)there[i].iov_base);

		if (!at || !at->is_code)
			return refuse("its code is not where it was");
	}
	if (process_vm_readv(process.pid, &here, 1, there, 3, 0) == (ssize_t)here.iov_len && !memcmp(found, call, 3) &&
	    (!memcmp(found + 3, wide, 9) || !memcmp(found + 3, narrow, 7)) && !memcmp(found + 12, keeping->code, keeping->size))
		return true;
	return refuse("its code is not where it was");
}

/* Has a thread go to a frame as soon as it runs. */
static bool stand_before(struct thread *t, uint64_t frame)
{
	struct user_regs_struct r = t->context.registers;

	r.rip = process.restore;
	r.rsp = frame + 8;
	r.orig_rax = (unsigned long)-1;
	r.eflags &= ~0x100UL;
	return ptrace(PTRACE_SETREGS, t->tid, 0, &r) ? refuse("the registers of thread %d cannot be written", (int)t->tid) : true;
}

/* Lays all frames, and has the thread stand before the first; *room of what the calls answer is at t->results. */
static bool lay_round_trip(struct thread *t)
{
	static unsigned char image[CALLS_MOST * (FRAME + 16) + 4096];
	struct call calls[CALLS_MOST];
	static const struct timespec awhile = { .tv_sec = CUSHION_S };
	uint64_t all = ~0ULL, room, first, at;
	struct iovec here, there;
	int count;

	if (!find_unused(t))
		return false;
	if (!lay_frame(&process, &t->unused, &t->context))
		return refuse("the stack of thread %d is too small", (int)t->tid);
	count = find_calls(t, calls, 0, &room);
	t->results = (t->context.frame - 64 - room) & ~63ULL;
	count = find_calls(t, calls, t->results, &room);
	first = (t->results - (uint64_t)(count + 1) * (FRAME + 16) - 64) & ~63ULL;
	if (first < t->unused.lowest || first > t->context.frame)
		return refuse("the stack of thread %d is too small", (int)t->tid);
	memset(image, 0, (size_t)(count + 1) * (FRAME + 16));
	t->cushion = first;
	at = t->trip = first + FRAME;
	memcpy(image, &process.restore, 8);
	for (int i = 0; i < count; i++) {
		uint64_t behind = at + FRAME;
		unsigned char *to = image + (at - first);
		const bool ends = i == count - 1;

		/* The word at the start of a frame is where the call before it returns to. */
		memcpy(to, &process.restore, 8);
		lay_call(to, &calls[i], ends ? t->context.frame : behind, ends);
		if (calls[i].saved) {
			memcpy(image + (behind - first), &keep_answer, 8);
			behind += 8;
		}
		at = behind;
	}
	lay_call(image, &(struct call){ SYS_nanosleep, (long)(t->results + room - sizeof awhile), 0, 0, 0, false }, t->trip, false);
	here = (struct iovec){ image, at - first };
	there = (struct iovec){ (void *)first, at - first };
	if (process_vm_writev(process.pid, &here, 1, &there, 1, 0) != (ssize_t)(at - first))
		return refuse("the stack of thread %d cannot be written", (int)t->tid);
	memset(image, 0, room);
	memcpy(image + room - sizeof awhile, &awhile, sizeof awhile);
	here = (struct iovec){ image, room };
	there = (struct iovec){ (void *)t->results, room };
	if (process_vm_writev(process.pid, &here, 1, &there, 1, 0) != (ssize_t)room)
		return refuse("the stack of thread %d cannot be written", (int)t->tid);
	/* In this order: from here on the frames give everything back. */
	if (!stand_before(t, t->trip))
		return false;
	if (ptrace(PTRACE_SETSIGMASK, t->tid, sizeof all, &all))
		return refuse("the registers of thread %d cannot be written", (int)t->tid);
	return true;
}

/* The thread has to stand still. `was_on_way`: it has made calls since it was stopped. */
static bool give_back_all(struct thread *t, bool was_on_way)
{
	struct user_regs_struct r = t->context.registers;
	struct iovec x = { t->context.xstate, t->context.xsize },
		     here = { saved_of(t) + (t->cushion - t->unused.lowest), t->unused.top - t->cushion },
		     there = { (void *)t->cushion, here.iov_len };

	/* A call that only the kernel knew how to go on with is interrupted, as it is by CRIU. */
	if (was_on_way)
		start_call_anew(&r, false);
	/* The registers first: without them its frames have to be there still. */
	return !ptrace(PTRACE_SETREGSET, t->tid, NT_X86_XSTATE, &x) &&
	       !ptrace(PTRACE_SETSIGMASK, t->tid, sizeof t->context.mask, &t->context.mask) &&
	       !ptrace(PTRACE_SETREGS, t->tid, 0, &r) &&
	       (!t->is_aside || process_vm_writev(process.pid, &here, 1, &there, 1, 0) == (ssize_t)here.iov_len);
}

/* What calls have answered that lies in links. */
static bool read_links(const struct thread *t, const struct call *calls, int count, uint64_t *answers)
{
	uint64_t at = t->trip;

	for (int i = 0; i < count; i++) {
		at += FRAME + (calls[i].saved ? 8 : 0);
		if (calls[i].saved && !peek(process.pid, at + 16, &answers[(calls[i].third - t->results) / 8], 8))
			return false;
	}
	return true;
}

/* Returns what follows. */
static const uint64_t *say_timers(const uint64_t *at)
{
	say("?interval_timers");
	for (int i = 0; i < INTERVAL_WORDS; i++)
		say(" %" PRIu64, at[i]);
	say("\n");
	at += INTERVAL_WORDS;
	for (int i = 0; i < posix_timer_count; i++, at += 5)
		say("?posix_timer %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", posix_timers[i], at[0], at[1], at[2], at[3], at[4]);
	return at;
}

static bool say_hidden(struct thread *t)
{
	struct call calls[CALLS_MOST];
	struct rseq_place place = { 0 };
	uint64_t room, end_of_heap, at[2048 / 8 * 2];
	int count = find_calls(t, calls, t->results, &room), next = 8;

	if (room > sizeof at || !peek(process.pid, t->results, at, room) || (keeping->is_in_link && !read_links(t, calls, count, at)))
		return refuse("what thread %d answers cannot be read", (int)t->tid);
	if (t->is_aside) {
		at[1] &= ~(uint64_t)SS_ONSTACK; /* it was asked there */
		if (at[0] + at[2] != t->unused.top)
			return refuse("thread %d has another alternate stack than the kernel's objects say", (int)t->tid);
	}
	say("?altstack %d %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", (int)t->inside, at[0], at[1] & 0xffffffff, at[2]);
	say("?tid_address %d %" PRIx64 "\n?pdeath_sig %d %" PRIu64 "\n", (int)t->inside, at[3], (int)t->inside, at[4] & 0xffffffff);
	say("?securebits %d %" PRIx64 "\n", (int)t->inside, at[5]);
	if (ptrace(GET_RSEQ, t->tid, sizeof place, &place) >= 0)
		say("?rseq %d %" PRIx64 " %" PRIx32 " %" PRIx32 "\n", (int)t->inside, place.pointer, place.size, place.signature);
	if (t->tid != process.pid)
		return true;
	if (!break_read(&end_of_heap))
		end_of_heap = at[next++];
	say("?subreaper %" PRIu64 "\n?dumpable %" PRIu64 "\n?brk %" PRIx64 "\n?membarrier %" PRIx64 "\n", at[6] & 0xffffffff, at[7],
	    end_of_heap, at[next]);
	next++;
	next = (int)(say_timers(at + next) - at);
	for (int i = 0; i < count; i++)
		if (calls[i].number == SYS_rt_sigaction) {
			say("?action %ld %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", calls[i].first, at[next], at[next + 1],
			    at[next + 2], at[next + 3]);
			next += 4;
		}
	return true;
}

/* With all threads before their cushions: were we killed now, nobody would use a connection before it is put back. */
static bool read_streams_safely(void)
{
	bool well = true;

	for (int i = 0; i < thread_count; i++)
		well = well && stand_before(&threads[i], threads[i].cushion);
	well = well && read_streams();
	for (int i = 0; i < thread_count; i++)
		well = stand_before(&threads[i], threads[i].trip) && well;
	return well;
}

static bool were_made;

bool were_trips_made(void)
{
	return were_made;
}

/* A signal that the process does not catch, and that has no effect then; 0: there is none. */
static int harmless_signal(void)
{
	static const int harmless[] = { SIGWINCH, SIGURG, SIGCHLD }; /* the first is the least likely to be waited for */

	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (!(caught >> (harmless[i] - 1) & 1))
			return harmless[i];
	return 0;
}

static bool is_at_rest(const struct thread *t)
{
	struct user_regs_struct r;

	return !ptrace(PTRACE_GETREGS, t->tid, 0, &r) && r.rip == process.call + 2 && r.rsp == t->context.frame &&
	       r.orig_rax == SYS_nanosleep;
}

static uint64_t left_of(uint64_t until)
{
	const uint64_t now = now_ms();

	return now < until ? until - now : 0;
}

/* Waits until a thread has come to where its trip ends, and stands still; until that moment [ms]. False: refused; it may have been let go with
 * a signal. */
static bool take_from_sleep(struct thread *t, uint64_t until)
{
	int status;

	do {
		if (ptrace(PTRACE_INTERRUPT, t->tid, 0, 0) || !stopped(t->tid, &status, left_of(until)))
			return refuse("thread %d does not come back", (int)t->tid);
		t->held = true;
		if (!is_asked_for(status) || WSTOPSIG(status) != SIGTRAP) {
			/* Its sleep may be over, and it elsewhere, with all that its frames gave back: it must not be given that again. */
			ptrace(PTRACE_DETACH, t->tid, 0, (void *)(long)signal_of(status));
			t->seized = t->held = false;
			return refuse("thread %d was sent signal %d", (int)t->tid, WSTOPSIG(status));
		}
		if (is_at_rest(t))
			return true;
		if (ptrace(PTRACE_CONT, t->tid, 0, 0))
			return refuse("thread %d has ended", (int)t->tid);
		t->held = false;
		nap_us(NAP_US);
	} while (now_ms() < until);
	return refuse("thread %d does not come back", (int)t->tid);
}

static bool take_at_signal(struct thread *t, uint64_t until)
{
	siginfo_t sent;
	int status;

	if (!stopped(t->tid, &status, left_of(until)))
		return refuse("thread %d does not come back", (int)t->tid);
	t->held = true;
	if (signal_of(status) != wake) {
		t->owed = signal_of(status);
		return refuse("thread %d was sent signal %d", (int)t->tid, WSTOPSIG(status));
	}
	/* One of that number that waited for it, blocked, for signalfd(2) or sigwait(3), came before ours. */
	if (ptrace(PTRACE_GETSIGINFO, t->tid, 0, &sent) || sent.si_code != SI_TKILL || sent.si_pid != threads[0].inside) {
		t->owed = wake;
		return refuse("thread %d was sent signal %d", (int)t->tid, wake);
	}
	return true;
}

static bool give_back_laid(int count)
{
	for (int i = 0; i < count; i++)
		(void)give_back_all(&threads[i], false); /* else its frames do, when it is let go */
	return false;
}

static bool set_out(void)
{
	for (int i = 0; i < thread_count; i++)
		if (!lay_round_trip(&threads[i]))
			return give_back_laid(i + 1);
	if (connection_count && !read_streams_safely())
		return give_back_laid(thread_count);
	for (int i = 0; i < thread_count; i++) {
		if (ptrace(PTRACE_CONT, threads[i].tid, 0, 0))
			return refuse("thread %d has ended", (int)threads[i].tid);
		threads[i].held = false;
	}
	return true;
}

bool make_round_trips(void)
{
	bool well = true;
	size_t from;
	uint64_t until;

	were_made = false;
	if ((!is_any_asked() || is_audit()) && say_known_hidden()) {
		say_known_streams();
		return true;
	}
	were_made = true;
	if (posix_timer_count > POSIX_TIMERS_MOST)
		return refuse("it has more than %d timers (timer_create)", POSIX_TIMERS_MOST);
	wake = harmless_signal();
	if (!has_code() || !set_out())
		return false;
	from = text.size;
	until = now_ms() + GIVE_UP_MS; /* for all of them: whoever is here stands still meanwhile */
	for (int i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];

		/* Who has not come back goes through its frames when it is let go. */
		well = (wake ? take_at_signal(t, until) : take_from_sleep(t, until)) && say_hidden(t) && well;
		if (t->held && !give_back_all(t, true))
			well = refuse("the registers of thread %d cannot be given back", (int)t->tid);
	}
	note_told(HIDDEN, from);
	/* It would be neither in what is left nor among the signals that were seen to wait. One without a period tells nothing of itself then. */
	if (well && does_timer_signal_wait())
		return refuse("a timer has expired right now");
	return well;
}
