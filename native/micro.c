/* relive-micro: takes what has changed of a running process, again and again, for commits on top of one that CRIU made.
 *
 *   relive-micro FILTERS PID      (FILTERS: as of relive-tracker)
 *
 * One process is tracked by one of these (tracker/userfault.h says how) until standard input closes. It says "tracked", or
 * "skipped REASON" and ends. Then, by lines on standard input, each with one line as its answer:
 *
 *   base            what is written from now on is noted anew: a commit of all of it follows        -> "ok"
 *   look FILE       what can be seen of the process from outside, while somebody else holds it      -> "ok"
 *   expect FILE     what the caller has seen of files, for the next commit (micro/expected.h)       -> "ok"
 *   commit FILE     1. what has been written is copied while the process runs,
 *                   2. its threads are stopped; where what is seen is not as in the base, as a lock that is held or a byte in
 *                      a pipe may be for a moment, they run on for a millisecond or some, and it begins again,
 *                   3. what can be seen, and by a round trip through each thread what cannot, is taken,
 *                   4. what has been written since 1 is copied                                      -> "stopped"
 *                   "go" has it run on and write FILE                                  -> "done PAUSE_NS", or "failed REASON"
 *                   "drop" has it run on only                                                       -> "dropped"
 *                   Where all is as expected it goes on without being told, and says "done" or "failed" at once.
 *   Instead of "stopped" comes "refused REASON"; the process runs on then.
 *
 * FILE is a sequence of sections (micro/record.h).
 *
 * What was written and is not in a FILE that was written whole is lost: after anything but "done", and after "refused", the
 * caller has to begin with a new base. Killed at any moment this program harms nobody: the kernel lets go of the threads, and
 * each that makes the round trip has a signal frame on its stack that gives it back all its registers (tracker/frame.h).
 *
 * The parts: what can be seen from outside (micro/look.h, descriptors.h, mappings.h), what only the process can tell (round_trip.h), its
 * memory (memory.h), and stopping it (stopping.h). */
#define _GNU_SOURCE
#include "micro/base.h"
#include "micro/expected.h"
#include "micro/look.h"
#include "micro/mappings.h"
#include "micro/memory.h"
#include "micro/record.h"
#include "micro/round_trip.h"
#include "micro/stopping.h"
#include "micro/text.h"
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
	GO_WITHIN_MS = 30000, /* whoever asked sees to it that it is sooner, as for CRIU (native/watchdog.c) */
	LOOKS_MORE = 4,
	SETTLES_NS = 500000, /* and twice as long each time */
	LOOKED_MOST_NS = 10000000, /* a look takes longer the more descriptors there are: no more than this is spent on those in vain */
};

unsigned char *buffer;
struct process process;
struct thread threads[THREADS_MOST];
int thread_count;
uint64_t caught;
char refusal[256];

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

/* One line; false at the end of input, or when none came in time (ms, -1: as long as it takes). */
static bool hear(char *line, size_t room, int within)
{
	struct pollfd asked = { .fd = 0, .events = POLLIN };
	size_t size = 0;

	while (size < room - 1) {
		if (poll(&asked, 1, within) <= 0 || read(0, line + size, 1) != 1)
			return false;
		if (line[size] == '\n') {
			line[size] = 0;
			return true;
		}
		size++;
	}
	return false;
}

static void tell(const char *what)
{
	puts(what);
	fflush(stdout);
}

static void tell_why(const char *what, const char *reason)
{
	printf("%s %s\n", what, reason);
	fflush(stdout);
}

/* A look while somebody else holds all threads. */
static void look_only(const char *path)
{
	bool well = find_threads() && read_mappings() && look();

	keep_as_base();
	if (!well || !look_afterwards())
		tell_why("failed", refusal);
	else if (!write_look(path))
		tell_why("failed", strerror(errno));
	else
		tell("ok");
}

/* Whoever asked looks at files meanwhile, unless they are known to be as it has seen them. NULL: it is gone, or too slow. */
static const char *wait_for_go(void)
{
	static char said[16];

	if (is_as_expected())
		return "go";
	tell("stopped");
	return hear(said, sizeof said, GO_WITHIN_MS) ? said : NULL;
}

static bool commit(const char *path)
{
	int64_t clocks[4], began, paused = 0;
	const char *said;
	bool well;

	well = read_mappings() && copy_ahead();
	for (int tries = 0;; tries++) {
		well = well && find_threads();
		if (well) {
			rehearse_memory();
			rehearse();
		}
		well = well && seize_all(); /* only now: a thread that is seized and gets a signal stands still until it is heard */
		began = clock_ns(CLOCK_MONOTONIC);
		well = well && stop_all() && look();
		if (!well || is_as_base() || tries == LOOKS_MORE || paused + clock_ns(CLOCK_MONOTONIC) - began > LOOKED_MOST_NS)
			break;
		let_go();
		paused += clock_ns(CLOCK_MONOTONIC) - began;
		nanosleep(&(struct timespec){ 0, SETTLES_NS << tries }, NULL);
		well = copy_more_ahead();
	}
	well = well && make_round_trips() && copy_late();
	if (!well) {
		let_go();
		forget_expected();
		tell_why("refused", refusal);
		return true;
	}
	clocks[0] = clock_ns(CLOCK_REALTIME);
	clocks[1] = clock_ns(CLOCK_MONOTONIC);
	clocks[2] = clock_ns(CLOCK_BOOTTIME);
	said = wait_for_go();
	let_go();
	clocks[3] = paused + clock_ns(CLOCK_MONOTONIC) - began;
	if (!said)
		return false; /* nothing that comes now would be what was asked for */
	if (!strcmp(said, "drop")) {
		tell("dropped");
	} else if (!look_afterwards()) {
		tell_why("failed", refusal);
	} else if (!write_commit(path, clocks)) {
		tell_why("failed", strerror(errno));
	} else {
		printf("done %" PRId64 "\n", clocks[3]);
		fflush(stdout);
	}
	forget_copies();
	forget_expected();
	return true;
}

static bool begin_base(void)
{
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

int main(int argc, char **argv)
{
	static char line[4200];
	const char *reason;
	bool goes = true;

	if (argc != 3) {
		fprintf(stderr, "usage: relive-micro FILTERS PID\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	with_files = true;
	process.pid = atoi(argv[2]);
	make_room();
	reason = begin_tracking(atol(argv[1]));
	if (reason) {
		printf("skipped %s\n", reason);
		return 0;
	}
	enter_ipc();
	tell("tracked");
	while (goes && hear(line, sizeof line, -1)) {
		if (!strcmp(line, "base"))
			begin_base() ? tell("ok") : tell_why("failed", refusal);
		else if (!strncmp(line, "look ", 5))
			look_only(line + 5);
		else if (!strncmp(line, "expect ", 7))
			read_expected(line + 7) ? tell("ok") : tell_why("failed", "what is expected cannot be read");
		else if (!strncmp(line, "commit ", 7))
			goes = commit(line + 7);
		else
			goes = false;
	}
	return 0;
}
