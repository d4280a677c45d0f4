/* See memory_state.h. */
#define _GNU_SOURCE
#include "memory_state.h"

#include "kernel_memory.h"
#include "plan.h"
#include "unchanged.h"

static struct memory_state state_in(uint64_t address, const unsigned char *memory)
{
	const uint64_t sequence = has_member(MEMORY_SEQUENCE) ? number_in(memory, MEMORY_SEQUENCE) : 0;

	return (struct memory_state){
		.memory = address,
		.mappings = sequence & 1 ? 0 : sequence, /* odd: they are being changed */
		.flushes = has_member(MEMORY_FLUSHES) ? number_in(memory, MEMORY_FLUSHES) : 0,
	};
}

struct memory_state memory_state_now(void)
{
	const uint64_t address = can_read_kernel() ? memory_address() : 0;
	const unsigned char *found = address ? fetch(address, size_of_kind(MEMORY)) : NULL;

	return found ? state_in(address, found) : (struct memory_state){ 0 };
}

struct memory_state memory_state_read(void)
{
	if (!are_facts_read())
		return (struct memory_state){ 0 };
	return state_in(plan->objects[plan->memory].address, object_read(plan->memory));
}

bool are_mappings_alike(struct memory_state one, struct memory_state other)
{
	return one.mappings && one.mappings == other.mappings && one.memory == other.memory;
}
