/* Two threads; counts real-time signals, of which none may be lost, and answers each line with the count. */
#include "ready.h"

static volatile long count;

static void caught(int number)
{
	(void)number;
	__sync_fetch_and_add(&count, 1);
}

static void *busy(void *unused)
{
	for (;;)
		(void)getppid();
	return unused;
}

int main(void)
{
	pthread_t thread;
	struct sigaction action = { .sa_handler = caught, .sa_flags = SA_RESTART };
	sigaction(SIGRTMIN, &action, NULL);
	pthread_create(&thread, NULL, busy, NULL);
	for (ready();; await_word())
		say("%ld", count);
}
