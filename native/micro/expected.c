/* See expected.h.
 *
 * A file of expectations is a sequence of texts, each ended by a zero byte, and so is whole only with the last one, "end":
 *   "p DEVICE INODE MODE UID GID SIZE MTIME_NS CTIME_NS PATH"   so it is at PATH; "d ...": where PATH leads
 *   "a PATH"                                                    nothing is there
 *   "w OFFSET VALUE PATH"                                       a word of 64 bits in the file there
 *   "c CALLS"                                                   so many calls that write has the process made (syscw of proc_pid_io(5)) */
#define _GNU_SOURCE
#include "expected.h"

#include "base.h"
#include "text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
	EXPECTED_MOST = 512,
	WORDS_MOST = 1 << 18, /* [bytes] */
};

struct expected {
	char kind;
	const char *path;
	uint64_t numbers[8];
};

static struct expected all[EXPECTED_MOST];
static int count;
static bool is_known;
static char words[WORDS_MOST];

/* A call is counted when it is done; one that is under way began with the file's times. */
static bool has_written(uint64_t calls)
{
	static char read_now[1024];
	unsigned long long counted;
	const char *at = slurp_again(of_process("io"), read_now, sizeof read_now) > 0 ? strstr(read_now, "syscw: ") : NULL;

	return at && sscanf(at, "syscw: %llu", &counted) == 1 && counted == calls;
}

static int64_t in_ns(struct timespec t)
{
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static bool is_so(const struct expected *one)
{
	const uint64_t *n = one->numbers;
	struct stat found;
	uint64_t word;
	int fd;

	switch (one->kind) {
	case 'c':
		return has_written(n[0]);
	case 'a':
		return lstat(one->path, &found) && errno == ENOENT;
	case 'w':
		fd = open(one->path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return false;
		if (pread(fd, &word, sizeof word, (off_t)n[0]) != sizeof word)
			word = ~n[1];
		close(fd);
		return word == n[1];
	default:
		if (one->kind == 'p' ? lstat(one->path, &found) : stat(one->path, &found))
			return false;
		return found.st_dev == n[0] && found.st_ino == n[1] && found.st_mode == n[2] && found.st_uid == n[3] &&
		       found.st_gid == n[4] && (uint64_t)found.st_size == n[5] && (uint64_t)in_ns(found.st_mtim) == n[6] &&
		       (uint64_t)in_ns(found.st_ctim) == n[7];
	}
}

static bool parse(char *text)
{
	static const char kinds[] = "pdawc";
	static const int counts[] = { 8, 8, 0, 2, 1 };
	const char *kind = *text ? strchr(kinds, *text) : NULL;
	struct expected one = { 0 };
	char *at = text + 1;

	if (!kind || count == EXPECTED_MOST)
		return false;
	one.kind = *text;
	for (int i = 0; i < counts[kind - kinds]; i++) {
		char *end;

		one.numbers[i] = strtoull(at, &end, 10); /* also of what is below zero */
		if (end == at)
			return false;
		at = end;
	}
	one.path = *at == ' ' ? at + 1 : at;
	all[count++] = one;
	return true;
}

bool read_expected(const char *path)
{
	const ssize_t size = slurp(path, words, sizeof words);
	bool is_whole = false;

	count = 0;
	for (char *at = words, *next; size > 0 && at < words + size && !is_whole; at = next) {
		next = at + strlen(at) + 1;
		is_whole = !strcmp(at, "end");
		if (!is_whole && !parse(at))
			break;
	}
	is_known = is_whole;
	return is_known;
}

void forget_expected(void)
{
	is_known = false;
}

bool is_as_expected(void)
{
	for (int i = 0; i < count; i++)
		if (!is_so(&all[i]))
			return false;
	return is_known;
}
