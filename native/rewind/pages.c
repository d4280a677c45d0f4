/* See pages.h. */
#define _GNU_SOURCE
#include "pages.h"

#include "beside.h"
#include "changes.h"
#include "held.h"

#include "../micro/mappings.h"
#include "../micro/memory.h"
#include "../micro/scanning.h"
#include "../micro/text.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	PIECES = 512,
	WRITTEN_MOST = 1 << 18, /* runs */
	NEAR = 128, /* [pages] so many are protected once more sooner than the kernel is asked once more */
	PROBES = 32, /* of the pages that are always written such a part is protected in each rollback */
	PIECE_MOST = 64, /* [pages] */
	PART = 32, /* [pieces] of what is written; less is written sooner by one thread */
	ZEROED_MOST = 64, /* [pages] of one run; what is longer is given back, which costs a call */
};
#define REFERENCE_MOST (4ULL << 30)

static struct kept_run {
	uint64_t start, end;
	unsigned char *content;
} *kept;
static size_t kept_count;
static int memory = -1; /* /proc/PID/mem */
size_t pages_put_back;

/* What is still to be written. */
static struct iovec here[PIECES], there[PIECES];
static size_t pieces;
static atomic_size_t next_piece; /* nobody has begun to write it */

static struct run_list known; /* where the reference has memory */

/* Pages that a service writes for each request are left unprotected, since they would be found written the next time as well: those that were put
 * back the last two times and are so now. */
static struct run_list last; /* put back the last time */
static struct run_list twice; /* and the time before */
static struct run_list constant, protected, ignored; /* of this rollback: left unprotected; protected; of no use */

static void *room_or_none(size_t size)
{
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return found == MAP_FAILED ? NULL : found;
}

/* All mappings but the kernel's own and shared ones, as they were read last; neighbours of one kind at a time. */
static bool scan_all(uint64_t returned)
{
	present.count = 0;
	for (int i = 0; i < mapping_count;) {
		struct mapping range = mappings[i++];

		if (range.is_special)
			continue;
		while (i < mapping_count && !mappings[i].is_special && mappings[i].is_file == range.is_file)
			range.end = mappings[i++].end;
		if (!scan_range(&present, &range, 0, 0, returned))
			return false;
	}
	return true;
}

bool find_all(uint64_t returned)
{
	if (!scan_all(returned))
		return false;
	order(&present);
	return true;
}

bool find_pages(void)
{
	return find_changes(&known);
}

static bool is_of_one_kind(uint64_t address, uint64_t other)
{
	const struct mapping *one = mapping_of(address), *of_other = mapping_of(other);

	return one && of_other && one->is_file == of_other->is_file;
}

static bool copy_runs_of_reference(unsigned char *to)
{
	for (size_t i = 0; i < present.count; i++) {
		const struct region *one = &present.at[i];
		const size_t size = one->end - one->start;

		if (!peek(process.pid, one->start, to, size))
			return refuse("its memory at %llx cannot be read", (unsigned long long)one->start);
		if (kept_count && kept[kept_count - 1].end == one->start && is_of_one_kind(kept[kept_count - 1].start, one->start))
			kept[kept_count - 1].end = one->end;
		else
			kept[kept_count++] = (struct kept_run){ one->start, one->end, to };
		to += size;
	}
	for (size_t i = 0; i < kept_count; i++)
		known.at[known.count++] = (struct region){ kept[i].start, kept[i].end, 0 };
	return true;
}

bool copy_reference(void)
{
	struct run_list *all[] = { &known, &last, &twice, &constant, &protected, &ignored };
	size_t total = 0;
	unsigned char *to;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		all[i]->at = room_for_regions();
	make_room_for_changes();
	process.pagemap = open(of_process("pagemap"), O_RDONLY | O_CLOEXEC);
	memory = open(of_process("mem"), O_RDWR | O_CLOEXEC);
	if (process.pagemap < 0 || memory < 0)
		return refuse("its memory cannot be opened");
	if (!find_all(IS_PRESENT))
		return false;
	for (size_t i = 0; i < present.count; i++)
		total += present.at[i].end - present.at[i].start;
	if (total > REFERENCE_MOST)
		return refuse("its memory is larger than what is kept, 4 GB");
	kept = room_or_none((present.count + 1) * sizeof *kept);
	to = room_or_none(total + PAGE);
	return kept && to ? copy_runs_of_reference(to) : refuse("there is no room for its memory");
}

size_t kept_runs_count(void)
{
	return kept_count;
}

const unsigned char *kept_run(size_t which, uint64_t *start, uint64_t *end)
{
	*start = kept[which].start;
	*end = kept[which].end;
	return kept[which].content;
}

bool poke(uint64_t to, const void *from, size_t size)
{
	return pwrite(memory, from, size, (off_t)to) == (ssize_t)size;
}

static bool write_some(size_t from, size_t end)
{
	size_t size = 0;

	for (size_t i = from; i < end; i++)
		size += here[i].iov_len;
	if (size && process_vm_writev(process.pid, here + from, end - from, there + from, end - from, 0) != (ssize_t)size)
		for (size_t i = from; i < end; i++)
			if (!poke((uint64_t)there[i].iov_base, here[i].iov_base, here[i].iov_len))
				return refuse("its memory at %p cannot be written", there[i].iov_base);
	return true;
}

/* Both threads take one part after the other, so that neither waits for more than one where the other has lost its processor. */
static bool write_parts(void)
{
	bool well = true;

	for (size_t from; well && (from = atomic_fetch_add(&next_piece, PART)) < pieces;)
		well = write_some(from, from + PART < pieces ? from + PART : pieces);
	return well;
}

static bool write_pieces(void)
{
	bool well;

	next_piece = 0;
	if (pieces <= PART) {
		well = write_parts();
	} else {
		begin_beside(write_parts);
		well = write_parts();
		well = end_beside(well) && well;
	}
	pieces = 0;
	return well;
}

static bool write_later(uint64_t start, uint64_t end, const unsigned char *content)
{
	if (late.count == WRITTEN_MOST)
		return refuse("its memory is in too many pieces");
	late.at[late.count++] = (struct region){ start, end, 0 };
	pages_put_back += (end - start) / PAGE;
	while (start < end) {
		const size_t most = (size_t)PIECE_MOST * PAGE, size = end - start < most ? end - start : most;

		here[pieces] = (struct iovec){ (void *)content, size };
		there[pieces++] = (struct iovec){ (void *)start, size };
		start += size;
		content += size;
		if (pieces == PIECES && !write_pieces())
			return false;
	}
	return true;
}

/* Of memory that the reference does not have. */
static bool clear(uint64_t start, uint64_t end)
{
	static const unsigned char zeros[ZEROED_MOST * PAGE];
	const struct mapping *of = mapping_of(start);

	if (of && !of->is_file && end - start <= sizeof zeros)
		return write_later(start, end, zeros);
	pages_put_back += (end - start) / PAGE;
	return call(SYS_madvise, (long)start, (long)(end - start), MADV_DONTNEED) == 0 ? true :
											 refuse("it cannot give memory back");
}

/* Of what differs: the content of the reference. */
static bool put_content_back(void)
{
	size_t run = 0;

	for (size_t i = 0; i < differing.count; i++) {
		const struct region *one = &differing.at[i];

		/* What lies side by side may be in two runs. */
		for (uint64_t start = one->start, end; start < one->end; start = end) {
			while (kept[run].end <= start)
				run++;
			end = kept[run].end < one->end ? kept[run].end : one->end;
			if (!write_later(start, end, kept[run].content + (start - kept[run].start)))
				return false;
		}
	}
	return true;
}

static void register_all(void)
{
	for (int i = 0; i < mapping_count; i++) {
		struct uffdio_register asked = { .range = { mappings[i].start, mappings[i].end - mappings[i].start },
						 .mode = UFFDIO_REGISTER_MODE_WP };

		if (!mappings[i].is_special)
			(void)ioctl(process.uffd, UFFDIO_REGISTER, &asked); /* what is refused counts as written each time */
	}
}

/* What is written from now on is noted anew. All of it has to be there: a page that is not would get a mark, and look as if it was swapped out. */
static bool protect_region(const struct region *one)
{
	struct scan_arg scan = { .size = sizeof scan, .flags = SCAN_WP_MATCHING, .start = one->start, .end = one->end };

	return ioctl(process.pagemap, SCAN, &scan) >= 0 ? true : refuse("its memory cannot be protected: %s", strerror(errno));
}

/* Whether what lies between two regions is there, and to be protected as well. `run` and `left` go on with the regions that are asked about. */
static bool is_protected_between(const struct region *one, const struct region *next, size_t *run, size_t *left)
{
	while (*run < known.count && known.at[*run].end <= one->start)
		++*run;
	while (*left < constant.count && constant.at[*left].end <= one->end)
		++*left;
	return next->start - one->end <= (uint64_t)NEAR * PAGE && *run < known.count && known.at[*run].start <= one->start &&
	       known.at[*run].end >= next->start && (*left == constant.count || constant.at[*left].start >= next->start);
}

static bool protect(void)
{
	static size_t turn;
	size_t next = 0, run = 0, left = 0;

	merge(&late, 0);
	constant.count = protected.count = ignored.count = 0;
	for (size_t i = 0; i < late.count; i++)
		divide(late.at[i], &twice, &next, &constant, &protected);
	next = 0;
	for (size_t i = 0; i < constant.count; i++)
		if (i % PROBES == turn % PROBES)
			push(&protected, constant.at[i]);
		else
			constant.at[next++] = constant.at[i];
	constant.count = next;
	turn++;
	push_within(&protected, &passed, &(struct mapping){ .end = UINT64_MAX });
	merge(&protected, 0);
	for (size_t i = 0; i < protected.count; i++) {
		struct region one = protected.at[i];

		while (i + 1 < protected.count && is_protected_between(&one, &protected.at[i + 1], &run, &left))
			one.end = protected.at[++i].end;
		if (!protect_region(&one))
			return false;
	}
	twice.count = next = 0;
	for (size_t i = 0; i < late.count; i++)
		divide(late.at[i], &last, &next, &twice, &ignored);
	memcpy(last.at, late.at, late.count * sizeof *late.at);
	last.count = late.count;
	return has_room();
}

bool put_pages_back(void)
{
	pages_put_back = pieces = late.count = 0;
	if (!put_content_back())
		return false;
	for (size_t i = 0; i < surplus.count; i++)
		if (!clear(surplus.at[i].start, surplus.at[i].end))
			return false;
	if (!write_pieces())
		return false;
	if (has_untracked)
		register_all();
	return protect();
}
