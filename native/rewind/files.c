/* See files.h. Names in the branch are the service's: no link of its is followed. */
#define _GNU_SOURCE
#include "files.h"

#include "../micro/base.h"
#include "../micro/text.h"
#include "digest.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>

enum { FILES_MOST = 64, DEPTH_MOST = 64, PLACES_MOST = 64 };
#define CONTENT_MOST (64LL << 20)
#define IN_MEMORY_MOST (4LL << 20)

static struct kept_file {
	int fd;
	off_t size;
	struct timespec changed; /* its time of change when it was last as it is kept */
	bool is_mapped; /* written without a trace in its times */
	struct piece {
		off_t at, end;
		unsigned char *content;
	} *pieces;
	int piece_count;
} files[FILES_MOST];
static int file_count;

static int places[PLACES_MOST]; /* open directories below which nothing may change */
static int place_count;
static int own_places[2]; /* in which nothing may come or go; what is in them is put back */
static int own_place_count;

/* What may not change. A directory whose times are the same has the same names in it. */
static struct entry {
	int place; /* below which it lies */
	char *path; /* "": that itself */
	bool has_content;
	struct facts {
		uint64_t device, inode, links, special;
		uint32_t mode, user, group;
		int64_t size, written, written_ns, changed, changed_ns;
	} facts;
	uint64_t content;
} *entries;
static int entry_count, entry_room;
static off_t in_memory_size; /* of all files whose content counts */

/* -- what may not change --------------------------------------------------------------------------------------------- */

static struct facts facts_of(const struct stat *s)
{
	struct facts found;

	memset(&found, 0, sizeof found); /* they are compared as bytes */
	found.device = s->st_dev;
	found.inode = s->st_ino;
	found.links = s->st_nlink;
	found.special = s->st_rdev;
	found.mode = s->st_mode;
	found.user = s->st_uid;
	found.group = s->st_gid;
	found.size = s->st_size;
	found.written = s->st_mtim.tv_sec;
	found.written_ns = s->st_mtim.tv_nsec;
	found.changed = s->st_ctim.tv_sec;
	found.changed_ns = s->st_ctim.tv_nsec;
	return found;
}

/* A hash of what a file in memory (tmpfs) holds: a write by a shared mapping leaves no trace in its times. */
static bool hash_content(const struct entry *of, uint64_t *hash)
{
	static unsigned char read_now[1 << 16];
	struct open_how how = { .flags = O_RDONLY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS };
	const int fd = (int)syscall(SYS_openat2, of->place, of->path, &how, sizeof how);
	ssize_t got = -1;

	*hash = 0;
	while (fd >= 0 && (got = read(fd, read_now, sizeof read_now)) > 0)
		*hash = mixed(*hash, read_now, (size_t)got);
	if (fd >= 0)
		close(fd);
	return got == 0;
}

static bool keep_entry(int place, const char *path, const struct stat *s, bool has_content)
{
	struct entry one = { .place = place, .path = strdup(path), .has_content = has_content && S_ISREG(s->st_mode), .facts = facts_of(s) };

	if (entry_count == entry_room) {
		struct entry *more = realloc(entries, (size_t)(entry_room * 2 + 64) * sizeof *more);

		if (!more)
			return refuse("there is no room for the list of its files");
		entries = more;
		entry_room = entry_room * 2 + 64;
	}
	if (one.has_content && (in_memory_size += s->st_size) > IN_MEMORY_MOST)
		return refuse("its files in memory are more than is compared, 4 MB");
	if (!one.path || (one.has_content && !hash_content(&one, &one.content)))
		return false;
	entries[entry_count++] = one;
	return true;
}

static bool is_in_memory(int directory)
{
	struct statfs s;

	return !fstatfs(directory, &s) && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

/* All entries of a directory, which is closed; not those of other file systems. */
static bool list(int place, const char *path, int directory, int depth)
{
	const bool has_content = is_in_memory(directory);
	DIR *all = directory >= 0 && depth < DEPTH_MOST ? fdopendir(directory) : NULL;
	char below[PATH_MAX];
	struct dirent *entry;
	struct stat own, s;
	bool well = all && !fstat(directory, &own) && keep_entry(place, path, &own, false);

	while (well && (entry = readdir(all))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		well = !fstatat(directory, entry->d_name, &s, AT_SYMLINK_NOFOLLOW);
		if (!well || s.st_dev != own.st_dev)
			continue;
		well = snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", entry->d_name) < (int)sizeof below;
		if (well && S_ISDIR(s.st_mode))
			well = list(place, below, openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), depth + 1);
		else
			well = well && keep_entry(place, below, &s, has_content);
	}
	if (all)
		closedir(all);
	else if (directory >= 0)
		close(directory);
	return well;
}

static bool list_places(void)
{
	struct stat s;

	refuse("its files cannot be listed"); /* unless something says more */
	for (int i = 0; i < own_place_count; i++)
		if (fstat(own_places[i], &s) || !keep_entry(own_places[i], "", &s, false))
			return false;
	for (int i = 0; i < place_count; i++)
		if (!list(places[i], "", openat(places[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0))
			return false;
	return true;
}

static bool add_place(const char *path)
{
	const int at = place_count < PLACES_MOST ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (at < 0)
		return refuse("%s cannot be listed", path);
	places[place_count++] = at;
	return true;
}

/* Whether a mount is where the branch may write: the upper layer of an overlay, or a file system in memory; `behind`: " - KIND ..." */
static bool add_mount(const char *point, char *behind, const char *directory)
{
	char path[4200], *upper = strstr(behind, "upperdir=");
	struct stat s;

	if (!strncmp(behind, " - overlay ", 11)) {
		if (!upper)
			return true; /* it cannot be written */
		upper += strlen("upperdir=");
		upper[strcspn(upper, ",")] = 0;
		if (strncmp(upper, directory, strlen(directory)) || upper[strlen(directory)] != '/')
			return refuse("it writes elsewhere: %s", upper);
		return add_place(upper);
	}
	if (strncmp(behind, " - tmpfs ", 9) && strncmp(behind, " - mqueue ", 10))
		return true;
	snprintf(path, sizeof path, "/proc/%d/root%s", (int)process.pid, point);
	if (lstat(path, &s))
		return refuse("%s cannot be seen", point);
	return S_ISDIR(s.st_mode) ? add_place(path) : true;
}

static bool find_places(const char *directory)
{
	static char info[1 << 20];
	char point[4096];

	if (slurp(of_process("mountinfo"), info, sizeof info) <= 0)
		return refuse("its mounts cannot be read");
	for (char *line = info, *next; (next = strchr(line, '\n')); line = next + 1) {
		char *behind;

		*next = 0;
		behind = strstr(line, " - ");
		if (!behind || sscanf(line, "%*d %*d %*s %*s %4095s", point) != 1)
			return refuse("its mounts cannot be read");
		if (!add_mount(point, behind, directory))
			return false;
	}
	return true;
}

/* -- what is put back ------------------------------------------------------------------------------------------------ */

/* The next stretch from *at on that has content; false: there is none. */
static bool find_stretch(int fd, off_t *at, off_t *end)
{
	*at = lseek(fd, *at, SEEK_DATA);
	if (*at < 0)
		return false;
	*end = lseek(fd, *at, SEEK_HOLE);
	return *end > *at;
}

static bool keep_pieces(struct kept_file *f)
{
	static off_t total;
	off_t end;

	for (off_t at = 0; find_stretch(f->fd, &at, &end); at = end) {
		struct piece *to;

		total += end - at;
		f->pieces = realloc(f->pieces, (size_t)(f->piece_count + 1) * sizeof *f->pieces);
		if (total > CONTENT_MOST || !f->pieces)
			return refuse("what it has said is more than is kept");
		to = &f->pieces[f->piece_count++];
		*to = (struct piece){ at, end, malloc((size_t)(end - at)) };
		if (!to->content || pread(f->fd, to->content, (size_t)(end - at), at) != end - at)
			return refuse("what it has said cannot be read");
	}
	return true;
}

static bool keep_file(int directory, const char *name, bool is_mapped)
{
	struct kept_file *f = &files[file_count];
	struct stat s;

	if (file_count == FILES_MOST)
		return refuse("it has too many rings");
	f->fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (f->fd < 0 || fstat(f->fd, &s) || !S_ISREG(s.st_mode))
		return refuse("%s cannot be kept", name);
	file_count++;
	f->size = s.st_size;
	f->changed = s.st_ctim;
	f->is_mapped = is_mapped;
	return keep_pieces(f);
}

static bool keep_directory(const char *directory, const char *name, bool is_mapped)
{
	char path[4200];
	struct dirent *entry;
	bool well = true;
	DIR *all;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	all = opendir(path);
	if (!all)
		return refuse("%s cannot be listed", path);
	own_places[own_place_count++] = fcntl(dirfd(all), F_DUPFD_CLOEXEC, 3);
	while (well && (entry = readdir(all))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s/%s", directory, name, entry->d_name);
		well = entry->d_type == DT_DIR ? add_place(path) : keep_file(dirfd(all), entry->d_name, is_mapped);
	}
	closedir(all);
	return well;
}

static bool is_kept_at(const struct kept_file *f, off_t at, off_t *until)
{
	for (int i = 0; i < f->piece_count; i++) {
		if (at < f->pieces[i].at && f->pieces[i].at < *until)
			*until = f->pieces[i].at;
		if (at >= f->pieces[i].at && at < f->pieces[i].end) {
			*until = f->pieces[i].end;
			return true;
		}
	}
	return false;
}

/* What the file has now where nothing was. */
static bool clear_holes(const struct kept_file *f)
{
	off_t end;

	for (off_t at = 0; find_stretch(f->fd, &at, &end); at = end)
		for (off_t until = end; at < end; at = until, until = end)
			if (!is_kept_at(f, at, &until) && fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, until - at))
				return false;
	return true;
}

static bool write_differences(const struct kept_file *f)
{
	const size_t most = (size_t)WINDOW * PAGE;

	for (int i = 0; i < f->piece_count; i++)
		for (off_t at = f->pieces[i].at; at < f->pieces[i].end;) {
			const unsigned char *wanted = f->pieces[i].content + (at - f->pieces[i].at);
			const size_t left = (size_t)(f->pieces[i].end - at), size = left < most ? left : most;
			const bool is_same = pread(f->fd, buffer, size, at) == (ssize_t)size && !memcmp(buffer, wanted, size);

			if (!is_same && pwrite(f->fd, wanted, size, at) != (ssize_t)size)
				return false;
			at += (off_t)size;
		}
	return true;
}

static bool put_file_back(struct kept_file *f)
{
	struct stat s;
	bool well;

	if (fstat(f->fd, &s))
		return refuse("its files cannot be seen");
	if (!f->is_mapped && s.st_size == f->size && !memcmp(&s.st_ctim, &f->changed, sizeof f->changed))
		return true;
	well = (s.st_size == f->size || !ftruncate(f->fd, f->size)) && clear_holes(f) && write_differences(f) && !fstat(f->fd, &s);
	f->changed = s.st_ctim;
	return well ? true : refuse("its files cannot be put back");
}

/* -- all of it --------------------------------------------------------------------------------------------------------- */

/* Where times are those of the last tick, what is written in the tick of the look would not be seen. */
static void wait_for_tick(void)
{
	struct timespec first, now;

	clock_gettime(CLOCK_REALTIME_COARSE, &first);
	do {
		nanosleep(&(struct timespec){ 0, 500000 }, NULL);
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
	} while (!memcmp(&first, &now, sizeof now));
}

bool keep_files(const char *directory)
{
	if (!find_places(directory) || !keep_directory(directory, "io", false) || !keep_directory(directory, "rings", true))
		return false;
	if (!list_places())
		return false;
	wait_for_tick();
	return true;
}

static bool is_as_kept(const struct entry *one)
{
	struct facts now;
	uint64_t content;
	struct stat s;

	if (fstatat(one->place, one->path, &s, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return false;
	now = facts_of(&s);
	return !memcmp(&now, &one->facts, sizeof now) && (!one->has_content || (hash_content(one, &content) && content == one->content));
}

/* Directories before what is in them, so that no link is followed that has come in the place of one. */
bool compare_files(void)
{
	for (int i = 0; i < entry_count; i++)
		if (!is_as_kept(&entries[i]))
			return refuse("a file has changed, or come, or gone: %s", *entries[i].path ? entries[i].path : "/");
	return true;
}

bool put_files_back(void)
{
	for (int i = 0; i < file_count; i++)
		if (!put_file_back(&files[i]))
			return false;
	return true;
}
