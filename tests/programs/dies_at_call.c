/* Runs a program and kills it right before its Nth call of one system call: dies_at_call SYSCALL NTH PROGRAM ARGUMENTS... */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const unsigned long wanted = argc > 3 ? strtoul(argv[1], NULL, 10) : 0;
	long left = argc > 3 ? atol(argv[2]) : 0;
	struct user_regs_struct registers;
	int status, enters = 0, signal = 0;
	pid_t child = fork();

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execv(argv[3], argv + 3);
		_exit(127);
	}
	waitpid(child, &status, 0);
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (;;) {
		if (ptrace(PTRACE_SYSCALL, child, 0, signal) || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
			return 1;
		signal = 0;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
			continue;
		}
		enters = !enters;
		if (!enters || ptrace(PTRACE_GETREGS, child, 0, &registers) || registers.orig_rax != wanted || --left)
			continue;
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
		return 0;
	}
}
