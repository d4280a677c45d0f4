/* Starts true(1) by vfork 200 times, then one that aborts before it executes anything. */
#include "ready.h"

int main(void)
{
	int status, good = 0;
	ready();
	for (int i = 0; i < 200; i++) {
		pid_t child = vfork();
		if (child == 0) {
			execl("/bin/true", "true", NULL);
			_exit(9);
		}
		waitpid(child, &status, 0);
		good += status == 0;
	}
	say("%d", good);
	pid_t child = vfork();
	if (child == 0) {
		kill(getpid(), SIGABRT);
		_exit(9);
	}
	waitpid(child, &status, 0);
	say("%d", status);
	await_word();
}
