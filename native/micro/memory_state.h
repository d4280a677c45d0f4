/* What moves when something of the process's memory changes. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Each is 0 where it cannot be told:
 * `memory`: which one it is (address of the kernel's object);
 * `mappings`: when they may change, or the advice for them (`mm_lock_seq`);
 * `flushes`: when a page that was there is there no more, or is another one, since processors have to be told so (`tlb_gen`). */
struct memory_state {
	uint64_t memory, mappings, flushes;
};
struct memory_state memory_state_now(void); /* while it runs */
struct memory_state memory_state_read(void); /* as of `read_facts` */

/* Whether nothing can have changed in mappings from one moment to the other. */
bool are_mappings_alike(struct memory_state one, struct memory_state other);
