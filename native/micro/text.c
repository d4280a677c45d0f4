/* See text.h. */
#define _GNU_SOURCE
#include "text.h"

#include "base.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	LINK_MOST = 4096,
	KEPT_MOST = 512, /* fewer than a process may have open */
	KEPT_NAME = 40,
};

struct text text;
bool is_cut_off;

void say(const char *form, ...)
{
	va_list words;
	int more;

	va_start(words, form);
	more = vsnprintf(text.at + text.size, TEXT_MOST - text.size, form, words);
	va_end(words);
	if (more < 0 || (size_t)more >= TEXT_MOST - text.size)
		is_cut_off = true;
	else
		text.size += (size_t)more;
}

void append(const char *what, size_t size)
{
	if (size > TEXT_MOST - text.size) {
		is_cut_off = true;
		return;
	}
	memcpy(text.at + text.size, what, size);
	text.size += size;
}

void say_number(const char *before, unsigned long number)
{
	char digits[24], *at = digits + sizeof digits;

	do
		*--at = (char)('0' + number % 10);
	while (number /= 10);
	append(before, strlen(before));
	append(at, (size_t)(digits + sizeof digits - at));
}

void say_bytes(const void *what, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *from = what;
	char *to = text.at + text.size;

	if (2 * size > TEXT_MOST - text.size) {
		is_cut_off = true;
		return;
	}
	for (size_t i = 0; i < size; i++) {
		*to++ = digits[from[i] >> 4];
		*to++ = digits[from[i] & 15];
	}
	text.size += 2 * size;
}

bool go_to_process(void)
{
	char path[32];

	snprintf(path, sizeof path, "/proc/%d", (int)process.pid);
	return !chdir(path);
}

const char *of_process(const char *form, ...)
{
	static char path[4][256];
	static int turn;
	char *made = path[turn = (turn + 1) % 4];
	va_list words;

	va_start(words, form);
	vsnprintf(made, sizeof path[0], form, words);
	va_end(words);
	return made;
}

ssize_t slurp(const char *path, char *to, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	ssize_t got = 0;

	if (fd < 0)
		return -1;
	while (size < room - 1 && (got = read(fd, to + size, room - 1 - size)) > 0)
		size += (size_t)got;
	close(fd);
	to[size] = 0;
	is_cut_off |= got < 0 || size == room - 1;
	return (ssize_t)size;
}

/* Files that are kept open. */
static struct kept {
	char path[KEPT_NAME];
	int fd;
} kept[KEPT_MOST];
static int kept_count;

static void forget_kept(void)
{
	while (kept_count)
		close(kept[--kept_count].fd);
}

static struct kept *find_kept(const char *path)
{
	static int next; /* they are asked for in one order, mostly */

	for (int i = 0; i < kept_count; i++) {
		struct kept *one = &kept[(next + i) % kept_count];

		if (!strcmp(one->path, path)) {
			next = (int)(one - kept) + 1;
			return one;
		}
	}
	if (strlen(path) >= KEPT_NAME)
		return NULL;
	if (kept_count == KEPT_MOST)
		forget_kept();
	strcpy(kept[kept_count].path, path);
	kept[kept_count].fd = open(path, O_RDONLY | O_CLOEXEC);
	return kept[kept_count].fd < 0 ? NULL : &kept[kept_count++];
}

static ssize_t read_from_start(int fd, char *to, size_t room)
{
	size_t size = 0;
	ssize_t got = 0;

	while (size < room - 1 && (got = pread(fd, to + size, room - 1 - size, (off_t)size)) > 0)
		size += (size_t)got;
	to[size] = 0;
	return got < 0 ? -1 : (ssize_t)size;
}

size_t read_whole(int fd, char *to, size_t room)
{
	const ssize_t size = read_from_start(fd, to, room);

	return size < 0 || (size_t)size == room - 1 ? 0 : (size_t)size;
}

ssize_t slurp_again(const char *path, char *to, size_t room)
{
	struct kept *one = find_kept(path);
	ssize_t size;

	if (!one)
		return slurp(path, to, room);
	size = read_from_start(one->fd, to, room);
	if (size >= 0) {
		is_cut_off |= (size_t)size == room - 1;
		return size;
	}
	/* A thread that has ended, or a descriptor that is closed. The number may be another's by now, also in files of it that say nothing. */
	forget_kept();
	return slurp(path, to, room);
}

DIR *list_again(const char *path)
{
	static struct {
		const char *path;
		DIR *all;
	} known[2];

	for (int i = 0; i < 2; i++) {
		if (known[i].path && strcmp(known[i].path, path))
			continue;
		if (known[i].all)
			rewinddir(known[i].all);
		else
			known[i].all = opendir(path);
		known[i].path = path;
		return known[i].all;
	}
	return NULL;
}

void say_file(const char *label, const char *path)
{
	static char read_now[1 << 16];
	ssize_t size = slurp_again(path, read_now, sizeof read_now);

	append(label, strlen(label));
	append(" ", 1);
	for (ssize_t i = 0; i < size; i++) {
		const unsigned char byte = (unsigned char)read_now[i];

		if (byte == '\n')
			append("|", 1);
		else if ((byte >= ' ' && byte < 127) || byte == '\t')
			append(&read_now[i], 1);
		else
			say("\\x%02x", byte);
	}
	append("\n", 1);
}

void read_link(const char *path, char *to)
{
	ssize_t size = readlink(path, to, LINK_MOST - 1);

	to[size < 0 ? 0 : size] = 0;
	for (char *at = to; *at; at++)
		if (*at == '\n')
			*at = '?';
}

void say_link(const char *label, const char *path)
{
	char target[LINK_MOST];

	read_link(path, target);
	say("%s %s\n", label, target);
}
