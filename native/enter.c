/* relive-enter: runs a command in a branch, whose processes may be hostile.
 *
 *   relive-enter [--group DIRECTORY]... [--environment] PID STARTED CAPABILITIES FILTER COMMAND [ARGUMENT]...
 *
 * PID, STARTED   a process of the branch, whose namespaces are entered, and when it began (field 22 of proc_pid_stat(5))
 * CAPABILITIES   those that the command may have at most, a bit for each number, in hexadecimal
 * FILTER         struct sock_filter[] that holds for the command, in hexadecimal
 * --group        a control group of the branch; joined, so that its limits hold for the command
 * --environment  the command has the environment of PID, not that of the caller
 *
 * No program of the branch runs before COMMAND, and nothing that the branch's processes can see may do more than they may
 * themselves. So all is given up first: this process enters every namespace, puts the filter on and drops its capabilities while
 * it is still in the caller's PID namespace, where they cannot name it (ptrace(2) needs a number). Only its child is in theirs.
 *
 * The exit status is that of COMMAND; 127 where there is no such program, 126 where it cannot be executed, 128 and the signal's
 * number where a signal ended it, 125 where the branch could not be entered.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_ENTERED = 125, NOT_EXECUTED = 126, NOT_FOUND = 127, GROUPS_MOST = 16, STEPS_MOST = 4096 };

static const char usage[] = "usage: relive-enter [--group DIRECTORY]... [--environment] PID STARTED CAPABILITIES FILTER COMMAND...\n";
static const char search[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

extern char **environ;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "relive-enter: %s: %s\n", what, strerror(errno));
	exit(NOT_ENTERED);
}

/* When a process began, in clock ticks after boot; 0 where it is gone. */
static unsigned long long started(const char *pid)
{
	char path[64], text[4096], *rest;
	unsigned long long ticks = 0;
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "/proc/%s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof text - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	rest = strrchr(text, ')'); /* a name may hold anything */
	if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &ticks) != 1)
		return 0;
	return ticks;
}

/* Of the process that `pidfd` names for good: a number that was given away anew is found out, since the old one's fails from then on. */
static int open_process(const char *pid, const char *began)
{
	int pidfd = (int)syscall(SYS_pidfd_open, atoi(pid), 0);

	if (pidfd < 0)
		fail("the branch");
	if (started(pid) != strtoull(began, NULL, 10)) {
		errno = ESRCH;
		fail("the branch");
	}
	return pidfd;
}

/* The variables of a process, behind a search path of ours that one of its own replaces. */
static char **environment_of(const char *pid)
{
	size_t size = 0, room = 1 << 16, count = 1;
	char path[64], *text = malloc(room), **made;
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "/proc/%s/environ", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !text)
		fail("the environment");
	while ((length = read(fd, text + size, room - size - 1)) > 0) {
		size += (size_t)length;
		if (size + 1 == room && !(text = realloc(text, room *= 2)))
			fail("the environment");
	}
	close(fd);
	text[size] = 0;
	made = calloc(size / 2 + 3, sizeof *made);
	if (!made)
		fail("the environment");
	made[0] = (char *)search;
	for (char *one = text; one < text + size; one += strlen(one) + 1) {
		if (strncmp(one, "PATH=", 5) == 0)
			made[0] = one;
		else if (strchr(one, '='))
			made[count++] = one;
	}
	return made;
}

static void join(const char *group)
{
	char path[4096];
	int fd;

	snprintf(path, sizeof path, "%s/cgroup.procs", group);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) < 0)
		fail(group);
	close(fd);
}

/* A caller that the kernel would spare when memory runs out does not hand that on: a branch is the first to go. */
static void be_no_favourite(void)
{
	char text[16] = "";
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

	if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && text[0] == '-' && pwrite(fd, "0", 1, 0) < 0)
		perror("relive-enter: oom_score_adj");
	if (fd >= 0)
		close(fd);
}

static void put_filter_on(const char *digits)
{
	static struct sock_filter steps[STEPS_MOST];
	size_t size = strlen(digits) / 2;
	struct sock_fprog program = { (unsigned short)(size / sizeof *steps), steps };

	errno = EINVAL;
	if (size == 0 || size % sizeof *steps || size > sizeof steps)
		fail("the filter");
	for (size_t i = 0; i < size; i++)
		if (sscanf(digits + 2 * i, "%2hhx", (unsigned char *)steps + i) != 1)
			fail("the filter");
	/* Without no_new_privs, so with CAP_SYS_ADMIN: a program with the setuid bit does in a branch what it does elsewhere, and gets
	 * nothing beyond the bounding set. */
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
		fail("the filter");
}

static void give_up_capabilities(uint64_t kept)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	for (int number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++)
		if (!(kept >> number & 1) && prctl(PR_CAPBSET_DROP, number, 0, 0, 0) < 0)
			fail("the bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capget, &header, sets) < 0)
		fail("capabilities");
	for (int word = 0; word < _LINUX_CAPABILITY_U32S_3; word++) {
		sets[word].permitted &= (uint32_t)(kept >> (32 * word));
		sets[word].effective = sets[word].permitted;
		sets[word].inheritable = 0;
	}
	if (syscall(SYS_capset, &header, sets) < 0)
		fail("capabilities");
}

static _Noreturn void execute(char **command)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever ends relive-enter ends the command */
	execvp(command[0], command);
	fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
	_exit(errno == ENOENT ? NOT_FOUND : NOT_EXECUTED);
}

int main(int argc, char **argv)
{
	const char *groups[GROUPS_MOST];
	int group_count = 0, pidfd, status;
	bool with_environment = false;
	pid_t child;

	(void)argc;
	argv++;
	for (; *argv && strncmp(*argv, "--", 2) == 0; argv++) {
		if (strcmp(*argv, "--environment") == 0)
			with_environment = true;
		else if (strcmp(*argv, "--group") == 0 && argv[1] && group_count < GROUPS_MOST)
			groups[group_count++] = *++argv;
		else
			break;
	}
	if (!argv[0] || !argv[1] || !argv[2] || !argv[3] || !argv[4]) {
		fputs(usage, stderr);
		return NOT_ENTERED;
	}
	prctl(PR_SET_DUMPABLE, 0);
	if (close_range(3, ~0U, 0) < 0)
		fail("descriptors");
	pidfd = open_process(argv[0], argv[1]);
	if (with_environment)
		environ = environment_of(argv[0]);
	be_no_favourite();
	for (int i = 0; i < group_count; i++)
		join(groups[i]);
	if (setns(pidfd, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
		fail("the branch");
	/* A directory of the caller's would be a way around all mounts of the branch. */
	if (close_range(3, ~0U, 0) < 0 || chdir("/") < 0 || setgroups(0, NULL) < 0)
		fail("the branch");
	put_filter_on(argv[3]);
	give_up_capabilities(strtoull(argv[2], NULL, 16));
	child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0)
		execute(argv + 4);
	signal(SIGINT, SIG_IGN); /* the command's affair, which gets it too */
	signal(SIGQUIT, SIG_IGN);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			fail("wait");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
