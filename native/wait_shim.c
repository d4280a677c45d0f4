/* wait_shim: keeps the death of one process of a service from killing another one of it in a commit.
 *
 * Loaded into CRIU with LD_PRELOAD for dumps. CRIU traces all processes of the tree, and runs code in one of them at a time. In two
 * places it waits for whichever process has news (-1), and takes them for news of that one:
 *
 *   1. While it steps the process out of the injected code, compel_stop_on_syscall() in compel/src/lib/infect.c:
 *      wait4(-1, &status, __WALL, NULL). When another process is killed just then, by the kernel for want of memory, say, CRIU gives
 *      up and lets go of the process where it is: behind a breakpoint that nobody waits for any more, on which it dies of SIGTRAP.
 *   2. While that code serves CRIU, in its handler of SIGCHLD, sigchld_handler() in criu/parasite-syscall.c: waitpid(-1, &status,
 *      WNOHANG). It then ends at once: what was injected stays in the memory of the process, and of all others connections stay in repair
 *      mode until somebody heals them, and names that CRIU has made for deleted files stay in their directories.
 *
 * So both wait for the process that was let run last. CRIU meets the dead one when its turn comes, gives up in an orderly way, and
 * leaves its status to its parent. The end of the one that runs is kept from the handler, too, once CRIU has its connection to the code
 * in it (it accepts one): CRIU reads the end of that connection then. Before, it waits for a word in memory, and the handler has to end it.
 * What stops is told: code that crashes closes nothing. Waits of any other form, as for CRIU's own children, are passed on untouched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANY = -1 };

typedef long trace_call(enum __ptrace_request request, ...);

static pid_t runs = ANY; /* the process that was let run last */
static bool is_connected; /* CRIU would read of its end */

/* glibc's ptrace(), the one that this library hides: what it returns for a peek is not what the kernel does. */
static trace_call *next_ptrace(void)
{
	static trace_call *found;

	if (!found) {
		found = (trace_call *)dlsym(RTLD_NEXT, "ptrace");
		if (!found)
			abort();
	}
	return found;
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list arguments;
	void *address, *data;
	pid_t pid;

	va_start(arguments, request);
	pid = va_arg(arguments, pid_t);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (request == PTRACE_CONT || request == PTRACE_SYSCALL) {
		runs = pid;
		is_connected = false;
	}
	return next_ptrace()(request, pid, address, data);
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
	if (pid == ANY && options == __WALL)
		pid = runs;
	return (pid_t)syscall(SYS_wait4, pid, status, options, usage);
}

int accept(int listener, struct sockaddr *address, socklen_t *length)
{
	int made = (int)syscall(SYS_accept, listener, address, length);

	is_connected = made >= 0;
	return made;
}

/* Without taking it. Of who is traced the kernel tells stops as well, though they are not asked for. */
static bool has_ended(pid_t pid)
{
	siginfo_t found = { 0 };

	if (syscall(SYS_waitid, P_PID, pid, &found, WEXITED | WNOHANG | WNOWAIT, NULL) || found.si_pid != pid)
		return false;
	return found.si_code == CLD_EXITED || found.si_code == CLD_KILLED || found.si_code == CLD_DUMPED;
}

pid_t waitpid(pid_t pid, int *status, int options)
{
	if (pid == ANY && options == WNOHANG) {
		pid = runs;
		if (is_connected && has_ended(pid))
			return 0;
	}
	return (pid_t)syscall(SYS_wait4, pid, status, options, NULL);
}
