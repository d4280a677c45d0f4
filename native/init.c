/* relive-init: process 1 of a capsule or of a branch, once Python has set the namespaces up.
 *
 *   relive-init STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...
 *   relive-init --await ORDERS_FD
 *
 * It does four things and holds nothing else in memory, since it lives as long as the service:
 *   - reaps whatever is reparented to it;
 *   - when MAIN_PID ends, writes its raw wait status (wait(2)) as decimal text and a newline to STATUS_FD;
 *   - for each pair of descriptors, copies what comes at the first (the master side of a terminal, a datagram socket) to
 *     the second, a file, in a child that ends with it or when nobody has the terminal open any more;
 *   - ends when MAIN_PID was killed or returned other than 0 (the kernel then kills what is left in the PID
 *     namespace, as a container's runtime would), or when the last process of a service that made itself a daemon
 *     is gone.
 * It ends with the status of MAIN_PID, 128 + signal where a signal ended it. MAIN_PID 0: there is no main process,
 * stay until killed.
 *
 * With --await it is process 1 of namespaces that are still being furnished from outside, by orders that come over a
 * socket (unix(7), SOCK_SEQPACKET), one a message, a letter and its text; each is answered with 0 or an errno in decimal:
 *   n NUMBER   the next process here gets the number after NUMBER
 *   p PATH     mount /proc of this PID namespace at PATH
 *   c          give up all capabilities; neither n nor p can be done afterwards
 *   d          keep the descriptors that come with the message (SCM_RIGHTS), in this order
 *   x MAIN_PID KEPT PROGRAM   become PROGRAM with the arguments above: the first descriptor is STATUS_FD, the next
 *              KEPT are only held open, the rest are pairs of HEARD_FD and LOG_FD
 * Should the other side die before the last order, it ends, and with it all that lives here.
 */
#define _GNU_SOURCE /* asprintf */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	ORDER_MOST = 8192,	/* [bytes] PATH_MAX and some */
	RIGHTS_MOST = 253,	/* SCM_MAX_FD */
};

static void report(int fd, int status)
{
	char line[16];
	int length = snprintf(line, sizeof line, "%d\n", status);

	/* A full disk must not keep the namespace alive: what cannot be written is lost, the exit status is not. */
	if (write(fd, line, (size_t)length) < 0 || fsync(fd) < 0)
		return;
}

/* A service that runs as root could attach to this process as a debugger and have it do what it may not do itself
 * (mount, make device nodes), so this process must not be able to do anything either. */
static void give_up_capabilities(void)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];

	memset(none, 0, sizeof none);
	for (int number = 0; prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0; number++)
		;
	if (syscall(SYS_capset, &header, none) < 0) {
		perror("relive-init: capset");
		exit(2);
	}
}

/* Whoever writes to a terminal or sends to a system log stands still when nobody reads there, so somebody must. */
static void note_down(int heard, int log)
{
	char text[65536];
	ssize_t length;

	while ((length = read(heard, text, sizeof text)) > 0 || (length < 0 && errno == EINTR))
		if (length > 0 && write(log, text, (size_t)length) < 0)
			continue; /* a full disk must not stop the service */
	_exit(0);
}

/* How many children this process has (proc_pid_children(5)). */
static int children(void)
{
	FILE *list = fopen("/proc/1/task/1/children", "r");
	int count = 0, pid;

	if (!list)
		return 0;
	while (fscanf(list, "%d", &pid) == 1)
		count++;
	fclose(list);
	return count;
}

/* The number of the last process of this PID namespace (proc(5)); 0 or an errno. */
static int set_last_number(const char *number)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int failure = 0;

	if (fd < 0 || write(fd, number, strlen(number)) < 0)
		failure = errno;
	if (fd >= 0)
		close(fd);
	return failure;
}

static int mount_proc(const char *path)
{
	return mount("proc", path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "") < 0 ? errno : 0;
}

/* Become the process 1 that stays, as the furnished file system has it. Returns only with an errno. */
static int become(char *order, const int *fds, int count)
{
	char *main_pid = strtok(order, " "), *held = strtok(NULL, " "), *program = strtok(NULL, "");
	int kept = held ? atoi(held) : -1, null = open("/dev/null", O_RDWR | O_CLOEXEC), argc = 0;
	char **argv = calloc((size_t)count + 4, sizeof *argv);

	if (!argv || !program || kept < 0 || count < 1 + kept || (count - 1 - kept) % 2 != 0)
		return EINVAL;
	/* Nothing of the file system outside may stay open: a descriptor of process 1 is a door for whoever may trace it. */
	if (null < 0 || chdir("/") < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		return errno;
	argv[argc++] = program;
	if (asprintf(&argv[argc++], "%d", fds[0]) < 0)
		return ENOMEM;
	argv[argc++] = main_pid;
	for (int i = 1 + kept; i < count; i++)
		if (asprintf(&argv[argc++], "%d", fds[i]) < 0)
			return ENOMEM;
	execv(program, argv);
	return errno;
}

static int take_descriptors(struct msghdr *message, int **fds, int *count)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
		size_t size = part->cmsg_len - CMSG_LEN(0), came = size / sizeof **fds;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		*fds = realloc(*fds, ((size_t)*count + came) * sizeof **fds);
		if (!*fds)
			return ENOMEM;
		memcpy(*fds + *count, CMSG_DATA(part), size);
		*count += (int)came;
	}
	return message->msg_flags & MSG_CTRUNC ? EMSGSIZE : 0;
}

static int await_orders(int orders)
{
	char order[ORDER_MOST], rights[CMSG_SPACE(RIGHTS_MOST * sizeof(int))], answer[16];
	int *fds = NULL, count = 0;

	fcntl(orders, F_SETFD, FD_CLOEXEC);
	for (;;) {
		struct iovec text = { order, sizeof order - 1 };
		struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1,
					  .msg_control = rights, .msg_controllen = sizeof rights };
		ssize_t length = recvmsg(orders, &message, 0);
		int failure = EINVAL;

		if (length < 0 && errno == EINTR)
			continue;
		if (length <= 0)
			return 1;
		order[length] = 0;
		if (order[0] == 'n')
			failure = set_last_number(order + 1);
		else if (order[0] == 'p')
			failure = mount_proc(order + 1);
		else if (order[0] == 'c')
			give_up_capabilities(), failure = 0;
		else if (order[0] == 'd')
			failure = take_descriptors(&message, &fds, &count);
		else if (order[0] == 'x')
			failure = become(order + 1, fds, count);
		if (send(orders, answer, (size_t)snprintf(answer, sizeof answer, "%d", failure), MSG_NOSIGNAL) < 0)
			return 1;
	}
}

int main(int argc, char **argv)
{
	int status, code = 0, scribes = 0;
	bool ended = false;
	sigset_t all;

	if (argc == 3 && strcmp(argv[1], "--await") == 0)
		return await_orders(atoi(argv[2]));
	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr, "usage: relive-init STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...\n"
				"       relive-init --await ORDERS_FD\n");
		return 2;
	}
	int status_fd = atoi(argv[1]);
	pid_t main_pid = atoi(argv[2]);

	give_up_capabilities();
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int pair = 3; pair < argc; pair += 2, scribes++)
		if (fork() == 0)
			note_down(atoi(argv[pair]), atoi(argv[pair + 1]));
	for (;;) {
		pid_t gone = wait(&status);

		if (gone < 0 && errno == EINTR)
			continue;
		if (gone < 0 && main_pid == 0) {
			pause();
			continue;
		}
		if (gone < 0)
			return code;
		if (gone == main_pid) {
			report(status_fd, status);
			code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			if (code != 0)
				return code;
			ended = true;
		}
		/* Those who take notes do not end by themselves where they listen at a socket. */
		if (ended && scribes > 0 && children() <= scribes)
			return code;
	}
}
