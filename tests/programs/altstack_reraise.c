/* Overflows its stack; the handler on another stack says so, restores the default action and returns or raises. */
#include "ready.h"

static int raises;

static void caught(int number)
{
	say("handled");
	signal(number, SIG_DFL);
	if (raises)
		raise(number);
}

static int deeper(volatile char *above)
{
	volatile char here[4096];
	here[0] = above[0];
	return deeper(here) + here[0];
}

int main(int argc, char **argv)
{
	char zero = 0;
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	struct sigaction action = { .sa_handler = caught, .sa_flags = SA_ONSTACK };
	raises = argc > 1;
	(void)argv;
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	ready();
	return deeper(&zero);
}
