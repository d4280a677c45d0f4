/* See unchanged.h. Which objects there are is in plan.h. */
#define _GNU_SOURCE
#include "unchanged.h"

#include "audit.h"
#include "base.h"
#include "descriptors.h"
#include "kernel_memory.h"
#include "standing.h"
#include "text.h"
#include "timers.h"
#include "tree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *obstacle; /* to reading the kernel */
static bool can_read;
static char *known_text;
static int known_count; /* of segments, in the text that is known; NONE: it tells of more than these */
static uint64_t known_caught;
static bool has_read, is_unknown;
static bool is_told_apart; /* something was told that is in no segment, so that it is not counted */

void find_kernel(void)
{
	obstacle = find_members();
	can_read = !obstacle;
}

/* Only now: each process of a tree has a tracker of its own. */
bool can_read_kernel(void)
{
	static bool was_tried;

	if (can_read && !was_tried) {
		was_tried = true;
		known_text = malloc(TEXT_MOST);
		can_read = known_text && begin_plans() && open_kernel_memory();
		if (!can_read)
			obstacle = "it does not run a program that reads its memory (BPF)";
	}
	return can_read;
}

const char *kernel_obstacle(void)
{
	return can_read_kernel() ? NULL : obstacle;
}

void plan_facts(void)
{
	has_read = false;
	if (can_read_kernel())
		renew_plan();
}

void forget_facts(void)
{
	has_read = false;
	forget_memory_audit();
	for (int i = 0; plan && i < plan->segment_count; i++)
		plan->segments[i].is_known = false;
}

bool read_facts(void)
{
	is_unknown = is_told_apart = false;
	has_read = can_read && plan && plan->is_made && read_pieces() && is_process_linked();
	for (int i = 0; has_read && i < plan->segment_count; i++)
		plan->segments[i].is_told = false;
	begin_audit();
	return has_read;
}

bool are_facts_read(void)
{
	return has_read;
}

/* -- what is known ------------------------------------------------------------------------------------------------ */

static bool is_empty_pipe(const struct segment *s)
{
	for (int i = s->first; i < s->first + s->count; i++)
		if (plan->objects[i].kind == PIPE &&
		    number_in(object_read(i), PIPE_HEAD) != number_in(object_read(i), PIPE_TAIL))
			return false;
	return true;
}

/* A descriptor behind another of the same open file has no numbers of its own. */
static bool is_known_connection(const struct segment *s)
{
	return (s->known.has_stream || s->known.same >= 0) && is_still(&plan->objects[s->connection]);
}

static bool is_as_known(const struct segment *s)
{
	return has_read && s && s->is_known && is_empty_pipe(s) && is_as_planned(s) && (s->connection == NONE || is_known_connection(s));
}

static void begin_account(struct segment *s)
{
	s->is_told = true;
	s->now = (struct account){ .told.at = text.size };
}

/* What was said just now from `from` on is what is known; false: it is asked for all the same. */
static bool is_enough(int number, size_t from)
{
	const bool well = !is_audit();

	note_known();
	is_unknown |= !well; /* what is asked may be something else */
	if (!well)
		set_aside(number, from);
	return well;
}

bool say_known_process(void)
{
	struct segment *s = has_read ? process_segment() : NULL;

	if (!is_as_known(s)) {
		is_unknown = true;
		say("=asked process\n");
		return false;
	}
	begin_account(s);
	append(known_text + s->known.told.at, s->known.told.size);
	s->now.told.size = text.size - s->now.told.at;
	caught = known_caught;
	return is_enough(OF_PROCESS, s->now.told.at);
}

bool break_read(uint64_t *end_of_heap)
{
	if (!has_read || is_audit())
		return false;
	if (end_of_heap)
		*end_of_heap = number_in(object_read(plan->memory), MEMORY_BREAK);
	return true;
}

bool alternate_stacks_read(struct unused *found)
{
	int thread = thread_count; /* the last was planned first */

	for (int i = 0; has_read && i < plan->object_count && thread > 0; i++) {
		const unsigned char *task = object_read(i);

		if (plan->objects[i].kind != TASK)
			continue;
		thread--;
		if (number_in(task, TASK_PID) != (uint64_t)threads[thread].tid)
			return false;
		found[thread].lowest = number_in(task, TASK_ALTERNATE);
		found[thread].top = found[thread].lowest + number_in(task, TASK_ALTERNATE_SIZE);
	}
	return thread == 0;
}

static bool is_hidden_as_known(const struct segment *s)
{
	return s && s->is_told && s->known.hidden.size && is_as_known(s);
}

bool is_hidden_known(void)
{
	return has_read && !is_audit() && is_hidden_as_known(process_segment());
}

/* All but the break, of which nothing else is made: brk(2) may move it. */
bool say_known_hidden(void)
{
	struct segment *s = has_read ? process_segment() : NULL;

	if (!is_hidden_as_known(s))
		return false;
	s->now.hidden.at = text.size;
	for (const char *at = known_text + s->known.hidden.at, *const end = at + s->known.hidden.size, *next; at < end; at = next) {
		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next + 1 : end;
		if (!strncmp(at, "?brk ", 5))
			say("?brk %" PRIx64 "\n", number_in(object_read(plan->memory), MEMORY_BREAK));
		else
			append(at, (size_t)(next - at));
	}
	s->now.hidden.size = text.size - s->now.hidden.at;
	return is_enough(HIDDEN, s->now.hidden.at);
}

/* The line that was told of a connection, with what may move of it as it is now. */
static void say_known_connection(const struct segment *s)
{
	static const char moving[] = " ready=", rest[] = " peek=";
	const struct object *connection = &plan->objects[s->connection];
	const char *const at = known_text + s->known.told.at, *const end = at + s->known.told.size;
	const char *const middle = memmem(at, (size_t)(end - at), moving, sizeof moving - 1);
	const char *const last = middle ? memmem(middle, (size_t)(end - middle), rest, sizeof rest - 1) : NULL;

	if (!last)
		return;
	append(at, (size_t)(middle - at));
	say(" ready=0 sndbuf=%" PRIu32 " rcvbuf=%" PRIu32, buffer_of(connection, true), buffer_of(connection, false));
	append(last, (size_t)(end - last));
}

static void say_known_file(const struct segment *s)
{
	for (const char *at = known_text + s->known.told.at, *const end = at + s->known.told.size, *next; at < end; at = next) {
		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next + 1 : end;
		if (*at != '=')
			append(at, (size_t)(next - at));
	}
	if (s->is_regular)
		say("=position %d %" PRIu64 " %" PRId64 "\n", s->number, number_in(object_read(s->first), FILE_POSITION),
		    (int64_t)number_in(object_read(s->first + 1), INODE_SIZE));
}

bool say_known_descriptor(int number, int same)
{
	struct segment *s = segment_of(number);
	const bool is_connection = s && s->connection != NONE;

	if (!is_as_known(s) || s->known.same != same || s->known.closes != is_bit_set(object_read(plan->closing), number) ||
	    (is_connection && !note_connection(number, s->known.inode))) {
		is_unknown = true;
		say("=asked descriptor %d\n", number);
		return false;
	}
	begin_account(s);
	is_connection ? say_known_connection(s) : say_known_file(s);
	s->now.told.size = text.size - s->now.told.at;
	s->now.same = same;
	s->now.device = s->known.device;
	s->now.inode = s->known.inode;
	s->now.has_stream = s->known.has_stream;
	s->now.stream = s->known.stream;
	if (!is_enough(number, s->now.told.at)) {
		if (is_connection)
			take_back_connection();
		return false;
	}
	return note_held(number, s->known.device, s->known.inode, is_connection ? -1 : same, is_connection);
}

void say_known_streams(void)
{
	for (int i = 0; has_read && i < plan->segment_count; i++) {
		struct segment *s = &plan->segments[i];

		if (!s->is_told || s->connection == NONE || !s->now.has_stream)
			continue;
		take_standing(&plan->objects[s->connection], &s->now.stream);
		say_numbers(&s->now.stream);
	}
}

int descriptors_read(int *numbers)
{
	int count = 0;

	for (uint32_t i = 0; i < plan->most; i++)
		if (is_bit_set(object_read(plan->open), (int)i))
			numbers[count++] = (int)i;
	return count;
}

int same_file_read(const int *numbers, int which)
{
	for (int i = 0; i < which; i++)
		if (file_read(numbers[i]) == file_read(numbers[which]))
			return numbers[i];
	return -1;
}

/* -- what is told ------------------------------------------------------------------------------------------------- */

void note_told(int number, size_t from)
{
	struct segment *s = !has_read ? NULL : number < 0 ? process_segment() : segment_of(number);
	const struct told told = { from, text.size - from };

	is_told_apart |= has_read && !s;
	if (!s)
		return;
	compare_told(s, number, from);
	if (number == HIDDEN) {
		/* What is left of a timer that runs is none of what is compared of the objects. */
		if (memmem(text.at + from, told.size, NO_INTERVAL_TIMERS, sizeof NO_INTERVAL_TIMERS - 1))
			s->now.hidden = told;
		return;
	}
	s->now = (struct account){ .told = told };
	s->is_told = true;
}

void note_asked_beside(const char *known, size_t from)
{
	struct segment *s = has_read ? process_segment() : NULL;

	if (is_audit() && is_as_known(s))
		compare_words(s, OF_PROCESS, known, strlen(known), text.at + from, text.size - from);
}

void note_told_held(int number, uint64_t device, uint64_t inode, int same)
{
	struct segment *s = has_read ? segment_of(number) : NULL;

	if (!s)
		return;
	s->now.device = device;
	s->now.inode = inode;
	s->now.same = same;
}

/* Of one that stood still between reading and now it must be what it tells by itself. */
void note_told_stream(int number, const struct stream_numbers *numbers)
{
	struct segment *s = has_read ? segment_of(number) : NULL;
	const struct object *connection = s && s->connection != NONE ? &plan->objects[s->connection] : NULL;
	struct stream_numbers by_itself = *numbers;

	if (!connection)
		return;
	s->now.has_stream = false;
	if (!is_still(connection) || !has_stood_still(connection))
		return;
	take_standing(connection, &by_itself);
	s->now.has_stream = are_same_numbers(&by_itself, numbers);
	if (!s->now.has_stream && !is_own_clock(numbers))
		suspect(s, number, "where it stands");
	s->now.stream = *numbers;
}

static int told_count(void)
{
	int count = 0;

	for (int i = 0; i < plan->segment_count; i++)
		count += plan->segments[i].is_told;
	return count;
}

bool is_all_known(void)
{
	return has_read && !is_unknown && told_count() == known_count;
}

bool judge_facts(void)
{
	if (!has_read || is_audit_well())
		return true;
	can_read = has_read = false;
	return false;
}

/* What was told of it was told of one moment, if it is a connection: the other end goes on. */
static bool is_of_one_moment(const struct segment *s)
{
	const struct segment *first = s->now.same >= 0 ? segment_of(s->now.same) : s;

	return s->connection == NONE || (first && first->now.has_stream);
}

static void keep(struct segment *s)
{
	s->is_known = s->is_told && s->can_be_known && is_empty_pipe(s) && is_as_planned(s) && is_of_one_moment(s);
	s->known = s->now;
	s->known.closes = s->number >= 0 && is_bit_set(object_read(plan->closing), s->number);
}

void keep_facts(void)
{
	if (!has_read)
		return;
	for (int i = 0; i < plan->segment_count; i++)
		keep(&plan->segments[i]);
	known_count = is_told_apart ? NONE : told_count();
	known_caught = caught;
	memcpy(known_text, text.at, text.size);
	count_audit();
}

bool is_plan_old(void)
{
	for (int i = 0; i < plan->segment_count; i++) {
		const struct segment *s = &plan->segments[i];

		if (s->is_told && s->can_be_known && s->connection == NONE && !is_as_planned(s))
			return true;
	}
	return false;
}
