/* See shared.h. */
#define _GNU_SOURCE
#include "shared.h"

#include "mappings.h"
#include "text.h"
#include "tree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#define SHARED_MOST (16ULL << 20) /* [bytes] copied with all stopped; who has more is better dumped */

struct shared_copies shared;

void make_room_for_shared(void)
{
	shared.at = room_for_regions();
	shared.pages = room_for(SHARED_MOST);
}

bool see_shared(void)
{
	forget_shared();
	for (int i = 0; i < mapping_count; i++) {
		const uint64_t inode = inode_of_shared(i);

		if (inode && !note_shared(inode))
			return false;
	}
	return true;
}

/* Where there are pages, as of a file with holes; a hole that is read through a mapping would be filled. */
static bool copy_pages(int fd, uint64_t inode)
{
	off_t start = 0, end = 0;

	while ((start = lseek(fd, end, SEEK_DATA)) >= 0) {
		end = lseek(fd, start, SEEK_HOLE);
		if (end < start || shared.count == RUNS_MOST || (uint64_t)(end - start) > SHARED_MOST - shared.size)
			return refuse("it has more shared memory than is copied at a time");
		if (pread(fd, shared.pages + shared.size, (size_t)(end - start), start) != end - start)
			return refuse("its shared memory cannot be read");
		shared.at[shared.count++] = (struct region){ (uint64_t)start, (uint64_t)end, inode };
		shared.size += (size_t)(end - start);
	}
	return errno == ENXIO ? true : refuse("its shared memory cannot be read");
}

static bool copy_one(int number, uint64_t inode)
{
	const int fd = open(of_process("map_files/%" PRIx64 "-%" PRIx64, mappings[number].start, mappings[number].end), O_RDONLY | O_CLOEXEC);
	struct stat facts;
	bool well;

	if (fd < 0)
		return refuse("its shared memory cannot be read");
	well = !fstat(fd, &facts) && facts.st_ino == inode ? copy_pages(fd, inode) : refuse("its shared memory is not where it was");
	close(fd);
	return well;
}

bool copy_shared(void)
{
	shared.count = shared.size = 0;
	for (int i = 0; i < mapping_count; i++) {
		const uint64_t inode = inode_of_shared(i);
		bool is_copied = !inode || !is_first_with(inode);

		for (int k = 0; k < i && !is_copied; k++)
			is_copied = inode_of_shared(k) == inode;
		if (is_copied)
			continue;
		say("?shared %" PRIu64 "\n", inode);
		if (!copy_one(i, inode))
			return false;
	}
	return true;
}
