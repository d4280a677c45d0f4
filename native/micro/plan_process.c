/* See plan.h: what tells of the process itself and of its threads. */
#define _GNU_SOURCE
#include "plan.h"

#include "base.h"
#include "kernel_memory.h"

#include <string.h>

enum { CHILDREN_MOST = 256 };

static uint64_t memory_planned;

uint64_t memory_address(void)
{
	return memory_planned;
}

static bool plan_rights(int task, enum member pointer)
{
	const int object = follow_pointer(task, pointer, RIGHTS);
	uint64_t groups;
	uint32_t count;
	const unsigned char *found;

	if (object == NONE)
		return false;
	groups = number_in(seen(object), RIGHTS_GROUPS);
	found = fetch(groups + offset_of(GROUPS_COUNT), sizeof count);
	if (!found)
		return false;
	memcpy(&count, found, sizeof count);
	/* In front of it is the number of its users, which is not compared. Such a list never changes. */
	return add_object(WORDS, groups + offset_of(GROUPS_COUNT), offset_of(GROUPS_LIST) - offset_of(GROUPS_COUNT) + 4 * count, object,
		   offset_of(RIGHTS_GROUPS), offset_of(GROUPS_COUNT)) != NONE;
}

static bool plan_children(int task)
{
	const int64_t distance = -(int64_t)offset_of(TASK_SIBLING);
	const uint64_t end = plan->objects[task].address + offset_of(TASK_CHILDREN);
	enum member pointer = TASK_CHILDREN;
	int object = task;

	for (int steps = 0; steps < CHILDREN_MOST && object != NONE; steps++, pointer = TASK_SIBLING) {
		const uint64_t next = number_in(seen(object), pointer);

		if (next == end)
			return true;
		object = add_object(CHILD, next + (uint64_t)distance, size_of_kind(CHILD), object, offset_of(pointer), distance);
	}
	return false;
}

static bool plan_directories(int task)
{
	const int object = follow_pointer(task, TASK_DIRECTORIES, DIRECTORIES);

	return object != NONE && plan_path(object, offset_of(DIRECTORIES_ROOT)) && plan_path(object, offset_of(DIRECTORIES_WORKING));
}

static bool plan_memory(int task)
{
	int program;

	plan->memory = follow_pointer(task, TASK_MEMORY, MEMORY);
	if (plan->memory == NONE)
		return false;
	memory_planned = plan->objects[plan->memory].address;
	program = follow_pointer(plan->memory, MEMORY_PROGRAM, OPEN_REGULAR);
	return program != NONE && plan_path(program, offset_of(FILE_PATH));
}

/* The process group and the session: the number of each. */
static bool plan_group(int signals, uint32_t which)
{
	const uint32_t offset = offset_of(SIGNAL_GROUP_IDS) + 8 * which;
	uint64_t group;

	memcpy(&group, seen(signals) + offset, sizeof group);
	return add_object(WORDS, group + offset_of(NUMBERS_FIRST), 4, signals, offset, offset_of(NUMBERS_FIRST)) != NONE;
}

/* Threads of one group share signals. All else is told of the first one only, so a thread that has its own is not planned. */
static bool shares_all(int task, int other)
{
	static const enum member shared[] = { TASK_MEMORY, TASK_FILES, TASK_DIRECTORIES };

	for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
		if (number_in(seen(task), shared[i]) != number_in(seen(other), shared[i]))
			return false;
	return true;
}

/* What all threads share. */
static bool plan_shared(int task)
{
	enum { OF_GROUP = 2, OF_SESSION = 3 }; /* enum pid_type */

	plan->signals = follow_pointer(task, TASK_SIGNAL, SIGNAL);
	return plan->signals != NONE && !number_in(seen(plan->signals), SIGNAL_TERMINAL) && !number_in(seen(plan->signals), SIGNAL_TIMERS) &&
	       follow_pointer(task, TASK_ACTIONS, ACTIONS) != NONE && plan_group(plan->signals, OF_GROUP) && plan_group(plan->signals, OF_SESSION) &&
	       plan_directories(task) && plan_memory(task);
}

static bool plan_thread(const struct thread *t, int task)
{
	return number_in(seen(task), TASK_PID) == (uint64_t)t->tid && plan_rights(task, TASK_RIGHTS) && plan_rights(task, TASK_OWN_RIGHTS) &&
	       plan_children(task) && follow_pointer(task, TASK_PARENT, PARENT) != NONE && (t->tid != process.pid || plan_shared(task));
}

/* By the list of those that we trace, the last of which was seized first. */
bool plan_process(void)
{
	const uint64_t end = own_task() + offset_of(TASK_PTRACED);
	const int64_t distance = -(int64_t)offset_of(TASK_PTRACE_ENTRY);
	int object = add_object(LOOKED_AT, end, 8, NONE, 0, 0);
	uint32_t offset = 0;
	uint64_t next;

	for (int i = thread_count - 1; i >= 0 && object != NONE; i--) {
		memcpy(&next, seen(object) + offset, sizeof next);
		if (next == end)
			return false;
		object = add_object(TASK, next + (uint64_t)distance, size_of_kind(TASK), object, offset, distance);
		offset = offset_of(TASK_PTRACE_ENTRY);
		if (object == NONE || !plan_thread(&threads[i], object) || (i < thread_count - 1 && !shares_all(object, plan->task)))
			return false;
		plan->task = object;
	}
	if (object == NONE)
		return false;
	memcpy(&next, seen(object) + offset, sizeof next);
	return next == end;
}
