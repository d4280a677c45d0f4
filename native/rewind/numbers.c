/* See numbers.h. Only who is in the PID namespace can tell the kernel of it, so a child of this program goes there. */
#define _GNU_SOURCE
#include "numbers.h"

#include "../micro/base.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int next_number;

/* In the child, which has the memory of this program: that number is the child's own, and is free again when it has ended. */
static void write_last_number(void)
{
	char line[16];
	const int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);

	if (!next_number)
		next_number = getpid();
	snprintf(line, sizeof line, "%d", next_number - 1);
	_exit(fd >= 0 && write(fd, line, strlen(line)) > 0 ? 0 : 1);
}

bool put_next_number_back(void)
{
	static _Thread_local bool is_inside; /* its children are */
	int status = -1;
	pid_t child;

	if (!is_inside && setns(process.handle, CLONE_NEWPID))
		return refuse("its PID namespace cannot be entered");
	is_inside = true;
	child = vfork();
	if (!child)
		write_last_number();
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return refuse("the number of its next process cannot be put back");
	return true;
}

bool keep_next_number(void)
{
	next_number = 0;
	return put_next_number_back();
}
