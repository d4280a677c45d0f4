/* What need not be told anew of a process, since the kernel's own objects (kernel_objects.h) are as they were when it was told last: the text
 * about it is told again as it was. With all threads stopped all of it is read in some microseconds, where asking takes 200 and more, and
 * makes the process run a round trip.
 *
 * A *fact* is a part of the text: that of the process, or that of one descriptor. It is known when it was told by asking, in a commit that
 * came to be, while the objects were read in the same pause. Nothing is told from the objects alone but positions and sizes of files and the
 * break: where one thing differs, or is of a kind that is not followed here, it is asked. */
#pragma once
#include "base.h"
#include "tree.h"

enum { DESCRIPTORS_MOST = 4096 };

/* Once, before trees are begun: finds where the kernel has what. */
void find_kernel(void);

/* NULL, or why its objects cannot be read on this host, so that everything is asked in each commit. */
const char *kernel_obstacle(void);

/* Nothing that was told holds any longer. */
void forget_facts(void);

/* While the process runs, with all its threads seized: finds which objects there are now. */
void plan_facts(void);

/* With all threads stopped. False: everything is to be asked. */
bool read_facts(void);
bool are_facts_read(void); /* it was said true for the look under way */

/* After `read_facts`: tells what is known of the process or of a descriptor; false: it is to be asked. */
bool say_known_process(void);
bool say_known_hidden(void);
bool say_known_descriptor(int number, int same);

/* Which descriptors there are, by number, after `read_facts`. */
int descriptors_read(int *numbers);
/* The first of those that is the same open file; -1: none before it. */
int same_file_read(const int *numbers, int which);

/* Where in the text something has been told that was asked for; `number` as below. */
enum { OF_PROCESS = -1, HIDDEN = -2 };
void note_told(int number, size_t from);
/* What other processes have to know of a descriptor (tree.h). */
void note_told_held(int number, uint64_t device, uint64_t inode, int same);

/* Whether all of the text was known, and so is what it was. */
bool is_all_known(void);

/* The commit came to be: what was told in it is known. */
void keep_facts(void);

/* What moves when something of the process's memory changes, each 0 where it cannot be told:
 * `mappings`: when they may change, or the memory is another one (`mm_lock_seq`);
 * `flushes`: when a page that was there is there no more, or is another one, since processors have to be told so (`tlb_gen`). */
struct memory_state {
	uint64_t mappings, flushes;
};
struct memory_state memory_state_now(void); /* while it runs */
struct memory_state memory_state_read(void); /* as of `read_facts`, if it is the memory of the last `memory_state_now` */
