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
	NEAR = 128, /* [pages] so many are looked at sooner than the kernel is asked once more */
};
#define COPIED_MOST (1ULL << 30)
#define PAUSED_MOST (64ULL << 20) /* [bytes] copied with all stopped; what changes so much is better dumped */
#define UNREAD (1ULL << 32)
#define COPIED (1ULL << 33)

struct run_list ahead, late, present;
static struct run_list protected;

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

/* All mappings but the kernel's own and shared ones, as they were read last; neighbours of one kind at a time. */
static bool scan_more(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
{
	for (int i = 0; i < mapping_count;) {
		struct mapping range = mappings[i++];

		if (range.is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special && mappings[i].is_file == range.is_file)
			range.end = mappings[i++].end;
		if (!scan_range(list, &range, flags, mask, returned))
			return false;
	}
	return true;
}

bool scan_all(struct run_list *list, uint64_t flags, uint64_t mask, uint64_t returned)
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

bool begin_tracking_anew(void)
{
	return open_pagemap() && scan_all(&protected, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT);
}

bool copy_ahead(void)
{
	return open_pagemap() && scan_all(&ahead, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT) && copy_runs(&ahead, 0, COPIED_MOST);
}

bool copy_more_ahead(void)
{
	const size_t known = ahead.count;

	return open_pagemap() && scan_more(&ahead, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT) && copy_runs(&ahead, known, COPIED_MOST);
}

bool protect(const struct run_list *list)
{
	protected.count = 0;
	for (size_t i = 0; i < list->count;) {
		const struct mapping *of = mapping_of(list->at[i].start);
		struct mapping range = { list->at[i].start, list->at[i].end, false, false, false };

		for (i++; i < list->count && of && !of->is_file && list->at[i].start < of->end; i++) {
			if (list->at[i].start - range.end > (uint64_t)NEAR * PAGE)
				break;
			range.end = list->at[i].end;
		}
		protected.count = 0;
		if (!scan_range(&protected, &range, SCAN_WP_MATCHING, IS_WRITTEN, IS_PRESENT))
			return false;
	}
	return true;
}


bool copy_late(void)
{
	bool is_tracked = false, is_new = false;

	if (!open_pagemap() || !scan_all(&present, 0, 0, IS_WPALLOWED | IS_WRITTEN | IS_SWAPPED))
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
		is_new |= !(one->categories & IS_WPALLOWED);
		one->categories |= COPIED;
		late.at[late.count++] = *one;
	}
	if (!is_tracked)
		return refuse("its memory is another one");
	if (!copy_runs(&late, 0, PAUSED_MOST))
		return false;
	/* Refused: shared memory. The caller knows it by name. */
	for (int i = 0; is_new && i < mapping_count; i++) {
		struct uffdio_register asked = { .range = { mappings[i].start, mappings[i].end - mappings[i].start },
						 .mode = UFFDIO_REGISTER_MODE_WP };

		if (!mappings[i].is_special)
			(void)ioctl(process.uffd, UFFDIO_REGISTER, &asked);
	}
	return protect(&late);
}

void forget_copies(void)
{
	const size_t kept = 4 << 20;
	struct run_list *all[] = { &ahead, &late };

	for (int i = 0; i < 2; i++)
		if (all[i]->size > kept)
			madvise(all[i]->pages + kept, ((all[i]->size - kept) + PAGE - 1) & ~(size_t)(PAGE - 1), MADV_DONTNEED);
}
