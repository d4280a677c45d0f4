/* Runs into a breakpoint instruction, which is already passed when the signal is delivered. */
#include "ready.h"

int main(void)
{
	ready();
#ifdef __x86_64__
	__asm__ volatile("int3");
#else
	__asm__ volatile("brk #0");
#endif
	say("survived");
}
