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
