/* What need not be told anew of a process, since the kernel's own objects (kernel_objects.h) are as they were when it was told last: the text
 * about it is told again as it was. With all threads stopped all of it is read in some microseconds, where asking takes 200 and more, and
 * makes the process run a round trip.
 *
 * A *fact* is a part of the text: that of the process, or that of one descriptor. It is known when it was told by asking, in a commit that
 * came to be, while the objects were read in the same pause. Nothing is told from the objects alone but positions and sizes of files and the
 * break, and where a connection stands that is still (standing.h): where one thing differs, or is of a kind that is not followed here, it is
 * asked. Now and then all is asked for all the same, and compared (audit.h). */
#pragma once
#include "../tracker/frame.h"
#include "connections.h"
#include "plan.h"

/* Once, before trees are begun: finds where the kernel has what. */
void find_kernel(void);

/* NULL, or why its objects cannot be read on this host, so that everything is asked in each commit. */
const char *kernel_obstacle(void);

bool can_read_kernel(void);

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
bool is_hidden_known(void); /* whether that will say true */
bool break_read(uint64_t *end_of_heap); /* brk(2); NULL: only whether it is known */
bool say_known_descriptor(int number, int same);
void say_known_streams(void); /* where no connection was to be asked about */

/* The alternate stack of each thread (sigaltstack(2)), after `read_facts`; empty: it has none. False: they are not known. */
bool alternate_stacks_read(struct unused *found);

/* Which descriptors there are, by number, after `read_facts`. */
int descriptors_read(int *numbers);
/* The first of those that is the same open file; -1: none before it. */
int same_file_read(const int *numbers, int which);

/* Where in the text something has been told that was asked for; `number` as below. */
enum { HIDDEN = -2 };
void note_told(int number, size_t from);
/* What else was asked of the process, which does not count as told, and was so when the process came to be known. */
void note_asked_beside(const char *known, size_t from);
void note_told_stream(int number, const struct stream_numbers *numbers);
/* What other processes have to know of a descriptor (tree.h). */
void note_told_held(int number, uint64_t device, uint64_t inode, int same);

/* Whether all of the text was known, and so is what it was. */
bool is_all_known(void);

/* After all was told. False: refused (DISTRUSTED), since what was asked is not what was known; from now on all is asked. */
bool judge_facts(void);

/* The commit came to be: what was told in it is known. */
void keep_facts(void);

/* Behind it: whether something that was asked could be known, had a plan been made later. */
bool is_plan_old(void);
