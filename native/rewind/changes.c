/* See changes.h. */
#define _GNU_SOURCE
#include "changes.h"

#include "../micro/mappings.h"
#include "../micro/scanning.h"

#include <string.h>
#include <sys/ioctl.h>

enum {
	TABLE = 512 * PAGE, /* [bytes] that one page table maps */
	NEAR = 16, /* [pages] so many are looked at sooner than the kernel is asked once more */
	PIECES = 64, /* found at a time; for each the kernel makes room first */
};
#define IS_UNKNOWN (1ULL << 32) /* whether something is there */

struct run_list differing, surplus, passed;
bool has_untracked;
static struct run_list written, unwritten, beside, doubtful, ignored;

void make_room_for_changes(void)
{
	struct run_list *all[] = { &differing, &surplus, &passed, &written, &unwritten, &beside, &doubtful, &ignored };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		all[i]->at = room_for_regions();
}

/* Adds what counts as written in a range of mappings. Returns 0, or what went wrong: EPERM, if one of them is not tracked. */
static int scan_written(uint64_t start, uint64_t end)
{
	struct scan_arg scan = {
		.size = sizeof scan,
		.flags = CHECK_WPASYNC,
		.start = start,
		.end = end,
		.vec = (uint64_t)(written.at + written.count),
		.vec_len = RUNS_MOST - written.count,
		.category_mask = IS_WRITTEN, /* also what is not there; whose a page is is not asked, which takes long */
		.return_mask = IS_PRESENT | IS_SWAPPED | IS_PFNZERO,
	};
	const long found = ioctl(process.pagemap, SCAN, &scan);

	if (found < 0)
		return errno;
	if ((uint64_t)found == scan.vec_len)
		return ENOSPC;
	written.count += (size_t)found;
	return 0;
}

/* The same of each by itself; of one that is not tracked all counts. */
static int scan_apart(int from, int end)
{
	for (int i = from; i < end; i++) {
		const int error = scan_written(mappings[i].start, mappings[i].end);

		if (error && error != EPERM)
			return error;
		if (!error)
			continue;
		has_untracked = true;
		push(&written, (struct region){ mappings[i].start, mappings[i].end, IS_UNKNOWN });
	}
	return 0;
}

static bool find_written(void)
{
	written.count = 0;
	for (int i = 0, error; i < mapping_count;) {
		const int from = i++;

		if (mappings[from].is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special)
			i++;
		error = scan_written(mappings[from].start, mappings[i - 1].end);
		if (error == EPERM)
			error = scan_apart(from, i);
		if (error)
			return refuse("its memory cannot be scanned: %s", strerror(error));
	}
	order(&written);
	return true;
}

/* Adds to `doubtful` what of some addresses is not in memory, or in one of some states; all of it where that is in many pieces. */
static bool scan_doubtful(uint64_t start, uint64_t end, uint64_t states)
{
	struct region found[PIECES];
	struct scan_arg scan = {
		.size = sizeof scan,
		.start = start,
		.end = end,
		.vec = (uint64_t)found,
		.vec_len = PIECES,
		.category_inverted = IS_PRESENT,
		.category_anyof_mask = IS_PRESENT | states,
		.return_mask = IS_PRESENT,
	};
	const long count = ioctl(process.pagemap, SCAN, &scan);

	if (count < 0)
		return refuse("its memory cannot be scanned: %s", strerror(errno));
	for (long i = 0; i < count && count < PIECES; i++)
		push(&doubtful, found[i]);
	if (count == PIECES)
		push(&doubtful, (struct region){ start, end, 0 });
	return true;
}

/* Memory without a file: one page of each page table. Where a table was given back as a whole it looks as if nothing in it had been written;
 * any other page that was given back counts as written. */
static bool doubt_tables(uint64_t start, uint64_t end, uint64_t *known)
{
	for (uint64_t at = start; at < end; at = (at / TABLE + 1) * TABLE) {
		const size_t before = doubtful.count;

		if (*known == at / TABLE)
			continue;
		if (!scan_doubtful(at, at + PAGE, IS_WRITTEN))
			return false;
		if (doubtful.count == before)
			*known = at / TABLE;
		else
			push(&doubtful, (struct region){ at, end, 0 });
	}
	return true;
}

static bool is_in_file(uint64_t address)
{
	const struct mapping *of = mapping_of(address);

	return of && of->is_file;
}

/* Page by page: in a file's mapping a page that was given back leaves a mark, which does not count as written. Goes on to the first region behind
 * what was asked about. */
static bool doubt_pages(size_t *next)
{
	const uint64_t start = unwritten.at[*next].start;
	uint64_t end = unwritten.at[(*next)++].end;

	while (*next < unwritten.count && unwritten.at[*next].start - end <= (uint64_t)NEAR * PAGE && is_in_file(unwritten.at[*next].start))
		end = unwritten.at[(*next)++].end;
	return scan_doubtful(start, end, IS_FILE | IS_WRITTEN);
}

/* Adds to `differing` what the reference has and is not there any more, though it does not count as written. */
static bool find_gone(void)
{
	uint64_t known = 0; /* no mapping begins at 0 */
	size_t next = 0;

	doubtful.count = ignored.count = 0;
	for (size_t i = 0; i < unwritten.count;)
		if (is_in_file(unwritten.at[i].start) || !can_scan_quickly()) {
			if (!doubt_pages(&i))
				return false;
		} else {
			if (!doubt_tables(unwritten.at[i].start, unwritten.at[i].end, &known))
				return false;
			i++;
		}
	merge(&doubtful, 0);
	for (size_t i = 0; i < unwritten.count; i++)
		divide(unwritten.at[i], &doubtful, &next, &differing, &ignored);
	merge(&differing, 0);
	return true;
}

/* Adds to `surplus` what is there of a part of one mapping. */
static bool scan_surplus(const struct mapping *part)
{
	struct region found[PIECES];
	const uint64_t without = IS_PFNZERO | (part->is_file ? IS_FILE : 0);
	struct scan_arg scan = {
		.size = sizeof scan,
		.start = part->start,
		.end = part->end,
		.vec = (uint64_t)found,
		.vec_len = PIECES,
		.category_inverted = without,
		.category_mask = without,
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
	};
	const long count = ioctl(process.pagemap, SCAN, &scan);

	if (count < 0)
		return refuse("its memory cannot be scanned: %s", strerror(errno));
	if (count == PIECES)
		return scan_range(&surplus, part, 0, 0, 0);
	for (long i = 0; i < count; i++)
		push(&surplus, found[i]);
	return true;
}

/* What counts as written and the reference does not have is surplus where something is there that is not a file's own. */
static bool find_surplus(void)
{
	for (size_t i = 0; i < beside.count; i++) {
		struct region rest = beside.at[i];

		if (rest.categories & IS_PFNZERO) {
			push(&passed, rest);
			continue;
		}
		if (!(rest.categories & (IS_PRESENT | IS_SWAPPED | IS_UNKNOWN)))
			continue;
		for (struct region part = rest; rest.start < rest.end; rest.start = part.end) {
			const struct mapping *of = mapping_of(rest.start);
			const size_t before = surplus.count;

			if (!of)
				return refuse("a mapping is gone");
			part.start = rest.start;
			part.end = of->end < rest.end ? of->end : rest.end;
			if (!of->is_file && !(part.categories & IS_UNKNOWN))
				push(&surplus, part);
			else if (!scan_surplus(&(struct mapping){ .start = part.start, .end = part.end, .is_file = of->is_file }))
				return false;
			if (surplus.count == before && part.categories & IS_PRESENT)
				push(&passed, part);
		}
	}
	return true;
}

bool find_changes(const struct run_list *kept)
{
	size_t next = 0;

	differing.count = surplus.count = passed.count = beside.count = unwritten.count = ignored.count = 0;
	has_untracked = false;
	if (!find_written())
		return false;
	for (size_t i = 0; i < kept->count; i++)
		divide(kept->at[i], &written, &next, &differing, &unwritten);
	next = 0;
	for (size_t i = 0; i < written.count; i++)
		divide(written.at[i], kept, &next, &ignored, &beside);
	return find_gone() && find_surplus() && has_room();
}
