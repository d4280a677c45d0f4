/* See regions.h. */
#define _GNU_SOURCE
#include "regions.h"

#include <stdlib.h>
#include <sys/mman.h>

static bool is_full;

void *room_for(size_t size)
{
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (found == MAP_FAILED)
		exit(1);
	return found;
}

struct region *room_for_regions(void)
{
	return room_for(RUNS_MOST * sizeof(struct region));
}

void push(struct run_list *list, struct region one)
{
	is_full |= list->count == RUNS_MOST;
	if (!is_full)
		list->at[list->count++] = one;
}

bool has_room(void)
{
	const bool well = !is_full;

	is_full = false;
	return well ? true : refuse("its memory is in too many pieces");
}

void push_within(struct run_list *list, const struct run_list *some, const struct mapping *range)
{
	for (size_t i = 0; i < some->count; i++) {
		struct region one = some->at[i];

		one.start = one.start < range->start ? range->start : one.start;
		one.end = one.end > range->end ? range->end : one.end;
		if (one.start < one.end)
			push(list, one);
	}
}

static int by_address(const void *a, const void *b)
{
	const struct region *one = a, *other = b;

	return one->start < other->start ? -1 : one->start > other->start;
}

void merge(struct run_list *list, uint64_t near)
{
	size_t last = 0;

	qsort(list->at, list->count, sizeof *list->at, by_address);
	for (size_t i = 1; i < list->count; i++) {
		if (list->at[i].start > list->at[last].end + near * PAGE)
			list->at[++last] = list->at[i];
		else if (list->at[i].end > list->at[last].end)
			list->at[last].end = list->at[i].end;
	}
	if (list->count)
		list->count = last + 1;
}
