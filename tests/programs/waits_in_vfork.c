/* Its first thread waits in vfork(2), where nothing stops it, until a line comes; others count real-time signals, of which none may be
 * lost. Says "ready" and the threads' numbers, then "waits", and after each further line the count. */
#include "ready.h"

enum { THREADS = 24 };

static volatile long count;
static volatile int begun;

static void caught(int number)
{
	(void)number;
	__sync_fetch_and_add(&count, 1);
}

static void *wait_for_signals(void *unused)
{
	__sync_fetch_and_add(&begun, 1);
	for (;;)
		pause();
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_handler = caught, .sa_flags = SA_RESTART };
	pthread_t thread;
	sigset_t signals;

	sigaction(SIGRTMIN, &action, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread, NULL, wait_for_signals, NULL);
	while (begun < THREADS)
		sched_yield();
	sigemptyset(&signals);
	sigaddset(&signals, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);
	ready();
	say("waits");
	if (vfork() == 0) {
		char byte;

		while (read(0, &byte, 1) == 1 && byte != '\n')
			;
		_exit(0);
	}
	for (;; await_word())
		say("%ld", count);
}
