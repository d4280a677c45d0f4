/* A parent keeps one worker alive and prints how each ended: "died SIGNAL" or "left STATUS". The worker reads through a null
 * pointer argv[1] milliseconds after it has noticed that it stood still for more than 15 ms; -1: never. The parent holds a deleted
 * file of the directory argv[2] that has another name, for which CRIU makes a third one in a commit. */
#include "ready.h"

#include <fcntl.h>
#include <time.h>

static long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void nap(long us)
{
	struct timespec pause = { us / 1000000, us % 1000000 * 1000 };

	nanosleep(&pause, NULL);
}

static void work(long delay_ms)
{
	for (long long last = now_us();; last = now_us()) {
		nap(200);
		if (delay_ms < 0 || now_us() - last < 15000)
			continue;
		if (delay_ms > 0)
			nap(delay_ms * 1000);
		fault();
	}
}

static void hold_deleted(const char *directory)
{
	if (chdir(directory) || open("first", O_RDWR | O_CREAT | O_CLOEXEC, 0600) < 0 || link("first", "second") || unlink("first")) {
		perror(directory);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	long delay_ms = atol(argv[1]);

	if (argc != 3)
		return 2;
	hold_deleted(argv[2]);
	for (;;) {
		int status;
		pid_t worker = fork();

		if (worker == 0)
			work(delay_ms);
		say("worker %d", (int)worker);
		while (waitpid(worker, &status, 0) < 0)
			;
		if (WIFSIGNALED(status))
			say("died %d", WTERMSIG(status));
		else
			say("left %d", WEXITSTATUS(status));
	}
}
