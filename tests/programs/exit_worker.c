/* A master that keeps one worker alive, and prints "worker PID" of each and "ended STATUS" (raw, wait(2)) of each that ends.
 *
 * SIGUSR1 has the worker exit with status 3. SIGUSR2 has the master start 300 children that exit with status 1 at once, and say "stormed"
 * with how long each took. SIGTERM ends the master with status 4.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STORM = 300 };

static volatile sig_atomic_t storms;

static void leave(int number)
{
	_exit(number == SIGTERM ? 4 : 3);
}

static void storm(int number)
{
	storms = number;
}

static pid_t start(void)
{
	pid_t worker = fork();

	if (worker == 0) {
		signal(SIGTERM, SIG_DFL);
		signal(SIGUSR1, leave);
		for (;;)
			pause();
	}
	printf("worker %d\n", (int)worker);
	fflush(stdout);
	return worker;
}

static void run_storm(void)
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < STORM; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(1);
		waitpid(child, NULL, 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	printf("stormed %ld us each\n", ((to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000) / STORM);
	fflush(stdout);
}

int main(void)
{
	struct sigaction stormed = { .sa_handler = storm };
	pid_t worker;
	int status;

	sigaction(SIGUSR2, &stormed, NULL);
	signal(SIGTERM, leave);
	worker = start();
	for (;;) {
		pid_t gone = waitpid(-1, &status, 0);

		if (storms) {
			storms = 0;
			run_storm();
		}
		if (gone == worker) {
			printf("ended %d\n", status);
			worker = start();
		}
	}
}
