/* Linked into a program with -Wl,--wrap=ptrace: that is killed before its Nth call of ptrace, N being $DIE_AT (none: never). */
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

long __real_ptrace(int request, ...);

long __wrap_ptrace(int request, ...)
{
	static int calls;
	const char *at = getenv("DIE_AT");
	va_list arguments;
	long pid, address, data;

	va_start(arguments, request);
	pid = va_arg(arguments, long);
	address = va_arg(arguments, long);
	data = va_arg(arguments, long);
	va_end(arguments);
	if (at && ++calls == atoi(at))
		kill(getpid(), SIGKILL);
	return __real_ptrace(request, (int)pid, address, data);
}
