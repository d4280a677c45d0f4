/* See unchanged.h.
 *
 * A *plan* lists all objects, each with the pointer in another one by which it is reached. In the pause all are read at once, where they were
 * when the plan was made, and then it is seen whether the pointers lead there still: an object that was given back, and is another's by now,
 * is one to which none leads. */
#define _GNU_SOURCE
#include "unchanged.h"

#include "descriptors.h"
#include "kernel_memory.h"
#include "kernel_objects.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
	OBJECTS_MOST = PIECES_MOST / 2,
	NONE = -1, /* no object */
	PROCESS = 0, /* the first segment */
	STEPS_MOST = 256, /* of a path, and of a list of children */
	LISTENS = 10, /* TCP_LISTEN */
	MINOR_BITS = 20, /* of a device's number, as the kernel has it */
	OF_MEMORY = 1, /* the major number of /dev/null and its like */
};

/* File systems in which an inode says the size itself, and its device is that of its mapping; linux/magic.h. */
static const uint64_t plain_file_systems[] = { 0xef53, 0x58465342, 0x9123683e, 0x01021994 };
enum { OF_SOCKETS = 0x534f434b, OF_PIPES = 0x50495045 };

struct object {
	enum kind kind;
	uint32_t size;
	uint64_t address;
	int at; /* among what is read */
	int from; /* the object that leads to it; NONE: it is our own */
	uint32_t offset; /* of the pointer in that */
	int64_t distance; /* from where the pointer points to where it begins */
};

struct told {
	size_t at, size; /* in the text */
};

struct account {
	struct told told, hidden;
	int same; /* an earlier descriptor of the same open file, or -1 */
	bool closes; /* FD_CLOEXEC */
	uint64_t device, inode;
};

struct segment {
	int number; /* of the descriptor; OF_PROCESS */
	int first, count; /* of its objects */
	bool can_be_known, is_regular;
	bool is_known; /* by what was told when its objects were as they are in the plan */
	struct account known;
	bool is_told; /* in the look under way */
	struct account now;
};

struct plan {
	bool is_made;
	int object_count, segment_count;
	struct object objects[OBJECTS_MOST];
	struct segment segments[DESCRIPTORS_MOST + 1]; /* the process's, then those of descriptors by number */
	int task, signals, memory; /* objects; of the first thread */
	int files, open, closing; /* the table of descriptors, and the bits of those that are open */
	uint32_t most; /* descriptors the table has room for */
	unsigned char *planned; /* all objects as they were when it was made: with what decided on it */
};

static const char *obstacle; /* to reading the kernel */
static bool can_read, is_full;
static struct plan *plan, *before;
static char *known_text;
static int known_count; /* of segments, in the text that is known; NONE: it tells of more than these */
static uint64_t known_caught;
static uint64_t memory_address, state_of; /* of the process's `mm_struct` as planned, and as of `memory_state_now` */
static bool has_read, is_unknown;
static bool is_told_apart; /* something was told that is in no segment, so that it is not counted */

void find_kernel(void)
{
	obstacle = find_members();
	can_read = !obstacle;
}

static struct plan *new_plan(void)
{
	struct plan *made = calloc(1, sizeof *made);

	if (made)
		made->planned = malloc(ALL_PIECES);
	return made && made->planned ? made : NULL;
}

/* Only now: each process of a tree has a tracker of its own. */
static bool is_open(void)
{
	static bool was_tried;

	if (can_read && !was_tried) {
		plan = new_plan();
		before = new_plan();
		known_text = malloc(TEXT_MOST);
		can_read = plan && before && known_text && open_kernel_memory();
		if (!can_read)
			obstacle = "it does not run a program that reads its memory (BPF)";
	}
	was_tried = true;
	return can_read;
}

const char *kernel_obstacle(void)
{
	return is_open() ? NULL : obstacle;
}

/* -- the plan ----------------------------------------------------------------------------------------------------- */

/* As it was planned. */
static const unsigned char *seen(int object)
{
	return plan->planned + plan->objects[object].at;
}

static int add(enum kind kind, uint64_t address, uint32_t size, int from, uint32_t offset, int64_t distance)
{
	const unsigned char *found = plan->object_count < OBJECTS_MOST ? fetch(address, size) : NULL;
	const int at = found ? add_piece(address, size) : NONE;

	is_full |= found && at < 0;
	if (at < 0)
		return NONE;
	memcpy(plan->planned + at, found, size);
	plan->objects[plan->object_count] = (struct object){ kind, size, address, at, from, offset, distance };
	return plan->object_count++;
}

/* Where a pointer in an object leads. */
static int follow(int from, enum member pointer, enum kind kind)
{
	return add(kind, number_in(seen(from), pointer), size_of_kind(kind), from, offset_of(pointer), 0);
}

/* All that a path is made of: its names, up to the root of each mount on the way; `offset`: of the struct path in an object. */
static bool plan_path(int from, uint32_t offset)
{
	const int64_t inner = offset_of(MOUNT_INNER);
	const unsigned char *path = seen(from) + offset;
	uint64_t name = number_in(path, PATH_NAME);
	int mount = add(MOUNT, number_in(path, PATH_MOUNT) - (uint64_t)inner, size_of_kind(MOUNT), from, offset + offset_of(PATH_MOUNT),
			-inner);

	offset += offset_of(PATH_NAME);
	for (int steps = 0; steps < STEPS_MOST && mount != NONE; steps++) {
		if (name == number_in(seen(mount), MOUNT_ROOT)) {
			if (number_in(seen(mount), MOUNT_PARENT) == plan->objects[mount].address)
				return true;
			from = mount;
			offset = offset_of(MOUNT_POINT);
			name = number_in(seen(mount), MOUNT_POINT);
			mount = follow(mount, MOUNT_PARENT, MOUNT);
			continue;
		}
		from = add(NAME, name, size_of_kind(NAME), from, offset, 0);
		if (from == NONE)
			return false;
		if (number_in(seen(from), NAME_TEXT) != name + offset_of(NAME_SHORT) &&
		    add(WORDS, number_in(seen(from), NAME_TEXT), (uint32_t)number_in(seen(from), NAME_LENGTH), from, offset_of(NAME_TEXT), 0) ==
			    NONE)
			return false;
		if (number_in(seen(from), NAME_PARENT) == name) /* of no tree: a socket, a pipe */
			return true;
		offset = offset_of(NAME_PARENT);
		name = number_in(seen(from), NAME_PARENT);
	}
	return false;
}

static bool plan_rights(int task, enum member pointer)
{
	const int object = follow(task, pointer, RIGHTS);
	uint64_t groups;
	uint32_t count;
	const unsigned char *found;

	if (object == NONE)
		return false;
	groups = number_in(seen(object), RIGHTS_GROUPS);
	found = fetch(groups + offset_of(GROUPS_COUNT), sizeof count);
	if (!found)
		return false;
	memcpy(&count, found, sizeof count);
	/* In front of it is the number of its users, which is not compared. Such a list never changes. */
	return add(WORDS, groups + offset_of(GROUPS_COUNT), offset_of(GROUPS_LIST) - offset_of(GROUPS_COUNT) + 4 * count, object,
		   offset_of(RIGHTS_GROUPS), offset_of(GROUPS_COUNT)) != NONE;
}

static bool plan_children(int task)
{
	const int64_t distance = -(int64_t)offset_of(TASK_SIBLING);
	const uint64_t end = plan->objects[task].address + offset_of(TASK_CHILDREN);
	enum member pointer = TASK_CHILDREN;
	int object = task;

	for (int steps = 0; steps < STEPS_MOST && object != NONE; steps++, pointer = TASK_SIBLING) {
		const uint64_t next = number_in(seen(object), pointer);

		if (next == end)
			return true;
		object = add(CHILD, next + (uint64_t)distance, size_of_kind(CHILD), object, offset_of(pointer), distance);
	}
	return false;
}

static bool plan_directories(int task)
{
	const int object = follow(task, TASK_DIRECTORIES, DIRECTORIES);

	return object != NONE && plan_path(object, offset_of(DIRECTORIES_ROOT)) && plan_path(object, offset_of(DIRECTORIES_WORKING));
}

static bool plan_memory(int task)
{
	int program;

	plan->memory = follow(task, TASK_MEMORY, MEMORY);
	if (plan->memory == NONE)
		return false;
	memory_address = plan->objects[plan->memory].address;
	program = follow(plan->memory, MEMORY_PROGRAM, OPEN_REGULAR);
	return program != NONE && plan_path(program, offset_of(FILE_PATH));
}

/* The process group and the session: the number of each. */
static bool plan_group(int signals, uint32_t which)
{
	const uint32_t offset = offset_of(SIGNAL_GROUP_IDS) + 8 * which;
	uint64_t group;

	memcpy(&group, seen(signals) + offset, sizeof group);
	return add(WORDS, group + offset_of(NUMBERS_FIRST), 4, signals, offset, offset_of(NUMBERS_FIRST)) != NONE;
}

/* Threads of one group share signals. All else is told of the first one only, so a thread that has its own is not planned. */
static bool shares_all(int task, int other)
{
	static const enum member shared[] = { TASK_MEMORY, TASK_FILES, TASK_DIRECTORIES };

	for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
		if (number_in(seen(task), shared[i]) != number_in(seen(other), shared[i]))
			return false;
	return true;
}

/* What all threads share. */
static bool plan_shared(int task)
{
	enum { OF_GROUP = 2, OF_SESSION = 3 }; /* enum pid_type */

	plan->signals = follow(task, TASK_SIGNAL, SIGNAL);
	return plan->signals != NONE && !number_in(seen(plan->signals), SIGNAL_TERMINAL) && !number_in(seen(plan->signals), SIGNAL_TIMERS) &&
	       follow(task, TASK_ACTIONS, ACTIONS) != NONE && plan_group(plan->signals, OF_GROUP) && plan_group(plan->signals, OF_SESSION) &&
	       plan_directories(task) && plan_memory(task);
}

static bool plan_thread(const struct thread *t, int task)
{
	return number_in(seen(task), TASK_PID) == (uint64_t)t->tid && plan_rights(task, TASK_RIGHTS) && plan_rights(task, TASK_OWN_RIGHTS) &&
	       plan_children(task) && follow(task, TASK_PARENT, PARENT) != NONE && (t->tid != process.pid || plan_shared(task));
}

/* By the list of those that we trace, the last of which was seized first. */
static bool plan_process(void)
{
	const uint64_t end = own_task() + offset_of(TASK_PTRACED);
	const int64_t distance = -(int64_t)offset_of(TASK_PTRACE_ENTRY);
	int object = add(LOOKED_AT, end, 8, NONE, 0, 0);
	uint32_t offset = 0;
	uint64_t next;

	for (int i = thread_count - 1; i >= 0 && object != NONE; i--) {
		memcpy(&next, seen(object) + offset, sizeof next);
		if (next == end)
			return false;
		object = add(TASK, next + (uint64_t)distance, size_of_kind(TASK), object, offset, distance);
		offset = offset_of(TASK_PTRACE_ENTRY);
		if (object == NONE || !plan_thread(&threads[i], object) || (i < thread_count - 1 && !shares_all(object, plan->task)))
			return false;
		plan->task = object;
	}
	if (object == NONE)
		return false;
	memcpy(&next, seen(object) + offset, sizeof next);
	return next == end;
}

/* -- descriptors -------------------------------------------------------------------------------------------------- */

static bool is_followed(const unsigned char *sock)
{
	enum { UDP = 17, TCP = 6 };
	const uint64_t protocol = number_in(sock, SOCK_PROTOCOL);

	if (number_in(sock, SOCK_FILTER))
		return false;
	switch (number_in(sock, SOCK_FAMILY)) {
	case AF_UNIX:
		return true;
	case AF_INET:
	case AF_INET6:
		return !number_in(sock, SOCK_OPTIONS) && (protocol == UDP || (protocol == TCP && number_in(sock, SOCK_STATE) == LISTENS));
	default:
		return false;
	}
}

static bool plan_socket(int file)
{
	const int socket = follow(file, FILE_PRIVATE, SOCKET);
	const unsigned char *found;
	uint64_t proto;
	uint32_t size;
	int object;

	if (socket == NONE)
		return false;
	found = fetch(number_in(seen(socket), SOCKET_STATE) + offset_of(SOCK_PROTO), sizeof proto);
	if (!found)
		return false;
	memcpy(&proto, found, sizeof proto);
	found = fetch(proto + offset_of(PROTO_SIZE), sizeof size);
	if (!found)
		return false;
	memcpy(&size, found, sizeof size);
	if (size < size_of_kind(PROTOCOL_STATE) || size > PIECE_MOST)
		return false;
	object = add(PROTOCOL_STATE, number_in(seen(socket), SOCKET_STATE), size, socket, offset_of(SOCKET_STATE), 0);
	return object != NONE && number_in(seen(object), SOCK_PROTO) == proto && is_followed(seen(object));
}

static bool is_plain(uint64_t magic)
{
	for (size_t i = 0; i < sizeof plain_file_systems / sizeof *plain_file_systems; i++)
		if (plain_file_systems[i] == magic)
			return true;
	return false;
}

static bool is_without_locks(int inode)
{
	static const enum member lists[] = { LOCKS_FLOCK, LOCKS_POSIX, LOCKS_LEASE };
	int locks;

	if (!number_in(seen(inode), INODE_LOCKS))
		return true;
	locks = follow(inode, INODE_LOCKS, LOCKS);
	for (int i = 0; locks != NONE && i < 3; i++)
		if (number_in(seen(locks), lists[i]) != plan->objects[locks].address + offset_of(lists[i]))
			return false;
	return locks != NONE;
}

static uint64_t mode_of(uint64_t file)
{
	const unsigned char *found = fetch(file, size_of_kind(OPEN_FILE));

	found = found ? fetch(number_in(found, FILE_INODE), size_of_kind(INODE)) : NULL;
	return found ? number_in(found, INODE_MODE) : 0;
}

/* The file that a descriptor leads to; false: it is always asked about. */
static bool plan_file(struct segment *s, uint64_t address)
{
	const uint64_t mode = mode_of(address);
	const int file = add(S_ISREG(mode) ? OPEN_REGULAR : OPEN_FILE, address, size_of_kind(OPEN_FILE), plan->files, 8 * (uint32_t)s->number, 0);
	const int inode = file == NONE ? NONE : follow(file, FILE_INODE, S_ISDIR(mode) ? INODE_OF_DIRECTORY : INODE);
	const int file_system = inode == NONE ? NONE : follow(inode, INODE_FILE_SYSTEM, FILE_SYSTEM);
	uint64_t magic;

	s->is_regular = S_ISREG(mode);
	if (file_system == NONE || number_in(seen(inode), INODE_MODE) != mode || !is_clear(seen(file), FILE_OWNER) || !is_without_locks(inode) ||
	    !plan_path(file, offset_of(FILE_PATH)))
		return false;
	magic = number_in(seen(file_system), FILE_SYSTEM_MAGIC);
	if (magic == OF_SOCKETS && S_ISSOCK(mode))
		return plan_socket(file);
	if (magic == OF_PIPES && S_ISFIFO(mode))
		return follow(file, FILE_PRIVATE, PIPE) != NONE;
	if (!is_plain(magic) || !number_in(seen(inode), INODE_LINKS))
		return false;
	return s->is_regular || S_ISDIR(mode) || (S_ISCHR(mode) && number_in(seen(inode), INODE_DEVICE) >> MINOR_BITS == OF_MEMORY);
}

static bool plan_table(void)
{
	const int descriptors = follow(plan->task, TASK_FILES, DESCRIPTORS);
	const int table = descriptors == NONE ? NONE : follow(descriptors, DESCRIPTORS_TABLE, TABLE);
	const unsigned char *found = table == NONE ? NULL : seen(table);

	/* No more than is read at a time. */
	if (!found || number_in(found, TABLE_MOST) > PIECE_MOST / 8)
		return false;
	plan->most = (uint32_t)number_in(found, TABLE_MOST);
	plan->files = add(LOOKED_AT, number_in(found, TABLE_FILES), 8 * plan->most, table, offset_of(TABLE_FILES), 0);
	plan->open = add(LOOKED_AT, number_in(found, TABLE_OPEN), plan->most / 8, table, offset_of(TABLE_OPEN), 0);
	plan->closing = add(LOOKED_AT, number_in(found, TABLE_CLOSING), plan->most / 8, table, offset_of(TABLE_CLOSING), 0);
	return plan->files != NONE && plan->open != NONE && plan->closing != NONE;
}

static bool has_bit(const unsigned char *bits, int number)
{
	return bits[number / 8] >> number % 8 & 1;
}

static const unsigned char *object_read(int object)
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

static struct segment *segment_of(int number)
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

	memset(s, 0, sizeof *s);
	s->number = number;
	s->first = plan->object_count;
	s->can_be_known = number == OF_PROCESS ? plan_process() : plan_file(s, file);
	s->count = plan->object_count - s->first;
	if (s->can_be_known && old && old->is_known && are_same_objects(s, old)) {
		s->is_known = true;
		s->known = old->known;
	}
	return s->can_be_known;
}

static bool plan_descriptors(void)
{
	for (int i = 0; i < (int)plan->most && i < DESCRIPTORS_MOST; i++) {
		uint64_t file;

		memcpy(&file, seen(plan->files) + 8 * (size_t)i, sizeof file);
		if (has_bit(seen(plan->open), i) && file)
			plan_segment(i, file);
	}
	return !is_full;
}

static void make_plan(void)
{
	struct plan *made = before;

	before = plan;
	plan = made;
	plan->is_made = is_full = false;
	plan->object_count = plan->segment_count = 0;
	forget_pieces();
	plan->is_made = plan_segment(OF_PROCESS, 0) && plan_table() && plan_descriptors();
	before->is_made = false;
}

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

static bool is_process_linked(void)
{
	return are_linked(0, plan->segments[PROCESS].count) && is_table_linked() &&
	       number_in(object_read(plan->signals), SIGNAL_THREADS) == (uint64_t)thread_count;
}

static uint64_t file_read(int number)
{
	uint64_t file;

	memcpy(&file, object_read(plan->files) + 8 * (size_t)number, sizeof file);
	return file;
}

static bool is_as_planned(const struct segment *s)
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

		if (!has_bit(object_read(plan->open), (int)i))
			continue;
		s = segment_of((int)i);
		if (!s || !is_as_planned(s))
			return false;
		known++;
	}
	return known == plan->segment_count;
}

void plan_facts(void)
{
	has_read = false;
	if (is_open() && !is_plan_current())
		make_plan();
}

/* -- in the pause ------------------------------------------------------------------------------------------------- */

void forget_facts(void)
{
	has_read = false;
	for (int i = 0; plan && i < plan->segment_count; i++)
		plan->segments[i].is_known = false;
}

bool read_facts(void)
{
	is_unknown = is_told_apart = false;
	has_read = can_read && plan && plan->is_made && read_pieces() && is_process_linked();
	for (int i = 0; has_read && i < plan->segment_count; i++)
		plan->segments[i].is_told = false;
	return has_read;
}

bool are_facts_read(void)
{
	return has_read;
}

static bool is_empty_pipe(const struct segment *s)
{
	for (int i = s->first; i < s->first + s->count; i++)
		if (plan->objects[i].kind == PIPE &&
		    number_in(object_read(i), PIPE_HEAD) != number_in(object_read(i), PIPE_TAIL))
			return false;
	return true;
}

static bool is_as_known(const struct segment *s)
{
	return has_read && s && s->is_known && is_empty_pipe(s) && is_as_planned(s);
}

static void begin_account(struct segment *s)
{
	s->is_told = true;
	s->now = (struct account){ .told.at = text.size };
}

bool say_known_process(void)
{
	struct segment *s = has_read ? &plan->segments[PROCESS] : NULL;

	if (!is_as_known(s)) {
		is_unknown = true;
		say("=asked process\n");
		return false;
	}
	begin_account(s);
	append(known_text + s->known.told.at, s->known.told.size);
	s->now.told.size = text.size - s->now.told.at;
	caught = known_caught;
	return true;
}

/* All but the break, of which nothing else is made: brk(2) may move it. */
bool say_known_hidden(void)
{
	struct segment *s = has_read ? &plan->segments[PROCESS] : NULL;

	if (!s || !s->is_told || !s->known.hidden.size || !is_as_known(s))
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
	return true;
}

bool say_known_descriptor(int number, int same)
{
	struct segment *s = segment_of(number);

	if (!is_as_known(s) || s->known.same != same || s->known.closes != has_bit(object_read(plan->closing), number)) {
		is_unknown = true;
		say("=asked descriptor %d\n", number);
		return false;
	}
	begin_account(s);
	for (const char *at = known_text + s->known.told.at, *const end = at + s->known.told.size, *next; at < end; at = next) {
		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next + 1 : end;
		if (*at != '=')
			append(at, (size_t)(next - at));
	}
	if (s->is_regular)
		say("=position %d %" PRIu64 " %" PRId64 "\n", number, number_in(object_read(s->first), FILE_POSITION),
		    (int64_t)number_in(object_read(s->first + 1), INODE_SIZE));
	s->now.told.size = text.size - s->now.told.at;
	s->now.same = same;
	s->now.device = s->known.device;
	s->now.inode = s->known.inode;
	return note_held(number, s->known.device, s->known.inode, same, false);
}

int descriptors_read(int *numbers)
{
	int count = 0;

	for (uint32_t i = 0; i < plan->most; i++)
		if (has_bit(object_read(plan->open), (int)i))
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

void note_told(int number, size_t from)
{
	struct segment *s = !has_read ? NULL : number < 0 ? &plan->segments[PROCESS] : segment_of(number);
	const struct told told = { from, text.size - from };

	is_told_apart |= has_read && !s;
	if (!s)
		return;
	if (number == HIDDEN) {
		s->now.hidden = told;
		return;
	}
	s->now = (struct account){ .told = told };
	s->is_told = true;
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

static void keep(struct segment *s)
{
	s->is_known = s->is_told && s->can_be_known && is_empty_pipe(s) && is_as_planned(s);
	s->known = s->now;
	s->known.closes = s->number >= 0 && has_bit(object_read(plan->closing), s->number);
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
}

static struct memory_state state_in(const unsigned char *memory)
{
	const uint64_t sequence = has_member(MEMORY_SEQUENCE) ? number_in(memory, MEMORY_SEQUENCE) : 0;

	return (struct memory_state){
		.mappings = sequence & 1 ? 0 : sequence, /* odd: they are being changed */
		.flushes = has_member(MEMORY_FLUSHES) ? number_in(memory, MEMORY_FLUSHES) : 0,
	};
}

struct memory_state memory_state_now(void)
{
	const unsigned char *found = can_read && memory_address ? fetch(memory_address, size_of_kind(MEMORY)) : NULL;

	state_of = memory_address;
	return found ? state_in(found) : (struct memory_state){ 0 };
}

struct memory_state memory_state_read(void)
{
	if (!has_read || plan->objects[plan->memory].address != state_of)
		return (struct memory_state){ 0 };
	return state_in(object_read(plan->memory));
}
