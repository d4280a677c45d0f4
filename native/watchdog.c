/* relive-watchdog: makes sure that a commit never leaves the observed service stopped.
 *
 *   relive-watchdog        (commands on standard input, one a line; answers on standard output)
 *
 *     arm LIMIT_MS TOOL ROOT   a commit begins: TOOL is the host pid of the process that runs CRIU (0: none yet) and
 *                              leads a session of its own, ROOT that of the tree that is committed; answers "armed"
 *     disarm                   the commit is over; answers "disarmed"
 *     mend                     a commit failed: end what is left of TOOL, heal ROOT's connections (steps 2 to 4 below);
 *                              answers "mended N", N the number of connections that needed it
 *
 * Anything else is answered with "unknown". Arming again replaces what was armed before.
 *
 * While armed, it acts when LIMIT_MS have passed or when standard input closes (the driver died):
 *
 *  1. When the driver died, TOOL gets GRACE_MS to end by itself: CRIU notices a closed socket and resumes the tree.
 *  2. What is left of TOOL's tree and session is told to give up: CRIU takes SIGALRM for its own timeout, undoes what it
 *     has injected into the target and lets go of it. It has YIELD_MS for that.
 *  3. What is left then is killed, and waited for: its end releases what it traces. A target that CRIU was executing
 *     code in at that moment may not survive this, hence the two steps before.
 *  4. TCP connections of ROOT's tree that a killed CRIU left in repair mode are taken out of it. In that mode the service
 *     can neither read nor write, and closing says nothing to the peer. ROOT's tree is stopped from before step 3 until
 *     here, so that it does not touch them earlier.
 *  5. SIGCONT goes to every process of ROOT's tree that is stopped, whoever stopped it.
 *
 * It then answers "resumed CAUSE" (CAUSE: timeout or orphaned) and, when orphaned, ends.
 *
 * It is a separate program, and small, so that nothing that slows or kills the driver touches it. It allocates before it
 * is armed, not when memory may be what is missing.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define GRACE_MS 1500
#define YIELD_MS 700
#define KILLED_MS 1000
#define FIRST_ROOM 4096

struct process {
	pid_t pid, parent, session;
	unsigned long long started; /* [clock ticks since boot] tells a reused pid from the one that was meant */
	char state;
	char comm[16];
	char marked;
};

/* The processes of one look at /proc, by pid. */
static struct process *all;
static int count, room;

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap_ms(long ms)
{
	struct timespec t = { ms / 1000, (ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static int read_process(pid_t pid, struct process *p)
{
	char path[64], line[1024], *comm, *tail;
	FILE *f;
	int ok;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	ok = fgets(line, sizeof line, f) != NULL;
	fclose(f);
	comm = ok ? strchr(line, '(') : NULL;
	tail = ok ? strrchr(line, ')') : NULL;
	if (!comm || !tail)
		return 0;
	*tail = 0;
	memset(p, 0, sizeof *p);
	p->pid = pid;
	snprintf(p->comm, sizeof p->comm, "%s", comm + 1);
	return sscanf(tail + 1, " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &p->state,
		      &p->parent, &p->session, &p->started) == 4;
}

static int is_alive(const struct process *p)
{
	struct process now;

	return read_process(p->pid, &now) && now.started == p->started && now.state != 'Z' && now.state != 'X';
}

/* Where there is no memory for more, as many as there is room for: better some than none. */
static int has_room(void)
{
	struct process *more;

	if (count < room)
		return 1;
	more = realloc(all, sizeof *all * (size_t)(room ? room * 2 : FIRST_ROOM));
	if (!more)
		return 0;
	all = more;
	room = room ? room * 2 : FIRST_ROOM;
	return 1;
}

static int by_pid(const void *a, const void *b)
{
	const struct process *p = a, *q = b;

	return (p->pid > q->pid) - (p->pid < q->pid);
}

static struct process *find(pid_t pid)
{
	struct process wanted = { .pid = pid };

	return bsearch(&wanted, all, (size_t)count, sizeof *all, by_pid);
}

static void read_all(void)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");

	count = 0;
	if (!proc)
		return;
	while ((entry = readdir(proc)) && has_room())
		if (isdigit((unsigned char)entry->d_name[0]) && read_process(atoi(entry->d_name), &all[count]))
			count++;
	closedir(proc);
	qsort(all, (size_t)count, sizeof *all, by_pid);
}

/* Adds the descendants of what is marked. Parents mostly have smaller pids, so one or two passes do. */
static void mark_descendants(void)
{
	int grew = 1;

	while (grew) {
		grew = 0;
		for (int i = 0; i < count; i++) {
			struct process *parent = all[i].marked ? NULL : find(all[i].parent);

			if (parent && parent->marked)
				all[i].marked = grew = 1;
		}
	}
}

static void mark_tree(const struct process *root)
{
	struct process *found;

	read_all();
	found = root->pid > 0 ? find(root->pid) : NULL;
	if (found && found->started == root->started)
		found->marked = 1;
	mark_descendants();
}

/* The tool may itself be dead while what it started is not: then its session tells what it started. A session's number
 * is not given to another process while it has members. */
static void mark_tool(const struct process *tool)
{
	mark_tree(tool);
	struct process *found = tool->pid > 0 ? find(tool->pid) : NULL;

	if (tool->pid <= 0 || (found && found->started != tool->started))
		return;
	for (int i = 0; i < count; i++)
		if (all[i].session == tool->pid)
			all[i].marked = 1;
	mark_descendants();
}

static void signal_tool(int number, const char *only)
{
	for (int i = 0; i < count; i++)
		if (all[i].marked && all[i].pid != getpid() && (!only || !strcmp(all[i].comm, only)) && is_alive(&all[i]))
			kill(all[i].pid, number);
}

static int tool_ends_within(long ms)
{
	for (long until = now_ms() + ms;; nap_ms(5)) {
		int left = 0;

		for (int i = 0; i < count && !left; i++)
			left = all[i].marked && is_alive(&all[i]);
		if (!left)
			return 1;
		if (now_ms() >= until)
			return 0;
	}
}

static void signal_tree(const struct process *root, int number)
{
	mark_tree(root);
	for (int i = 0; i < count; i++)
		if (all[i].marked)
			kill(all[i].pid, number);
}

/* Returns 1 when it had to be killed. */
static int end_tool(const struct process *tool, const struct process *root)
{
	mark_tool(tool);
	signal_tool(SIGCONT, "criu");
	signal_tool(SIGALRM, "criu");
	if (tool_ends_within(YIELD_MS))
		return 0;
	signal_tree(root, SIGSTOP);
	mark_tool(tool); /* it may have started more */
	signal_tool(SIGKILL, NULL);
	tool_ends_within(KILLED_MS);
	return 1;
}

static int leaves_repair(int pidfd, int number)
{
	int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0), is_on = 0, off = 0, healed = 0;
	socklen_t size = sizeof is_on;

	if (fd < 0)
		return 0;
	if (!getsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &is_on, &size) && is_on)
		healed = !setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &off, sizeof off);
	close(fd);
	return healed;
}

static int heal_process(pid_t pid)
{
	char path[64], target[16];
	struct dirent *entry;
	int healed = 0, pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	DIR *descriptors;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	descriptors = pidfd < 0 ? NULL : opendir(path);
	while (descriptors && (entry = readdir(descriptors))) {
		snprintf(path, sizeof path, "/proc/%d/fd/%.20s", (int)pid, entry->d_name);
		ssize_t length = readlink(path, target, sizeof target);

		if (length >= 8 && !memcmp(target, "socket:[", 8))
			healed += leaves_repair(pidfd, atoi(entry->d_name));
	}
	if (descriptors)
		closedir(descriptors);
	if (pidfd >= 0)
		close(pidfd);
	return healed;
}

static int heal_tree(const struct process *root)
{
	int healed = 0;

	mark_tree(root);
	for (int i = 0; i < count; i++)
		if (all[i].marked)
			healed += heal_process(all[i].pid);
	return healed;
}

static void resume_tree(const struct process *root)
{
	mark_tree(root);
	for (int i = 0; i < count; i++)
		if (all[i].marked && (all[i].state == 'T' || all[i].state == 't'))
			kill(all[i].pid, SIGCONT);
}

static void rescue(const struct process *tool, const struct process *root, const char *cause)
{
	end_tool(tool, root);
	heal_tree(root);
	/* Twice: a task that CRIU had interrupted may come to its pending stop only after its tracer is gone. */
	resume_tree(root);
	nap_ms(50);
	resume_tree(root);
	printf("resumed %s\n", cause);
	fflush(stdout);
}

static void note(pid_t pid, struct process *p)
{
	memset(p, 0, sizeof *p);
	if (pid > 0 && !read_process(pid, p))
		p->pid = pid; /* it has ended already; its session may live */
}

int main(void)
{
	char buffer[256];
	size_t held = 0;
	long deadline = 0;
	int armed = 0;
	struct process tool = { 0 }, root = { 0 };

	signal(SIGPIPE, SIG_IGN);
	has_room();
	for (;;) {
		struct pollfd input = { .fd = 0, .events = POLLIN };
		long left = armed ? deadline - now_ms() : -1;
		int ready = armed && left <= 0 ? 0 : poll(&input, 1, left > INT_MAX ? INT_MAX : (int)left);

		if (ready == 0) {
			if (now_ms() < deadline)
				continue;
			rescue(&tool, &root, "timeout");
			armed = 0;
			continue;
		}
		if (ready < 0)
			continue;
		ssize_t got = read(0, buffer + held, sizeof buffer - 1 - held);
		if (got <= 0) {
			if (armed) {
				mark_tool(&tool);
				tool_ends_within(GRACE_MS);
				rescue(&tool, &root, "orphaned");
			}
			return 0;
		}
		held += (size_t)got;
		buffer[held] = 0;
		for (char *end; (end = memchr(buffer, '\n', held));) {
			long limit;
			int tool_pid, root_pid;

			*end = 0;
			if (sscanf(buffer, "arm %ld %d %d", &limit, &tool_pid, &root_pid) == 3 && limit > 0 && tool_pid >= 0 &&
			    root_pid > 1) {
				note(tool_pid, &tool);
				note(root_pid, &root);
				armed = 1;
				deadline = now_ms() + limit;
				printf("armed\n");
			} else if (!strcmp(buffer, "mend")) {
				int killed = end_tool(&tool, &root), healed = heal_tree(&root);

				if (killed)
					signal_tree(&root, SIGCONT);
				printf("mended %d\n", healed);
			} else if (!strcmp(buffer, "disarm")) {
				armed = 0;
				printf("disarmed\n");
			} else {
				printf("unknown\n");
			}
			fflush(stdout);
			held -= (size_t)(end + 1 - buffer);
			memmove(buffer, end + 1, held);
		}
		if (held == sizeof buffer - 1)
			held = 0; /* no command is so long */
	}
}
