/* The memory of the process: which pages there are, which have been written since the last commit, and copies of these.
 *
 * Written pages are copied twice: while the process runs (`ahead`, the bulk), and when all threads stand still (`late`: what was written
 * meanwhile, and what is not tracked). The first time the kernel protects pages and says which were written (PAGEMAP_SCAN) *before* they
 * are copied, so that a page which counts as not written has the content of its last copy. Those of the second time go on to count as
 * written: they come again with the next commit, which takes less than to protect them in the pause.
 */
#pragma once
#include "regions.h"

extern struct run_list ahead, late, present;

/* Makes room for all that is read and copied; ends the program where there is none. */
void make_room(void);

/* Has what is written from now on noted anew. Each false: refused. */
bool begin_tracking_anew(void);
bool copy_ahead(const char *path); /* right into the file that the commit is to be written to (record_file.h) */
bool copy_more_ahead(void); /* once more, beside what was copied before */

/* Looks for what there is of memory, for nothing (look.h). */
void rehearse_memory(void);

/* With all stopped: what there is of memory, and copies of what may differ from the last copy. */
bool copy_late(void);

/* After that, when they run again: `present` by address, and what is not the files' own is known for the next time. */
bool settle_copies(void);

/* Gives back what copies took, but for as much as most commits need. */
void forget_copies(void);
