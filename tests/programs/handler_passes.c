/* Has a SIGSEGV handler that jumps out of the fault, as garbage collectors and virtual machines do; says how often. */
#include "ready.h"
#include <setjmp.h>

static sigjmp_buf out;

static void caught(int number, siginfo_t *info, void *unused)
{
	(void)number, (void)unused;
	siglongjmp(out, info->si_code == SEGV_MAPERR && info->si_addr == NULL ? 1 : 2);
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
	volatile int right = 0;
	sigaction(SIGSEGV, &action, NULL);
	ready();
	for (volatile int i = 0; i < 1000; i++) {
		int how = sigsetjmp(out, 1);
		if (how == 0)
			fault();
		right += how == 1;
	}
	say("%d", right);
	await_word();
}
