/* See files.h. Names in the branch are the service's: no link of its is followed. */
#define _GNU_SOURCE
#include "files.h"

#include "../micro/base.h"
#include "../micro/text.h"
#include "digest.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>

enum { FILES_MOST = 64, DEPTH_MOST = 64, PLACES_MOST = 64, SOME_ENTRIES = 1 << 16 /* [bytes] */ };
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
static char *kept_entries, *entries;
static size_t kept_size, entries_size, entries_room;
static off_t in_memory_size; /* of all files whose content is in the list */

/* -- what may not change --------------------------------------------------------------------------------------------- */

static bool note(const char *name, const struct stat *s, uint64_t content)
{
	const size_t room = strlen(name) + 256;

	/* All stand still while files are listed: not as many as the service may have made. */
	if (kept_entries && entries_size > 2 * kept_size + SOME_ENTRIES)
		return refuse("files have come");
	if (entries_size + room > entries_room) {
		char *more = realloc(entries, 2 * (entries_room + room));

		if (!more)
			return refuse("there is no room for the list of its files");
		entries = more;
		entries_room = 2 * (entries_room + room);
	}
	entries_size += (size_t)sprintf(entries + entries_size, "%s\t%llu %o %u %u %llu %llx %lld %lld.%09ld %lld.%09ld %llx\n", name,
					(unsigned long long)s->st_ino, s->st_mode, s->st_uid, s->st_gid, (unsigned long long)s->st_nlink,
					(unsigned long long)s->st_rdev, (long long)s->st_size, (long long)s->st_mtim.tv_sec,
					s->st_mtim.tv_nsec, (long long)s->st_ctim.tv_sec, s->st_ctim.tv_nsec, (unsigned long long)content);
	return true;
}

/* A hash of what a file in memory (tmpfs) holds: a write by a shared mapping leaves no trace in its times. */
static bool hash_content(int directory, const char *name, off_t size, uint64_t *hash)
{
	static unsigned char read_now[1 << 16];
	const int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
	ssize_t got = -1;

	in_memory_size += size;
	if (in_memory_size > IN_MEMORY_MOST)
		refuse("its files in memory are more than is compared, 4 MB");
	else
		while (fd >= 0 && (got = read(fd, read_now, sizeof read_now)) > 0)
			*hash = mixed(*hash, read_now, (size_t)got);
	if (fd >= 0)
		close(fd);
	return got == 0;
}

static bool is_in_memory(int directory)
{
	struct statfs s;

	return !fstatfs(directory, &s) && (s.f_type == TMPFS_MAGIC || s.f_type == RAMFS_MAGIC);
}

/* All entries of a directory, which is closed; not those of other file systems. */
static bool list(int directory, int depth)
{
	const bool has_content = is_in_memory(directory);
	DIR *all = directory >= 0 && depth < DEPTH_MOST ? fdopendir(directory) : NULL;
	struct dirent *entry;
	struct stat own, s;
	uint64_t content;
	bool well = all && !fstat(directory, &own) && note("/", &own, 0);

	while (well && (entry = readdir(all))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		well = !fstatat(directory, entry->d_name, &s, AT_SYMLINK_NOFOLLOW);
		if (!well || s.st_dev != own.st_dev)
			continue;
		content = 0;
		well = (!has_content || !S_ISREG(s.st_mode) || hash_content(directory, entry->d_name, s.st_size, &content)) &&
		       note(entry->d_name, &s, content);
		if (well && S_ISDIR(s.st_mode))
			well = list(openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), depth + 1);
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

	entries_size = 0;
	in_memory_size = 0;
	refuse("its files cannot be listed"); /* unless something says more */
	for (int i = 0; i < own_place_count; i++)
		if (fstat(own_places[i], &s) || !note("a file of Relive's", &s, 0))
			return false;
	for (int i = 0; i < place_count; i++)
		if (!list(openat(places[i], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0))
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
	kept_entries = strndup(entries, entries_size);
	kept_size = entries_size;
	wait_for_tick();
	return kept_entries ? true : refuse("there is no room for the list of its files");
}

bool compare_files(void)
{
	const char *before = kept_entries, *now;

	if (!list_places())
		return false;
	entries[entries_size] = 0;
	if (!strcmp(kept_entries, entries))
		return true;
	for (now = entries; *before && *before == *now; before++, now++)
		;
	while (now > entries && now[-1] != '\n')
		now--;
	return refuse("a file has changed, or come, or gone: %.*s", (int)strcspn(now, "\t"), now);
}

bool put_files_back(void)
{
	for (int i = 0; i < file_count; i++)
		if (!put_file_back(&files[i]))
			return false;
	return true;
}
