/* See starter.h.
 *
 * Who is moved to a control group waits for a grace period of the kernel, 5 to 20 ms, and so does whatever has to come after
 * (cgroup_attach_lock()). Nobody waits where a thread moves itself alone, which version 1 allows ("0" to the file `tasks`), or where a
 * process is born in a group of version 2 (CLONE_INTO_CGROUP, Linux 5.7). What cannot be had so, whoever gives the orders has to see and
 * to do the slow way: it is no failure here.
 */
#define _GNU_SOURCE
#include "starter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT_MOST = 16384, RIGHTS_MOST = 250, WORDS_MOST = 64, NONE = -1 };

struct order {
	char text[TEXT_MOST + 1];
	size_t length;
	int rights[RIGHTS_MOST];
	int count;
};

static int group = NONE;	/* of version 2 */
static int first = NONE;	/* a handle of process 1 (pidfd_open(2)) */

/* Go into a group of version 1, or remember one of version 2. */
static void join(const char *directory)
{
	int place = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), tasks;

	if (place < 0)
		return;
	tasks = openat(place, "tasks", O_WRONLY | O_CLOEXEC);
	if (tasks < 0 && errno == ENOENT && group == NONE) {
		group = place;
		return;
	}
	if (tasks >= 0) {
		/* Refused: see above. */
		if (write(tasks, "0", 1) < 0)
			errno = 0;
		close(tasks);
	}
	close(place);
}

/* As fork(2), of a sibling: whoever started this process is its parent, too. */
static pid_t fork_beside(int *handle)
{
	struct clone_args wanted = { .flags = CLONE_PARENT | (handle ? CLONE_PIDFD : 0), .pidfd = (uint64_t)(uintptr_t)handle };
	pid_t made = -1;

	if (group != NONE) {
		wanted.flags |= CLONE_INTO_CGROUP;
		wanted.cgroup = (uint64_t)group;
		made = (pid_t)syscall(SYS_clone3, &wanted, sizeof wanted);
		wanted.flags &= ~(uint64_t)CLONE_INTO_CGROUP;
		wanted.cgroup = 0;
	}
	/* Without a group, or where it cannot be had: one that takes no processes. */
	if (made < 0)
		made = (pid_t)syscall(SYS_clone3, &wanted, sizeof wanted);
	/* Filters of containers refuse clone3(2) so, as they cannot look at its arguments. */
	return made < 0 && errno == ENOSYS ? (pid_t)syscall(SYS_clone, wanted.flags | SIGCHLD, NULL, handle, NULL, 0) : made;
}

static bool receive(int orders, struct order *order)
{
	char rights[CMSG_SPACE(sizeof order->rights)];
	struct iovec text = { order->text, TEXT_MOST };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights };
	ssize_t length;

	do
		length = recvmsg(orders, &message, MSG_CMSG_CLOEXEC);
	while (length < 0 && errno == EINTR);
	order->count = 0;
	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); length > 0 && part; part = CMSG_NXTHDR(&message, part))
		if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
			order->count = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(order->rights, CMSG_DATA(part), (size_t)order->count * sizeof(int));
		}
	if (length <= 0 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
		return false;
	order->length = (size_t)length;
	order->text[length] = '\0';
	return true;
}

static void close_rights(struct order *order)
{
	while (order->count > 0)
		close(order->rights[--order->count]);
}

/* The words of a text, each with a null byte behind it, up to an empty one or the end; returns what follows; NULL: they are too many. */
static char *words(char *at, const char *end, char **found)
{
	int count = 0;

	for (; at < end && *at; at += strlen(at) + 1) {
		if (count == WORDS_MOST)
			return NULL;
		found[count++] = at;
	}
	found[count] = NULL;
	return at + 1;
}

/* Gives each descriptor its number, which lies below `above`; all others are closed but those below 3 and `kept`, which is not below it. */
static int take_numbers(const struct order *order, const int *numbers, int above, int kept)
{
	int held[RIGHTS_MOST];

	for (int i = 0; i < order->count; i++) {
		held[i] = fcntl(order->rights[i], F_DUPFD, kept + 1);
		if (held[i] < 0)
			return errno;
	}
	if (syscall(SYS_close_range, 3, above - 1, 0) < 0 || (kept > above && syscall(SYS_close_range, above, kept - 1, 0) < 0))
		return errno;
	for (int i = 0; i < order->count; i++)
		if (dup2(held[i], numbers[i]) < 0)
			return errno;
	return syscall(SYS_close_range, kept + 1, ~0u, 0) < 0 ? errno : 0;
}

/* Never returns; what stood in its way is written to `failed`, which exec closes. */
static void execute(const struct order *order, const int *numbers, char **command, char **environment, int failed)
{
	int above = 4, kept, failure = 0;
	struct rlimit own, most;

	for (int i = 0; i < order->count; i++)
		above = numbers[i] >= above ? numbers[i] + 1 : above;
	/* The caller's numbers may be the last that are allowed, and they are held above them for a moment. */
	if (getrlimit(RLIMIT_NOFILE, &own) < 0)
		failure = errno;
	most = (struct rlimit){ own.rlim_max, own.rlim_max };
	setrlimit(RLIMIT_NOFILE, &most);
	kept = fcntl(failed, F_DUPFD_CLOEXEC, above);
	/* Python ignores them. */
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	if (!failure && (kept < 0 || setns(first, CLONE_NEWCGROUP) < 0 || setsid() < 0))
		failure = errno;
	if (!failure)
		failure = take_numbers(order, numbers, above, kept);
	if (!failure && setrlimit(RLIMIT_NOFILE, &own) < 0)
		failure = errno;
	if (!failure) {
		execve(command[0], command, environment);
		failure = errno;
	}
	if (kept < 0)
		kept = failed;
	_exit(write(kept, &failure, sizeof failure) == sizeof failure ? 127 : 126);
}

static int begin(struct order *order, int *orders, int own)
{
	char *groups[WORDS_MOST + 1];
	pid_t pid;

	if (first != NONE || order->count != 1)
		return -EINVAL;
	if (!words(order->text + 1, order->text + order->length, groups))
		return -E2BIG;
	for (char **one = groups; *one; one++)
		join(*one);
	if (unshare(CLONE_NEWPID) < 0)
		return -errno;
	pid = fork_beside(&first);
	if (pid < 0)
		return -errno;
	if (pid > 0)
		return pid;
	/* A descriptor of process 1 is a door for whoever may trace it. */
	if (group != NONE)
		close(group);
	close(own);
	*orders = order->rights[0];
	if (setsid() < 0)
		_exit(1);
	return 0;
}

/* Returns the pid of what was started, with what stood in the way of its program in `*failure`; or -errno. */
static int start(struct order *order, int *failure)
{
	char *command[WORDS_MOST + 1], *environment[WORDS_MOST + 1], *at = order->text + 1, *end = order->text + order->length, *rest;
	int numbers[RIGHTS_MOST], told[2], count = 0;
	pid_t pid;

	for (char *after; count < RIGHTS_MOST; at = after, count++) {
		numbers[count] = (int)strtol(at, &after, 10);
		if (after == at)
			break;
	}
	if (first == NONE || count != order->count || *at)
		return -EINVAL;
	rest = words(at + 1, end, command);
	if (!rest || !words(rest, end, environment))
		return -E2BIG;
	if (!command[0])
		return -EINVAL;
	if (pipe2(told, O_CLOEXEC) < 0)
		return -errno;
	pid = fork_beside(NULL);
	if (pid == 0)
		execute(order, numbers, command, environment, told[1]);
	if (pid < 0)
		pid = -errno;
	close(told[1]);
	/* Nothing comes when it has become the program, or has been killed. */
	if (pid > 0 && read(told[0], failure, sizeof *failure) != sizeof *failure)
		*failure = 0;
	close(told[0]);
	return pid;
}

int serve_starts(int *orders)
{
	static struct order order;
	int own = *orders, done, failure;
	char answer[32];

	fcntl(own, F_SETFD, FD_CLOEXEC);
	if (chdir("/") < 0)
		return 1;
	while (receive(own, &order)) {
		failure = 0;
		done = order.text[0] == 'b' ? begin(&order, orders, own) : order.text[0] == 'e' ? start(&order, &failure) : -EINVAL;
		if (done == 0)
			return -1;
		close_rights(&order);
		if (send(own, answer, (size_t)snprintf(answer, sizeof answer, "%d %d", done, failure), MSG_NOSIGNAL) < 0)
			return 1;
	}
	return 0;
}
