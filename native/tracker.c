/* relive-tracker: copies the memory of running processes ahead of a commit, and has the kernel note what changes afterwards.
 *
 *   relive-tracker DIRECTORY FILTERS PID...      (pids as the caller sees them)
 *   relive-tracker - FILTERS PID...              only take away what a tracker that was killed may have left in them
 *
 * For each process it writes DIRECTORY/PID.pages, pages of memory one after the other, and DIRECTORY/PID.runs, whose records
 * (two u64: address of the first page, address behind the last) say in the same order which they are; of an address that
 * comes twice the later copy counts. On standard output comes one line for each process, "tracked PID" or
 * "skipped PID REASON"; "begun" when all are tracked and none is traced any more; and "ready" when little is left that has
 * changed since it was copied. Then it waits for its standard input to close, and ends, and with it the tracking.
 *
 * How a process is tracked (Linux 6.7):
 *  1. A userfaultfd for its memory is made. Only the process itself can do that, so its first thread is stopped for some
 *     100 us and made to call userfaultfd() and close(); pidfd_getfd() takes the descriptor over in between.
 *  2. Its private writable mappings without a file are registered for write protection that the kernel lifts by itself
 *     (UFFD_FEATURE_WP_ASYNC). Not those of files: there the kernel leaves a mark where a page was given back, which cannot be
 *     told from a page that is swapped out.
 *     The process notices no more than a page fault of the kernel's for the first write to a page.
 *  3. PAGEMAP_SCAN write-protects pages and says which; these are copied *after that*, so a copy is of the present content
 *     for as long as its page counts as not written. What is written meanwhile is found by the next round.
 *
 * What the tracking promises, whenever and however this program ends: a page that counts as not written in a mapping that
 * PAGEMAP_SCAN says is tracked (PAGE_IS_WPALLOWED) has the content it had when it was last copied. When the userfaultfd
 * closes, the kernel forgets all of it, and every page counts as written. So its death costs time, never a wrong page.
 * Writes it cannot see: by devices into pages that were pinned before they were write-protected (O_DIRECT, rings).
 * Processes with such descriptors are skipped.
 *
 * The danger is step 1: see tracker/userfault.h and tracker/frame.h.
 * FILTERS: processes under more seccomp filters than that are skipped: one might end a process for the call.
 */
#define _GNU_SOURCE
#include "tracker/process.h"
#include "tracker/userfault.h"

#include "pagemap_scan.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
	REGIONS = 1024,
	ROUNDS = 5,
	FEW = 64, /* [pages] so many that have changed are left to the commit */
};
#define TASK_END 0x7ffffffff000ULL

unsigned char *buffer;
static struct region regions[REGIONS];

/* -- copying ------------------------------------------------------------------------------------------------------ */

static bool keep(struct process *p, uint64_t start, const unsigned char *pages, size_t size)
{
	uint64_t run[2] = { start, start + size };

	return write_all(p->pages, pages, size) && write_all(p->runs, run, sizeof run);
}

/* Copies one region of at most WINDOW pages; what cannot be read (a guard page) is left out. */
static bool copy_region(struct process *p, uint64_t start, uint64_t end)
{
	size_t size = end - start;

	if (peek(p->pid, start, buffer, size))
		return keep(p, start, buffer, size);
	for (; start < end; start += PAGE)
		if (peek(p->pid, start, buffer, PAGE) && !keep(p, start, buffer, PAGE))
			return false;
	return true;
}

/* One round: protect and copy what has been written, or never protected. Returns pages, -1 when copies cannot be kept. */
static long copy_written(struct process *p)
{
	struct scan_arg scan = {
		.size = sizeof scan,
		.flags = SCAN_WP_MATCHING,
		.end = TASK_END,
		.vec = (uint64_t)regions,
		.vec_len = REGIONS,
		.max_pages = WINDOW,
		/* Those that CRIU dumps. One that does not exist is left alone: it would get a mark that costs memory. */
		.category_inverted = IS_PFNZERO,
		.category_mask = IS_PFNZERO | IS_WRITTEN,
		.category_anyof_mask = IS_PRESENT | IS_SWAPPED,
		.return_mask = IS_PRESENT | IS_SWAPPED,
	};
	long count = 0, found, pages;

	do {
		pages = 0;
		found = ioctl(p->pagemap, SCAN, &scan);
		if (found < 0)
			return count; /* its memory is gone: no page of it will count as not written */
		for (long i = 0; i < found; i++) {
			pages += (long)((regions[i].end - regions[i].start) / PAGE);
			if (!copy_region(p, regions[i].start, regions[i].end))
				return -1;
			scan.start = regions[i].end;
		}
		count += pages;
		/* It stops early only for want of room. Not `walk_end` says from where: that may stay behind (6.18, see micro/scanning.c), and a
		 * process that writes there again and again would be followed for ever. */
	} while (found == REGIONS || pages == WINDOW);
	return count;
}

static int open_in(const char *directory, pid_t pid, const char *kind)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%d.%s", directory, (int)pid, kind);
	return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

static const char *begin(struct process *p, const char *directory, long filters)
{
	char path[64];
	const char *reason;

	p->uffd = p->pagemap = p->pages = p->runs = -1;
	p->handle = (int)syscall(SYS_pidfd_open, p->pid, 0);
	if (p->handle < 0)
		return "gone";
	if (status_number(p->pid, "Seccomp_filters", 0) > filters)
		return "it is under seccomp filters of its own";
	snprintf(path, sizeof path, "/proc/%d/pagemap", (int)p->pid);
	p->pagemap = open(path, O_RDONLY | O_CLOEXEC);
	if (p->pagemap < 0)
		return "gone";
	reason = make_userfaultfd(p);
	if (reason || mending)
		return reason;
	p->pages = open_in(directory, p->pid, "pages");
	p->runs = open_in(directory, p->pid, "runs");
	return p->pages < 0 || p->runs < 0 ? "its pages cannot be kept" : NULL;
}

int main(int argc, char **argv)
{
	struct process *all = calloc((size_t)argc, sizeof *all);
	long filters, left, before = -1;
	int count = 0;
	char byte;

	if (argc < 4 || !all) {
		fprintf(stderr, "usage: relive-tracker DIRECTORY FILTERS PID...\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	filters = atol(argv[2]);
	mending = !strcmp(argv[1], "-");
	buffer = mmap(NULL, (size_t)WINDOW * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED)
		return 1;
	for (int i = 3; i < argc; i++) {
		struct process *p = &all[count];

		p->pid = atoi(argv[i]);
		p->skipped = begin(p, argv[1], filters);
		if (p->skipped)
			printf("skipped %d %s\n", (int)p->pid, p->skipped);
		else
			printf("tracked %d\n", (int)p->pid);
		if (p->skipped && p->uffd >= 0)
			close(p->uffd);
		count += !p->skipped;
	}
	if (mending)
		return 0;
	printf("begun\n");
	fflush(stdout);
	/* Not before: a process would stand still for longer. */
	if (nice(10) < 0)
		errno = 0;
	for (int round = 0; round < ROUNDS; round++) {
		left = 0;
		for (int i = 0; i < count; i++) {
			long copied = copy_written(&all[i]);

			if (copied < 0) {
				printf("failed %s\n", strerror(errno));
				return 1;
			}
			left += copied;
		}
		/* A process that writes as fast as it is copied: further rounds bring nothing. */
		if (left <= FEW || (before >= 0 && left > before / 2))
			break;
		before = left;
	}
	printf("ready\n");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	return 0;
}
