/* See pages.h. */
#define _GNU_SOURCE
#include "pages.h"

#include "beside.h"
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
	NEAR = 128, /* [pages] so many are looked at sooner than the kernel is asked once more */
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

static struct run_list protected;
static struct run_list known; /* where the reference has memory */

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

/* Has writes to the pages of regions noted anew; of memory without files also of what lies between two of one mapping. */
static bool protect(const struct run_list *list)
{
	for (size_t i = 0; i < list->count;) {
		const struct mapping *of = mapping_of(list->at[i].start);
		struct mapping range = { .start = list->at[i].start, .end = list->at[i].end };

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

static int by_address(const void *a, const void *b)
{
	const struct region *one = a, *other = b;

	return one->start < other->start ? -1 : one->start > other->start;
}

static void order_present(void)
{
	uint64_t last = 0;
	size_t count = 0;

	qsort(present.at, present.count, sizeof *present.at, by_address);
	/* With more regions than the kernel collects at a time it says some of them twice (6.18). */
	for (size_t i = 0; i < present.count; i++) {
		struct region one = present.at[i];

		if (one.start < last)
			one.start = last;
		if (one.start >= one.end)
			continue;
		present.at[count++] = one;
		last = one.end;
	}
	present.count = count;
}

bool find_all(uint64_t returned)
{
	if (!scan_all(returned))
		return false;
	order_present();
	return true;
}

/* As find_all; but of what was not written since it was protected only what the reference has, and of pages of files nothing. */
bool find_pages(void)
{
	know_present(&known);
	if (!find_present(&present))
		return false;
	order_present();
	return true;
}

static bool copy_runs_of_reference(unsigned char *to)
{
	for (size_t i = 0; i < present.count; i++) {
		const struct region *one = &present.at[i];
		const size_t size = one->end - one->start;

		if (!peek(process.pid, one->start, to, size))
			return refuse("its memory at %llx cannot be read", (unsigned long long)one->start);
		if (kept_count && kept[kept_count - 1].end == one->start)
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
	size_t total = 0;
	unsigned char *to;

	protected.at = room_for_regions();
	known.at = room_for_regions();
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

static bool is_unchanged(const struct region *one)
{
	const struct mapping *of = mapping_of(one->start);

	/* In a file's mapping a page that was given back leaves a mark which cannot be told from one that is swapped out. */
	return (one->categories & (IS_WPALLOWED | IS_WRITTEN)) == IS_WPALLOWED && !(one->categories & IS_SWAPPED && of && of->is_file);
}

/* All of one kept run that is not there, or not as it was; *next: the first region that may touch it. */
static bool put_run_back(const struct kept_run *one, size_t *next)
{
	uint64_t at = one->start;

	while (*next < present.count && present.at[*next].end <= at)
		++*next;
	for (size_t i = *next; at < one->end; i++) {
		const struct region *is = i < present.count && present.at[i].start < one->end ? &present.at[i] : NULL;
		const uint64_t until = is ? is->start : one->end;
		uint64_t end;

		if (at < until && !write_later(at, until, one->content + (at - one->start)))
			return false;
		if (!is)
			break;
		at = at < until ? until : at;
		end = is->end < one->end ? is->end : one->end;
		if (!is_unchanged(is) && !write_later(at, end, one->content + (at - one->start)))
			return false;
		at = end;
	}
	return true;
}

/* All of one region that the reference does not have; *next: the first kept run that may touch it. */
static bool clear_beside(const struct region *is, size_t *next)
{
	uint64_t at = is->start;

	while (*next < kept_count && kept[*next].end <= at)
		++*next;
	for (size_t i = *next; at < is->end; i++) {
		const struct kept_run *one = i < kept_count && kept[i].start < is->end ? &kept[i] : NULL;
		const uint64_t until = one ? one->start : is->end;

		if (at < until && !clear(at, until))
			return false;
		if (!one)
			break;
		at = one->end;
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

bool put_pages_back(void)
{
	bool is_untracked = false;
	size_t next = 0;

	pages_put_back = pieces = late.count = 0;
	for (size_t i = 0; i < kept_count; i++)
		if (!put_run_back(&kept[i], &next))
			return false;
	next = 0;
	for (size_t i = 0; i < present.count; i++) {
		is_untracked |= !(present.at[i].categories & IS_WPALLOWED);
		if (!is_unchanged(&present.at[i]) && !clear_beside(&present.at[i], &next))
			return false;
	}
	if (!write_pieces())
		return false;
	if (is_untracked)
		register_all();
	return protect(&late);
}
