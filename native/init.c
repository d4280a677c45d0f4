/* relive-init: process 1 of a capsule or of a branch, once Python has set the namespaces up.
 *
 *   relive-init STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...
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
 */
#include <errno.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
	int status, code = 0, scribes = 0;
	bool ended = false;
	sigset_t all;

	if (argc < 3 || argc % 2 == 0) {
		fprintf(stderr, "usage: relive-init STATUS_FD MAIN_PID [HEARD_FD LOG_FD]...\n");
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
