/* Shared by the programs under test: each says "ready" when it can be observed, then waits to be told to go on. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Prints a line at once; stdout may be a pipe. */
#define say(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

/* Waits for one line on stdin; ends the program when there will be none. */
static inline void await_word(void)
{
	char byte;
	do {
		ssize_t got = read(0, &byte, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
	} while (byte != '\n');
}

static inline void ready(void)
{
	say("ready");
	await_word();
}

/* Reads through a null pointer in a way that no compiler removes. */
static inline int fault(void)
{
	int *volatile nowhere = NULL;
	return *(volatile int *)nowhere;
}
