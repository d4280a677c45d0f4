/* At each word forks a child that raises SIGABRT, and says how the child ended. */
#include "ready.h"

int main(void)
{
	for (ready();; await_word()) {
		int status;
		pid_t child = fork();
		if (child == 0) {
			raise(SIGABRT);
			_exit(3);
		}
		waitpid(child, &status, 0);
		say("%d %d", child, status);
	}
}
