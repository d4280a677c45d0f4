/* Waits; answers every line on stdin with "alive". SIGSEGV may be ignored ("ignore") or blocked ("block"). */
#include "ready.h"

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "ignore"))
		signal(SIGSEGV, SIG_IGN);
	if (argc > 1 && !strcmp(argv[1], "block")) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGSEGV);
		sigprocmask(SIG_BLOCK, &set, NULL);
	}
	for (ready();; await_word())
		say("alive");
}
