/* See mappings.h. */
#define _GNU_SOURCE
#include "mappings.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

struct mapping mappings[MAPPINGS_MOST];
int mapping_count;

bool read_mappings(void)
{
	static char maps[8 << 20];
	unsigned long long start, end, inode;
	char rights[8];
	int at;
	ssize_t size = slurp(of_process("maps"), maps, sizeof maps);

	if (size <= 0 || size >= (ssize_t)sizeof maps - 1)
		return refuse("its mappings cannot be read");
	mapping_count = 0;
	process.stack = process.stack_end = 0;
	for (char *line = maps; *line;) {
		char *next = strchr(line, '\n');

		if (!next || mapping_count == MAPPINGS_MOST)
			return refuse("it has too many mappings");
		*next = 0;
		if (sscanf(line, "%llx-%llx %7s %*x %*s %llu %n", &start, &end, rights, &inode, &at) < 4)
			return refuse("its mappings cannot be read");
		mappings[mapping_count++] =
			(struct mapping){ start, end, inode != 0, rights[2] == 'x', rights[3] != 'p' || !strncmp(line + at, "[v", 2) };
		if (!strncmp(line + at, "[stack]", 7)) {
			process.stack = start;
			process.stack_end = end;
		}
		append("=map ", 5);
		append(line, (size_t)(next - line));
		append("\n", 1);
		line = next + 1;
	}
	return true;
}

const struct mapping *mapping_of(uint64_t address)
{
	int low = 0, high = mapping_count;

	while (low < high) {
		int middle = (low + high) / 2;

		if (mappings[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < mapping_count && mappings[low].start <= address ? &mappings[low] : NULL;
}
