/* See audit.h. */
#define _GNU_SOURCE
#include "audit.h"

#include "base.h"
#include "kernel_memory.h"
#include "standing.h"
#include "text.h"
#include "unchanged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COMMITS_EACH = 256, /* so few that the 99th percentile of pauses is not theirs */
	SUSPECTS_MOST = 8, /* of which each is looked at; any one that is right is enough */
	SHOWN = 60, /* [bytes] of what was known, and of what was asked */
};

static struct {
	const struct segment *segment;
	int number;
	char what[3 * SHOWN];
} suspects[SUSPECTS_MOST];
static int suspect_count;
static bool is_under_way, was_something_known;
static unsigned commits; /* in which something was known */
static char *aside;
static size_t aside_size;
static int aside_of;
static bool is_aside, was_set_aside;
static const char *memory_suspicion;
static struct {
	bool is_believed, is_compared; /* in the commit under way */
	unsigned audited_after; /* so many commits more that believe its counters */
} memory[MEMORY_PARTS];

void begin_audit(void)
{
	if (!aside)
		aside = malloc(TEXT_MOST);
	suspect_count = 0;
	was_something_known = is_aside = was_set_aside = false;
	for (int i = 0; i < MEMORY_PARTS; i++)
		memory[i].is_believed = memory[i].is_compared = false;
	is_under_way = aside && commits % COMMITS_EACH == 0;
}

bool is_audit(void)
{
	return is_under_way;
}

void note_known(void)
{
	was_something_known = true;
}

void count_audit(void)
{
	commits += was_something_known;
	for (int i = 0; i < MEMORY_PARTS; i++)
		memory[i].audited_after = memory[i].is_compared ? COMMITS_EACH - 1 : memory[i].audited_after - memory[i].is_believed;
}

bool is_memory_audit(enum memory_part part)
{
	memory[part].is_believed = true;
	memory[part].is_compared |= (is_under_way && was_something_known) || !memory[part].audited_after;
	return memory[part].is_compared;
}

bool is_memory_believed(void)
{
	bool found = false;

	for (int i = 0; i < MEMORY_PARTS; i++)
		found |= memory[i].is_believed && !memory[i].is_compared;
	return found;
}

void suspect_memory(const char *what)
{
	memory_suspicion = what;
}

void forget_memory_audit(void)
{
	for (int i = 0; i < MEMORY_PARTS; i++)
		memory[i].audited_after = 0;
}

void set_aside(int number, size_t from)
{
	const bool is_first = !was_set_aside;

	aside_of = number;
	aside_size = text.size - from;
	memcpy(aside, text.at + from, aside_size);
	text.size = from;
	is_aside = was_set_aside = true;
	if (is_first)
		say("=asked all, to compare\n");
}

void suspect(const struct segment *s, int number, const char *what)
{
	if (suspect_count == SUSPECTS_MOST)
		return;
	suspects[suspect_count].segment = s;
	suspects[suspect_count].number = number;
	snprintf(suspects[suspect_count++].what, sizeof suspects->what, "%s", what);
}

static int word_size(const char *from, const char *end)
{
	int size = 0;

	while (from + size < end && size < SHOWN && from[size] != ' ' && from[size] != '\n')
		size++;
	return size;
}

void compare_words(const struct segment *s, int number, const char *known, size_t known_size, const char *asked, size_t size)
{
	char what[3 * SHOWN];
	size_t at = 0;

	if (size == known_size && !memcmp(asked, known, size))
		return;
	while (at < size && at < known_size && asked[at] == known[at])
		at++;
	while (at && asked[at - 1] != ' ' && asked[at - 1] != '\n')
		at--;
	snprintf(what, sizeof what, "\"%.*s\", not \"%.*s\"", word_size(asked + at, asked + size), asked + at,
		 word_size(known + at, known + known_size), known + at);
	suspect(s, number, what);
}

void compare_told(const struct segment *s, int number, size_t from)
{
	if (!is_aside || aside_of != number)
		return;
	is_aside = false;
	compare_words(s, number, aside, aside_size, text.at + from, text.size - from);
}

/* Whether what is told of an object by itself, or decides on that, is the same. */
static bool has_not_moved(enum kind kind, const unsigned char *read, const unsigned char *now)
{
	static const struct {
		enum kind kind;
		enum member member;
	} moving[] = {
		{ OPEN_REGULAR, FILE_POSITION }, { INODE, INODE_SIZE }, { MEMORY, MEMORY_BREAK }, { PIPE, PIPE_HEAD }, { PIPE, PIPE_TAIL },
	};

	for (size_t i = 0; i < sizeof moving / sizeof *moving; i++)
		if (moving[i].kind == kind && number_in(read, moving[i].member) != number_in(now, moving[i].member))
			return false;
	return true;
}

/* Since it was read. Others may write to a file, or send a signal. */
static bool has_changed(const struct segment *s)
{
	if (s->connection != NONE && !has_stood_still(&plan->objects[s->connection]))
		return true;
	for (int i = s->first; i < s->first + s->count; i++) {
		const struct object *one = &plan->objects[i];
		const unsigned char *now = fetch(one->address, one->size);

		if (!now || !are_alike(one->kind, object_read(i), now, one->size) || !has_not_moved(one->kind, object_read(i), now))
			return true;
	}
	return false;
}

bool is_memory_well(void)
{
	return !memory_suspicion || refuse(DISTRUSTED ": %s " UNCOUNTED, memory_suspicion);
}

bool is_audit_well(void)
{
	if (!is_memory_well())
		return false;
	for (int i = 0; i < suspect_count; i++) {
		if (has_changed(suspects[i].segment))
			continue;
		if (suspects[i].number < 0)
			return refuse(DISTRUSTED ": of the process it is %s", suspects[i].what);
		return refuse(DISTRUSTED ": of descriptor %d it is %s", suspects[i].number, suspects[i].what);
	}
	return true;
}
