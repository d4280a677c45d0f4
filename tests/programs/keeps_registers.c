/* keeps_registers: checks without end that its registers, its mask of signals and its memory stay what they are, in user code and in
 * system calls that are interrupted and begin anew; it ends by SIGABRT where one does not. It says "ready", and then "round" for each
 * line of standard input: so its first thread also sleeps in read(2).
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void check(int fine)
{
	if (!fine)
		abort();
}

/* Holds values in eight general and four vector registers, while `turns` are counted down, or a system call is made. */
static long hold(uint64_t seed, long turns, long call, long first)
{
	struct {
		uint64_t in[4], out[4], wide[8], back[8];
		long turns;
	} held = { .in = { seed, seed * 3, seed * 5, seed * 7 },
		   .wide = { seed, ~seed, seed * 11, seed * 13, seed * 17, seed * 19, seed * 23, seed * 29 },
		   .turns = turns };
	long result = call;

	__asm__ volatile("mov (%%rbx), %%r12\n mov 8(%%rbx), %%r13\n mov 16(%%rbx), %%r14\n mov 24(%%rbx), %%r15\n"
			 "movdqu 64(%%rbx), %%xmm3\n movdqu 80(%%rbx), %%xmm7\n"
			 "movdqu 96(%%rbx), %%xmm11\n movdqu 112(%%rbx), %%xmm15\n"
			 "mov 192(%%rbx), %%r8\n"
			 "1: test %%r8, %%r8\n jle 2f\n dec %%r8\n jmp 1b\n"
			 "2: test %%rax, %%rax\n js 3f\n syscall\n"
			 "3: mov %%r12, 32(%%rbx)\n mov %%r13, 40(%%rbx)\n mov %%r14, 48(%%rbx)\n mov %%r15, 56(%%rbx)\n"
			 "movdqu %%xmm3, 128(%%rbx)\n movdqu %%xmm7, 144(%%rbx)\n"
			 "movdqu %%xmm11, 160(%%rbx)\n movdqu %%xmm15, 176(%%rbx)\n"
			 : "+a"(result)
			 : "b"(&held), "D"(first), "S"(0)
			 : "rcx", "r8", "r11", "r12", "r13", "r14", "r15", "xmm3", "xmm7", "xmm11", "xmm15", "memory");
	check(!memcmp(held.in, held.out, sizeof held.in) && !memcmp(held.wide, held.back, sizeof held.wide));
	return result;
}

int main(void)
{
	struct timespec nap = { 0, 300000 };
	sigset_t blocked, now;
	char line[64];

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR2);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	puts("ready");
	fflush(stdout);
	for (uint64_t round = 1;; round++) {
		struct pollfd input = { 0, POLLIN, 0 };
		long found;

		hold(round * 0x9e3779b97f4a7c15ULL, 20000, -1, 0);
		found = hold(round, 0, SYS_nanosleep, (long)&nap);
		check(found == 0 || found == -4);
		sigprocmask(SIG_BLOCK, NULL, &now);
		check(!memcmp(&now, &blocked, 8));
		if (poll(&input, 1, 0) == 1) {
			if (!fgets(line, sizeof line, stdin))
				return 0;
			puts("round");
			fflush(stdout);
		}
	}
}
