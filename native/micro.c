/* relive-micro: takes what has changed of a running process, again and again, for commits on top of one that CRIU made.
 *
 *   relive-micro FILTERS PID...   (FILTERS: as of relive-tracker)
 *   relive-micro ask FILTERS PID...      (the same, and all is asked in each commit)
 *   relive-micro kernel           ("ok", or why the kernel's objects cannot be read, so that all is asked in each commit)
 *
 * One process is tracked by one of these (tracker/userfault.h says how) until standard input closes; with more than one PID, those of a
 * tree with its root first, there is one for each, and the first speaks for all (micro/tree.h). It says "tracked", or
 * "skipped REASON" and ends. Then, by lines on standard input, each with one line as its answer:
 *
 *   base            what is written from now on is noted anew: a commit of all of it follows        -> "ok"
 *   look FILE       what can be seen of the process from outside, while somebody else holds it      -> "ok"
 *   expect FILE     what the caller has seen of files, for the next commit (micro/expected.h)       -> "ok"
 *   commit FILE     1. what has been written is copied while the process runs,
 *                   2. its threads are stopped; where what is seen is not as in the base, as a lock that is held, a byte in
 *                      a pipe or a new connection may be for a moment, they run on for a millisecond or some, and it begins again,
 *                   3. what can be seen, and by a round trip through each thread what cannot, is taken,
 *                   4. what has been written since 1 is copied                                      -> "stopped"
 *                   "go" has it run on and write FILE                                  -> "done PAUSE_NS", or "failed REASON"
 *                   "drop" has it run on only                                                       -> "dropped"
 *                   Where all is as expected it goes on without being told, and says "done" or "failed" at once.
 *   Instead of "stopped" comes "refused REASON"; the process runs on then.
 *
 * In a tree nobody is stopped before all can be, and 3 and 4 begin when all stand still; none runs on before all are taken. The others write
 * FILE.1, FILE.2 and so on.
 *
 * FILE is a sequence of sections (micro/record.h).
 *
 * What was written and is not in a FILE that was written whole is lost: after anything but "done", and after "refused", the
 * caller has to begin with a new base. Killed at any moment this program harms nobody: the kernel lets go of the threads, and
 * each that makes the round trip has a signal frame on its stack that gives it back all its registers (tracker/frame.h).
 *
 * The parts: what can be seen from outside (micro/look.h, descriptors.h, mappings.h), what only the process can tell (round_trip.h), what of
 * that need not be asked again (unchanged.h), its memory (memory.h), and stopping it (stopping.h). */
#define _GNU_SOURCE
#include "micro/audit.h"
#include "micro/base.h"
#include "micro/expected.h"
#include "micro/halves.h"
#include "micro/look.h"
#include "micro/mappings.h"
#include "micro/memory.h"
#include "micro/record.h"
#include "micro/round_trip.h"
#include "micro/shared.h"
#include "micro/stopping.h"
#include "micro/system_v.h"
#include "micro/text.h"
#include "micro/tree.h"
#include "micro/unchanged.h"
#include "tracker/userfault.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

enum {
	MEET_WITHIN_MS = 3 * GIVE_UP_MS / 2, /* the last one gives up before, and says so */
	GO_WITHIN_MS = 30000, /* whoever asked sees to it that it is sooner, as for CRIU (native/watchdog.c) */
	LINE_MOST = 4200,
	LOOKS_MORE = 4,
	SETTLES_NS = 500000, /* and twice as long each time */
	LOOKED_MOST_NS = 10000000, /* a look takes longer the more descriptors there are: no more than this is spent on those in vain */
};

unsigned char *buffer;
struct process process;
struct thread threads[THREADS_MOST];
int thread_count;
uint64_t caught;
_Thread_local char refusal[256];
static bool was_as_base; /* what was seen last */

bool refuse(const char *form, ...)
{
	va_list words;

	va_start(words, form);
	vsnprintf(refusal, sizeof refusal, form, words);
	va_end(words);
	return false;
}

static int64_t clock_ns(clockid_t which)
{
	struct timespec t;

	clock_gettime(which, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* One line; false at the end of input, when it is longer, or when nothing came in time (ms, -1: as long as it takes). */
static bool hear(char *line, size_t room, int within)
{
	static char heard[LINE_MOST]; /* and not taken yet */
	static size_t size;
	struct pollfd asked = { .fd = 0, .events = POLLIN };
	char *end;

	while (!(end = memchr(heard, '\n', size))) {
		ssize_t more;

		if (size == sizeof heard || poll(&asked, 1, within) <= 0)
			return false;
		more = read(0, heard + size, sizeof heard - size);
		if (more <= 0)
			return false;
		size += (size_t)more;
	}
	*end = 0;
	if ((size_t)(end - heard) >= room)
		return false;
	strcpy(line, heard);
	size -= (size_t)(end + 1 - heard);
	memmove(heard, end + 1, size);
	return true;
}

/* What can be seen of the process, and by the leader of what all of a tree have in common. False: refused. */
static bool see_all(void)
{
	return look() && (!is_leader() || say_system_v());
}

/* A look while somebody else holds all threads. */
static void look_only(const char *path)
{
	bool well;

	begin_meetings();
	forget_facts();
	well = find_threads() && read_mappings() && see_all();
	keep_as_base();
	well = meet(well ? AS_BASE : REFUSED, MEET_WITHIN_MS) != REFUSED && say_kin();
	if (!well || !look_afterwards())
		answer("failed %s", refusal);
	else if (!write_look(path))
		answer("failed %s", strerror(errno));
	else
		answer("ok");
}

/* Whoever asked looks at files meanwhile, unless they are known to be as it has seen them. What it says then counts for all. */
static enum vote wait_for_go(void)
{
	static char said[16];
	enum vote own = AS_BASE;

	if (is_leader() && !is_as_expected()) {
		puts("stopped");
		fflush(stdout);
		if (!hear(said, sizeof said, GO_WITHIN_MS))
			own = REFUSED; /* it is gone, or too slow */
		else if (!strcmp(said, "drop"))
			own = DIFFERS;
	}
	return meet(own, GO_WITHIN_MS + MEET_WITHIN_MS);
}

/* All stand still, and have been looked at; *paused: how long in vain. False: refused, and they are to be let go. */
static bool stop_and_look(const char *path, int64_t *began, int64_t *paused)
{
	bool well = know_mappings() && copy_ahead(path);
	enum vote vote;

	for (int tries = 0;; tries++) {
		/* Others may copy for long; who is seized and gets a signal stands still until all have come. */
		if (meet(well ? AS_BASE : REFUSED, MEET_WITHIN_MS) == REFUSED)
			return false;
		well = find_threads();
		if (well) {
			rehearse_memory();
			rehearse();
		}
		well = well && seize_all(); /* only now: a thread that is seized and gets a signal stands still until it is heard */
		if (meet(well ? AS_BASE : REFUSED, MEET_WITHIN_MS) == REFUSED)
			return false;
		plan_facts();
		*began = clock_ns(CLOCK_MONOTONIC);
		ready_halves();
		well = stop_all();
		if (meet(well ? AS_BASE : REFUSED, MEET_WITHIN_MS) == REFUSED)
			return false;
		begin_halves();
		(void)read_facts();
		vote = !see_all() ? REFUSED : is_as_base() && have_all_room() ? AS_BASE : DIFFERS;
		if (vote == DIFFERS && (tries == LOOKS_MORE || *paused + clock_ns(CLOCK_MONOTONIC) - *began > LOOKED_MOST_NS))
			vote = DIFFERS_FOR_GOOD;
		was_as_base = vote == AS_BASE;
		vote = meet(vote, MEET_WITHIN_MS);
		if (vote != DIFFERS)
			return vote != REFUSED;
		well = let_go();
		*paused += clock_ns(CLOCK_MONOTONIC) - *began;
		nanosleep(&(struct timespec){ 0, SETTLES_NS << tries }, NULL);
		well = well && copy_more_ahead();
	}
}

static void write_and_answer(const int64_t clocks[4])
{
	if (!settle_copies() || !look_afterwards())
		answer("failed %s", refusal);
	else if (!write_commit(clocks))
		answer("failed %s", strerror(errno));
	else
		answer("done %" PRId64, clocks[3]);
}

static bool commit(const char *path)
{
	int64_t clocks[4], began, paused = 0;
	enum vote said;
	bool well, is_alive;

	begin_meetings();
	well = stop_and_look(path, &began, &paused);
	if (well) {
		well = say_kin() && copy_shared() && make_round_trips() && judge_facts() && copy_late() && judge_facts();
		clocks[0] = clock_ns(CLOCK_REALTIME);
		clocks[1] = clock_ns(CLOCK_MONOTONIC);
		clocks[2] = clock_ns(CLOCK_BOOTTIME);
		well = meet(well ? AS_BASE : REFUSED, MEET_WITHIN_MS) != REFUSED;
	}
	if (!well) {
		(void)is_memory_well(); /* what was found of the kernel is said first, whatever else was refused */
		let_go();
		forget_expected();
		answer("refused %s", refusal);
		return true;
	}
	said = wait_for_go();
	is_alive = let_go();
	clocks[3] = paused + clock_ns(CLOCK_MONOTONIC) - began;
	if (said == REFUSED || !is_alive)
		return false; /* nothing that comes now would be what was asked for */
	if (said == DIFFERS)
		answer("dropped");
	else
		write_and_answer(clocks);
	if (said == AS_BASE && was_as_base)
		keep_facts();
	if (said == AS_BASE)
		keep_kinds();
	forget_copies();
	forget_expected();
	return true;
}

static bool begin_base(void)
{
	forget_facts();
	return read_mappings() && begin_tracking_anew();
}

static const char *begin_tracking(long filters)
{
	const char *reason;

	process.uffd = process.pagemap = process.pages = process.runs = -1;
	process.handle = (int)syscall(SYS_pidfd_open, process.pid, 0);
	if (process.handle < 0 || !go_to_process())
		return "gone";
	if (status_number(process.pid, "Seccomp_filters", 0) > filters)
		return "it is under seccomp filters of its own";
	reason = make_userfaultfd(&process);
	if (reason)
		return reason;
	if (!find_gadget())
		return "no code in it keeps an answer";
	return begin_base() ? NULL : refusal;
}

static bool obey(char *line)
{
	const bool is_of_one = !strncmp(line, "expect ", 7); /* the leader's */

	if (!is_of_one)
		pass_on(line);
	if (!strcmp(line, "base"))
		begin_base() ? answer("ok") : answer("failed %s", refusal);
	else if (!strncmp(line, "look ", 5))
		look_only(line + 5);
	else if (is_of_one)
		puts(read_expected(line + 7) ? "ok" : "failed what is expected cannot be read");
	else if (!strncmp(line, "commit ", 7))
		return commit(line + 7);
	else
		return false;
	return fflush(stdout) == 0;
}

int main(int argc, char **argv)
{
	static char line[LINE_MOST];
	const bool asks = argc > 1 && !strcmp(argv[1], "ask");
	const char *reason;

	argc -= asks;
	argv += asks;
	if (argc == 2 && !strcmp(argv[1], "kernel")) {
		find_kernel();
		puts(kernel_obstacle() ? kernel_obstacle() : "ok");
		return 0;
	}
	if (argc < 3) {
		fprintf(stderr, "usage: relive-micro [ask] FILTERS PID... | relive-micro kernel\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	with_files = true;
	if (!asks)
		find_kernel();
	if (!begin_tree(argc - 2, argv + 2)) {
		puts("skipped it has too many processes, or no tracker can be started for each");
		return 0;
	}
	make_room();
	reason = begin_tracking(atol(argv[1]));
	if (reason) {
		answer("skipped %s", reason);
		return 0;
	}
	enter_ipc();
	answer("tracked");
	while (hear(line, sizeof line, -1) && obey(line))
		;
	return 0;
}
