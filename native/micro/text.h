/* The lines in which relive-micro says what it sees. Python compares those of two commits word for word, so none may be missing: where one
 * is longer than what is read or kept here, `is_cut_off` becomes true, and no commit is made of it. */
#pragma once
#include <dirent.h>
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
void say_number(const char *before, unsigned long number);
void say_bytes(const void *what, size_t size); /* as hexadecimal digits */

/* Makes /proc/PID the working directory: names in it are found sooner from there, and are never another process's of the same number. */
bool go_to_process(void);

/* A name in there; good for the next three as well. */
__attribute__((format(printf, 1, 2))) const char *of_process(const char *form, ...);

/* What an open file of /proc has from its beginning, of which one read(2) tells no more than a page; its end is marked by a zero. 0: it cannot
 * be read, has nothing, or has more than there is room for. */
size_t read_whole(int fd, char *to, size_t room);

/* Reads a file of /proc; its end is marked by a zero. -1: it is not there. */
ssize_t slurp(const char *path, char *to, size_t room);

/* The same of a file that is looked at in each pause: it stays open, as opening it takes longer than reading. What it tells is of now: of the
 * thread or descriptor that has the number in its name. */
ssize_t slurp_again(const char *path, char *to, size_t room);

/* A directory that is listed in each pause, from its beginning. NULL: it is not there. */
DIR *list_again(const char *path);

/* A line of a whole file, which stays open, and whose ends of lines become '|'; of where a link leads, with '?' for ends of lines. */
void say_file(const char *label, const char *path);
void say_link(const char *label, const char *path);

/* Where a link leads, without ends of lines; "" where that cannot be read. `to`: 4096 bytes. */
void read_link(const char *path, char *to);
