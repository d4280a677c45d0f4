/* See rights.h. */
#define _GNU_SOURCE
#include "rights.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { STATUS_MOST = 16384 };

static const uint64_t powers = UINT64_C(1) << CAP_DAC_OVERRIDE | UINT64_C(1) << CAP_FOWNER | UINT64_C(1) << CAP_CHOWN;

static const char *field(const char *status, const char *name)
{
	const char *at = strstr(status, name);

	return at ? at + strlen(name) : "";
}

/* The fourth of the numbers of Uid or Gid: that of the file system. */
static unsigned long fourth(const char *numbers)
{
	char *end = (char *)numbers;
	unsigned long number = 0;

	for (int i = 0; i < 4; i++)
		number = strtoul(end, &end, 10);
	return number;
}

static bool is_member(const char *groups, unsigned long group)
{
	char *end;

	for (;; groups = end) {
		unsigned long number;

		while (*groups == ' ' || *groups == '\t')
			groups++;
		number = strtoul(groups, &end, 10);
		if (end == groups)
			return false;
		if (number == group)
			return true;
	}
}

static bool is_own_namespace(int tid)
{
	char link[40], theirs[64] = "", ours[64] = "";

	snprintf(link, sizeof link, "/proc/%d/ns/user", tid);
	return readlink(link, theirs, sizeof theirs - 1) > 0 && readlink("/proc/self/ns/user", ours, sizeof ours - 1) > 0 &&
	       strcmp(theirs, ours) == 0;
}

static bool may_write(const char *status, const char *path, const struct stat *facts)
{
	if (facts->st_uid == fourth(field(status, "\nUid:")) || facts->st_mode & S_IWOTH)
		return true;
	if (facts->st_mode & S_IWGRP)
		return facts->st_gid == fourth(field(status, "\nGid:")) || is_member(field(status, "\nGroups:"), facts->st_gid) ||
		       lgetxattr(path, "system.posix_acl_access", NULL, 0) > 0;
	return false;
}

bool may_change(int tid, const char *path, const struct stat *facts, bool name)
{
	char status[STATUS_MOST], above[PATH_MAX], *last;
	struct stat directory;
	ssize_t length;
	int fd;

	snprintf(status, sizeof status, "/proc/%d/status", tid);
	fd = open(status, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	length = read(fd, status, sizeof status - 1);
	close(fd);
	if (length <= 0)
		return true;
	status[length] = 0;
	if (strtoull(field(status, "\nCapEff:"), NULL, 16) & powers && is_own_namespace(tid))
		return true;
	if (!name)
		return may_write(status, path, facts);
	if (strlen(path) >= sizeof above)
		return true;
	strcpy(above, path);
	last = strrchr(above, '/');
	last[last == above ? 1 : 0] = 0;
	if (lstat(above, &directory) < 0 || !may_write(status, above, &directory))
		return false;
	if (!facts || !(directory.st_mode & S_ISVTX))
		return true;
	last = (char *)field(status, "\nUid:");
	return fourth(last) == facts->st_uid || fourth(last) == directory.st_uid;
}
