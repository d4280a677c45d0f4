/* relive-supervisor: has another agent started when that of a life has died, so that nobody has to type a command.
 *
 *   relive-supervisor DIRECTORY COMMAND...
 *
 * DIRECTORY is that of the life. In it lie `agent.pid` (host pid of the agent and its start in clock ticks after boot), and `closed` once
 * the life has ended and all about its end is written down. Whenever the agent has ended before that, COMMAND is run, which is to start
 * another and return once it has. If none lives then, it is run again, after a pause that doubles with each time (PAUSE_MOST_MS).
 * It ends when `closed` is there, or DIRECTORY is gone.
 *
 * One acts at a time, by a lock on DIRECTORY/supervisor.lock. Another waits for the lock, and ends with its parent until it has it: an
 * agent starts one, and has so always two that look after it, or one of which it is the parent.
 *
 * It is a separate program, and small, since there is one beside each service. It holds nothing that could be lost.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	PAUSE_LEAST_MS = 500,
	PAUSE_MOST_MS = 60000,
};

static int directory;

static bool is_over(void)
{
	struct stat facts;

	return fstat(directory, &facts) < 0 || facts.st_nlink == 0 || faccessat(directory, "closed", F_OK, 0) == 0;
}

/* When a process began (clock ticks after boot); 0: nothing of it runs any more. Its state is that of the first thread alone: while others
 * run, or are being killed, it holds its memory, files and sockets. */
static unsigned long long start_of(int pid)
{
	char path[64], line[1024], *tail;
	unsigned long long started = 0;
	char state = 'Z';
	int threads = 0;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	tail = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	fclose(file);
	if (!tail || sscanf(tail + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu",
			    &state, &threads, &started) != 3)
		return 0;
	return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : started;
}

/* A descriptor of the agent that is noted (pidfd_open(2)); -1 if it does not live. */
static int agent(void)
{
	char text[64] = "";
	unsigned long long started = 0;
	int file = openat(directory, "agent.pid", O_RDONLY | O_CLOEXEC), pid = 0, handle;
	ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);

	if (file >= 0)
		close(file);
	if (length <= 0 || sscanf(text, "%d %llu", &pid, &started) != 2 || pid <= 0)
		return -1;
	handle = (int)syscall(SYS_pidfd_open, pid, 0);
	/* Looked at behind it: now the number cannot be another's. */
	if (handle >= 0 && start_of(pid) == started)
		return handle;
	if (handle >= 0)
		close(handle);
	return -1;
}

static void run(char **command)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		execvp(command[0], command);
		_exit(127);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
}

int main(int argc, char **argv)
{
	sigset_t ending;
	long pause = PAUSE_LEAST_MS;
	pid_t parent = getppid();
	int lock;

	if (argc < 3) {
		fprintf(stderr, "usage: relive-supervisor DIRECTORY COMMAND...\n");
		return 2;
	}
	/* A unit's processes are all told to end with the service; so does this one, with the life. */
	sigemptyset(&ending);
	sigaddset(&ending, SIGTERM), sigaddset(&ending, SIGINT), sigaddset(&ending, SIGHUP), sigaddset(&ending, SIGQUIT);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	directory = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	lock = directory < 0 ? -1 : openat(directory, "supervisor.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0) {
		perror("relive-supervisor");
		return 1;
	}
	if (flock(lock, LOCK_EX | LOCK_NB) < 0) {
		if (getppid() != parent)
			return 1;
		while (flock(lock, LOCK_EX) < 0)
			if (errno != EINTR)
				return 1;
	}
	prctl(PR_SET_PDEATHSIG, 0);
	while (!is_over()) {
		int handle = agent();

		if (handle >= 0) {
			struct pollfd watched = { handle, POLLIN, 0 };

			pause = PAUSE_LEAST_MS;
			while (poll(&watched, 1, -1) < 0 && errno == EINTR)
				;
			close(handle);
			continue;
		}
		run(argv + 2);
		handle = agent();
		if (handle >= 0) {
			close(handle);
		} else if (!is_over()) {
			struct timespec rest = { pause / 1000, (pause % 1000) * 1000000 };

			nanosleep(&rest, NULL);
			pause = pause * 2 < PAUSE_MOST_MS ? pause * 2 : PAUSE_MOST_MS;
		}
	}
	return 0;
}
