/* The memory of the process: which pages there are, which have been written since the last commit, and copies of these.
 *
 * Written pages are copied twice: while the process runs (`ahead`, the bulk), and when all threads stand still (`late`: what was written
 * meanwhile, and what is not tracked). Each time the kernel protects pages and says which were written (PAGEMAP_SCAN) *before* they are
 * copied, so that a page which counts as not written has the content of its last copy. */
#pragma once
#include "../pagemap_scan.h"
#include "base.h"

struct run_list {
	struct region *at;
	size_t count;
	unsigned char *pages;
	size_t size;
};

extern struct run_list ahead, late, present;

/* Makes room for all that is read and copied; ends the program where there is none. */
void make_room(void);

/* Has what is written from now on noted anew. Each false: refused. */
bool begin_tracking_anew(void);
bool copy_ahead(void);
bool copy_more_ahead(void); /* once more, beside what was copied before */

/* With all stopped: what there is of memory, and copies of what may differ from the last copy. */
bool copy_late(void);

/* All regions of pages that a dump would hold, in the mappings as they were read last (PAGEMAP_SCAN). False: refused. */
bool scan_all(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned);

/* Has writes to the pages of regions noted anew; of memory without files also of what lies between two of one mapping. False: refused. */
bool protect(const struct run_list *list);

/* Gives back what copies took, but for as much as most commits need. */
void forget_copies(void);
