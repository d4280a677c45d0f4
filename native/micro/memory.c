/* See memory.h. */
#define _GNU_SOURCE
#include "memory.h"

#include "connections.h"
#include "look.h"
#include "mappings.h"
#include "text.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum {
	RUNS_MOST = 1 << 19,
	IOV = 512,
	NEAR = 12, /* [pages] so many are looked at sooner than the kernel is asked once more */
};
#define COPIED_MOST (1ULL << 30)
#define PAUSED_MOST (64ULL << 20) /* [bytes] copied with all stopped; what changes so much is better dumped */
#define UNREAD (1ULL << 32)
#define COPIED (1ULL << 33)

struct run_list ahead, late, present;
static struct run_list protected, written;
static struct run_list own; /* in mappings of files: where there may be pages that are not the file's, by address */
static bool has_untracked; /* as of the last pause */
static bool is_full; /* a list has no room for what is to be noted */

static void *room_for(size_t size)
{
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (found == MAP_FAILED)
		exit(1);
	return found;
}

void make_room(void)
{
	buffer = room_for((size_t)WINDOW * PAGE);
	text.at = room_for(TEXT_MOST);
	afterwards.at = room_for(TEXT_MOST);
	ahead.pages = room_for(COPIED_MOST);
	late.pages = room_for(PAUSED_MOST);
	waiting.at = room_for(WAITING_MOST);
	ahead.at = room_for(RUNS_MOST * sizeof *ahead.at);
	late.at = room_for(RUNS_MOST * sizeof *late.at);
	present.at = room_for(RUNS_MOST * sizeof *present.at);
	protected.at = room_for(RUNS_MOST * sizeof *protected.at);
	written.at = room_for(RUNS_MOST * sizeof *written.at);
	own.at = room_for(RUNS_MOST * sizeof *own.at);
}

/* Adds the regions of a range that a dump would hold. Whether a page is a file's own is asked only where there are files: the kernel
 * has to look at each page for it, which takes ten times as long. */
static bool scan_range(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned)
{
	const uint64_t without = IS_PFNZERO | (range->is_file ? IS_FILE : 0);
	struct scan_arg scan = {
		.size = sizeof scan,
		.flags = flags,
		.start = range->start,
		.end = range->end,
		.category_inverted = without,
		.category_mask = without | mask,
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
		.return_mask = returned,
	};
	long found;

	do {
		if (list->count == RUNS_MOST)
			return refuse("its memory is in too many pieces");
		scan.vec = (uint64_t)(list->at + list->count);
		scan.vec_len = RUNS_MOST - list->count;
		found = ioctl(process.pagemap, SCAN, &scan);
		if (found < 0)
			return refuse("its memory cannot be scanned: %s", strerror(errno));
		list->count += (size_t)found;
		/* With more regions than the kernel collects at a time it stops early; the end may also not be reached (6.18). */
		if (scan.walk_end <= scan.start && !found)
			break;
		scan.start = scan.walk_end;
	} while (scan.start < scan.end);
	return true;
}

static int by_address(const void *a, const void *b)
{
	const struct region *one = a, *other = b;

	return one->start < other->start ? -1 : one->start > other->start;
}

/* Sorts regions, and makes one of those that touch or are near. */
static void merge(struct run_list *list)
{
	size_t last = 0;

	qsort(list->at, list->count, sizeof *list->at, by_address);
	for (size_t i = 1; i < list->count; i++) {
		if (list->at[i].start > list->at[last].end + (uint64_t)NEAR * PAGE)
			list->at[++last] = list->at[i];
		else if (list->at[i].end > list->at[last].end)
			list->at[last].end = list->at[i].end;
	}
	if (list->count)
		list->count = last + 1;
}

static void push(struct run_list *list, struct region one)
{
	is_full |= list->count == RUNS_MOST;
	if (!is_full)
		list->at[list->count++] = one;
}

static bool has_room(void)
{
	const bool well = !is_full;

	is_full = false;
	return well ? true : refuse("its memory is in too many pieces");
}

/* Of each region of a list what lies in a range. */
static void push_within(struct run_list *list, const struct run_list *some, const struct mapping *range)
{
	for (size_t i = 0; i < some->count; i++) {
		struct region one = some->at[i];

		one.start = one.start < range->start ? range->start : one.start;
		one.end = one.end > range->end ? range->end : one.end;
		if (one.start < one.end)
			push(list, one);
	}
}

/* Notes that there may be pages of its own where a list has some in a file's mapping. */
static bool note_own(const struct run_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct mapping *of = mapping_of(list->at[i].start);

		if (of && of->is_file && !of->is_special)
			push(&own, list->at[i]);
	}
	merge(&own);
	return has_room();
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
	merge(&written);
	return has_room();
}

/* As scan_range, but only what is written, or known to be no page of a file, is looked at: all else is protected, and was the file's when
 * it came to be so (protect_files). */
static bool scan_files(struct run_list *list, const struct mapping *range, uint64_t flags, uint64_t mask, uint64_t returned)
{
	if (!find_written(range, !mask))
		return false;
	for (size_t i = 0; i < written.count; i++) {
		const struct mapping part = { .start = written.at[i].start, .end = written.at[i].end, .is_file = true };

		if (!scan_range(list, &part, flags, mask, returned))
			return false;
	}
	return true;
}

/* All mappings but the kernel's own and shared ones, as they were read last; neighbours of one kind at a time. */
static bool scan_more(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
{
	for (int i = 0; i < mapping_count;) {
		struct mapping range = mappings[i++];

		if (range.is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special && mappings[i].is_file == range.is_file)
			range.end = mappings[i++].end;
		if (range.is_file ? !scan_files(list, &range, flags, mask, returned) : !scan_range(list, &range, flags, mask, returned))
			return false;
	}
	return true;
}

static bool scan_all(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
{
	list->count = list->size = 0;
	return scan_more(list, flags, mask, returned);
}

/* Copies the regions from one on, one after the other; those that cannot be read are marked, and have no pages. */
static bool copy_runs(struct run_list *list, size_t from, uint64_t most)
{
	struct iovec there[IOV], here;
	size_t total = 0;

	for (size_t i = 0; i < list->count; i++)
		total += list->at[i].end - list->at[i].start;
	if (total > most)
		return refuse("more has changed than is copied at a time");
	for (size_t i = from; i < list->count;) {
		size_t n = 0, size = 0;

		for (; n < IOV && i + n < list->count; n++) {
			there[n] = (struct iovec){ (void *)list->at[i + n].start, list->at[i + n].end - list->at[i + n].start };
			size += there[n].iov_len;
		}
		here = (struct iovec){ list->pages + list->size, size };
		if (process_vm_readv(process.pid, &here, 1, there, n, 0) == (ssize_t)size) {
			list->size += size;
		} else {
			for (size_t k = 0; k < n; k++) {
				struct region *one = &list->at[i + k];

				if (peek(process.pid, one->start, list->pages + list->size, one->end - one->start))
					list->size += one->end - one->start;
				else
					one->categories |= UNREAD;
			}
		}
		i += n;
	}
	return true;
}

static bool open_pagemap(void)
{
	if (process.pagemap >= 0)
		close(process.pagemap);
	process.pagemap = open(of_process("pagemap"), O_RDONLY | O_CLOEXEC); /* after exec it is another memory */
	return process.pagemap >= 0 ? true : refuse("the process is gone");
}

/* Has writes to pages of files noted, which make other pages of them. Those that are others by now are left as they are. */
static bool protect_files(void)
{
	for (int i = 0; i < mapping_count; i++) {
		if (mappings[i].is_special || !mappings[i].is_file)
			continue;
		if (!find_written(&mappings[i], false))
			return false;
		for (size_t k = 0; k < written.count; k++) {
			struct mapping part = { .start = written.at[k].start, .end = written.at[k].end };

			protected.count = 0;
			if (!scan_range(&protected, &part, SCAN_WP_MATCHING, IS_WRITTEN | IS_FILE, IS_PRESENT))
				return false;
		}
	}
	return true;
}

/* All pages that are no file's in the mappings of files. */
static bool find_own(void)
{
	own.count = 0;
	for (int i = 0; i < mapping_count; i++)
		if (!mappings[i].is_special && mappings[i].is_file && !scan_range(&own, &mappings[i], 0, 0, 0))
			return false;
	merge(&own);
	return true;
}

bool begin_tracking_anew(void)
{
	/* What is another page before it is looked for is found; what becomes one later is written. */
	return open_pagemap() && scan_all(&protected, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT) && protect_files() && find_own();
}

/* What is not tracked counts as written until it is. */
static void track_more(void)
{
	for (int i = 0; has_untracked && i < mapping_count; i++) {
		struct uffdio_register asked = { .range = { mappings[i].start, mappings[i].end - mappings[i].start },
						 .mode = UFFDIO_REGISTER_MODE_WP };

		/* Refused: shared memory. The caller knows it by name. */
		if (!mappings[i].is_special)
			(void)ioctl(process.uffd, UFFDIO_REGISTER, &asked);
	}
	has_untracked = false;
}

static bool copy_from(size_t known)
{
	if (!open_pagemap())
		return false;
	track_more();
	return scan_more(&ahead, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT) && note_own(&ahead) && protect_files() &&
	       copy_runs(&ahead, known, COPIED_MOST);
}

bool copy_ahead(void)
{
	ahead.count = ahead.size = 0;
	return copy_from(0);
}

bool copy_more_ahead(void)
{
	return copy_from(ahead.count);
}

static bool find_present(void)
{
	return scan_all(&present, 0, 0, IS_WPALLOWED | IS_WRITTEN | IS_SWAPPED);
}

void rehearse_memory(void)
{
	(void)find_present();
}

bool copy_late(void)
{
	bool is_tracked = false;

	if (!open_pagemap() || !find_present())
		return false;
	late.count = late.size = 0;
	for (size_t i = 0; i < present.count; i++) {
		struct region *one = &present.at[i];
		const struct mapping *of = mapping_of(one->start);

		if (!of || of->is_special)
			continue;
		is_tracked |= one->categories & IS_WPALLOWED;
		/* In a file's mapping a page that was given back leaves a mark which cannot be told from one that is swapped out. */
		if ((one->categories & (IS_WPALLOWED | IS_WRITTEN)) == IS_WPALLOWED && !(one->categories & IS_SWAPPED && of->is_file))
			continue;
		has_untracked |= !(one->categories & IS_WPALLOWED);
		one->categories |= COPIED;
		late.at[late.count++] = *one;
	}
	if (!is_tracked)
		return refuse("its memory is another one");
	if (!copy_runs(&late, 0, PAUSED_MOST))
		return false;
	own.count = 0;
	return note_own(&present);
}

void forget_copies(void)
{
	const size_t kept = 4 << 20;
	struct run_list *all[] = { &ahead, &late };

	for (int i = 0; i < 2; i++)
		if (all[i]->size > kept)
			madvise(all[i]->pages + kept, ((all[i]->size - kept) + PAGE - 1) & ~(size_t)(PAGE - 1), MADV_DONTNEED);
}
