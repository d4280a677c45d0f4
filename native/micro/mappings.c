/* See mappings.h.
 *
 * The kernel makes the name of each mapping whenever the list is read, which takes most of the time. So the list is read before the pause;
 * in it each mapping is asked for without its name, and names of files are compared once more when the process runs again. What was read then is
 * good for the next commit, if nothing has changed by then. */
#define _GNU_SOURCE
#include "mappings.h"

#include "audit.h"
#include "memory_state.h"
#include "text.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

/* PROCMAP_QUERY of Linux 6.11 (linux/fs.h), which the headers of the build host need not have. */
struct query {
	uint64_t size, flags, address, start, end, rights, page_size, offset, inode;
	uint32_t major, minor, name_size, build_size;
	uint64_t name, build;
};
#define QUERY _IOWR('f', 17, struct query)
#define IT_OR_NEXT 0x10
enum { MAPS_MOST = 8 << 20 };
#define BEYOND (1ULL << 63) /* the kernel's, which is listed but cannot be asked for */

struct mapping mappings[MAPPINGS_MOST];
int mapping_count;

static struct facts {
	uint64_t rights, offset, inode;
	uint32_t major, minor;
	bool is_shared; /* and in no file with a name: with that the kernel calls it (shmem_zero_setup, newseg) */
	const char *line;
} facts[MAPPINGS_MOST];
static int maps_file = -1; /* of the memory of which they were read; it cannot be asked once that is gone (execve(2)) */
static bool were_asked;
static bool is_of_this_commit; /* `maps_file` is of the memory that it had when this commit began */
static struct memory_state state; /* as it was before they were read */

static bool read_line(char *line)
{
	unsigned long long start, end, offset, inode;
	struct facts *seen = &facts[mapping_count];
	char rights[8];
	int at;

	if (sscanf(line, "%llx-%llx %7s %llx %" SCNx32 ":%" SCNx32 " %llu %n", &start, &end, rights, &offset, &seen->major, &seen->minor,
		   &inode, &at) < 7)
		return false;
	mappings[mapping_count] =
		(struct mapping){ start, end, inode != 0, rights[2] == 'x', rights[3] != 'p' || !strncmp(line + at, "[v", 2) };
	seen->rights = (rights[0] == 'r') | (rights[1] == 'w') << 1 | (rights[2] == 'x') << 2 | (rights[3] != 'p') << 3;
	seen->offset = offset;
	seen->inode = inode;
	seen->line = line;
	seen->is_shared = rights[3] == 's' && (!strcmp(line + at, "/dev/zero (deleted)") || !strncmp(line + at, "/SYSV", 5));
	if (!strncmp(line + at, "[stack]", 7)) {
		process.stack = start;
		process.stack_end = end;
	}
	mapping_count++;
	return true;
}

bool read_mappings(void)
{
	static char maps[MAPS_MOST];
	const struct memory_state before = memory_state_now();

	were_asked = false;
	is_of_this_commit = true;
	state = (struct memory_state){ 0 };
	if (maps_file >= 0)
		close(maps_file);
	maps_file = open(of_process("maps"), O_RDONLY | O_CLOEXEC);
	if (!read_whole(maps_file, maps, sizeof maps))
		return refuse("its mappings cannot be read");
	mapping_count = 0;
	process.stack = process.stack_end = 0;
	for (char *line = maps; *line;) {
		char *next = strchr(line, '\n');

		if (!next || mapping_count == MAPPINGS_MOST)
			return refuse("it has too many mappings");
		*next = 0;
		if (!read_line(line))
			return refuse("its mappings cannot be read");
		line = next + 1;
	}
	state = before;
	return true;
}

bool know_mappings(void)
{
	if (!mapping_count || !are_mappings_alike(memory_state_now(), state))
		return read_mappings();
	were_asked = is_of_this_commit = false;
	return true;
}

/* Whether all are as they were read, but for their names. */
static bool are_same(void)
{
	struct query asked = { .size = sizeof asked, .flags = IT_OR_NEXT };

	for (int i = 0; i < mapping_count && mappings[i].start < BEYOND; i++) {
		const struct facts *seen = &facts[i];

		if (ioctl(maps_file, QUERY, &asked) || asked.start != mappings[i].start || asked.end != mappings[i].end ||
		    asked.rights != seen->rights || asked.offset != seen->offset || asked.inode != seen->inode ||
		    asked.major != seen->major || asked.minor != seen->minor)
			return false;
		asked.address = asked.end;
	}
	return ioctl(maps_file, QUERY, &asked) && errno == ENOENT;
}

bool are_mappings_as_of(struct memory_state now)
{
	return are_mappings_alike(now, state);
}

/* Whether the kernel tells of one mapping (Linux 6.11); before that only the whole list is to be had, and proves no counter wrong. */
static bool can_ask(void)
{
	struct query asked = { .size = sizeof asked, .flags = IT_OR_NEXT };

	return !ioctl(maps_file, QUERY, &asked);
}

/* Whether all are as they were read, by what the kernel counts. */
static bool are_known(void)
{
	const struct memory_state then = memory_state_read();

	if (!are_mappings_as_of(then))
		return false;
	if (!is_memory_audit(MAPPINGS) || are_same())
		return true;
	if (can_ask() && are_mappings_alike(then, memory_state_now()))
		suspect_memory("its mappings");
	return false;
}

bool see_mappings(void)
{
	were_asked = are_known();
	if (were_asked)
		return true;
	were_asked = is_of_this_commit && are_same();
	if (!were_asked)
		return read_mappings();
	state = memory_state_read(); /* they were asked since */
	return true;
}

void rehearse_mappings(void)
{
	if (is_of_this_commit)
		(void)are_same();
}

uint64_t inode_of_shared(int number)
{
	return facts[number].is_shared ? facts[number].inode : NOT_SHARED;
}

void say_mappings(void)
{
	for (int i = 0; i < mapping_count; i++) {
		append("=map ", 5);
		append(facts[i].line, strlen(facts[i].line));
		append("\n", 1);
	}
}

bool are_names_same(void)
{
	static char maps[MAPS_MOST];
	const int fd = were_asked ? open(of_process("maps"), O_RDONLY | O_CLOEXEC) : -1;
	int next = 0;

	if (!were_asked)
		return true;
	(void)read_whole(fd, maps, sizeof maps);
	if (fd >= 0)
		close(fd);
	for (char *line = maps, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		/* Others may have come. */
		while (next < mapping_count && !mappings[next].is_file)
			next++;
		if (next < mapping_count && !strcmp(facts[next].line, line))
			next++;
	}
	while (next < mapping_count && !mappings[next].is_file)
		next++;
	return next == mapping_count ? true : refuse("a mapping of a file was changed or renamed a moment later");
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
