/* See record_file.h. Where there is no memory for it, copying into it fails as for a page that cannot be read, and the commit is a full one. */
#define _GNU_SOURCE
#include "record_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { HEAD = 2 * sizeof(uint64_t) };

static int file = -1;
static off_t file_size;
static unsigned char *mapped;
static size_t mapped_size;
static dev_t device;
static ino_t inode;

static bool map(const struct stat *facts, size_t size)
{
	void *found;

	if (mapped && facts->st_dev == device && facts->st_ino == inode && size == mapped_size)
		return true;
	if (mapped)
		munmap(mapped, mapped_size);
	mapped = NULL;
	found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (found == MAP_FAILED)
		return false;
	mapped = found;
	mapped_size = size;
	device = facts->st_dev;
	inode = facts->st_ino;
	return true;
}

static void close_record(void)
{
	if (file >= 0)
		close(file);
	file = -1;
}

bool open_record(const char *path, struct run_list *list, size_t most)
{
	struct stat facts;

	close_record();
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0 || fstat(file, &facts) || !map(&facts, PAGE + most))
		return refuse("what is copied cannot be written: %s", strerror(errno));
	file_size = facts.st_size;
	list->pages = mapped + PAGE;
	return true;
}

bool make_room_in_record(size_t size)
{
	const off_t needed = PAGE + (off_t)size;

	if (file_size >= needed)
		return true;
	if (ftruncate(file, needed))
		return refuse("what is copied cannot be written: %s", strerror(errno));
	file_size = needed;
	return true;
}

static bool put_head(off_t at, uint64_t kind, uint64_t size)
{
	const uint64_t head[2] = { kind, size };

	return pwrite(file, head, sizeof head, at) == sizeof head;
}

int record_behind_pages(uint64_t kind, size_t size)
{
	return put_head(PAGE - HEAD, kind, size) && lseek(file, PAGE + (off_t)size, SEEK_SET) >= 0 ? file : -1;
}

/* Memory behind what was written is kept for the next commit, unless it is much. */
static bool end_behind(off_t at, uint64_t nothing)
{
	if (file_size < at + HEAD || (file_size > RECORD_KEPT && file_size / 2 > at))
		return !ftruncate(file, at);
	return put_head(at, nothing, (uint64_t)(file_size - at - HEAD));
}

bool end_record(uint64_t nothing)
{
	const off_t at = lseek(file, 0, SEEK_CUR);
	const bool well = at >= 0 && put_head(0, nothing, PAGE - 2 * HEAD) && end_behind(at, nothing);
	const int error = errno; /* closing may fail, too */

	if (!close(file) || !well)
		errno = error;
	file = -1;
	return well;
}
