/* What moves when something of the process's memory changes. */
#pragma once
#include <stdint.h>

/* Each is 0 where it cannot be told:
 * `mappings`: when they may change, or the memory is another one (`mm_lock_seq`);
 * `flushes`: when a page that was there is there no more, or is another one, since processors have to be told so (`tlb_gen`). */
struct memory_state {
	uint64_t mappings, flushes;
};
struct memory_state memory_state_now(void); /* while it runs */
struct memory_state memory_state_read(void); /* as of `read_facts`, if it is the memory of the last `memory_state_now` */
