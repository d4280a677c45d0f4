/* relive-init: process 1 of a capsule or of a branch, once Python has set the namespaces up.
 *
 *   relive-init [--lifeline FD] [--owner FD] [--room BYTES FILES] [--track LISTENER_FD DIRECTORY_FD HOME BYTES] [--front LISTENER_FD CONTROL_FD ADDRESS PORT]
 *               STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...
 *   relive-init --await ORDERS_FD
 *   relive-init --start ORDERS_FD
 *   relive-init --filter
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
 * With --lifeline some memory of the processes here is still missing, and is filled in by a page daemon outside through
 * userfaultfds. When the last descriptor of one is closed, the kernel lets those who wait for a page go on, with zeros in it.
 * So this process holds duplicates, which outlive the daemon, and FD is a socket (unix(7), SOCK_SEQPACKET) whose other end
 * the daemon has. It says, one a message:
 *   h          hold the descriptors that come with the message (SCM_RIGHTS)
 *   d          all memory is there: close the duplicates (a userfaultfd that nobody reads any more would stop the next
 *              fork() here for good) and the lifeline
 * If it hangs up without "d", nobody will bring the memory: this process then kills all others here, waits until they
 * are gone, and only then ends, which closes the duplicates. So nobody ever sees a wrong page. It reports SIGKILL and
 * the word "memory" behind it.
 *
 * With --owner the processes here live no longer than whoever holds the other end of that socket (unix(7), SOCK_SEQPACKET).
 * Should it hang up, this process ends and the kernel kills the others; it reports SIGKILL and the word "owner". The one
 * message on it is "d": they may live on without an owner.
 *
 * With --room all here end, the same way, as soon as the file system of STATUS_FD has less than so many free bytes, or files: it is the
 * host's, and a branch that fills it is not worth its services. Looked at ten times a second, since nothing tells of it. It reports
 * SIGKILL and the word "disk".
 *
 * With --track it follows which files the processes here change, and keeps what was there before where a commit may need it
 * (init/track.h): LISTENER_FD is the listener of a seccomp filter that they all have (--filter writes it to standard output, as struct
 * sock_filter[]), DIRECTORY_FD where that is written down. Nothing below HOME is followed; of files of more than BYTES bytes none is
 * copied while the service waits.
 *
 * With --front it keeps the port open at which clients reach the service: while no recording proxy is connected to CONTROL_FD, it carries
 * connections that come to LISTENER_FD to ADDRESS and PORT itself (init/front.h).
 *
 * With --await it is process 1 of namespaces that are still being furnished from outside, by orders that come over a
 * socket (unix(7), SOCK_SEQPACKET), one a message, a letter and its text; each is answered with 0 or an errno in decimal:
 *   n NUMBER   the next process here gets the number after NUMBER
 *   p PATH     mount /proc of this PID namespace at PATH
 *   g          make a cgroup namespace whose roots are the groups that this process is in
 *   c          give up all capabilities; neither n, p nor g can be done afterwards
 *   d          keep the descriptors that come with the message (SCM_RIGHTS), in this order
 *   l          the descriptor that comes with the message is the lifeline; from now on its hanging up ends all here
 *   o          the descriptor that comes with the message is the owner's line, for the program that stays
 *   r BYTES FILES   the least room, for the program that stays
 *   x MAIN_PID KEPT PROGRAM   become PROGRAM with the arguments above: the first descriptor is STATUS_FD, the next
 *              KEPT are only held open, the rest are pairs of HEARD_FD and LOG_FD
 * Should the other side die before the last order, it ends, and with it all that lives here.
 *
 * With --start it is not process 1, but starts that, and others beside it, as children of its own parent and in control groups from their
 * first moment on, where the kernel can do that (init/starter.h). Orders come as above; each is answered with a pid, as seen from here, or
 * with -errno, and behind it with the errno of a program that could not be executed (its process has ended and is to be reaped), or 0:
 *   b GROUP\0...      (once) a new PID namespace, and in it process 1, a copy of this process with --await; its ORDERS_FD comes with the
 *              message. GROUP: a directory of a control group
 *   e NUMBER... \0 WORD\0... \0 VARIABLE\0...   execute a program in the PID namespace and in the cgroup namespace of process 1, with this
 *              environment, and with the descriptors that come with the message under those numbers
 * Of GROUPs, WORDs and VARIABLEs there are at most 64 each; with more the order is refused with E2BIG.
 * It ends when the other side does.
 */
#define _GNU_SOURCE /* asprintf */
#include "init/calls.h"
#include "init/front.h"
#include "init/starter.h"
#include "init/track.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	ORDER_MOST = 8192,	/* [bytes] PATH_MAX and some */
	RIGHTS_MOST = 253,	/* SCM_MAX_FD */
	DYING_MOST = 10000,	/* [ms] */
	ROOM_EVERY = 100000000,	/* [ns] so long nobody looks how full the disk is */
	NONE = -1,
};

#define BIT(capability) (UINT64_C(1) << (capability))
/* To see other users' memory and descriptors, read and lay copies of their files, and answer at once. */
#define TRACKING (BIT(CAP_SYS_PTRACE) | BIT(CAP_DAC_READ_SEARCH) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_SYS_NICE))

static void report(int fd, int status, const char *word)
{
	char line[32];
	int length = snprintf(line, sizeof line, "%d%s\n", status, word);

	/* A full disk must not keep the namespace alive: what cannot be written is lost, the exit status is not. */
	if (write(fd, line, (size_t)length) < 0 || fsync(fd) < 0)
		return;
}

/* A service that runs as root could attach to this process as a debugger and have it do what it may not do itself
 * (mount, make device nodes), so this process must not be able to do anything either.
 *
 * But for CAP_KILL while there is a lifeline, or files are followed: services run under other users, whom it has to be able to kill. That gives
 * nobody anything who takes this process over: it can name no process but those of its own PID namespace.
 *
 * And but for what it takes to follow changes of files (TRACKING below), in a capsule: a service that runs as root has these itself, and
 * one that has given them up may not attach to a process that has not (ptrace(2), ptrace access mode checking).
 *
 * `kept`: a bit for each number of a capability. */
static void give_up_capabilities(uint64_t kept)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];

	memset(none, 0, sizeof none);
	none[0].permitted = none[0].effective = (uint32_t)kept;
	none[1].permitted = none[1].effective = (uint32_t)(kept >> 32);
	/* Without CAP_SETPCAP, after the exec of the program that stays, there is nothing left to drop. */
	for (int number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; number++)
		if (!(kept >> number & 1))
			prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
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

/* Kill everybody else here and wait until they are gone: only then may this process, and with it its descriptors, end. */
static void kill_all(void)
{
	struct timespec moment = { 0, 1000000 };

	/* Who is dead but not reaped counts, too; another process's children outside are reaped there (hence the limit). */
	for (int i = 0; i < DYING_MOST && kill(-1, SIGKILL) == 0; i++) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		nanosleep(&moment, NULL);
	}
}

/* Hear what the lifeline says. Returns it, or NONE when all memory is there. */
static int hear(int lifeline, int status_fd)
{
	static int held[65536];
	static int count;
	char word, rights[CMSG_SPACE(RIGHTS_MOST * sizeof(int))];
	struct iovec text = { &word, sizeof word };
	struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1,
				  .msg_control = rights, .msg_controllen = sizeof rights };
	ssize_t length = recvmsg(lifeline, &message, MSG_CMSG_CLOEXEC);

	if (length < 0 && errno == EINTR)
		return lifeline;
	if (length == 1 && word == 'd') {
		while (count > 0)
			close(held[--count]);
		close(lifeline);
		give_up_capabilities(0);
		return NONE;
	}
	bool is_good = length == 1 && word == 'h' && !(message.msg_flags & MSG_CTRUNC);

	for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); is_good && part; part = CMSG_NXTHDR(&message, part))
		for (size_t i = 0; is_good && i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
			is_good = count < (int)(sizeof held / sizeof *held);
			if (is_good)
				memcpy(&held[count++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
		}
	if (is_good)
		return lifeline;
	kill_all();
	report(status_fd, SIGKILL, " memory");
	exit(128 + SIGKILL);
}

/* Hear what the owner says. Returns its line, or NONE when all here may live on without one. */
static int hear_owner(int owner, int lifeline, int status_fd)
{
	char word;
	ssize_t length = recv(owner, &word, sizeof word, 0);

	if (length < 0 && errno == EINTR)
		return owner;
	if (length == 1 && word == 'd') {
		close(owner);
		return NONE;
	}
	if (lifeline != NONE)
		kill_all(); /* the kernel would kill them after it has closed our descriptors */
	report(status_fd, SIGKILL, " owner");
	exit(128 + SIGKILL);
}

struct room {
	uint64_t bytes, files; /* both 0: nobody looks */
};

static bool looks(const struct room *room)
{
	return room->bytes || room->files;
}

/* End all here where the disk has less room. What cannot be told is no reason; a file system without a number of files has 0 of 0. */
static void look_at_disk(const struct room *room, int lifeline, int status_fd)
{
	struct statvfs disk;

	if (!looks(room) || fstatvfs(status_fd, &disk) < 0)
		return;
	if ((uint64_t)disk.f_bavail * disk.f_frsize >= room->bytes && (!disk.f_files || disk.f_favail >= room->files))
		return;
	if (lifeline != NONE)
		kill_all();
	report(status_fd, SIGKILL, " disk");
	exit(128 + SIGKILL);
}

static void awake(int number)
{
	(void)number; /* its coming ends ppoll() */
}

/* Wait for a child's end, and meanwhile hear what the lifeline and the owner say, and look at the disk. As wait(2). */
static pid_t wait_and_hear(int *status, int *lifeline, int *owner, const struct room *room, int status_fd)
{
	const struct timespec most = { 0, ROOM_EVERY };
	sigset_t all_but_child;

	sigfillset(&all_but_child);
	sigdelset(&all_but_child, SIGCHLD);
	while (*lifeline != NONE || *owner != NONE || looks(room)) {
		pid_t gone = waitpid(-1, status, WNOHANG);
		struct pollfd lines[] = { { *lifeline, POLLIN, 0 }, { *owner, POLLIN, 0 } };

		if (gone != 0)
			return gone;
		look_at_disk(room, *lifeline, status_fd);
		/* Blocked elsewhere, a SIGCHLD that came since then ends ppoll() at once. */
		if (ppoll(lines, 2, looks(room) ? &most : NULL, &all_but_child) <= 0)
			continue;
		if (lines[0].revents)
			*lifeline = hear(*lifeline, status_fd);
		if (lines[1].revents)
			*owner = hear_owner(*owner, *lifeline, status_fd);
	}
	return wait(status);
}

/* Become the process 1 that stays, as the furnished file system has it. Returns only with an errno. */
static int become(char *order, const int *fds, int count, int lifeline, int owner, const struct room *room)
{
	char *main_pid = strtok(order, " "), *held = strtok(NULL, " "), *program = strtok(NULL, "");
	int kept = held ? atoi(held) : -1, null = open("/dev/null", O_RDWR | O_CLOEXEC), argc = 0;
	char **argv = calloc((size_t)count + 11, sizeof *argv);

	if (!argv || !program || kept < 0 || count < 1 + kept || (count - 1 - kept) % 2 != 0)
		return EINVAL;
	/* Nothing of the file system outside may stay open: a descriptor of process 1 is a door for whoever may trace it. */
	if (null < 0 || chdir("/") < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		return errno;
	argv[argc++] = program;
	if (lifeline != NONE) {
		argv[argc++] = "--lifeline";
		if (asprintf(&argv[argc++], "%d", lifeline) < 0)
			return ENOMEM;
	}
	if (owner != NONE) {
		argv[argc++] = "--owner";
		if (asprintf(&argv[argc++], "%d", owner) < 0)
			return ENOMEM;
	}
	if (looks(room)) {
		argv[argc++] = "--room";
		if (asprintf(&argv[argc++], "%" PRIu64, room->bytes) < 0 || asprintf(&argv[argc++], "%" PRIu64, room->files) < 0)
			return ENOMEM;
	}
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
	int *fds = NULL, count = 0, *lifeline = NULL, lines = 0, *owner = NULL, owners = 0;
	struct room room = { 0, 0 };

	fcntl(orders, F_SETFD, FD_CLOEXEC);
	for (;;) {
		/* What the lifeline says waits for the program that stays; only its hanging up counts now. */
		struct pollfd awaited[] = { { orders, POLLIN, 0 }, { lines ? *lifeline : NONE, POLLRDHUP, 0 } };
		struct iovec text = { order, sizeof order - 1 };
		struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1,
					  .msg_control = rights, .msg_controllen = sizeof rights };
		ssize_t length;
		int failure = EINVAL;

		if (poll(awaited, 2, -1) < 0 && errno == EINTR)
			continue;
		if (awaited[1].revents) {
			kill_all();
			return 1;
		}
		length = recvmsg(orders, &message, 0);
		if (length < 0 && errno == EINTR)
			continue;
		if (length <= 0)
			return 1;
		order[length] = 0;
		if (order[0] == 'n')
			failure = set_last_number(order + 1);
		else if (order[0] == 'p')
			failure = mount_proc(order + 1);
		else if (order[0] == 'g')
			failure = unshare(CLONE_NEWCGROUP) < 0 ? errno : 0;
		else if (order[0] == 'c')
			give_up_capabilities(BIT(CAP_KILL)), failure = 0;
		else if (order[0] == 'd')
			failure = take_descriptors(&message, &fds, &count);
		else if (order[0] == 'l')
			failure = take_descriptors(&message, &lifeline, &lines);
		else if (order[0] == 'o')
			failure = take_descriptors(&message, &owner, &owners);
		else if (order[0] == 'r')
			failure = sscanf(order + 1, "%" SCNu64 " %" SCNu64, &room.bytes, &room.files) == 2 ? 0 : EINVAL;
		else if (order[0] == 'x')
			failure = become(order + 1, fds, count, lines ? *lifeline : NONE, owners ? *owner : NONE, &room);
		if (send(orders, answer, (size_t)snprintf(answer, sizeof answer, "%d", failure), MSG_NOSIGNAL) < 0)
			return 1;
	}
}

int main(int argc, char **argv)
{
	int status, code = 0, scribes = 0, lifeline = NONE, owner = NONE;
	bool ended = false;
	sigset_t all;
	struct sigaction awakened = { .sa_handler = awake };
	struct rlimit files;
	struct tracked tracked = { NONE, NONE, NULL, 0, 0 };
	struct front front = { .listener = NONE };
	struct room room = { 0, 0 };

	/* What it holds (the file that says how the service ended, userfaultfds) is not for who may trace it: see --await, too. */
	prctl(PR_SET_DUMPABLE, 0);
	if (argc == 3 && strcmp(argv[1], "--await") == 0)
		return await_orders(atoi(argv[2]));
	if (argc == 3 && strcmp(argv[1], "--start") == 0) {
		int orders = atoi(argv[2]);

		code = serve_starts(&orders);
		return code == -1 ? await_orders(orders) : code;
	}
	if (argc == 2 && strcmp(argv[1], "--filter") == 0)
		return write_filter(STDOUT_FILENO) ? 1 : 0;
	if (argc > 2 && strcmp(argv[1], "--lifeline") == 0) {
		lifeline = atoi(argv[2]);
		argc -= 2, argv += 2;
	}
	if (argc > 2 && strcmp(argv[1], "--owner") == 0) {
		owner = atoi(argv[2]);
		argc -= 2, argv += 2;
	}
	if (argc > 3 && strcmp(argv[1], "--room") == 0) {
		room = (struct room){ strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10) };
		argc -= 3, argv += 3;
	}
	if (argc > 5 && strcmp(argv[1], "--track") == 0) {
		tracked = (struct tracked){ atoi(argv[2]), atoi(argv[3]), argv[4], strtoull(argv[5], NULL, 10), 0 };
		argc -= 5, argv += 5;
	}
	if (argc > 5 && strcmp(argv[1], "--front") == 0) {
		front.listener = atoi(argv[2]), front.control = atoi(argv[3]);
		if (read_upstream(&front, argv[4], argv[5]) != 0)
			argc = 0;
		argc -= 5, argv += 5;
	}
	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr, "usage: relive-init [--lifeline FD] [--owner FD] [--room BYTES FILES] "
				"[--track LISTENER_FD DIRECTORY_FD HOME BYTES] [--front LISTENER_FD CONTROL_FD ADDRESS PORT] STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...\n"
				"       relive-init --await ORDERS_FD\n"
				"       relive-init --start ORDERS_FD\n"
				"       relive-init --filter\n");
		return 2;
	}
	int status_fd = atoi(argv[1]);
	pid_t main_pid = atoi(argv[2]);

	give_up_capabilities((lifeline == NONE && tracked.listener == NONE ? 0 : BIT(CAP_KILL)) | (tracked.listener == NONE ? 0 : TRACKING));
	/* For what is reported at the end of who filled the disk; where the file system cannot, that may be lost. */
	if (looks(&room) && fallocate(status_fd, FALLOC_FL_KEEP_SIZE, 0, 1) < 0)
		errno = 0;
	/* One descriptor for each process that is forked before all memory is there, or for each call that waits for a base. */
	if ((lifeline != NONE || tracked.listener != NONE) && getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	sigaction(SIGCHLD, &awakened, NULL);
	tracked.main_process = main_pid;
	if (tracked.listener != NONE && (code = start_tracking(&tracked)) != 0) {
		/* Better no service than one whose calls nobody answers. */
		fprintf(stderr, "relive-init: cannot follow files: %s\n", strerror(code));
		return 2;
	}
	/* Without, clients would wait for nobody; a proxy that finds no front listens by itself. */
	if (front.listener != NONE && (code = start_front(&front)) != 0) {
		fprintf(stderr, "relive-init: cannot keep the port: %s\n", strerror(code));
		return 2;
	}
	for (int pair = 3; pair < argc; pair += 2, scribes++)
		if (fork() == 0)
			note_down(atoi(argv[pair]), atoi(argv[pair + 1]));
	for (;;) {
		pid_t gone = wait_and_hear(&status, &lifeline, &owner, &room, status_fd);

		if (gone < 0 && errno == EINTR)
			continue;
		if (gone < 0 && main_pid == 0) {
			pause();
			continue;
		}
		if (gone < 0)
			return code;
		if (gone == main_pid) {
			report(status_fd, status, "");
			code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
			/* The kernel would kill them after it has closed our descriptors, and calls that ask us then fail with ENOSYS. */
			if (code != 0 && (lifeline != NONE || tracked.listener != NONE))
				kill_all();
			if (code != 0)
				return code;
			ended = true;
		}
		/* Those who take notes do not end by themselves where they listen at a socket. */
		if (ended && scribes > 0 && children() <= scribes)
			return code;
	}
}
