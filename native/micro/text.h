/* The lines in which relive-micro says what it sees. Python compares those of two commits word for word, so none may be missing: where one
 * is longer than what is read or kept here, `is_cut_off` becomes true, and no commit is made of it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { TEXT_MOST = 16 << 20 };

struct text {
	char *at; /* TEXT_MOST bytes */
	size_t size;
};

extern struct text text; /* what is being said */
extern bool is_cut_off;

__attribute__((format(printf, 1, 2))) void say(const char *form, ...);
void append(const char *what, size_t size);
void say_bytes(const void *what, size_t size); /* as hexadecimal digits */

/* A name in /proc/PID; good for the next three as well. */
__attribute__((format(printf, 1, 2))) const char *of_process(const char *form, ...);

/* Reads a file of /proc; its end is marked by a zero. -1: it is not there. */
ssize_t slurp(const char *path, char *to, size_t room);

/* A line of a whole file, whose ends of lines become '|'; of where a link leads, with '?' for ends of lines. */
void say_file(const char *label, const char *path);
void say_link(const char *label, const char *path);

/* Where a link leads, without ends of lines; "" where that cannot be read. `to`: 4096 bytes. */
void read_link(const char *path, char *to);
