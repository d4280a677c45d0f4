/* Forks a child that forks a grandchild that executes this program anew, where it faults. */
#include "ready.h"

static int end_of(pid_t child)
{
	int status;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return fault();
	ready();
	pid_t child = fork();
	if (child == 0) {
		pid_t grandchild = fork();
		if (grandchild == 0) {
			execl("/proc/self/exe", "grandchild", "fault", NULL);
			_exit(9);
		}
		_exit(end_of(grandchild));
	}
	say("%d", end_of(child));
	await_word();
}
