/* Eight threads fault in the same moment. */
#include "ready.h"

static pthread_barrier_t barrier;

static void *worker(void *unused)
{
	pthread_barrier_wait(&barrier);
	fault();
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&barrier, NULL, 9);
	for (int i = 0; i < 8; i++)
		pthread_create(&thread, NULL, worker, NULL);
	ready();
	pthread_barrier_wait(&barrier);
	for (;;)
		pause();
}
