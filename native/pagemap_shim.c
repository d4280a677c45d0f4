/* pagemap_shim: lets CRIU leave out pages that relive-tracker has copied ahead and that have not changed since.
 *
 * Loaded into CRIU with LD_PRELOAD for such commits only. CRIU asks PAGEMAP_SCAN which pages of a mapping to dump. From the
 * answer those are taken out that the kernel says are tracked and not written (PAGE_IS_WPALLOWED, not PAGE_IS_WRITTEN),
 * and each is noted in the file of RELIVE_LEFT_OUT (a descriptor's number): three u64, the pid as CRIU sees it, the address
 * of the first page, the address behind the last. Both together are always what CRIU would have dumped: whoever merges the
 * pages of the tracker in can check that none is missing. Where a note cannot be written nothing is left out.
 *
 * The processes stand still meanwhile, so that asking twice gives one answer.
 *
 * CRIU's question makes the kernel look at the struct page of each page. In a mapping that is tracked as a whole that is spared:
 * what is there and not written is found by the page tables alone, in one walk, and only the rest is asked about.
 */
#define _GNU_SOURCE
#include "pagemap_scan.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 1024, PATH = 64 };

static long raw_ioctl(int fd, unsigned long request, void *argument)
{
	return syscall(SYS_ioctl, fd, request, argument);
}

/* The pid of an open /proc/PID/pagemap; 0 where it is something else. */
static uint64_t pid_of(int fd)
{
	char path[PATH], target[PATH], *end;
	ssize_t length;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	length = readlink(path, target, sizeof target - 1);
	if (length <= 0)
		return 0;
	target[length] = '\0';
	end = strrchr(target, '/');
	if (!end || strcmp(end, "/pagemap"))
		return 0;
	*end = '\0';
	end = strrchr(target, '/');
	return end ? strtoull(end + 1, NULL, 10) : 0;
}

/* Notes that one run of pages is left out. Appended as one write: CRIU may ask in several processes. */
static bool note(uint64_t pid, uint64_t start, uint64_t end)
{
	static int file = -2;
	uint64_t record[3] = { pid, start, end };

	if (file == -2) {
		const char *number = getenv("RELIVE_LEFT_OUT");

		file = number ? atoi(number) : -1;
	}
	return file >= 0 && write(file, record, sizeof record) == sizeof record;
}

/* The next regions of [start, end) that were asked for, are tracked and not written; how many, -1 with errno. */
static long unchanged(int fd, const struct scan_arg *asked, uint64_t start, uint64_t end, struct region *found)
{
	struct scan_arg scan = *asked;

	scan.start = start;
	scan.end = end;
	scan.vec = (uint64_t)found;
	scan.vec_len = MOST;
	scan.category_mask |= IS_WPALLOWED | IS_WRITTEN;
	scan.category_inverted |= IS_WRITTEN;
	scan.return_mask = IS_WPALLOWED;
	return raw_ioctl(fd, SCAN, &scan);
}

struct answer {
	struct region *regions;
	uint64_t count, room;
};

static bool add(struct answer *to, uint64_t start, uint64_t end, uint64_t categories)
{
	if (start >= end)
		return true;
	if (to->count == to->room)
		return false;
	to->regions[to->count++] = (struct region){ start, end, categories };
	return true;
}

/* Writes to `left` what remains of the regions of an answer; false where that is not known, or does not fit. */
static bool subtract(int fd, uint64_t pid, const struct scan_arg *asked, long count, struct answer *left)
{
	const struct region *all = (const struct region *)asked->vec;
	static struct region found[MOST];
	uint64_t last = all[count - 1].end, at = all[0].start; /* up to `at` all is decided */
	long i = 0, many;

	do {
		many = unchanged(fd, asked, at, last, found);
		if (many < 0)
			return false;
		for (long n = 0; n < many; n++) {
			for (; i < count && all[i].start < found[n].end; i++) {
				uint64_t begin = all[i].start > at ? all[i].start : at;
				uint64_t low = begin > found[n].start ? begin : found[n].start;
				uint64_t high = all[i].end < found[n].end ? all[i].end : found[n].end;

				if (!add(left, begin, all[i].end < low ? all[i].end : low, all[i].categories))
					return false;
				if (low < high && !note(pid, low, high))
					return false;
				if (all[i].end > found[n].end)
					break; /* the rest of it comes later */
			}
			at = found[n].end;
		}
	} while (many == MOST); /* of fewer the kernel says that it went through all */
	for (; i < count; i++)
		if (!add(left, all[i].start > at ? all[i].start : at, all[i].end, all[i].categories))
			return false;
	return true;
}

static long leave_out(int fd, uint64_t pid, struct scan_arg *asked, long count)
{
	struct answer left = { malloc(asked->vec_len * sizeof *left.regions), 0, asked->vec_len };

	if (left.regions && subtract(fd, pid, asked, count, &left)) {
		memcpy((void *)asked->vec, left.regions, left.count * sizeof *left.regions);
		count = (long)left.count;
	}
	free(left.regions);
	return count;
}

/* Asks CRIU's question about [start, end) only, the answer behind what there is. */
static bool ask_about(int fd, const struct scan_arg *asked, uint64_t start, uint64_t end, struct answer *to)
{
	struct scan_arg scan = *asked;
	long count;

	if (start >= end)
		return true;
	if (to->count == to->room)
		return false;
	scan.start = start;
	scan.end = end;
	scan.vec = (uint64_t)(to->regions + to->count);
	scan.vec_len = to->room - to->count;
	count = raw_ioctl(fd, SCAN, &scan);
	if (count < 0 || (uint64_t)count == scan.vec_len)
		return false;
	to->count += (uint64_t)count;
	return true;
}

/* Answers for a range in which every mapping is tracked; -1 where one is not, or not all could be found out.
 *
 * What is written, or not there, is looked for, as the kernel walks fastest where it finds little; what lies between is left out. Should
 * the tracker die meanwhile, what was not found before is right all the same, and the rest is not tracked: -1.
 */
static long answer_for_tracked(int fd, uint64_t pid, struct scan_arg *asked)
{
	static struct region found[MOST];
	struct answer to = { (struct region *)asked->vec, 0, asked->vec_len };
	struct scan_arg scan = { .size = sizeof scan, .flags = CHECK_WPASYNC, .start = asked->start, .end = asked->end,
				 .vec = (uint64_t)found, .vec_len = MOST, .category_inverted = IS_PRESENT,
				 .category_anyof_mask = IS_PRESENT | IS_WRITTEN | IS_PFNZERO, .return_mask = IS_WPALLOWED };
	uint64_t at = asked->start;
	long count;

	do {
		count = raw_ioctl(fd, SCAN, &scan);
		for (long i = 0; i < count; i++) {
			if (at < found[i].start && !note(pid, at, found[i].start))
				return -1;
			if (!ask_about(fd, asked, found[i].start, found[i].end, &to))
				return -1;
			at = found[i].end;
		}
		scan.start = at;
	} while (count == MOST); /* of fewer the kernel says that it went through all */
	if (count < 0 || (at < asked->end && !note(pid, at, asked->end)))
		return -1;
	asked->walk_end = asked->end;
	return (long)to.count;
}

/* CRIU asks about other things, too, as where guard pages are. */
static bool is_about_pages(const struct scan_arg *asked)
{
	const uint64_t others = ~(uint64_t)(IS_FILE | IS_PFNZERO);

	return !asked->flags && !asked->max_pages && asked->category_anyof_mask == (IS_PRESENT | IS_SWAPPED) &&
	       !((asked->category_mask | asked->category_inverted) & others);
}

int ioctl(int fd, unsigned long request, ...)
{
	struct scan_arg *asked;
	va_list arguments;
	uint64_t pid = 0;
	long result;

	va_start(arguments, request);
	asked = va_arg(arguments, void *);
	va_end(arguments);
	if (request == SCAN && is_about_pages(asked))
		pid = pid_of(fd);
	result = pid ? answer_for_tracked(fd, pid, asked) : -1;
	if (result < 0) {
		result = raw_ioctl(fd, request, asked);
		if (pid && result > 0)
			result = leave_out(fd, pid, asked, result);
	}
	return (int)result;
}
