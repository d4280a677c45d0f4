/* relive-micro: takes what has changed of a running process, again and again, for commits on top of one that CRIU made.
 *
 *   relive-micro FILTERS PID      (FILTERS: as of relive-tracker)
 *
 * One process is tracked by one of these (tracking.h says how) until standard input closes. It says "tracked", or
 * "skipped REASON" and ends. Then, by lines on standard input, each with one line as its answer:
 *
 *   base            what is written from now on is noted anew: a commit of all of it follows        -> "ok"
 *   look FILE       what can be seen of the process from outside, while somebody else holds it      -> "ok"
 *   commit FILE     1. what has been written is copied while the process runs,
 *                   2. its threads are stopped,
 *                   3. what can be seen, and by a round trip through each thread what cannot, is taken,
 *                   4. what has been written since 1 is copied                                      -> "stopped"
 *                   "go" has it run on and write FILE                                  -> "done PAUSE_NS", or "failed REASON"
 *                   "drop" has it run on only                                                       -> "dropped"
 *   Instead of "stopped" comes "refused REASON"; the process runs on then.
 *
 * FILE is a sequence of sections, each with two u64 before it (kind, length in bytes); enum section names them. All numbers
 * are the machine's.
 *
 * What was written and is not in a FILE that was written whole is lost: after anything but "done", and after "refused", the
 * caller has to begin with a new base. Killed at any moment this program harms nobody: the kernel lets go of the threads, and
 * each that makes the round trip has a signal frame on its stack that gives it back all its registers (tracking.h).
 *
 * The round trip: frames for rt_sigreturn lie one behind the other on the unused part of the thread's stack. Each makes one
 * system call, by "syscall; ret" of the process's own code, whose answer "mov %rax,(%rdx); ret" keeps where the call does not; the
 * next frame follows. The last call but one sends the thread a signal that it does not catch and that has no effect, at which
 * it stops for us; without us it goes on to the last frame, which takes everything back. A thread is left alone, and the commit
 * refused, where the memory below its stack pointer may be in use: not on its main stack, nor between the start of a mapping and
 * its thread control block in the same mapping.
 */
#include "tracking.h"
#include <arpa/inet.h>
#include <cpuid.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>

enum section { TEXT = 1, AFTERWARDS, THREAD, PRESENT, AHEAD_RUNS, AHEAD_PAGES, RUNS, PAGES, CLOCKS, XSAVE_OFFSETS };

enum {
	THREADS_MOST = 256,
	MAPPINGS_MOST = 65536,
	RUNS_MOST = 1 << 19,
	TEXT_MOST = 16 << 20,
	SPINS = 400,
	GIVE_UP_MS = 2000, /* a thread has to be given a processor before it can stop */
	GO_WITHIN_MS = 30000, /* whoever asked sees to it that it is sooner, as for CRIU (native/watchdog.c) */
	CALLS_MOST = 96,
	FRAME = 8 + 304, /* return address, and as much of ucontext_t as the kernel reads */
	IOV = 512,
	NEAR = 128, /* [pages] so many are looked at sooner than the kernel is asked once more */
};
#define COPIED_MOST (1ULL << 30)
#define PAUSED_MOST (64ULL << 20) /* [bytes] copied with all stopped; what changes so much is better dumped */
#define UNREAD (1ULL << 32)
#define COPIED (1ULL << 33)

struct mapping {
	uint64_t start, end;
	bool is_file, is_code, is_special; /* shared, or the kernel's own */
};

struct run_list {
	struct region *at;
	size_t count;
	unsigned char *pages;
	size_t size;
};

struct thread {
	pid_t tid, inside;
	bool seized, stopped_at_signal;
	int owed; /* a signal that somebody else has sent it and that we were told of; it gets it when it is let go */
	struct context context;
	uint64_t results;
	struct mapping stack;
};

struct call {
	long number, first, second;
	uint64_t third, fourth;
	bool saved; /* its answer goes to where its third argument points */
};

static struct process process;
static struct thread threads[THREADS_MOST];
static int thread_count;
static struct mapping mappings[MAPPINGS_MOST];
static int mapping_count;
static char *text, *afterwards;
static size_t text_size, afterwards_size;
static struct run_list ahead, late, present, protected;
static uint64_t keep_answer; /* address of "mov %rax,(%rdx); ret" */
static int wake; /* the signal at which a round trip ends */
static uint64_t caught;
static char refusal[256];

/* -- texts -------------------------------------------------------------------------------------------------------- */

static void add(char *to, size_t *size, const char *form, va_list words)
{
	int more = vsnprintf(to + *size, TEXT_MOST - *size, form, words);

	if (more > 0)
		*size = *size + (size_t)more < TEXT_MOST ? *size + (size_t)more : TEXT_MOST - 1;
}

__attribute__((format(printf, 1, 2))) static void say(const char *form, ...)
{
	va_list words;

	va_start(words, form);
	add(text, &text_size, form, words);
	va_end(words);
}

static void append(const char *what, size_t size)
{
	if (size > TEXT_MOST - text_size)
		size = TEXT_MOST - text_size;
	memcpy(text + text_size, what, size);
	text_size += size;
}

__attribute__((format(printf, 1, 2))) static bool refuse(const char *form, ...)
{
	va_list words;

	va_start(words, form);
	vsnprintf(refusal, sizeof refusal, form, words);
	va_end(words);
	return false;
}

/* Reads a file of /proc; its end is marked by a zero. -1: it is not there. */
static ssize_t slurp(const char *path, char *to, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t got;

	if (fd < 0)
		return -1;
	while (size < room - 1 && (got = read(fd, to + size, room - 1 - size)) > 0)
		size += (size_t)got;
	close(fd);
	to[size] = 0;
	return (ssize_t)size;
}

__attribute__((format(printf, 1, 2))) static const char *of_process(const char *form, ...)
{
	static char path[4][256];
	static int turn;
	char *made = path[turn = (turn + 1) % 4];
	int size = snprintf(made, sizeof path[0], "/proc/%d/", (int)process.pid);
	va_list words;

	va_start(words, form);
	vsnprintf(made + size, sizeof path[0] - (size_t)size, form, words);
	va_end(words);
	return made;
}

static void say_file(const char *label, const char *path)
{
	static char read_now[1 << 16];
	ssize_t size = slurp(path, read_now, sizeof read_now);

	append(label, strlen(label));
	append(" ", 1);
	for (ssize_t i = 0; i < size; i++) {
		const unsigned char byte = (unsigned char)read_now[i];

		if (byte == '\n')
			append("|", 1);
		else if ((byte >= ' ' && byte < 127) || byte == '\t')
			append(&read_now[i], 1);
		else
			say("\\x%02x", byte);
	}
	append("\n", 1);
}

static void say_link(const char *label, const char *path)
{
	char target[4096];
	ssize_t size = readlink(path, target, sizeof target - 1);

	target[size < 0 ? 0 : size] = 0;
	for (char *at = target; *at; at++)
		if (*at == '\n')
			*at = '?';
	say("%s %s\n", label, target);
}

/* -- what can be seen from outside -------------------------------------------------------------------------------- */

static bool find_threads(void)
{
	char path[64];
	struct dirent *entry;
	DIR *all;

	snprintf(path, sizeof path, "/proc/%d/task", (int)process.pid);
	all = opendir(path);
	thread_count = 0;
	if (!all)
		return refuse("the process is gone");
	while ((entry = readdir(all))) {
		if (entry->d_name[0] == '.')
			continue;
		if (thread_count == THREADS_MOST) {
			closedir(all);
			return refuse("it has more than %d threads", THREADS_MOST);
		}
		threads[thread_count].tid = atoi(entry->d_name);
		threads[thread_count].seized = threads[thread_count].stopped_at_signal = false;
		threads[thread_count].owed = 0;
		thread_count++;
	}
	closedir(all);
	return thread_count > 0 && threads[0].tid == process.pid ? true : refuse("its first thread has ended");
}

static void say_status(struct thread *t)
{
	static const char *const wanted[] = { "Name",	"Umask",  "Uid",    "Gid",    "Groups",	    "NSpid",	"SigPnd",  "ShdPnd",
					      "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",	    "CapBnd",	"CapAmb",  "NoNewPrivs",
					      "Seccomp", "Seccomp_filters", "THP_enabled" };
	static char read_now[8192];
	struct sched_param priority = { 0 };
	void *list = NULL;
	size_t length = 0;

	if (slurp(of_process("task/%d/status", (int)t->tid), read_now, sizeof read_now) < 0)
		return;
	for (char *line = read_now; *line;) {
		char *end = strchr(line, '\n'), *colon = strchr(line, ':');

		if (!end || !colon)
			break;
		*end = 0;
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (strlen(wanted[i]) == (size_t)(colon - line) && !strncmp(line, wanted[i], (size_t)(colon - line)))
				say("thread %d %s\n", (int)t->tid, line);
		if (!strncmp(line, "NSpid:", 6)) {
			char *last = strrchr(line, '\t');

			t->inside = last ? atoi(last + 1) : t->tid;
		} else if (!strncmp(line, "SigCgt:", 7)) {
			caught |= strtoull(line + 7, NULL, 16);
		}
		line = end + 1;
	}
	sched_getparam(t->tid, &priority);
	syscall(SYS_get_robust_list, t->tid, &list, &length);
	say("thread %d policy %d priority %d nice %d robust %p %zu\n", (int)t->tid, sched_getscheduler(t->tid),
	    priority.sched_priority, getpriority(PRIO_PROCESS, (id_t)t->tid), list, length);
	say_file("children", of_process("task/%d/children", (int)t->tid));
}

static void say_stat(void)
{
	static const int wanted[] = { 4, 5, 6, 7, 22, 26, 27, 28, 38, 45, 46, 47, 48, 49, 50, 51 };
	static char read_now[4096];
	char *at;
	size_t next = 0;

	if (slurp(of_process("stat"), read_now, sizeof read_now) < 0 || !(at = strrchr(read_now, ')')))
		return;
	say("stat");
	for (int number = 2; at && next < sizeof wanted / sizeof *wanted; number++) {
		if (number == wanted[next]) {
			say(" %.*s", (int)strcspn(at, " \n"), at);
			next++;
		}
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	say("\n");
}

static void say_option(int fd, int level, int option)
{
	unsigned char value[128];
	socklen_t size = sizeof value;

	if (getsockopt(fd, level, option, value, &size))
		return;
	say(" %d.%d=", level, option);
	for (socklen_t i = 0; i < size && i < sizeof value; i++)
		say("%02x", value[i]);
}

static void say_name(const char *label, int result, const struct sockaddr_storage *name, socklen_t size)
{
	say(" %s=", label);
	if (result)
		return;
	for (socklen_t i = 0; i < size; i++)
		say("%02x", ((const unsigned char *)name)[i]);
}

/* The descriptor is ours for a moment: nobody can miss the end of the connection for it, since all stand still. */
static void say_socket(int fd)
{
	static const int general[] = { 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 18, 20, 21, 25, 26, 29, 30, 34, 36, 38, 39, 44, 46, 72 };
	static const int tcp[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 23 };
	static const int ip[] = { 1, 2, 8, 15, 19 };
	static const int ip6[] = { 26, 49, 67, 75, 78 };
	struct sockaddr_storage name;
	socklen_t size = sizeof name;
	struct pollfd asked = { .fd = fd, .events = POLLIN | POLLPRI | POLLRDHUP };
	struct tcp_info info = { 0 };
	int waiting = -1, sent = -1, result;

	result = getsockname(fd, (struct sockaddr *)&name, &size);
	say_name("name", result, &name, size);
	say(" family=%d", result ? -1 : name.ss_family);
	size = sizeof name;
	result = getpeername(fd, (struct sockaddr *)&name, &size);
	say_name("peer", result, &name, size);
	ioctl(fd, SIOCINQ, &waiting);
	ioctl(fd, SIOCOUTQ, &sent);
	poll(&asked, 1, 0);
	say(" in=%d out=%d ready=%x", waiting, sent, (unsigned)asked.revents);
	size = sizeof info;
	if (!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		say(" state=%d backlog=%u", info.tcpi_state, info.tcpi_state == TCP_LISTEN ? info.tcpi_sacked : 0);
	for (size_t i = 0; i < sizeof general / sizeof *general; i++)
		say_option(fd, SOL_SOCKET, general[i]);
	for (size_t i = 0; i < sizeof tcp / sizeof *tcp; i++)
		say_option(fd, IPPROTO_TCP, tcp[i]);
	for (size_t i = 0; i < sizeof ip / sizeof *ip; i++)
		say_option(fd, IPPROTO_IP, ip[i]);
	for (size_t i = 0; i < sizeof ip6 / sizeof *ip6; i++)
		say_option(fd, IPPROTO_IPV6, ip6[i]);
}

/* Of descriptors for the same file: whether they are one open file, with one position. */
static int first_of_same(const int *fds, const struct stat *facts, int which)
{
	for (int i = 0; i < which; i++)
		if (facts[i].st_dev == facts[which].st_dev && facts[i].st_ino == facts[which].st_ino &&
		    !syscall(SYS_kcmp, process.pid, process.pid, 0 /* KCMP_FILE */, fds[i], fds[which]))
			return fds[i];
	return -1;
}

static void say_descriptor(int number, const struct stat *facts, int same)
{
	static char info[1 << 16];
	unsigned long long position = 0;
	unsigned flags = 0;
	char target[4096];
	ssize_t size;

	size = readlink(of_process("fd/%d", number), target, sizeof target - 1);
	target[size < 0 ? 0 : size] = 0;
	for (char *at = target; *at; at++)
		if (*at == '\n')
			*at = '?';
	if (slurp(of_process("fdinfo/%d", number), info, sizeof info) < 0)
		info[0] = 0;
	sscanf(info, "pos: %llu flags: %o", &position, &flags);
	say("fd %d mode %o device %llx inode %llu links %lu special %x:%x flags %o same %d goal %s\n", number, facts->st_mode,
	    (unsigned long long)facts->st_dev, (unsigned long long)facts->st_ino,
	    S_ISDIR(facts->st_mode) ? 0UL : (unsigned long)facts->st_nlink, major(facts->st_rdev), minor(facts->st_rdev), flags, same,
	    target);
	if (S_ISREG(facts->st_mode)) {
		char *locks = strstr(info, "lock:");

		say("=position %d %llu %lld\n", number, position, (long long)facts->st_size);
		for (char *at = locks; at && *at; at++)
			if (*at == '\n')
				*at = '|';
		if (locks)
			say("fd %d %s\n", number, locks);
		return;
	}
	say("fd %d info ", number);
	for (char *at = info; *at; at++)
		append(*at == '\n' ? "|" : at, 1);
	if (S_ISSOCK(facts->st_mode) || S_ISFIFO(facts->st_mode) || !(facts->st_mode & S_IFMT)) {
		int mine = (int)syscall(SYS_pidfd_getfd, process.handle, number, 0), waiting = -1;

		if (mine < 0) {
			say(" hidden=%d", errno);
		} else {
			struct f_owner_ex owner = { 0 };

			fcntl(mine, F_GETOWN_EX, &owner);
			say(" owner=%d signal=%d", owner.pid, fcntl(mine, F_GETSIG));
			if (S_ISSOCK(facts->st_mode))
				say_socket(mine);
			else if (S_ISFIFO(facts->st_mode) && !ioctl(mine, FIONREAD, &waiting))
				say(" in=%d size=%d", waiting, fcntl(mine, F_GETPIPE_SZ));
			else if (!ioctl(mine, FIONREAD, &waiting))
				say(" in=%d", waiting);
			close(mine);
		}
	}
	say("\n");
}

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static bool say_descriptors(void)
{
	static int fds[4096];
	static struct stat facts[4096];
	struct dirent *entry;
	DIR *all = opendir(of_process("fd"));
	int count = 0;

	if (!all)
		return refuse("its descriptors cannot be seen");
	while ((entry = readdir(all)) && count < 4096)
		if (entry->d_name[0] != '.')
			fds[count++] = atoi(entry->d_name);
	closedir(all);
	if (count == 4096)
		return refuse("it has too many descriptors");
	qsort(fds, (size_t)count, sizeof *fds, by_number);
	for (int i = 0; i < count; i++)
		if (stat(of_process("fd/%d", fds[i]), &facts[i]))
			return refuse("descriptor %d cannot be seen", fds[i]);
	for (int i = 0; i < count; i++)
		say_descriptor(fds[i], &facts[i], first_of_same(fds, facts, i));
	return true;
}

static bool read_mappings(void)
{
	static char maps[8 << 20];
	unsigned long long start, end, inode;
	char rights[8];
	int at;
	ssize_t size = slurp(of_process("maps"), maps, sizeof maps);

	if (size <= 0 || size >= (ssize_t)sizeof maps - 1)
		return refuse("its mappings cannot be read");
	mapping_count = 0;
	process.stack = process.stack_end = 0;
	for (char *line = maps; *line;) {
		char *next = strchr(line, '\n');

		if (!next || mapping_count == MAPPINGS_MOST)
			return refuse("it has too many mappings");
		*next = 0;
		if (sscanf(line, "%llx-%llx %7s %*x %*s %llu %n", &start, &end, rights, &inode, &at) < 4)
			return refuse("its mappings cannot be read");
		mappings[mapping_count++] =
			(struct mapping){ start, end, inode != 0, rights[2] == 'x', rights[3] != 'p' || !strncmp(line + at, "[v", 2) };
		if (!strncmp(line + at, "[stack]", 7)) {
			process.stack = start;
			process.stack_end = end;
		}
		append("=map ", 5);
		append(line, (size_t)(next - line));
		append("\n", 1);
		line = next + 1;
	}
	return true;
}

static bool look(void)
{
	text_size = 0;
	caught = 0;
	say_stat();
	for (int i = 0; i < thread_count; i++)
		say_status(&threads[i]);
	say_link("exe", of_process("exe"));
	say_link("cwd", of_process("cwd"));
	say_link("root", of_process("root"));
	say_file("timers", of_process("timers"));
	return say_descriptors() && read_mappings();
}

/* What seldom changes, or takes long to be seen; looked at when the process runs again. */
static void look_afterwards(void)
{
	static const char *const files[] = { "auxv",	   "limits",	   "personality", "oom_score_adj", "loginuid", "cgroup",
					     "uid_map",	   "timens_offsets" };
	static const char *const spaces[] = { "mnt", "pid", "net", "ipc", "uts", "user", "cgroup", "time" };
	char *keep = text, *line;
	size_t kept = text_size, start = 0;
	static char smaps[32 << 20];

	text = afterwards;
	text_size = 0;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		say_file(files[i], of_process("%s", files[i]));
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
		say_link(spaces[i], of_process("ns/%s", spaces[i]));
	if (slurp(of_process("smaps"), smaps, sizeof smaps) < 0)
		smaps[0] = 0;
	for (line = smaps; *line; line++) {
		char *next = strchr(line, '\n');
		size_t first, end;

		if (!next)
			break;
		*next = 0;
		if (sscanf(line, "%zx-%zx", &first, &end) == 2 && strchr("0123456789abcdef", *line))
			start = first;
		else if (!strncmp(line, "VmFlags:", 8))
			say("=flags %zx %s\n", start, line + 9);
		line = next;
	}
	afterwards_size = text_size;
	text = keep;
	text_size = kept;
}

/* -- stopping ----------------------------------------------------------------------------------------------------- */

/* Waits for a stop as ``stopped``, but not with naps that last longer than what is waited for. */
static bool stopped_soon(pid_t tid, int *status)
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
			until = now_ms() + GIVE_UP_MS;
		else if (now_ms() > until)
			return false;
		nap_us(20);
	}
}

static void let_go(void)
{
	/* First all that stand still: none of them is to wait for one that does not stop. The kernel puts a signal that is blocked back. */
	for (int i = 0; i < thread_count; i++)
		if (threads[i].seized && !ptrace(PTRACE_DETACH, threads[i].tid, 0, (void *)(long)threads[i].owed))
			threads[i].seized = false;
	for (int i = 0; i < thread_count; i++)
		if (threads[i].seized) {
			/* A thread that is not stopped now: it is let go when it stops. */
			if (ptrace(PTRACE_DETACH, threads[i].tid, 0, 0) && errno == ESRCH) {
				int status;

				if (!ptrace(PTRACE_INTERRUPT, threads[i].tid, 0, 0) && stopped_soon(threads[i].tid, &status))
					ptrace(PTRACE_DETACH, threads[i].tid, 0,
					       status >> 16 ? 0 : (void *)(long)WSTOPSIG(status));
			}
			threads[i].seized = false;
		}
}

static bool stop_thread(struct thread *t)
{
	int status;

	for (int i = 0; i < TRIES; i++) {
		if (!stopped_soon(t->tid, &status))
			return refuse("thread %d does not stop", (int)t->tid);
		if (status >> 16 == PTRACE_EVENT_STOP)
			return WSTOPSIG(status) == SIGTRAP ? true : refuse("it is stopped by a signal");
		if (ptrace(PTRACE_CONT, t->tid, 0, WSTOPSIG(status)) || ptrace(PTRACE_INTERRUPT, t->tid, 0, 0))
			return refuse("thread %d cannot be held", (int)t->tid);
	}
	return refuse("thread %d gets too many signals", (int)t->tid);
}

static bool stop_all(void)
{
	int before;

	if (!find_threads())
		return false;
	for (int i = 0; i < thread_count; i++) {
		if (ptrace(PTRACE_SEIZE, threads[i].tid, 0, PTRACE_O_TRACESYSGOOD | SUSPEND_SECCOMP) &&
		    ptrace(PTRACE_SEIZE, threads[i].tid, 0, PTRACE_O_TRACESYSGOOD))
			return refuse("thread %d is traced already", (int)threads[i].tid);
		threads[i].seized = true;
	}
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
	struct stat facts;
	before = thread_count;
	if (stat(of_process("task"), &facts) || (int)facts.st_nlink - 2 != before)
		return refuse("threads begin and end");
	return true;
}

/* -- the round trip ----------------------------------------------------------------------------------------------- */

static const unsigned char store_answer[] = { 0x48, 0x89, 0x02, 0xc3 };

static bool find_gadget(void)
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
			unsigned char *found;

			if (!peek(process.pid, start, buffer, size))
				break;
			found = memmem(buffer, size, store_answer, sizeof store_answer);
			if (found)
				keep_answer = start + (uint64_t)(found - buffer);
		}
	}
	fclose(f);
	return keep_answer != 0;
}

static const struct mapping *mapping_of(uint64_t address)
{
	int low = 0, high = mapping_count;

	while (low < high) {
		int middle = (low + high) / 2;

		if (mappings[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < mapping_count && mappings[low].start <= address ? &mappings[low] : NULL;
}

static bool find_stack(struct thread *t)
{
	const struct user_regs_struct *r = &t->context.registers;
	const struct mapping *at;

	if (t->tid == process.pid) {
		t->stack = (struct mapping){ process.stack, process.stack_end, false, false, false };
	} else {
		at = mapping_of(r->rsp);
		if (!at || at->is_file || r->fs_base < at->start || r->fs_base >= at->end || r->rsp >= r->fs_base)
			return refuse("thread %d is not on a stack that is known to be its own", (int)t->tid);
		t->stack = (struct mapping){ at->start, r->fs_base, false, false, false };
	}
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
		ASK(8, SYS_brk, 0, 0, at, 0, true);
		ASK(8, SYS_membarrier, 1 << 9 /* GET_REGISTRATIONS */, 0, at, 0, true);
		for (int which = 0; which < 3; which++)
			ASK(32, SYS_getitimer, which, (long)at, 0, 0, false);
		for (int signal = 1; signal <= 64; signal++)
			if (signal == SIGCHLD || caught >> (signal - 1) & 1)
				ASK(32, SYS_rt_sigaction, signal, 0, at, 8, false);
	}
	ASK(0, SYS_tgkill, threads[0].inside, t->inside, (uint64_t)wake, 0, false);
#undef ASK
	*room = at - results;
	return count;
}

static void lay_call(unsigned char *to, const struct call *call, uint64_t stack, bool ends)
{
	ucontext_t *u = (ucontext_t *)(void *)(to + 8);
	greg_t *g = u->uc_mcontext.gregs;
	uint64_t mask = ends ? ~(1ULL << (wake - 1)) : ~0ULL;
	struct user_regs_struct *r = &threads[0].context.registers;

	u->uc_flags = 6; /* ss as it was; without extended state, which the last frame brings */
	u->uc_stack.ss_flags = 0x7fffffff;
	g[REG_RAX] = call->number;
	g[REG_RDI] = call->first;
	g[REG_RSI] = call->second;
	g[REG_RDX] = (greg_t)call->third;
	g[REG_R10] = (greg_t)call->fourth;
	g[REG_RSP] = (greg_t)stack;
	g[REG_RIP] = (greg_t)process.call;
	g[REG_EFL] = 0x202;
	g[REG_CSGSFS] = (greg_t)((r->cs & 0xffff) | (r->ss & 0xffff) << 48);
	memcpy((unsigned char *)u + 296, &mask, sizeof mask);
}

static bool is_code(uint64_t address, const unsigned char *wanted, size_t size)
{
	const struct mapping *at = mapping_of(address);
	unsigned char found[8];

	return at && at->is_code && size <= sizeof found && peek(process.pid, address, found, size) && !memcmp(found, wanted, size);
}

/* Whether what a round trip runs is where it was found: after exec, or when a library was unloaded, it is not. */
static bool has_code(void)
{
	static const unsigned char call[] = { 0x0f, 0x05, 0xc3 }, wide[] = { 0x48, 0xc7, 0xc0, 15, 0, 0, 0 },
				   narrow[] = { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 };

	if (is_code(process.call, call, sizeof call) && is_code(keep_answer, store_answer, sizeof store_answer) &&
	    ((is_code(process.restore, wide, sizeof wide) && is_code(process.restore + 7, call, 2)) ||
	     is_code(process.restore, narrow, sizeof narrow)))
		return true;
	return refuse("its code is not where it was");
}

/* Lays all frames, and has the thread stand before the first; *room of what the calls answer is at t->results. */
static bool lay_round_trip(struct thread *t)
{
	static unsigned char image[CALLS_MOST * (FRAME + 16) + 4096];
	struct call calls[CALLS_MOST];
	struct process on = process;
	struct user_regs_struct r;
	uint64_t all = ~0ULL, room, first, at;
	struct iovec here, there;
	int count;

	if (!find_stack(t))
		return false;
	on.pid = process.pid;
	on.stack = t->stack.start;
	on.stack_end = t->stack.end;
	if (!lay_frame(&on, &t->context))
		return refuse("thread %d is not on its stack", (int)t->tid);
	count = find_calls(t, calls, 0, &room);
	t->results = (t->context.frame - 64 - room) & ~63ULL;
	count = find_calls(t, calls, t->results, &room);
	first = (t->results - (uint64_t)count * (FRAME + 16) - 64) & ~63ULL;
	if (first < t->stack.start + PAGE || first > t->context.frame)
		return refuse("the stack of thread %d is too small", (int)t->tid);
	memset(image, 0, sizeof image);
	at = first;
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
	here = (struct iovec){ image, at - first };
	there = (struct iovec){ (void *)first, at - first };
	if (process_vm_writev(process.pid, &here, 1, &there, 1, 0) != (ssize_t)(at - first))
		return refuse("the stack of thread %d cannot be written", (int)t->tid);
	memset(image, 0, room);
	here = (struct iovec){ image, room };
	there = (struct iovec){ (void *)t->results, room };
	if (process_vm_writev(process.pid, &here, 1, &there, 1, 0) != (ssize_t)room)
		return refuse("the stack of thread %d cannot be written", (int)t->tid);
	r = t->context.registers;
	r.rip = process.restore;
	r.rsp = first + 8;
	r.orig_rax = (unsigned long)-1;
	r.eflags &= ~0x100UL;
	/* In this order: from here on the frames give everything back. */
	if (ptrace(PTRACE_SETREGS, t->tid, 0, &r) || ptrace(PTRACE_SETSIGMASK, t->tid, sizeof all, &all))
		return refuse("the registers of thread %d cannot be written", (int)t->tid);
	return true;
}

static bool give_back_all(struct thread *t)
{
	struct user_regs_struct r = t->context.registers;
	struct iovec x = { t->context.xstate, t->context.xsize };

	/* A call that only the kernel knew how to go on with is interrupted, as it is by CRIU. */
	start_call_anew(&r, false);
	return !ptrace(PTRACE_SETREGSET, t->tid, NT_X86_XSTATE, &x) &&
	       !ptrace(PTRACE_SETSIGMASK, t->tid, sizeof t->context.mask, &t->context.mask) &&
	       !ptrace(PTRACE_SETREGS, t->tid, 0, &r);
}

static bool say_hidden(struct thread *t)
{
	struct call calls[CALLS_MOST];
	struct rseq_place place = { 0 };
	uint64_t room, at[2048 / 8 * 2];
	int count = find_calls(t, calls, t->results, &room), next = 0;

	if (room > sizeof at || !peek(process.pid, t->results, at, room))
		return refuse("what thread %d answers cannot be read", (int)t->tid);
	say("?altstack %d %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", (int)t->inside, at[0], at[1] & 0xffffffff, at[2]);
	say("?tid_address %d %" PRIx64 "\n?pdeath_sig %d %" PRIu64 "\n", (int)t->inside, at[3], (int)t->inside, at[4] & 0xffffffff);
	say("?securebits %d %" PRIx64 "\n", (int)t->inside, at[5]);
	if (ptrace(GET_RSEQ, t->tid, sizeof place, &place) >= 0)
		say("?rseq %d %" PRIx64 " %" PRIx32 " %" PRIx32 "\n", (int)t->inside, place.pointer, place.size, place.signature);
	if (t->tid != process.pid)
		return true;
	say("?subreaper %" PRIu64 "\n?dumpable %" PRIu64 "\n?brk %" PRIx64 "\n?membarrier %" PRIx64 "\n", at[6] & 0xffffffff, at[7],
	    at[8], at[9]);
	for (int i = 0; i < 12; i++)
		next |= at[10 + i] != 0;
	say("?timers %d\n", next);
	next = 22;
	for (int i = 0; i < count; i++)
		if (calls[i].number == SYS_rt_sigaction) {
			say("?action %ld %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 "\n", calls[i].first, at[next], at[next + 1],
			    at[next + 2], at[next + 3]);
			next += 4;
		}
	return true;
}

static bool make_round_trips(void)
{
	static const int harmless[] = { SIGCHLD, SIGURG, SIGWINCH }; /* the last is the least likely to be waited for */
	siginfo_t sent;
	bool well = true;
	int status;

	wake = 0;
	for (int i = 0; i < 3; i++)
		if (!(caught >> (harmless[i] - 1) & 1))
			wake = harmless[i];
	if (!wake)
		return refuse("it catches every signal that could be used");
	if (__builtin_popcountll(caught) > 64 - 20)
		return refuse("it catches too many signals");
	if (!has_code())
		return false;
	for (int i = 0; i < thread_count; i++)
		if (!lay_round_trip(&threads[i]))
			return false; /* those that are laid run through their frames when they are let go */
	for (int i = 0; i < thread_count; i++)
		if (ptrace(PTRACE_CONT, threads[i].tid, 0, 0))
			return refuse("thread %d has ended", (int)threads[i].tid);
	for (int i = 0; i < thread_count; i++) {
		if (!stopped_soon(threads[i].tid, &status))
			return refuse("thread %d does not come back", (int)threads[i].tid);
		if (status >> 16 || WSTOPSIG(status) != wake) {
			/* Somebody else's signal: it goes to it, and the frames bring it back. */
			ptrace(PTRACE_DETACH, threads[i].tid, 0, status >> 16 ? 0 : (void *)(long)WSTOPSIG(status));
			threads[i].seized = false;
			well = refuse("thread %d was sent signal %d", (int)threads[i].tid, WSTOPSIG(status));
			continue;
		}
		if (!say_hidden(&threads[i]))
			well = false;
		/* One of that number that waited for it, blocked, for signalfd(2) or sigwait(3), came before ours. */
		if (ptrace(PTRACE_GETSIGINFO, threads[i].tid, 0, &sent) || sent.si_code != SI_TKILL || sent.si_pid != threads[0].inside) {
			threads[i].owed = wake;
			well = refuse("thread %d was sent signal %d", (int)threads[i].tid, wake);
		}
		if (!give_back_all(&threads[i]))
			well = refuse("the registers of thread %d cannot be given back", (int)threads[i].tid);
	}
	return well;
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

/* Adds the regions of a range that a dump would hold. Whether a page is a file's own is asked only where there are files: the kernel
 * has to look at each page for it, which takes ten times as long. */
static bool scan_range(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned)
{
	const uint64_t without = IS_PFNZERO | (range->is_file ? IS_FILE : 0);
	struct scan_arg scan = {
		.size = sizeof scan,
		.flags = flags,
		.start = range->start,
		.end = range->end,
		.category_inverted = without,
		.category_mask = without | mask,
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
		.return_mask = returned,
	};
	long found;

	do {
		if (list->count == RUNS_MOST)
			return refuse("its memory is in too many pieces");
		scan.vec = (uint64_t)(list->at + list->count);
		scan.vec_len = RUNS_MOST - list->count;
		found = ioctl(process.pagemap, SCAN, &scan);
		if (found < 0)
			return refuse("its memory cannot be scanned: %s", strerror(errno));
		list->count += (size_t)found;
		/* With more regions than the kernel collects at a time it stops early; the end may also not be reached (6.18). */
		if (scan.walk_end <= scan.start && !found)
			break;
		scan.start = scan.walk_end;
	} while (scan.start < scan.end);
	return true;
}

/* All mappings but the kernel's own and shared ones, as they were read last; neighbours of one kind at a time. */
static bool scan_all(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
{
	list->count = list->size = 0;
	for (int i = 0; i < mapping_count;) {
		struct mapping range = mappings[i++];

		if (range.is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special && mappings[i].is_file == range.is_file)
			range.end = mappings[i++].end;
		if (!scan_range(list, &range, flags, mask, returned))
			return false;
	}
	return true;
}

/* Copies the regions one after the other; those that cannot be read are marked, and have no pages. */
static bool copy_runs(struct run_list *list, uint64_t most)
{
	struct iovec there[IOV], here;
	size_t total = 0;

	for (size_t i = 0; i < list->count; i++)
		total += list->at[i].end - list->at[i].start;
	if (total > most)
		return refuse("more has changed than is copied at a time");
	list->size = 0;
	for (size_t i = 0; i < list->count;) {
		size_t n = 0, size = 0;

		for (; n < IOV && i + n < list->count; n++) {
			there[n] = (struct iovec){ (void *)list->at[i + n].start, list->at[i + n].end - list->at[i + n].start };
			size += there[n].iov_len;
		}
		here = (struct iovec){ list->pages + list->size, size };
		if (process_vm_readv(process.pid, &here, 1, there, n, 0) == (ssize_t)size) {
			list->size += size;
		} else {
			for (size_t k = 0; k < n; k++) {
				struct region *one = &list->at[i + k];

				if (peek(process.pid, one->start, list->pages + list->size, one->end - one->start))
					list->size += one->end - one->start;
				else
					one->categories |= UNREAD;
			}
		}
		i += n;
	}
	return true;
}

static bool open_pagemap(void)
{
	if (process.pagemap >= 0)
		close(process.pagemap);
	process.pagemap = open(of_process("pagemap"), O_RDONLY | O_CLOEXEC); /* after exec it is another memory */
	return process.pagemap >= 0 ? true : refuse("the process is gone");
}

static bool copy_ahead(void)
{
	return open_pagemap() && scan_all(&ahead, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT) && copy_runs(&ahead, COPIED_MOST);
}

/* Has writes to the pages of regions noted anew; of memory without files also of what lies between two of one mapping. */
static bool protect(const struct run_list *list)
{
	protected.count = 0;
	for (size_t i = 0; i < list->count;) {
		const struct mapping *of = mapping_of(list->at[i].start);
		struct mapping range = { list->at[i].start, list->at[i].end, false, false, false };

		for (i++; i < list->count && of && !of->is_file && list->at[i].start < of->end; i++) {
			if (list->at[i].start - range.end > (uint64_t)NEAR * PAGE)
				break;
			range.end = list->at[i].end;
		}
		protected.count = 0;
		if (!scan_range(&protected, &range, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT))
			return false;
	}
	return true;
}

/* With all stopped: what there is of memory, and copies of what may differ from the last copy. */
static bool copy_late(void)
{
	bool is_tracked = false, is_new = false;

	if (!open_pagemap() || !scan_all(&present, 0, 0, IS_WPALLOWED | IS_WRITTEN | IS_SWAPPED))
		return false;
	late.count = 0;
	for (size_t i = 0; i < present.count; i++) {
		struct region *one = &present.at[i];
		const struct mapping *of = mapping_of(one->start);

		if (!of || of->is_special)
			continue;
		is_tracked |= one->categories & IS_WPALLOWED;
		/* In a file's mapping a page that was given back leaves a mark which cannot be told from one that is swapped out. */
		if ((one->categories & (IS_WPALLOWED | IS_WRITTEN)) == IS_WPALLOWED && !(one->categories & IS_SWAPPED && of->is_file))
			continue;
		is_new |= !(one->categories & IS_WPALLOWED);
		one->categories |= COPIED;
		late.at[late.count++] = *one;
	}
	if (!is_tracked)
		return refuse("its memory is another one");
	if (!copy_runs(&late, PAUSED_MOST))
		return false;
	/* Refused: shared memory. The caller knows it by name. */
	for (int i = 0; is_new && i < mapping_count; i++) {
		struct uffdio_register asked = { .range = { mappings[i].start, mappings[i].end - mappings[i].start },
						 .mode = UFFDIO_REGISTER_MODE_WP };

		if (!mappings[i].is_special)
			(void)ioctl(process.uffd, UFFDIO_REGISTER, &asked);
	}
	return protect(&late);
}

/* -- commits ------------------------------------------------------------------------------------------------------ */

static bool write_section(int fd, enum section kind, const void *from, size_t size)
{
	uint64_t head[2] = { kind, size };

	return write_all(fd, head, sizeof head) && write_all(fd, from, size);
}

struct stopped_thread {
	uint64_t tid, mask;
	struct user_regs_struct registers;
	unsigned char xstate[XSTATE_ROOM];
};

static bool write_threads(int fd)
{
	for (int i = 0; i < thread_count; i++) {
		struct stopped_thread one = { (uint64_t)threads[i].inside, threads[i].context.mask, threads[i].context.registers, { 0 } };

		memcpy(one.xstate, threads[i].context.xstate, threads[i].context.xsize);
		if (!write_section(fd, THREAD, &one, offsetof(struct stopped_thread, xstate) + threads[i].context.xsize))
			return false;
	}
	return true;
}

static bool write_offsets(int fd)
{
	uint64_t found[20 * 2] = { 0 };
	unsigned size, offset, c, d;

	for (unsigned i = 2; i < 20; i++)
		if (__get_cpuid_count(0xd, i, &size, &offset, &c, &d) && !(c & 1)) {
			found[2 * i] = offset;
			found[2 * i + 1] = size;
		}
	return write_section(fd, XSAVE_OFFSETS, found, sizeof found);
}

static bool write_file(const char *path, const int64_t *clocks, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool well = fd >= 0 && write_section(fd, TEXT, text, text_size) &&
		    write_section(fd, AFTERWARDS, afterwards, afterwards_size) && write_threads(fd) &&
		    write_section(fd, PRESENT, present.at, present.count * sizeof *present.at) &&
		    write_section(fd, AHEAD_RUNS, ahead.at, ahead.count * sizeof *ahead.at) &&
		    write_section(fd, AHEAD_PAGES, ahead.pages, ahead.size) &&
		    write_section(fd, RUNS, late.at, late.count * sizeof *late.at) &&
		    write_section(fd, PAGES, late.pages, late.size) && write_section(fd, CLOCKS, clocks, size) && write_offsets(fd);

	if (fd >= 0 && close(fd))
		well = false;
	return well;
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

/* A look while somebody else holds all threads. */
static void look_only(const char *path)
{
	bool well = find_threads() && look();
	int fd = -1;

	if (well) {
		look_afterwards();
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		well = (fd >= 0 && write_section(fd, TEXT, text, text_size) &&
			write_section(fd, AFTERWARDS, afterwards, afterwards_size)) ||
		       refuse("what was seen cannot be written: %s", strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	if (well)
		tell("ok");
	else
		printf("failed %s\n", refusal), fflush(stdout);
}

/* Gives back what copies took, but for as much as most commits need. */
static void forget_copies(void)
{
	const size_t kept = 4 << 20;
	struct run_list *all[] = { &ahead, &late };

	for (int i = 0; i < 2; i++)
		if (all[i]->size > kept)
			madvise(all[i]->pages + kept, ((all[i]->size - kept) + PAGE - 1) & ~(size_t)(PAGE - 1), MADV_DONTNEED);
}

static bool commit(const char *path)
{
	int64_t clocks[4], began;
	char said[16];
	bool well, goes;

	well = copy_ahead();
	began = clock_ns(CLOCK_MONOTONIC);
	well = well && stop_all() && look() && make_round_trips() && copy_late();
	if (!well) {
		let_go();
		printf("refused %s\n", refusal);
		fflush(stdout);
		return true;
	}
	clocks[0] = clock_ns(CLOCK_REALTIME);
	clocks[1] = clock_ns(CLOCK_MONOTONIC);
	clocks[2] = clock_ns(CLOCK_BOOTTIME);
	tell("stopped");
	goes = hear(said, sizeof said, GO_WITHIN_MS);
	let_go();
	clocks[3] = clock_ns(CLOCK_MONOTONIC) - began;
	if (!goes)
		return false; /* whoever asked is gone, or too slow: nothing that comes now would be what was asked for */
	if (!strcmp(said, "drop")) {
		tell("dropped");
	} else {
		look_afterwards();
		if (write_file(path, clocks, sizeof clocks))
			printf("done %" PRId64 "\n", clocks[3]);
		else
			printf("failed %s\n", strerror(errno));
		fflush(stdout);
	}
	forget_copies();
	return true;
}

static bool begin_base(void)
{
	text_size = 0;
	return read_mappings() && open_pagemap() && scan_all(&protected, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT);
}

static const char *begin_tracking(long filters)
{
	const char *reason;

	process.uffd = process.pagemap = process.pages = process.runs = -1;
	process.handle = (int)syscall(SYS_pidfd_open, process.pid, 0);
	if (process.handle < 0)
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

static void *room_for(size_t size)
{
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (found == MAP_FAILED)
		exit(1);
	return found;
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
	buffer = room_for((size_t)WINDOW * PAGE);
	text = room_for(TEXT_MOST);
	afterwards = room_for(TEXT_MOST);
	ahead.pages = room_for(COPIED_MOST);
	late.pages = room_for(PAUSED_MOST);
	ahead.at = room_for(RUNS_MOST * sizeof *ahead.at);
	late.at = room_for(RUNS_MOST * sizeof *late.at);
	present.at = room_for(RUNS_MOST * sizeof *present.at);
	protected.at = room_for(RUNS_MOST * sizeof *protected.at);
	reason = begin_tracking(atol(argv[1]));
	if (reason) {
		printf("skipped %s\n", reason);
		return 0;
	}
	tell("tracked");
	while (goes && hear(line, sizeof line, -1)) {
		if (!strcmp(line, "base"))
			begin_base() ? tell("ok") : (void)(printf("failed %s\n", refusal), fflush(stdout));
		else if (!strncmp(line, "look ", 5))
			look_only(line + 5);
		else if (!strncmp(line, "commit ", 7))
			goes = commit(line + 7);
		else
			goes = false;
	}
	return 0;
}
