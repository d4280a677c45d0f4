/* A worker thread reads through a null pointer while the main thread and seven others sleep. */
#include "ready.h"

static void *sleeper(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *worker(void *unused)
{
	pthread_setname_np(pthread_self(), "worker");
	ready();
	fault();
	return unused;
}

int main(void)
{
	pthread_t thread;
	for (int i = 0; i < 7; i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	pthread_create(&thread, NULL, worker, NULL);
	pthread_join(thread, NULL);
	for (;;)
		pause();
}
