/* Becomes nobody and executes the program named by its argument; with none, says its effective user. */
#include "ready.h"

int main(int argc, char **argv)
{
	if (argc < 2) {
		say("%d", geteuid());
		return 0;
	}
	ready();
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return 9;
	/* A child that the test forks elsewhere may hold the fresh copy open for writing for a moment. */
	while (execl(argv[1], argv[1], NULL) && errno == ETXTBSY)
		usleep(1000);
	return 9;
}
