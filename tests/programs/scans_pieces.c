/* Scans memory of its own in so many pieces (argv[1]) as relive-micro does, and says how many it found and how many of them are not behind
 * the one before. Linked with native/micro. */
#define _GNU_SOURCE
#include "../../native/micro/scanning.h"
#include "../../native/micro/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct process process = { .pagemap = -1 };
struct thread threads[THREADS_MOST];
int thread_count;
uint64_t caught;

bool refuse(const char *form, ...)
{
	fprintf(stderr, "%s\n", form);
	return false;
}

int main(int count, char **words)
{
	const size_t pieces = count > 1 ? (size_t)atoi(words[1]) : 0, size = 2 * pieces * PAGE;
	char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct run_list found = { .at = room_for_regions() };
	struct mapping range = { .start = (uint64_t)at, .end = (uint64_t)at + size };
	int unordered = 0;

	if (at == MAP_FAILED || madvise(at, size, MADV_NOHUGEPAGE))
		return 1;
	for (size_t i = 0; i < pieces; i++)
		at[2 * i * PAGE] = 1;
	process.pid = getpid();
	if (!go_to_process() || !open_pagemap() || !scan_range(&found, &range, 0, 0, IS_PRESENT))
		return 1;
	for (size_t i = 1; i < found.count; i++)
		unordered += found.at[i].start < found.at[i - 1].end;
	printf("%zu %d\n", found.count, unordered);
	return 0;
}
