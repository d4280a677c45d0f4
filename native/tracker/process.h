/* A process that is tracked from outside, and reading its memory: what relive-tracker and relive-micro share. */
#pragma once
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	WINDOW = 2048, /* [pages] protected and copied at a time: so long at most is the memory's lock held */
};

struct process {
	pid_t pid;
	int handle, uffd, pagemap, pages, runs;
	uint64_t call;	  /* address of "syscall; ret" */
	uint64_t restore; /* address of "rt_sigreturn" */
	uint64_t stack, stack_end;
	const char *skipped;
};

extern unsigned char *buffer; /* WINDOW pages, for whoever reads; the program makes it */

/* All of it, or false. */
static inline bool peek(pid_t pid, uint64_t from, void *to, size_t size)
{
	struct iovec here = { to, size }, there = { (void *)from, size };

	return process_vm_readv(pid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static inline bool write_all(int fd, const void *from, size_t size)
{
	const char *at = from;

	while (size) {
		ssize_t done = write(fd, at, size);

		if (done <= 0)
			return false;
		at += done;
		size -= (size_t)done;
	}
	return true;
}
