/* See record.h. */
#define _GNU_SOURCE
#include "record.h"

#include "base.h"
#include "connections.h"
#include "look.h"
#include "memory.h"
#include "shared.h"
#include "text.h"

#include <cpuid.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

enum section { TEXT = 1, AFTERWARDS, THREAD, PRESENT, AHEAD_RUNS, AHEAD_PAGES, RUNS, PAGES, CLOCKS, XSAVE_OFFSETS, WAITING, SHARED_RUNS, SHARED_PAGES };

struct stopped_thread {
	uint64_t tid, mask;
	struct user_regs_struct registers;
	unsigned char xstate[XSTATE_ROOM];
};

static bool write_section(int fd, enum section kind, const void *from, size_t size)
{
	uint64_t head[2] = { kind, size };

	return write_all(fd, head, sizeof head) && write_all(fd, from, size);
}

/* Pages are given back behind what is written, but for as much as most commits need: they need not be in memory twice. */
static bool write_pages(int fd, enum section kind, const struct run_list *list)
{
	const uint64_t head[2] = { kind, list->size };
	bool well = write_all(fd, head, sizeof head);

	for (size_t at = 0; well && at < list->size; at += KEPT_PAGES) {
		const size_t size = list->size - at < KEPT_PAGES ? list->size - at : KEPT_PAGES;

		well = write_all(fd, list->pages + at, size);
		if (at)
			madvise(list->pages + at, size, MADV_DONTNEED);
	}
	return well;
}

static bool write_threads(int fd)
{
	for (int i = 0; i < thread_count; i++) {
		struct stopped_thread one = { (uint64_t)threads[i].inside, threads[i].context.mask, threads[i].context.registers, { 0 } };

		memcpy(one.xstate, threads[i].context.xstate, threads[i].context.xsize);
		if (!write_section(fd, THREAD, &one, offsetof(struct stopped_thread, xstate) + threads[i].context.xsize))
			return false;
	}
	return true;
}

static bool write_offsets(int fd)
{
	static uint64_t found[20 * 2]; /* asked once: in a virtual machine each question leaves it */
	static bool is_asked;
	unsigned size, offset, c, d;

	for (unsigned i = 2; !is_asked && i < 20; i++)
		if (__get_cpuid_count(0xd, i, &size, &offset, &c, &d) && !(c & 1)) {
			found[2 * i] = offset;
			found[2 * i + 1] = size;
		}
	is_asked = true;
	return write_section(fd, XSAVE_OFFSETS, found, sizeof found);
}

/* Over what it held, and cut off behind by `end`: memory that is there already need not be found and cleared again. */
static int make(const char *path)
{
	return open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
}

static bool write_seen(int fd)
{
	return write_section(fd, TEXT, text.at, text.size) && write_section(fd, AFTERWARDS, afterwards.at, afterwards.size);
}

/* With errno as it was before: closing may fail, too. */
static bool end(int fd, bool well)
{
	int error;

	if (fd >= 0 && well)
		well = !ftruncate(fd, lseek(fd, 0, SEEK_CUR));
	error = errno;
	if (fd < 0 || (!close(fd) && well))
		return well;
	if (!well)
		errno = error;
	return false;
}

bool write_look(const char *path)
{
	const int fd = make(path);

	return end(fd, fd >= 0 && write_seen(fd));
}

bool write_commit(const char *path, const int64_t clocks[4])
{
	const int fd = make(path);

	return end(fd, fd >= 0 && write_seen(fd) && write_threads(fd) &&
			       write_section(fd, PRESENT, present.at, present.count * sizeof *present.at) &&
			       write_section(fd, AHEAD_RUNS, ahead.at, ahead.count * sizeof *ahead.at) &&
			       write_pages(fd, AHEAD_PAGES, &ahead) &&
			       write_section(fd, RUNS, late.at, late.count * sizeof *late.at) &&
			       write_pages(fd, PAGES, &late) &&
			       write_section(fd, CLOCKS, clocks, 4 * sizeof *clocks) && write_offsets(fd) &&
			       write_section(fd, WAITING, waiting.at, waiting.size) &&
			       write_section(fd, SHARED_RUNS, shared.at, shared.count * sizeof *shared.at) &&
			       write_section(fd, SHARED_PAGES, shared.pages, shared.size));
}
