/* See text.h. */
#define _GNU_SOURCE
#include "text.h"

#include "base.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINK_MOST = 4096 };

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

const char *of_process(const char *form, ...)
{
	static char path[4][256];
	static int turn;
	char *made = path[turn = (turn + 1) % 4];
	int size = snprintf(made, sizeof path[0], "/proc/%d/", (int)process.pid);
	va_list words;

	va_start(words, form);
	vsnprintf(made + size, sizeof path[0] - (size_t)size, form, words);
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

void say_file(const char *label, const char *path)
{
	static char read_now[1 << 16];
	ssize_t size = slurp(path, read_now, sizeof read_now);

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
