/* See numbers.h. Only who is in the PID namespace can tell the kernel of it, so a child of this program goes there. */
#define _GNU_SOURCE
#include "numbers.h"

#include "../micro/audit.h"
#include "../micro/base.h"
#include "../micro/kernel_memory.h"
#include "../micro/unchanged.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int next_number;
static bool is_told; /* what the kernel's own object tells of it was so when it was written */

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

static bool fetch_number(uint64_t address, uint32_t size, uint64_t *number)
{
	const unsigned char *found = fetch(address, size);

	*number = 0;
	if (found)
		memcpy(number, found, size);
	return found != NULL;
}

/* Where the kernel has it: `idr_next` of the namespace, which is there as long as the process. */
static uint64_t find_counter(void)
{
	enum { UPID = 16 }; /* [bytes]: the number, and the namespace */
	uint64_t numbers, level, space;

	if (!has_member(TASK_NUMBERS) || !has_member(NUMBERS_LEVEL) || !has_member(SPACE_NEXT) || offset_of(NUMBER_SPACE) != UPID / 2)
		return 0;
	numbers = number_in(object_read(plan->task), TASK_NUMBERS);
	if (!fetch_number(numbers + offset_of(NUMBERS_LEVEL), 4, &level) ||
	    !fetch_number(numbers + offset_of(NUMBERS_FIRST) + level * UPID + offset_of(NUMBER_SPACE), 8, &space))
		return 0;
	return space + offset_of(SPACE_NEXT);
}

static bool is_counted(void)
{
	static uint64_t counter;
	uint64_t next;

	counter = counter ? counter : find_counter();
	return counter && fetch_number(counter, 4, &next) && next == (uint64_t)next_number;
}

bool is_next_number_right(void)
{
	return is_told && are_facts_read() && !is_audit() && is_counted();
}

void note_next_number(void)
{
	is_told = are_facts_read() && is_counted();
}
