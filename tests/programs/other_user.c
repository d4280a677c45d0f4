/* Started as root: forks a child that becomes nobody (65534) and aborts. */
#include "ready.h"

int main(void)
{
	int status;
	ready();
	pid_t child = fork();
	if (child == 0) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(9);
		abort();
	}
	waitpid(child, &status, 0);
	say("%d", status);
	await_word();
}
