/* See memory_state.h. */
#define _GNU_SOURCE
#include "memory_state.h"

#include "kernel_memory.h"
#include "plan.h"
#include "unchanged.h"

static uint64_t state_of; /* the `mm_struct` of the last `memory_state_now` */

static struct memory_state state_in(const unsigned char *memory)
{
	const uint64_t sequence = has_member(MEMORY_SEQUENCE) ? number_in(memory, MEMORY_SEQUENCE) : 0;

	return (struct memory_state){
		.memory = state_of,
		.mappings = sequence & 1 ? 0 : sequence, /* odd: they are being changed */
		.flushes = has_member(MEMORY_FLUSHES) ? number_in(memory, MEMORY_FLUSHES) : 0,
	};
}

struct memory_state memory_state_now(void)
{
	const unsigned char *found;

	state_of = can_read_kernel() ? memory_address() : 0;
	found = state_of ? fetch(state_of, size_of_kind(MEMORY)) : NULL;
	return found ? state_in(found) : (struct memory_state){ 0 };
}

struct memory_state memory_state_read(void)
{
	if (!are_facts_read() || plan->objects[plan->memory].address != state_of)
		return (struct memory_state){ 0 };
	return state_in(object_read(plan->memory));
}

bool are_mappings_alike(struct memory_state one, struct memory_state other)
{
	return one.mappings && one.mappings == other.mappings && one.memory == other.memory;
}
