/* A child forks again and ends, so that the grandchild has no living ancestor in this tree; it faults at a word. */
#include "ready.h"
#include <sched.h>

int main(void)
{
	ready();
	if (fork() == 0) {
		pid_t parent = getpid();
		if (fork() > 0)
			_exit(0);
		while (getppid() == parent)
			sched_yield();
		say("%d", getpid());
		await_word();
		fault();
	}
	wait(NULL);
	for (;;)
		pause();
}
