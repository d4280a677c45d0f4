/* relive-rewind: keeps what a branch was before it ran, and puts that back as often as it is asked to.
 *
 *   relive-rewind DIRECTORY PID [SHIFT]          (of the branch; SHIFT: of its wall clock [ns], relive.sandbox.clock)
 *   relive-rewind ask DIRECTORY PID [SHIFT]      (the same, and all is asked in each rollback)
 *
 * The process stands still by SIGSTOP and has not run yet. On standard output comes "looked", when DIRECTORY/rewind.look tells what was
 * seen of the process (micro/record.h); "keep" on standard input has the reference be kept and the process run: "ready" comes. With
 * anything else, and at "refused REASON", it runs, too, and this program ends. It then listens at DIRECTORY/rewind.sock and ends with the
 * process. Each connection makes one request:
 *
 *   rollback   1. all threads are stopped, the process is looked at and compared (seen.h, files.h): "refused REASON", it runs on
 *              2. what it has made since is undone (undo.h), and it is looked at anew
 *              3. files, positions, pages, the wall clock and registers are written
 *                                                              "done NANOSECONDS PAGES", of which it stood still
 *              "spoilt REASON" where something failed from 2 on: it was killed
 *
 * Words behind it ask for more, in any order:
 *
 *   verify     all memory and registers are read and compared with the reference before it runs: "done NANOSECONDS PAGES DIGEST"
 *              (rewind/digest.h)
 *   hold       who asks has the other ends of all connections, and sees to it that nothing is left in them: what these have carried is not
 *              compared. When the process is as it was, "held" is said, and it runs only after "go"; without that it is killed.
 *
 * In the middle of a rollback, and while the reference is made, the process dies with this program. */
#define _GNU_SOURCE
#include "micro/audit.h"
#include "micro/base.h"
#include "micro/look.h"
#include "micro/mappings.h"
#include "micro/memory.h"
#include "micro/record.h"
#include "micro/round_trip.h"
#include "micro/stopping.h"
#include "micro/text.h"
#include "micro/unchanged.h"
#include "rewind/beside.h"
#include "rewind/digest.h"
#include "rewind/files.h"
#include "rewind/held.h"
#include "rewind/numbers.h"
#include "rewind/pages.h"
#include "rewind/seen.h"
#include "rewind/undo.h"
#include "rewind/wall_clock.h"
#include "tracker/userfault.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum {
	TRIES = 4,
	SETTLES_NS = 500000, /* and twice as long each time */
	LINE = 64,
	ASKED_WITHIN_MS = 5000,
	HELD_MOST_MS = 10000,
	BEFORE_OTHERS = -10,
};
#define USER_MODE_ONLY 1

unsigned char *buffer;
struct process process;
struct thread threads[THREADS_MOST];
int thread_count;
uint64_t caught;
_Thread_local char refusal[256];

static struct thread *kept; /* the threads of the reference */
static int kept_count;
static bool is_spoilt; /* the process was killed */
static bool are_pages_found; /* by `is_comparable` */

bool refuse(const char *form, ...)
{
	va_list words;

	va_start(words, form);
	vsnprintf(refusal, sizeof refusal, form, words);
	va_end(words);
	return false;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static bool has_no_ipc(void)
{
	static const char *const kinds[] = { "shm", "sem", "msg" };
	char path[64], found[4096];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "/proc/sysvipc/%s", kinds[i]);
		if (slurp_again(path, found, sizeof found) <= 0 || strchr(found, '\n') != strrchr(found, '\n'))
			return refuse("it has System V objects");
	}
	return true;
}

/* -- the reference ------------------------------------------------------------------------------------------------- */

static bool have_writes_noted(void)
{
	const char *reason;
	long fd;

	process.uffd = -1;
	fd = call(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | USER_MODE_ONLY, 0, 0);
	if (fd < 0)
		return refuse("it may not make a userfaultfd");
	process.uffd = (int)syscall(SYS_pidfd_getfd, process.handle, (int)fd, 0);
	if (call(SYS_close, fd, 0, 0) || process.uffd < 0)
		return refuse("its userfaultfd could not be taken over");
	reason = put_to_use(&process);
	return reason ? refuse("%s", reason) : begin_tracking_anew();
}

static bool write_what_was_seen(const char *directory)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/rewind.look", directory);
	return write_look(path) || refuse("what was seen of it cannot be written");
}

/* All that is seen of it, and it is not changed by that but for its stack, which is put back. */
static bool look_first(const char *directory)
{
	const char *reason;

	process.uffd = process.pagemap = process.pages = process.runs = -1;
	process.handle = (int)syscall(SYS_pidfd_open, process.pid, 0);
	if (process.handle < 0 || setns(process.handle, CLONE_NEWIPC) || !go_to_process())
		return refuse("it is gone");
	reason = find_what_is_borrowed(&process);
	if (reason)
		return refuse("%s", reason);
	if (!find_gadget())
		return refuse("no code in it keeps an answer");
	return take_over() && take_stop_away() && has_no_ipc() && look() && copy_reference() && look_afterwards() &&
	       write_what_was_seen(directory);
}

static bool keep_reference(const char *directory)
{
	if (!keep_seen() || !keep_files(directory) || !have_writes_noted() || !start_beside() || !keep_next_number())
		return false;
	kept = malloc((size_t)thread_count * sizeof *kept);
	if (!kept)
		return refuse("there is no room for its registers");
	memcpy(kept, threads, (size_t)thread_count * sizeof *kept);
	kept_count = thread_count;
	return keep_hidden() && find_pages() && put_pages_back();
}

static bool give_registers(void)
{
	for (int i = 0; i < thread_count; i++)
		if (!set_registers(&threads[i]))
			return refuse("the registers of thread %d cannot be written", (int)threads[i].tid);
	return true;
}

/* -- a rollback ---------------------------------------------------------------------------------------------------- */

/* While other things are compared the second thread finds the pages that differ, if it is known already that mappings are as they were. */
static bool begin_finding_pages(void)
{
	if (is_audit() || !are_mappings_as_of(memory_state_read()) || is_memory_audit(MAPPINGS))
		return false;
	begin_beside(find_pages);
	return true;
}

/* A kernel that is found wrong is said to be so, whatever else differs: that is mostly what it did not tell. */
static bool is_comparable(void)
{
	bool well, is_begun;

	(void)read_facts();
	is_begun = begin_finding_pages();
	well = has_no_ipc() && look() && compare_seen() && plan_undo() && compare_files() && (is_to_undo() || compare_hidden());
	/* A round trip writes to stacks. */
	are_pages_found = is_begun && end_beside(well) && well && !is_to_undo() && !were_trips_made();
	return judge_facts() && well;
}

/* What is seen may be so for a moment only; then the process runs on for some, as for a commit. */
static bool stop_and_compare(void)
{
	for (int i = 0;; i++) {
		if (seize_all() && stop_all() && is_comparable())
			return true;
		let_go();
		if (i == TRIES || !strncmp(refusal, DISTRUSTED, sizeof DISTRUSTED - 1))
			return false;
		nanosleep(&(struct timespec){ 0, SETTLES_NS << i }, NULL);
	}
}

/* The threads have the registers of the reference from here on, in what is known of them. */
static void take_kept_contexts(void)
{
	for (int i = 0; i < thread_count; i++)
		for (int k = 0; k < kept_count; k++)
			if (threads[i].tid == kept[k].tid)
				threads[i].context = kept[k].context;
}

static bool undo_and_compare(void)
{
	bool well;

	if (!is_to_undo())
		return true;
	if (!undo())
		return false;
	(void)read_facts();
	well = look() && compare_seen() && plan_undo() && (!is_to_undo() || refuse("its mappings cannot be put back")) && compare_hidden();
	return judge_facts() && well;
}

static bool put_all_back(void)
{
	bool well, is_number_right;

	take_kept_contexts();
	if (!die_with_us() || !undo_and_compare())
		return false;
	is_number_right = is_next_number_right();
	if (!is_number_right)
		begin_beside(put_next_number_back);
	well = put_files_back() && put_positions_back() && (are_pages_found || find_pages());
	if (!is_number_right) {
		well = end_beside(well) && well;
		note_next_number();
	}
	return well && put_pages_back() && put_wall_clock_back() && give_registers();
}

/* It is as the reference was: what was told of it is known from now on. Plans are made here only, so that they have nothing that comes later. */
static void note_facts(void)
{
	keep_facts();
	if (!are_facts_read() || is_plan_old())
		plan_facts();
}

/* Whether it may run. */
static bool hold_for(int asked)
{
	struct pollfd line = { .fd = asked, .events = POLLIN };
	char word[LINE] = "";

	return (write_all(asked, "held\n", 5) && poll(&line, 1, HELD_MOST_MS) > 0 && read(asked, word, sizeof word - 1) > 0 &&
		!strcmp(word, "go\n")) ||
	       refuse("nobody said that it may run");
}

static void rollback(int asked, const char *line, char *answer, size_t room)
{
	const int64_t began = now_ns();
	const bool verifies = strstr(line, " verify"), holds = strstr(line, " hold");
	char tail[LINE] = "";

	others_are_reset = holds;
	if (!stop_and_compare()) {
		snprintf(answer, room, "refused %s\n", refusal);
		return;
	}
	if (!put_all_back() || (verifies && !compare_digests()) || (holds && !hold_for(asked))) {
		syscall(SYS_pidfd_send_signal, process.handle, SIGKILL, NULL, 0);
		is_spoilt = true;
		snprintf(answer, room, "spoilt %s\n", refusal);
		return;
	}
	note_facts();
	let_go();
	if (verifies)
		snprintf(tail, sizeof tail, " %016llx", (unsigned long long)digest);
	snprintf(answer, room, "done %lld %zu%s\n", (long long)(now_ns() - began), pages_put_back, tail);
}

/* -- who asks ------------------------------------------------------------------------------------------------------ */

/* Whether it is of use yet. A thread of the process that ended while it was held is ours to take note of. */
static bool answer_one(int listener)
{
	struct pollfd asked = { .fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN };
	char line[LINE] = "", answer[sizeof refusal + LINE];
	ssize_t size = -1;

	if (asked.fd >= 0 && poll(&asked, 1, ASKED_WITHIN_MS) > 0)
		size = read(asked.fd, line, sizeof line - 1);
	if (size > 0 && !strncmp(line, "rollback", 8)) {
		rollback(asked.fd, line, answer, sizeof answer);
		write_all(asked.fd, answer, strlen(answer));
	}
	if (asked.fd >= 0)
		close(asked.fd);
	while (waitpid(-1, NULL, __WALL | WNOHANG) > 0)
		;
	return !is_spoilt;
}

static int listen_here(void)
{
	const struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "rewind.sock" }; /* from here: the whole path may be too long */
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && !bind(fd, (const struct sockaddr *)&name, sizeof name) && !listen(fd, 8) ? fd : -1;
}

static void serve(int listener)
{
	struct pollfd both[] = { { .fd = process.handle, .events = POLLIN }, { .fd = listener, .events = POLLIN } };

	while (poll(both, 2, -1) > 0 || errno == EINTR) {
		if (both[0].revents)
			return; /* it has ended */
		if (both[1].revents && !answer_one(listener))
			return;
	}
}

static int end_with(const char *reason)
{
	if (is_stop_taken_away)
		(void)give_registers(); /* it was made to make calls */
	let_go();
	if (!is_stop_taken_away)
		kill(process.pid, SIGCONT);
	printf("refused %s\n", reason);
	return 0;
}

int main(int argc, char **argv)
{
	char line[LINE];
	const bool asks = argc > 1 && !strcmp(argv[1], "ask");
	int listener, nothing;

	argc -= asks;
	argv += asks;
	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: relive-rewind [ask] DIRECTORY PID [SHIFT]\n");
		return 2;
	}
	/* Whoever starts it need not wait for its end. */
	if (fork())
		return 0;
	signal(SIGPIPE, SIG_IGN);
	with_files = true;
	process.pid = atoi(argv[2]);
	make_room();
	setpriority(PRIO_PROCESS, 0, BEFORE_OTHERS); /* the service stands still for it */
	if (chdir(argv[1]) || (listener = listen_here()) < 0)
		return end_with("nothing can be made in the branch's directory");
	if (!look_first(argv[1]) || (argc == 4 && !find_wall_clock(atoll(argv[3]))))
		return end_with(refusal);
	puts("looked");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin) || strcmp(line, "keep\n"))
		return end_with("it was not asked to");
	if (!keep_reference(argv[1]) || !give_registers())
		return end_with(refusal);
	let_go();
	puts("ready");
	fflush(stdout);
	nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	for (int i = 0; i < 3; i++)
		dup2(nothing, i);
	if (!asks)
		find_kernel();
	(void)can_read_kernel(); /* both take some milliseconds, for which nobody waits here */
	serve(listener);
	return 0;
}
