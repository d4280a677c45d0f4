/* Lists of regions of memory, with copies of their pages where there are some. */
#pragma once
#include "../pagemap_scan.h"
#include "base.h"

enum { RUNS_MOST = 1 << 19 };

struct run_list {
	struct region *at;
	size_t count;
	unsigned char *pages;
	size_t size;
};

/* Ends the program where there is none. */
void *room_for(size_t size);
struct region *room_for_regions(void);

/* Adds one; where there is no room `has_room` is false once, and refuses. */
void push(struct run_list *list, struct region one);
bool has_room(void);

/* Adds of each region of another list what lies in a range. */
void push_within(struct run_list *list, const struct run_list *some, const struct mapping *range);

/* Sorts regions, and makes one of those that touch, or have no more than so many pages between them. */
void merge(struct run_list *list, uint64_t near);

/* Sorts regions, and leaves out what is in two of them: with more regions than the kernel collects at a time it says some of them twice (6.18). */
void order(struct run_list *list);

/* Adds what of a region is in a list to one of two others, and what is not to the other. `from`: where in that list to begin; it goes on with the
 * regions that are asked about, which like the list come by address: all of them are one way through it. */
void divide(struct region one, const struct run_list *by, size_t *from, struct run_list *within, struct run_list *beside);
