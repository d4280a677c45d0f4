/* See resolve.h.
 *
 * A path is taken from the memory of the process and looked up here, before the kernel looks it up once more for the call itself. A
 * process that changes it in between, or what lies at it, deceives only itself: what its next commit holds is found by other ways
 * too (its open descriptors), and what is read here is described by the same descriptor through which it is read.
 */
#define _GNU_SOURCE
#include "resolve.h"
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINKS_MOST = 8, FOREIGN_MOST = 256 };

static const char *own[8] = { "/proc", "/sys", "/run/relive" };
static char *foreign[FOREIGN_MOST];	/* mount points that are not looked into */
static int foreign_count;
static pthread_mutex_t foreign_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_varied;

static bool is_below(const char *path, const char *top)
{
	size_t length = strlen(top);

	return strncmp(path, top, length) == 0 && (path[length] == 0 || path[length] == '/' || length == 1);
}

void prepare_resolving(const char *home)
{
	own[3] = home;
	learn_mounts();
}

void roots_vary(void)
{
	atomic_store(&is_varied, true);
}

/* Kinds whose answer may come from another machine, or from the service itself, which may be waiting for us. */
static bool is_foreign(const char *kind)
{
	static const char *const kinds[] = { "fuse", "nfs", "cifs", "smb", "9p", "ceph", "afs", "glusterfs", "lustre", "autofs", "coda", "virtiofs" };

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strncmp(kind, kinds[i], strlen(kinds[i])) == 0 && strcmp(kind, "fusectl") != 0)
			return true;
	return false;
}

static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++)
		if (text[0] == '\\' && text[1] && text[2] && text[3])
			*to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0')), text += 3;
		else
			*to++ = *text;
	*to = 0;
}

void learn_mounts(void)
{
	FILE *table = fopen("/proc/1/mountinfo", "re");
	char *line = NULL, *found[FOREIGN_MOST];
	size_t room = 0;
	int count = 0;

	if (!table)
		return;
	while (getline(&line, &room, table) > 0 && count < FOREIGN_MOST) {
		char *kind = strstr(line, " - "), *point = line;

		for (int field = 0; point && field < 4; field++)
			point = strchr(point, ' ') ? strchr(point, ' ') + 1 : NULL;
		if (!kind || !point || !is_foreign(kind + 3))
			continue;
		*strchr(point, ' ') = 0;
		unescape(point);
		found[count++] = strdup(point);
	}
	free(line);
	fclose(table);
	pthread_mutex_lock(&foreign_lock);
	for (int i = 0; i < foreign_count; i++)
		free(foreign[i]);
	memcpy(foreign, found, (size_t)count * sizeof *found);
	foreign_count = count;
	pthread_mutex_unlock(&foreign_lock);
}

static bool is_followed(const char *path)
{
	bool is_out = false;

	if (is_below(path, "/dev") && !is_below(path, "/dev/shm"))
		return false;
	for (int i = 0; own[i]; i++)
		if (is_below(path, own[i]))
			return false;
	pthread_mutex_lock(&foreign_lock);
	for (int i = 0; i < foreign_count && !is_out; i++)
		is_out = foreign[i] && is_below(path, foreign[i]);
	pthread_mutex_unlock(&foreign_lock);
	return !is_out;
}

/* Copy a text of the process, never reading beyond the end of the page in which it ends. */
static bool read_text(int pid, uint64_t from, char *text, size_t most)
{
	size_t got = 0;

	while (got < most) {
		size_t part = 4096 - ((from + got) & 4095);
		struct iovec here = { text + got, part < most - got ? part : most - got };
		struct iovec there = { (void *)(uintptr_t)(from + got), here.iov_len };
		ssize_t length = process_vm_readv(pid, &here, 1, &there, 1, 0);

		if (length <= 0)
			return false;
		if (memchr(here.iov_base, 0, (size_t)length))
			return true;
		got += (size_t)length;
	}
	return false;
}

static ssize_t name_of(const char *link, char *text, size_t most)
{
	ssize_t length = readlink(link, text, most - 1);

	if (length < 0 && errno == ENAMETOOLONG)
		atomic_fetch_add(&control->lost, 1); /* deeper than a path can say */
	text[length < 0 ? 0 : length] = 0;
	return length;
}

static bool name_of_fd(int fd, char *text)
{
	char link[40];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return name_of(link, text, PATH_MAX) > 0 && text[0] == '/';
}

/* What /proc/self and its links in /dev mean for the process, since "self" is this one here. */
static void mind_self(int pid, char *path)
{
	static const char *const links[][2] = { { "/proc/self/", "" }, { "/proc/thread-self/", "" }, { "/dev/fd/", "fd/" },
						{ "/dev/stdin", "fd/0" }, { "/dev/stdout", "fd/1" }, { "/dev/stderr", "fd/2" } };
	char rest[PATH_MAX];

	if (path[0] != '/' || (path[1] != 'p' && path[1] != 'd'))
		return;
	for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
		size_t length = strlen(links[i][0]);

		if (strncmp(path, links[i][0], length) == 0) {
			strcpy(rest, path + length);
			snprintf(path, 2 * PATH_MAX, "/proc/%d/%s%s", pid, links[i][1], rest);
			return;
		}
	}
}

/* Open for looking only, below another root where `root` is not -1. */
static int look(int root, int at, const char *path, bool follows)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW), .resolve = root < 0 ? 0 : RESOLVE_IN_ROOT };

	return (int)syscall(SYS_openat2, root < 0 ? at : root, path, &how, sizeof how);
}

/* Failures that say nothing of whether the call will fail. */
static bool is_ours(int failure)
{
	return failure == EMFILE || failure == ENFILE || failure == ENOMEM;
}

/* A path that leads to a file: its canonical name. False: it has none (any more). */
static bool settle(struct place *place)
{
	if (fstat(place->fd, &place->facts) < 0 || !name_of_fd(place->fd, place->path))
		return false;
	return place->facts.st_nlink > 0 && is_followed(place->path);
}

static bool resolve_descriptor(int pid, int number, struct place *place)
{
	char link[40];

	snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, number);
	if (name_of(link, place->path, PATH_MAX) <= 0 || place->path[0] != '/' || !is_followed(place->path))
		return false;
	place->fd = open(link, O_PATH | O_CLOEXEC);
	return place->fd >= 0 && settle(place);
}

/* Divide at the last name; what is before it is made a directory that can be opened. False: there is no last name. */
static bool divide(char *path, char *name)
{
	size_t length = strlen(path);
	char *last;

	while (length > 1 && path[length - 1] == '/')
		path[--length] = 0;
	last = strrchr(path, '/');
	strcpy(name, last ? last + 1 : path);
	if (!name[0] || !strcmp(name, ".") || !strcmp(name, ".."))
		return false;
	if (last)
		last[last == path ? 1 : 0] = 0;
	else
		strcpy(path, ".");
	return true;
}

/* Put a directory before a relative path. */
static void prefix(char *path, const char *directory)
{
	char rest[2 * PATH_MAX];

	strcpy(rest, path);
	snprintf(path, 2 * PATH_MAX, "%s/%s", directory, rest);
}

bool resolve(const struct seccomp_notif *asked, const struct operand *operand, struct place *place)
{
	int pid = (int)asked->pid, at = AT_FDCWD, root = -1;
	char base[PATH_MAX], name[PATH_MAX], said[PATH_MAX], top[PATH_MAX] = "/", link[64];
	uint64_t pointer = asked->data.args[operand->path];
	bool is_found = false, follows = operand->follows;

	place->fd = place->parent = -1;
	if (operand->dir == AT_DESCRIPTOR)
		return resolve_descriptor(pid, (int)asked->data.args[operand->path], place);
	if (operand->dir == AT_ADDRESS) {
		struct { sa_family_t family; char path[110]; } address = { 0 };
		struct iovec here = { &address, sizeof address.family + 108 }, there = { (void *)(uintptr_t)pointer, here.iov_len };
		size_t length = asked->data.args[2] < here.iov_len ? (size_t)asked->data.args[2] : here.iov_len;

		here.iov_len = there.iov_len = length;
		if (process_vm_readv(pid, &here, 1, &there, 1, 0) != (ssize_t)length || address.family != AF_UNIX || !address.path[0])
			return false; /* another family; a name without a file */
		strcpy(place->path, address.path);
	} else if (!read_text(pid, pointer, place->path, PATH_MAX) || !place->path[0]) {
		/* utimensat(fd, NULL, ...) and calls with AT_EMPTY_PATH are about a descriptor. */
		return operand->dir >= 0 && resolve_descriptor(pid, (int)asked->data.args[operand->dir], place);
	}
	mind_self(pid, place->path);
	if (atomic_load(&is_varied)) {
		snprintf(link, sizeof link, "/proc/%d/root", pid);
		if (name_of(link, top, sizeof top) > 0 && strcmp(top, "/") != 0)
			root = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (place->path[0] != '/') {
		int number = operand->dir >= 0 ? (int)asked->data.args[operand->dir] : AT_FDCWD;

		if (number == AT_FDCWD)
			snprintf(link, sizeof link, "/proc/%d/cwd", pid);
		else
			snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, number);
		if (name_of(link, base, sizeof base) <= 0 || base[0] != '/' || !is_followed(base)) {
			if (root >= 0)
				close(root);
			return false;
		}
		if (root >= 0 && is_below(base, top)) {
			prefix(place->path, base + strlen(top));
		} else {
			if (root >= 0)
				close(root), root = -1; /* it has left its root */
			at = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
			if (at < 0)
				return false;
		}
	} else if (root < 0 && !is_followed(place->path) && strncmp(place->path, "/proc/", 6) != 0) {
		return false;
	}
	for (int links = 0; links < LINKS_MOST && !is_found; links++) {
		struct stat last;

		place->fd = look(root, at, place->path, follows);
		if (place->fd >= 0) {
			is_found = settle(place);
			break;
		}
		if (errno != ENOENT || !divide(place->path, name))
			break;
		place->parent = look(root, at, place->path, true);
		if (place->parent < 0)
			break;
		if (follows && fstatat(place->parent, name, &last, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(last.st_mode)) {
			/* A link to nothing: the call makes what it says. */
			ssize_t length = readlinkat(place->parent, name, said, sizeof said - 1);

			if (length <= 0 || !name_of_fd(place->parent, base))
				break;
			said[length] = 0;
			leave(place);
			strcpy(place->path, said);
			if (said[0] != '/')
				prefix(place->path, root >= 0 && is_below(base, top) ? base + strlen(top) : base);
			continue;
		}
		is_found = name_of_fd(place->parent, place->path);
		if (is_found) {
			size_t length = strlen(place->path);

			snprintf(place->path + length, sizeof place->path - length, "%s%s", length == 1 ? "" : "/", name);
			is_found = is_followed(place->path);
		}
		break;
	}
	if (!is_found && is_ours(errno))
		atomic_fetch_add(&control->lost, 1);
	if (at >= 0)
		close(at);
	if (root >= 0)
		close(root);
	if (!is_found)
		leave(place);
	return is_found;
}

void leave(struct place *place)
{
	if (place->fd >= 0)
		close(place->fd);
	if (place->parent >= 0)
		close(place->parent);
	place->fd = place->parent = -1;
}

unsigned flags_of(const struct seccomp_notif *asked, const struct call *call)
{
	struct open_how how = { 0 };
	struct iovec here = { &how, sizeof how.flags }, there = { (void *)(uintptr_t)asked->data.args[2], sizeof how.flags };

	if (call->flags >= 0)
		return (unsigned)asked->data.args[call->flags];
	if (call->flags == -2)
		return O_WRONLY | O_CREAT | O_TRUNC;
	return process_vm_readv((int)asked->pid, &here, 1, &there, 1, 0) == (ssize_t)sizeof how.flags ? (unsigned)how.flags : 0;
}
