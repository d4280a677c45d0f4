/* See record.h. */
#define _GNU_SOURCE
#include "record.h"

#include "base.h"
#include "connections.h"
#include "look.h"
#include "memory.h"
#include "record_file.h"
#include "shared.h"
#include "text.h"

#include <cpuid.h>
#include <fcntl.h>
#include <string.h>

enum section { TEXT = 1, AFTERWARDS, THREAD, PRESENT, AHEAD_RUNS, AHEAD_PAGES, RUNS, PAGES, CLOCKS, XSAVE_OFFSETS, WAITING, SHARED_RUNS, SHARED_PAGES, NOTHING };

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

static bool write_seen(int fd)
{
	return write_section(fd, TEXT, text.at, text.size) && write_section(fd, AFTERWARDS, afterwards.at, afterwards.size);
}

bool write_look(const char *path)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	const bool well = fd >= 0 && write_seen(fd);
	const int error = errno; /* closing may fail, too */

	if (fd < 0 || (!close(fd) && well))
		return well;
	if (!well)
		errno = error;
	return false;
}

bool write_commit(const int64_t clocks[4])
{
	const int fd = record_behind_pages(AHEAD_PAGES, ahead.size);

	return fd >= 0 && write_seen(fd) && write_threads(fd) && write_section(fd, PRESENT, present.at, present.count * sizeof *present.at) &&
	       write_section(fd, AHEAD_RUNS, ahead.at, ahead.count * sizeof *ahead.at) &&
	       write_section(fd, RUNS, late.at, late.count * sizeof *late.at) && write_section(fd, PAGES, late.pages, late.size) &&
	       write_section(fd, CLOCKS, clocks, 4 * sizeof *clocks) && write_offsets(fd) &&
	       write_section(fd, WAITING, waiting.at, waiting.size) &&
	       write_section(fd, SHARED_RUNS, shared.at, shared.count * sizeof *shared.at) &&
	       write_section(fd, SHARED_PAGES, shared.pages, shared.size) && end_record(NOTHING);
}
