/* Sleeps in epoll_wait, which a stop by a tracer would interrupt, in nine threads; says how often that happened. */
#include "ready.h"
#include <sys/epoll.h>

static volatile int interrupted;

static void *sleeper(void *unused)
{
	struct epoll_event event;
	int epoll = epoll_create1(0);
	for (;;)
		if (epoll_wait(epoll, &event, 1, -1) < 0)
			__sync_fetch_and_add(&interrupted, 1);
	return unused;
}

int main(void)
{
	pthread_t thread;
	for (int i = 0; i < 9; i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	for (ready();; await_word())
		say("%d", interrupted);
}
