/* A thread that is not the leader executes this program anew, which then faults. */
#include "ready.h"

static void *sleeper(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static void *worker(void *unused)
{
	execl("/proc/self/exe", "again", "again", NULL);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	ready();
	if (argc > 1)
		return fault();
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, sleeper, NULL);
	pthread_create(&thread, NULL, worker, NULL);
	for (;;)
		pause();
}
