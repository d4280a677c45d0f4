/* See shared.h. */
#define _GNU_SOURCE
#include "shared.h"

#include "mappings.h"
#include "text.h"
#include "tree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_MOST (64ULL << 20) /* [bytes] copied with all stopped; who has more is better dumped */

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

		if (inode != NOT_SHARED && !note_shared(inode))
			return false;
	}
	return true;
}

/* The page in which a segment ends whose size is no multiple of one: a process may write behind that end. */
static bool copy_last(int fd, off_t start)
{
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, start);

	if (page == MAP_FAILED)
		return refuse("its shared memory cannot be read");
	memcpy(shared.pages + shared.size, page, PAGE);
	munmap(page, PAGE);
	return true;
}

static bool copy_run(int fd, off_t start, off_t end)
{
	const off_t last = end & -(off_t)PAGE;

	if (pread(fd, shared.pages + shared.size, (size_t)(last - start), start) != last - start)
		return refuse("its shared memory cannot be read");
	shared.size += (size_t)(last - start);
	if (last == end)
		return true;
	if (!copy_last(fd, last))
		return false;
	shared.size += PAGE;
	return true;
}

/* Where there are pages, as of a file with holes; a hole that is read through a mapping would be filled. */
static bool copy_pages(int fd, uint64_t inode)
{
	off_t start = 0, end = 0;

	while ((start = lseek(fd, end, SEEK_DATA)) >= 0) {
		end = lseek(fd, start, SEEK_HOLE);
		if (end < start || shared.count == RUNS_MOST || (uint64_t)(end - start) + PAGE > SHARED_MOST - shared.size)
			return refuse("it has more shared memory than is copied at a time");
		shared.at[shared.count++] = (struct region){ (uint64_t)start, ((uint64_t)end + PAGE - 1) & -(uint64_t)PAGE, inode };
		if (!copy_run(fd, start, end))
			return false;
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
		bool is_copied = inode == NOT_SHARED || !is_first_with(inode);

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
