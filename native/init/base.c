/* See base.h. Owner, mode and times stand in the journal: this process may not give files away.
 *
 * The service's call waits meanwhile, so a reflink (FICLONE) is tried first, which takes microseconds whatever the size; a copy is made
 * up to a limit only. Nothing here may wait for the service itself, which stands still: hence O_NONBLOCK (leases). A file that is left
 * out is named with a reason, and a base that is not whole is removed. */
#define _GNU_SOURCE
#include "base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { STEP = 1 << 30, NAMES_MOST = 65536, VALUE_MOST = 65536 };

static int bases;
static uint64_t limit;

void prepare_bases(int directory, uint64_t most)
{
	bases = directory;
	limit = most;
}

static bool copy_range(int from, int to, off_t at, off_t end)
{
	while (at < end) {
		loff_t in = at, out = at;
		size_t step = end - at < STEP ? (size_t)(end - at) : STEP;
		ssize_t length = copy_file_range(from, &in, to, &out, step, 0);

		if (length < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
			if (lseek(to, at, SEEK_SET) < 0)
				return false;
			in = at;
			length = sendfile(to, from, &in, step);
		}
		if (length < 0)
			return false;
		if (length == 0)
			return true; /* it has become shorter; that is a change by somebody who is not followed */
		at += length;
	}
	return true;
}

/* Holes stay holes. */
static bool copy_data(int from, int to, off_t size)
{
	off_t data, hole = 0;

	if (ftruncate(to, size) < 0)
		return false;
	while (hole < size) {
		data = lseek(from, hole, SEEK_DATA);
		if (data < 0 && errno == ENXIO)
			return true;
		if (data < 0)
			data = hole, hole = size;
		else if ((hole = lseek(from, data, SEEK_HOLE)) < 0)
			hole = size;
		if (!copy_range(from, to, data, hole))
			return false;
	}
	return true;
}

/* What may not be read or set here (security.*, trusted.*) is left out. */
static void copy_attributes(int from, int to)
{
	static __thread char names[NAMES_MOST], value[VALUE_MOST];
	ssize_t size = flistxattr(from, names, sizeof names);

	for (char *name = names; size > 0 && name < names + size; name += strlen(name) + 1) {
		ssize_t length = fgetxattr(from, name, value, sizeof value);

		if (length >= 0 && fsetxattr(to, name, value, (size_t)length, 0) < 0)
			continue;
	}
}

void keep_attributes(uint64_t serial, int fd)
{
	char name[24];
	int from = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOATIME), to;

	if (from < 0)
		return;
	snprintf(name, sizeof name, "%llu", (unsigned long long)serial);
	if (flistxattr(from, NULL, 0) > 0 && mkdirat(bases, name, 0700) == 0) {
		to = openat(bases, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (to >= 0) {
			copy_attributes(from, to);
			close(to);
		}
	}
	close(from);
}

const char *keep_base(uint64_t serial, int fd, const struct stat *facts)
{
	char link[40], name[24];
	const char *reason = NULL;
	int from, to, failure;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	snprintf(name, sizeof name, "%llu", (unsigned long long)serial);
	/* O_NONBLOCK: a lease (fcntl(2), F_SETLEASE) would have us wait for its holder, who may be waiting for us. */
	from = open(link, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOATIME);
	if (from < 0)
		return errno == EWOULDBLOCK ? "a process of the service holds a lease of it" : strerror(errno);
	to = openat(bases, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (to < 0) {
		failure = errno;
		close(from);
		return failure == ENOSPC || failure == EDQUOT ? "no space left where RELIVE_HOME lies" : strerror(failure);
	}
	if (ioctl(to, FICLONE, from) < 0) {
		if ((uint64_t)facts->st_blocks * 512 > limit)
			reason = "it is too large to be copied while the service waits";
		else if (!copy_data(from, to, facts->st_size))
			reason = errno == ENOSPC || errno == EDQUOT ? "no space left where RELIVE_HOME lies" : strerror(errno);
	}
	if (!reason)
		copy_attributes(from, to);
	close(from);
	close(to);
	if (reason)
		unlinkat(bases, name, 0);
	return reason;
}
