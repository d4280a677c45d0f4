/* See plan.h. */
#define _GNU_SOURCE
#include "plan.h"

#include "base.h"
#include "kernel_memory.h"
#include "standing.h"

#include <stdlib.h>
#include <string.h>

enum {
	PROCESS = 0, /* the first segment */
	STEPS_MOST = 256, /* of a path */
};

struct plan *plan;
static struct plan *before;
static bool is_full;

static struct plan *new_plan(void)
{
	struct plan *made = calloc(1, sizeof *made);

	if (made)
		made->planned = malloc(ALL_PIECES);
	return made && made->planned ? made : NULL;
}

bool begin_plans(void)
{
	plan = new_plan();
	before = new_plan();
	return plan && before;
}

/* -- making one --------------------------------------------------------------------------------------------------- */

const unsigned char *seen(int object)
{
	return plan->planned + plan->objects[object].at;
}

int add_object(enum kind kind, uint64_t address, uint32_t size, int from, uint32_t offset, int64_t distance)
{
	const unsigned char *found = plan->object_count < OBJECTS_MOST ? fetch(address, size) : NULL;
	const int at = found ? add_piece(address, size) : NONE;

	is_full |= found && at < 0;
	if (at < 0)
		return NONE;
	memcpy(plan->planned + at, found, size);
	plan->objects[plan->object_count] = (struct object){ kind, size, address, at, NONE, from, offset, distance };
	return plan->object_count++;
}

int follow_pointer(int from, enum member pointer, enum kind kind)
{
	return add_object(kind, number_in(seen(from), pointer), size_of_kind(kind), from, offset_of(pointer), 0);
}

bool plan_path(int from, uint32_t offset)
{
	const int64_t inner = offset_of(MOUNT_INNER);
	const unsigned char *path = seen(from) + offset;
	uint64_t name = number_in(path, PATH_NAME);
	int mount = add_object(MOUNT, number_in(path, PATH_MOUNT) - (uint64_t)inner, size_of_kind(MOUNT), from, offset + offset_of(PATH_MOUNT),
			-inner);

	offset += offset_of(PATH_NAME);
	for (int steps = 0; steps < STEPS_MOST && mount != NONE; steps++) {
		if (name == number_in(seen(mount), MOUNT_ROOT)) {
			if (number_in(seen(mount), MOUNT_PARENT) == plan->objects[mount].address)
				return true;
			from = mount;
			offset = offset_of(MOUNT_POINT);
			name = number_in(seen(mount), MOUNT_POINT);
			mount = follow_pointer(mount, MOUNT_PARENT, MOUNT);
			continue;
		}
		from = add_object(NAME, name, size_of_kind(NAME), from, offset, 0);
		if (from == NONE)
			return false;
		if (number_in(seen(from), NAME_TEXT) != name + offset_of(NAME_SHORT) &&
		    add_object(WORDS, number_in(seen(from), NAME_TEXT), (uint32_t)number_in(seen(from), NAME_LENGTH), from, offset_of(NAME_TEXT), 0) ==
			    NONE)
			return false;
		if (number_in(seen(from), NAME_PARENT) == name) /* of no tree: a socket, a pipe */
			return true;
		offset = offset_of(NAME_PARENT);
		name = number_in(seen(from), NAME_PARENT);
	}
	return false;
}

bool is_bit_set(const unsigned char *bits, int number)
{
	return bits[number / 8] >> number % 8 & 1;
}

const unsigned char *object_read(int object)
{
	return pieces() + plan->objects[object].at;
}

static struct segment *segment_in(struct plan *of, int number)
{
	int low = 0, high = of->segment_count;

	while (low < high) {
		const int middle = (low + high) / 2;

		if (of->segments[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < of->segment_count && of->segments[low].number == number ? &of->segments[low] : NULL;
}

struct segment *process_segment(void)
{
	return &plan->segments[PROCESS];
}

struct segment *segment_of(int number)
{
	return segment_in(plan, number);
}

static bool are_same_objects(const struct segment *s, const struct segment *old)
{
	if (old->count != s->count)
		return false;
	for (int i = 0; i < s->count; i++) {
		const struct object *one = &plan->objects[s->first + i], *other = &before->objects[old->first + i];

		if (one->kind != other->kind || one->address != other->address || one->size != other->size ||
		    !are_alike(one->kind, plan->planned + one->at, before->planned + other->at, one->size))
			return false;
	}
	return true;
}

static bool plan_segment(int number, uint64_t file)
{
	struct segment *s = &plan->segments[plan->segment_count++];
	const struct segment *old = before->is_made ? segment_in(before, number) : NULL;
	const struct pieces_end end = pieces_end();

	memset(s, 0, sizeof *s);
	s->number = number;
	s->first = plan->object_count;
	s->connection = NONE;
	s->can_be_known = number == OF_PROCESS ? plan_process() : plan_file(s, file);
	if (is_full && number != OF_PROCESS) {
		/* This one is always asked about; there may be room for others. */
		plan->object_count = s->first;
		cut_pieces(end);
		s->connection = NONE;
		is_full = s->can_be_known = false;
	}
	s->count = plan->object_count - s->first;
	if (s->can_be_known && old && old->is_known && are_same_objects(s, old)) {
		s->is_known = true;
		s->known = old->known;
	}
	return s->can_be_known;
}

static void plan_descriptors(void)
{
	for (int i = 0; i < (int)plan->most && i < DESCRIPTORS_MOST; i++) {
		uint64_t file;

		memcpy(&file, seen(plan->files) + 8 * (size_t)i, sizeof file);
		if (is_bit_set(seen(plan->open), i) && file)
			plan_segment(i, file);
	}
	for (int i = 0; i < plan->segment_count; i++) {
		struct segment *s = &plan->segments[i];

		if (s->connection != NONE && !read_again(&plan->objects[s->connection])) {
			s->can_be_known = s->is_known = false;
			s->connection = NONE;
		}
	}
}

static void make_plan(void)
{
	struct plan *made = before;

	before = plan;
	plan = made;
	plan->is_made = is_full = false;
	plan->object_count = plan->segment_count = 0;
	forget_pieces();
	plan->is_made = plan_segment(OF_PROCESS, 0) && plan_table();
	if (plan->is_made)
		plan_descriptors();
	before->is_made = false;
}

/* -- after all was read ------------------------------------------------------------------------------------------- */

/* Whether pointers lead to all objects of a part still. */
static bool are_linked(int first, int count)
{
	for (int i = first; i < first + count; i++) {
		const struct object *one = &plan->objects[i];
		uint64_t to;

		if (one->from == NONE)
			continue;
		memcpy(&to, object_read(one->from) + one->offset, sizeof to);
		if (to + (uint64_t)one->distance != one->address)
			return false;
	}
	return true;
}

/* The table of descriptors and what leads to it, behind what is the process's. */
static bool is_table_linked(void)
{
	return are_linked(plan->segments[PROCESS].count, plan->closing + 1 - plan->segments[PROCESS].count);
}

bool is_process_linked(void)
{
	return are_linked(0, plan->segments[PROCESS].count) && is_table_linked() &&
	       number_in(object_read(plan->signals), SIGNAL_THREADS) == (uint64_t)thread_count;
}

uint64_t file_read(int number)
{
	uint64_t file;

	memcpy(&file, object_read(plan->files) + 8 * (size_t)number, sizeof file);
	return file;
}

bool is_as_planned(const struct segment *s)
{
	if (!are_linked(s->first, s->count))
		return false;
	for (int i = s->first; i < s->first + s->count; i++) {
		const struct object *one = &plan->objects[i];

		if (!are_alike(one->kind, plan->planned + one->at, pieces() + one->at, one->size))
			return false;
	}
	return true;
}

/* Whether it is what there is now, as far as that can be told while the process runs. */
static bool is_plan_current(void)
{
	int known = 1;

	if (!plan->is_made || !read_pieces() || !is_process_linked() || !is_as_planned(&plan->segments[PROCESS]))
		return false;
	for (uint32_t i = 0; i < plan->most && i < DESCRIPTORS_MOST; i++) {
		const struct segment *s;

		if (!is_bit_set(object_read(plan->open), (int)i))
			continue;
		s = segment_of((int)i);
		if (!s || !is_as_planned(s))
			return false;
		known++;
	}
	return known == plan->segment_count;
}

void renew_plan(void)
{
	if (!is_plan_current())
		make_plan();
}
