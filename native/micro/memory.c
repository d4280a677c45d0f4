/* See memory.h. */
#define _GNU_SOURCE
#include "memory.h"

#include "audit.h"
#include "connections.h"
#include "look.h"
#include "mappings.h"
#include "record_file.h"
#include "scanning.h"
#include "shared.h"
#include "text.h"

#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum {
	IOV = 512,
	KEPT_PAGES = 4 << 20, /* [bytes] of copies in the pause that most commits need */
};
#define COPIED_MOST (1ULL << 30)
#define PAUSED_MOST (64ULL << 20) /* [bytes] copied with all stopped; what changes so much is better dumped */
#define UNREAD (1ULL << 32)
#define TOO_MUCH "more has changed than is copied at a time"

struct run_list ahead, late, present;
static bool has_untracked; /* as of the last pause */

void make_room(void)
{
	buffer = room_for((size_t)WINDOW * PAGE);
	text.at = room_for(TEXT_MOST);
	afterwards.at = room_for(TEXT_MOST);
	late.pages = room_for(PAUSED_MOST);
	waiting.at = room_for(WAITING_MOST);
	ahead.at = room_for_regions();
	late.at = room_for_regions();
	present.at = room_for_regions();
	make_room_for_scans();
	make_room_for_shared();
}

static size_t size_from(const struct run_list *list, size_t from)
{
	size_t size = 0;

	for (size_t i = from; i < list->count; i++)
		size += list->at[i].end - list->at[i].start;
	return size;
}

/* Copies the regions from one on, one after the other; those that cannot be read are marked, and have no pages. */
static void copy_runs(struct run_list *list, size_t from)
{
	struct iovec there[IOV], here;

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
}

bool begin_tracking_anew(void)
{
	ahead.count = ahead.size = 0;
	/* What is another page before it is looked for is found; what becomes one later is written. */
	return open_pagemap() && find_and_protect(&ahead) && find_own();
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
	size_t size;

	if (!open_pagemap())
		return false;
	track_more();
	if (!find_and_protect(&ahead) || !note_own(&ahead))
		return false;
	size = ahead.size + size_from(&ahead, known);
	if (size > COPIED_MOST)
		return refuse(TOO_MUCH);
	if (!make_room_in_record(size))
		return false;
	copy_runs(&ahead, known);
	return true;
}

bool copy_ahead(const char *path)
{
	ahead.count = ahead.size = 0;
	return open_record(path, &ahead, COPIED_MOST) && copy_from(0);
}

bool copy_more_ahead(void)
{
	return copy_from(ahead.count);
}

void rehearse_memory(void)
{
	rehearse_scan(&present);
}

/* All that is there now; `late` gets what came since the pages before were looked at, where that is told apart. */
static bool find_all(void)
{
	late.count = late.size = 0;
	if (process.pagemap >= 0 && find_changed(&present, &late))
		return !is_memory_audit(PAGES) || find_compared(&present, &late);
	late.count = 0;
	return open_pagemap() && find_present(&present);
}

bool copy_late(void)
{
	bool is_tracked = false;
	size_t come;

	if (!find_all())
		return false;
	come = late.count;
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
		push(&late, *one);
	}
	for (size_t i = 0; i < come; i++) {
		has_untracked |= !(late.at[i].categories & IS_WPALLOWED);
		push(&present, late.at[i]);
	}
	if (!has_room())
		return false;
	if (!is_tracked)
		return refuse("its memory is another one");
	if (size_from(&late, 0) > PAUSED_MOST)
		return refuse(TOO_MUCH);
	copy_runs(&late, 0);
	return true;
}

bool settle_copies(void)
{
	merge(&present, 0);
	forget_own();
	return note_own(&present);
}

void forget_copies(void)
{
	if (late.size > KEPT_PAGES)
		madvise(late.pages + KEPT_PAGES, late.size - KEPT_PAGES, MADV_DONTNEED);
}
