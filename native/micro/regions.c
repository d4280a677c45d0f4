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

static bool is_sorted(const struct run_list *list)
{
	for (size_t i = 1; i < list->count; i++)
		if (list->at[i].start < list->at[i - 1].start)
			return false;
	return true;
}

void merge(struct run_list *list, uint64_t near)
{
	size_t last = 0;

	if (!is_sorted(list))
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

void order(struct run_list *list)
{
	uint64_t last = 0;
	size_t count = 0;

	if (!is_sorted(list))
		qsort(list->at, list->count, sizeof *list->at, by_address);
	for (size_t i = 0; i < list->count; i++) {
		struct region one = list->at[i];

		if (one.start < last)
			one.start = last;
		if (one.start >= one.end)
			continue;
		list->at[count++] = one;
		last = one.end;
	}
	list->count = count;
}

void divide(struct region one, const struct run_list *by, size_t *from, struct run_list *within, struct run_list *beside)
{
	while (*from < by->count && by->at[*from].end <= one.start)
		++*from;
	for (size_t i = *from; i < by->count && by->at[i].start < one.end; i++) {
		const struct region *other = &by->at[i];
		const uint64_t end = other->end < one.end ? other->end : one.end;

		if (other->start > one.start) {
			push(beside, (struct region){ one.start, other->start, one.categories });
			one.start = other->start;
		}
		push(within, (struct region){ one.start, end, one.categories });
		one.start = end;
	}
	if (one.start < one.end)
		push(beside, one);
}
