/* See scanning.h. */
#define _GNU_SOURCE
#include "scanning.h"

#include "audit.h"
#include "halves.h"
#include "mappings.h"
#include "round_trip.h"
#include "text.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum {
	NEAR = 12, /* [pages] so many are looked at sooner than the kernel is asked once more, where it has to look up each */
	NEAR_WITHOUT_FILES = 128,
	PARTS_MOST = 64, /* of a range; where there are more, all of it is looked at */
	TABLE_PAGES = 512, /* of one page table */
};

static struct run_list protected, written;
static struct run_list own; /* in mappings of files: where there may be pages that are not the file's, by address */
static struct run_list before; /* what was present right before the pause, when all that had been written was protected */
static struct run_list settled; /* what was there and not protected before that */
static struct memory_state state_before; /* before these two */
static bool has_marks; /* `before` has pages that are not in memory, or marks in the place of pages, which may go away unseen */
static bool is_quick; /* `before` is of use */
static bool can_be_quick;

/* Whether the kernel tells of a page that is not there for a mark in its place, with the masks of `scan_changed`, that it was written. Some
 * take a bit of such a mark, as of one that is swapped out, for that of the protection, and then what was written looks as if it was not. */
static bool is_scan_right(void)
{
	enum { GUARD_INSTALL = 102 };
	unsigned char *page = room_for(PAGE);
	struct region found;
	struct scan_arg scan = {
		.size = sizeof scan,
		.start = (uint64_t)page,
		.end = (uint64_t)page + PAGE,
		.vec = (uint64_t)&found,
		.vec_len = 1,
		.category_mask = IS_WRITTEN,
		.return_mask = IS_WRITTEN,
	};
	const int own_pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	const bool is_right = own_pages >= 0 && !madvise(page, PAGE, GUARD_INSTALL) && ioctl(own_pages, SCAN, &scan) == 1;

	if (own_pages >= 0)
		close(own_pages);
	munmap(page, PAGE);
	return is_right;
}

void make_room_for_scans(void)
{
	struct run_list *all[] = { &protected, &written, &own, &before, &settled };

	for (int i = 0; i < 5; i++)
		all[i]->at = room_for_regions();
	can_be_quick = is_scan_right();
}

bool can_scan_quickly(void)
{
	return can_be_quick;
}

bool open_pagemap(void)
{
	if (process.pagemap >= 0)
		close(process.pagemap);
	process.pagemap = open(of_process("pagemap"), O_RDONLY | O_CLOEXEC); /* after exec it is another memory */
	return process.pagemap >= 0 ? true : refuse("the process is gone");
}

static bool scan_with(struct run_list *list, const struct mapping *range, struct scan_arg scan)
{
	long found;

	if (list->count == RUNS_MOST)
		return refuse("its memory is in too many pieces");
	scan.size = sizeof scan;
	scan.start = range->start;
	scan.end = range->end;
	scan.vec = (uint64_t)(list->at + list->count);
	scan.vec_len = RUNS_MOST - list->count;
	found = ioctl(process.pagemap, SCAN, &scan);
	if (found < 0)
		return refuse("its memory cannot be scanned: %s", strerror(errno));
	/* It stops early only where there is no room for more. `walk_end` does not tell: with more regions than the kernel collects at a time
	 * it may stay behind though all were told (6.18), and who went on from there would be told some of them twice. */
	if ((uint64_t)found == scan.vec_len)
		return refuse("its memory is in too many pieces");
	list->count += (size_t)found;
	return true;
}

bool scan_range(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned)
{
	const uint64_t without = IS_PFNZERO | (range->is_file ? IS_FILE : 0);

	return scan_with(list, range, (struct scan_arg){ .flags = flags,
							  .category_inverted = without,
							  .category_mask = without | mask,
							  .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
							  .return_mask = returned });
}

bool note_own(const struct run_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct region one = list->at[i];

		/* A run may begin in one mapping and end in others: what lies side by side is merged. */
		for (const struct mapping *of = mapping_of(one.start); of && of < mappings + mapping_count && of->start < one.end; of++)
			if (of->is_file && !of->is_special)
				push_within(&own, &(struct run_list){ .at = &list->at[i], .count = 1 }, of);
	}
	merge(&own, NEAR);
	return has_room();
}

void forget_own(void)
{
	own.count = 0;
}

/* In a range of files' mappings: where there is something written, and with `with_own` also what is known to be there. */
static bool find_written(const struct mapping *range, bool with_own)
{
	struct mapping unseen = *range;

	unseen.is_file = false; /* whose a page is is not asked */
	written.count = 0;
	if (!scan_range(&written, &unseen, 0, IS_WRITTEN, 0))
		return false;
	if (with_own)
		push_within(&written, &own, range);
	merge(&written, NEAR);
	return has_room();
}

/* Has writes to pages of files noted, which make other pages of them. Those that are others by now are left as they are. */
static bool protect_of_file(const struct mapping *part)
{
	struct mapping all = *part;

	all.is_file = false; /* else they would not be found */
	protected.count = 0;
	return scan_range(&protected, &all, SCAN_WP_MATCHING, IS_WRITTEN | IS_FILE, IS_PRESENT);
}

/* As scan_range, but only what is written, or known to be no page of a file, is looked at: all else is protected, and was the file's when
 * it came to be so. With flags these are protected, too. */
static bool scan_files(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned)
{
	if (!find_written(range, !mask))
		return false;
	for (size_t i = 0; i < written.count; i++) {
		const struct mapping part = { .start = written.at[i].start, .end = written.at[i].end, .is_file = true };

		if (!scan_range(list, &part, flags, mask, returned) || (flags && !protect_of_file(&part)))
			return false;
	}
	return true;
}

/* Whether a page is there, and protected. A page table that was given back as a whole looks as if nothing in it had been written. */
static bool is_protected(uint64_t address)
{
	const uint64_t there = 3ULL << 62, protected_bit = 1ULL << 57; /* Documentation/admin-guide/mm/pagemap.rst */
	uint64_t entry;

	return pread(process.pagemap, &entry, sizeof entry, (off_t)(address / PAGE * sizeof entry)) == sizeof entry && entry & there &&
	       entry & protected_bit;
}

/* The pages of a region that were there before and are protected, so that they are there still: one of each page table is looked at. */
static bool push_protected(struct run_list *list, uint64_t start, uint64_t end, uint64_t *known_table)
{
	const uint64_t size = (uint64_t)TABLE_PAGES * PAGE;

	for (uint64_t at = start; at < end; at = (at / size + 1) * size) {
		if (*known_table == at / size)
			continue;
		if (!is_protected(at))
			return false;
		*known_table = at / size;
	}
	push(list, (struct region){ start, end, IS_WPALLOWED });
	return true;
}

/* The first region of `before` that ends behind an address. */
static size_t first_behind(uint64_t address)
{
	size_t low = 0, high = before.count;

	while (low < high) {
		const size_t middle = (low + high) / 2;

		if (before.at[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* As scan_range, of pages in no file: only what is written is looked at page by page, which takes ten times as long. False: all has to be. */
static bool scan_changed(struct run_list *list, const struct mapping *range, uint64_t returned)
{
	struct scan_arg scan = {
		.size = sizeof scan,
		.flags = CHECK_WPASYNC, /* without it a mapping that is not tracked may look as if it was protected */
		.start = range->start,
		.end = range->end,
		.vec = (uint64_t)written.at,
		.vec_len = PARTS_MOST * 8,
		.category_mask = IS_WRITTEN, /* also what is not there; the kernel is quick with these masks only */
		.return_mask = IS_WRITTEN,
	};
	const long found = ioctl(process.pagemap, SCAN, &scan);
	uint64_t known_table = 0; /* no mapping begins at 0 */
	size_t part = 0;

	if (found < 0 || found == PARTS_MOST * 8 || scan.walk_end < range->end)
		return false;
	written.count = (size_t)found;
	merge(&written, NEAR_WITHOUT_FILES);
	if (written.count > PARTS_MOST)
		return false;
	for (size_t i = first_behind(range->start); i < before.count && before.at[i].start < range->end; i++) {
		uint64_t at = before.at[i].start < range->start ? range->start : before.at[i].start;
		const uint64_t end = before.at[i].end > range->end ? range->end : before.at[i].end;

		while (part < written.count && written.at[part].end <= at)
			part++;
		for (size_t k = part; at < end; k++) {
			const uint64_t next = k < written.count && written.at[k].start < end ? written.at[k].start : end;

			if (next > at && !push_protected(list, at, next, &known_table))
				return false;
			at = next == end ? end : written.at[k].end;
		}
	}
	for (size_t i = 0; i < written.count; i++) {
		const struct mapping one = { .start = written.at[i].start, .end = written.at[i].end };

		if (!scan_range(list, &one, 0, 0, returned))
			return false;
	}
	return true;
}

/* All mappings but the kernel's own and shared ones, as they were read last; neighbours of one kind at a time. */
static bool scan_all(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
{
	size_t known;

	for (int i = 0; i < mapping_count;) {
		struct mapping range = mappings[i++];

		if (range.is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special && mappings[i].is_file == range.is_file)
			range.end = mappings[i++].end;
		if (range.is_file) {
			if (!scan_files(list, &range, flags, mask, returned))
				return false;
			continue;
		}
		known = list->count;
		if (is_quick && scan_changed(list, &range, returned))
			continue;
		list->count = known;
		if (!scan_range(list, &range, flags, mask, returned))
			return false;
	}
	return true;
}

bool find_and_protect(struct run_list *list)
{
	return scan_all(list, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT);
}

static bool scan_present(struct run_list *list)
{
	list->count = 0;
	return scan_all(list, 0, 0, IS_WPALLOWED | IS_WRITTEN | IS_SWAPPED);
}

static const struct scan_arg unprotected = {
	.category_mask = IS_WRITTEN,
	.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
	.return_mask = IS_WPALLOWED,
};

/* From the first mapping to the last. */
static struct mapping whole_range(void)
{
	struct mapping range = { 0 };

	for (int i = 0; i < mapping_count; i++) {
		if (mappings[i].is_special)
			continue;
		range.start = range.end ? range.start : mappings[i].start;
		range.end = mappings[i].end;
	}
	return range;
}

/* All that is there and counts as written; whose it is is not asked. */
static bool scan_unprotected(struct run_list *list)
{
	const struct mapping range = whole_range();

	list->count = 0;
	return scan_with(list, &range, unprotected);
}

static bool find_unprotected(struct run_list *list)
{
	/* A round trip writes to stacks, which the helper may have looked at before. */
	if (were_trips_made())
		forget_halves();
	else if (finish_halves(list))
		return true;
	return scan_unprotected(list);
}

/* What of some region is in none of a list. `from`: where in that to begin; it goes on with the regions that are asked about, which like
 * the list come by address: all of them are one way through it. */
static bool push_rest(struct run_list *list, struct region one, const struct run_list *without, size_t *from)
{
	while (*from < without->count && without->at[*from].end <= one.start)
		++*from;
	for (size_t i = *from; i < without->count && without->at[i].start < one.end; i++) {
		const struct region *other = &without->at[i];

		if (other->start > one.start)
			push(list, (struct region){ one.start, other->start, one.categories });
		one.start = other->end;
	}
	if (one.start < one.end)
		push(list, one);
	return has_room();
}

bool find_changed(struct run_list *list, struct run_list *changed)
{
	const struct memory_state now = memory_state_read();
	size_t from = 0;

	if (!before.count || has_marks || now.memory != state_before.memory || !now.flushes || now.flushes != state_before.flushes || now.mappings != state_before.mappings ||
	    !are_mappings_as_of(now) || !find_unprotected(&protected))
		return false;
	written.count = 0;
	for (size_t i = 0; i < protected.count; i++)
		if (!push_rest(&written, protected.at[i], &settled, &from))
			return false;
	changed->count = 0;
	for (size_t i = 0; i < written.count; i++) {
		const struct mapping *of = mapping_of(written.at[i].start);
		const struct mapping part = { .start = written.at[i].start, .end = written.at[i].end, .is_file = of && of->is_file };

		if (!of || of->end < part.end)
			return false; /* two in one, of which it is not known whose each page is */
		if (!of->is_special && !scan_range(changed, &part, 0, 0, IS_WPALLOWED | IS_WRITTEN | IS_SWAPPED))
			return false;
	}
	list->count = 0;
	push_within(list, &before, &(struct mapping){ .end = UINT64_MAX });
	before.count = 0;
	return has_room();
}

bool find_present(struct run_list *list)
{
	bool well;

	is_quick = can_be_quick && before.count > 0;
	well = scan_present(list) && has_room();
	is_quick = false;
	before.count = 0;
	return well;
}

static void take_places(struct run_list *to, const struct run_list *of)
{
	push_within(to, of, &(struct mapping){ .end = UINT64_MAX });
	merge(to, 0);
}

static bool are_same_places(const struct run_list *one, const struct run_list *other)
{
	if (one->count != other->count)
		return false;
	for (size_t i = 0; i < one->count; i++)
		if (one->at[i].start != other->at[i].start || one->at[i].end != other->at[i].end)
			return false;
	return true;
}

bool find_compared(struct run_list *list, struct run_list *changed)
{
	settled.count = protected.count = 0;
	take_places(&settled, list);
	take_places(&settled, changed);
	changed->count = 0;
	if (!find_present(list))
		return false;
	take_places(&protected, list);
	if (!are_same_places(&settled, &protected) && memory_state_now().flushes == memory_state_read().flushes)
		suspect_memory("pages of its memory");
	return has_room();
}

void rehearse_scan(struct run_list *list)
{
	struct run_list all = before;

	before.count = 0;
	state_before = memory_state_now();
	if (!scan_unprotected(&settled) || !scan_present(&all))
		return;
	before = all;
	has_marks = false;
	for (size_t i = 0; i < before.count; i++)
		has_marks |= before.at[i].categories & IS_SWAPPED;
	if (are_mappings_as_of(state_before) && state_before.flushes && !has_marks) {
		const struct mapping range = whole_range();

		plan_halves(&before, range.start, range.end, unprotected);
		return;
	}
	is_quick = can_be_quick;
	(void)scan_present(list);
	is_quick = false;
}

/* All pages that are no file's in the mappings of files. */
bool find_own(void)
{
	own.count = 0;
	for (int i = 0; i < mapping_count; i++)
		if (!mappings[i].is_special && mappings[i].is_file && !scan_range(&own, &mappings[i], 0, 0, 0))
			return false;
	merge(&own, NEAR);
	return true;
}
