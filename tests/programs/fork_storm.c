/* Forks without pause, from the moment it is ready; at a word it stops, waits for all and then faults in a new child. */
#include "ready.h"

static volatile int going = 1;

static void *storm(void *unused)
{
	while (going) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		waitpid(child, NULL, 0);
	}
	return unused;
}

int main(void)
{
	int status;
	pthread_t thread;
	pthread_create(&thread, NULL, storm, NULL);
	ready();
	going = 0;
	pthread_join(thread, NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(fault());
	waitpid(child, &status, 0);
	say("%d", status);
	await_word();
}
