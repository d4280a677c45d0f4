/* The first thread has ended (a zombie leader) when another one faults. */
#include "ready.h"

static void *worker(void *unused)
{
	ready();
	fault();
	return unused;
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, worker, NULL);
	pthread_exit(NULL);
}
