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

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum {
	OBJECTS_MOST = PIECES_MOST / 2,
	ROOT = -1, /* of an object that no pointer leads to: our own */
	PROCESS = 0, /* the first segment */
	STEPS_MOST = 256, /* of a path, and of a list of children */
	LISTENS = 10, /* TCP_LISTEN */
};

/* File systems in which an inode says the size itself, and its device is that of its mapping; linux/magic.h. */
static const uint64_t plain_file_systems[] = { 0xef53, 0x58465342, 0x9123683e, 0x01021994 };
enum { OF_SOCKETS = 0x534f434b, OF_PIPES = 0x50495045 };

struct object {
	enum kind kind;
	uint32_t size;
	uint64_t address;
	int at; /* among what is read */
	int from; /* the object that leads to it, ROOT: none */
	uint32_t offset; /* of the pointer in that */
	int64_t distance; /* from where the pointer points to where it begins */
};

struct told {
	size_t at, size; /* in the text */
};

struct segment {
	int number; /* of the descriptor; OF_PROCESS */
	int first, count; /* of its objects; the others cannot follow it */
	bool can_be_known, is_regular, closes;
	/* As it was told last: */
	bool is_known;
	int same;
	struct told told, hidden;
	uint64_t device, inode;
	/* In the look under way: */
	struct told now, hidden_now;
	bool is_told;
	int same_now;
	uint64_t device_now, inode_now;
};

struct plan {
	bool is_made;
	int object_count, segment_count;
	struct object objects[OBJECTS_MOST];
	struct segment segments[DESCRIPTORS_MOST + 1]; /* the process's, then those of descriptors by number */
	int files, open, closing; /* objects: the table of descriptors, and the bits of those that are open */
	int signals, memory;
	uint32_t most; /* descriptors the table has room for */
	unsigned char *known; /* what was read when it was told last, as it was read */
};

static bool can_read, is_full;
static struct plan *plan, *before;
static char *known_text;
static int known_count; /* of segments, in the text that is known */
static uint64_t known_caught;
static uint64_t memory_address, state_of; /* of the process's `mm_struct` as planned, and as of `memory_state_now` */
static bool has_read, is_unknown;

void find_kernel(void)
{
	can_read = find_members();
}

static struct plan *new_plan(void)
{
	struct plan *made = calloc(1, sizeof *made);

	if (made)
		made->known = malloc(ALL_PIECES);
	return made && made->known ? made : NULL;
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
	}
	was_tried = true;
	return can_read;
}

/* -- the plan ----------------------------------------------------------------------------------------------------- */

static int add(enum kind kind, uint64_t address, uint32_t size, int from, uint32_t offset, int64_t distance)
{
	struct object *one = &plan->objects[plan->object_count];
	const int at = plan->object_count < OBJECTS_MOST ? add_piece(address, size) : -1;

	is_full |= at < 0;
	if (is_full)
		return ROOT;
	*one = (struct object){ kind, size, address, at, from, offset, distance };
	return plan->object_count++;
}

/* Where a pointer in an object leads, and the object there. *to: its address; 0 and ROOT: nowhere. */
static int follow(int from, const unsigned char *object, enum member pointer, enum kind kind, uint64_t *to)
{
	*to = number_in(object, pointer);
	return *to ? add(kind, *to, size_of_kind(kind), from, offset_of(pointer), 0) : ROOT;
}

/* A copy of an object, which lasts until the next of that kind. */
static const unsigned char *see(enum kind kind, uint64_t address)
{
	static unsigned char seen[KINDS][PIECE_MOST];
	const unsigned char *found = fetch(address, size_of_kind(kind));

	return found ? memcpy(seen[kind], found, size_of_kind(kind)) : NULL;
}

/* All that a path is made of: its names up to the root of each mount on the way. */
static bool plan_path(int from, uint32_t offset, const unsigned char *path)
{
	const int64_t inner = offset_of(MOUNT_INNER);
	uint64_t mount = number_in(path, PATH_MOUNT) - (uint64_t)inner, name = number_in(path, PATH_NAME), root = 0, parent_mount = 0;
	uint32_t name_offset = offset + offset_of(PATH_NAME);
	int mount_object = ROOT, name_from = from;
	const unsigned char *seen;

	for (int steps = 0; steps < STEPS_MOST; steps++) {
		uint64_t parent;
		int object;

		if (!root) {
			mount_object = mount_object == ROOT ?
					       add(MOUNT, mount, size_of_kind(MOUNT), from, offset + offset_of(PATH_MOUNT), -inner) :
					       add(MOUNT, mount, size_of_kind(MOUNT), mount_object, offset_of(MOUNT_PARENT), 0);
			seen = see(MOUNT, mount);
			if (!seen)
				return false;
			root = number_in(seen, MOUNT_ROOT);
			parent_mount = number_in(seen, MOUNT_PARENT);
			parent = number_in(seen, MOUNT_POINT);
		} else {
			seen = see(MOUNT, mount);
			if (!seen)
				return false;
			parent = number_in(seen, MOUNT_POINT);
		}
		if (name == root) {
			if (parent_mount == mount)
				return !is_full;
			name = parent;
			name_from = mount_object;
			name_offset = offset_of(MOUNT_POINT);
			mount = parent_mount;
			root = 0;
			continue;
		}
		seen = see(NAME, name);
		if (!seen)
			return false;
		object = add(NAME, name, size_of_kind(NAME), name_from, name_offset, 0);
		if (number_in(seen, NAME_TEXT) != name + offset_of(NAME_SHORT))
			add(WORDS, number_in(seen, NAME_TEXT), (uint32_t)number_in(seen, NAME_LENGTH), object, offset_of(NAME_TEXT), 0);
		parent = number_in(seen, NAME_PARENT);
		if (parent == name) /* of no tree: a socket, a pipe */
			return !is_full;
		name = parent;
		name_from = object;
		name_offset = offset_of(NAME_PARENT);
	}
	return false;
}

static bool plan_rights(int task, const unsigned char *seen, enum member pointer)
{
	uint64_t at, groups;
	const int object = follow(task, seen, pointer, RIGHTS, &at);
	const unsigned char *rights = see(RIGHTS, at);
	int list;

	if (object == ROOT || !rights)
		return false;
	groups = number_in(rights, RIGHTS_GROUPS);
	rights = fetch(groups, offset_of(GROUPS_LIST));
	if (!rights)
		return false;
	/* What is in front of the list is the number of its users, which is not compared, and its length. */
	list = add(WORDS, groups + offset_of(GROUPS_COUNT),
		   offset_of(GROUPS_LIST) - offset_of(GROUPS_COUNT) + 4 * (uint32_t)number_in(rights, GROUPS_COUNT), object,
		   offset_of(RIGHTS_GROUPS), offset_of(GROUPS_COUNT));
	return list != ROOT;
}

static bool plan_children(int task, uint64_t address, const unsigned char *seen)
{
	uint64_t next = number_in(seen, TASK_CHILDREN);
	uint32_t offset = offset_of(TASK_CHILDREN);

	for (int steps = 0; next != address + offset_of(TASK_CHILDREN); steps++) {
		const int64_t distance = -(int64_t)offset_of(TASK_SIBLING);
		const unsigned char *child;

		if (steps == STEPS_MOST)
			return false;
		child = see(CHILD, next + (uint64_t)distance);
		task = add(CHILD, next + (uint64_t)distance, size_of_kind(CHILD), task, offset, distance);
		if (!child || task == ROOT)
			return false;
		offset = offset_of(TASK_SIBLING);
		next = number_in(child, TASK_SIBLING);
	}
	return true;
}

static bool plan_directories(int task, const unsigned char *seen)
{
	uint64_t at;
	const int object = follow(task, seen, TASK_DIRECTORIES, DIRECTORIES, &at);
	const unsigned char *directories = see(DIRECTORIES, at);

	return object != ROOT && directories && plan_path(object, offset_of(DIRECTORIES_ROOT), directories + offset_of(DIRECTORIES_ROOT)) &&
	       plan_path(object, offset_of(DIRECTORIES_WORKING), directories + offset_of(DIRECTORIES_WORKING));
}

static bool plan_memory(int task, const unsigned char *seen)
{
	uint64_t program;
	const unsigned char *memory, *file;
	int object;

	plan->memory = follow(task, seen, TASK_MEMORY, MEMORY, &memory_address);
	memory = see(MEMORY, memory_address);
	if (plan->memory == ROOT || !memory)
		return false;
	object = follow(plan->memory, memory, MEMORY_PROGRAM, OPEN_REGULAR, &program);
	file = see(OPEN_REGULAR, program);
	return object != ROOT && file && plan_path(object, offset_of(FILE_PATH), file + offset_of(FILE_PATH));
}

/* What all threads share; they are in one group (CLONE_THREAD), which shares signals, and all else by what is compared. */
static bool plan_shared(int task, const unsigned char *seen)
{
	const unsigned char *signals;
	uint64_t at, actions;

	plan->signals = follow(task, seen, TASK_SIGNAL, SIGNAL, &at);
	signals = see(SIGNAL, at);
	if (plan->signals == ROOT || !signals || number_in(signals, SIGNAL_TERMINAL) || number_in(signals, SIGNAL_TIMERS) ||
	    follow(task, seen, TASK_ACTIONS, ACTIONS, &actions) == ROOT)
		return false;
	for (int which = 2; which < 4; which++) { /* PIDTYPE_PGID, PIDTYPE_SID */
		const uint32_t offset = offset_of(SIGNAL_GROUP_IDS) + 8 * (uint32_t)which;
		uint64_t group;

		memcpy(&group, signals + offset, sizeof group);
		if (add(WORDS, group + offset_of(NUMBERS_FIRST), 4, plan->signals, offset, offset_of(NUMBERS_FIRST)) == ROOT)
			return false;
	}
	return plan_directories(task, seen) && plan_memory(task, seen);
}

static bool plan_thread(struct thread *t, int from, uint32_t offset, uint64_t entry, uint64_t *next_entry, int *task)
{
	const int64_t distance = -(int64_t)offset_of(TASK_PTRACE_ENTRY);
	const uint64_t address = entry + (uint64_t)distance;
	const unsigned char *found = see(TASK, address);
	static unsigned char seen[PIECE_MOST];
	uint64_t parent;

	if (!found)
		return false;
	memcpy(seen, found, size_of_kind(TASK));
	*task = add(TASK, address, size_of_kind(TASK), from, offset, distance);
	memcpy(next_entry, seen + offset_of(TASK_PTRACE_ENTRY), sizeof *next_entry);
	return *task != ROOT && number_in(seen, TASK_PID) == (uint64_t)t->tid && plan_rights(*task, seen, TASK_RIGHTS) &&
	       (number_in(seen, TASK_RIGHTS) == number_in(seen, TASK_OWN_RIGHTS) || plan_rights(*task, seen, TASK_OWN_RIGHTS)) &&
	       plan_children(*task, address, seen) && follow(*task, seen, TASK_PARENT, PARENT, &parent) != ROOT &&
	       (t->tid != process.pid || plan_shared(*task, seen));
}

/* By the list of those that we trace, the last of which was seized first. */
static bool plan_process(void)
{
	const uint64_t head = own_task() + offset_of(TASK_PTRACED);
	const unsigned char *found = fetch(head, 8);
	int from = add(WORDS, head, 8, ROOT, 0, 0);
	uint32_t offset = 0;
	uint64_t entry = 0, next;

	if (!found || from == ROOT)
		return false;
	memcpy(&entry, found, sizeof entry);
	for (int i = thread_count - 1; i >= 0; i--, entry = next, offset = offset_of(TASK_PTRACE_ENTRY))
		if (entry == head || !plan_thread(&threads[i], from, offset, entry, &next, &from))
			return false;
	return entry == head;
}

/* -- descriptors -------------------------------------------------------------------------------------------------- */

static bool is_empty(const unsigned char *locks, uint64_t address, enum member list)
{
	return number_in(locks, list) == address + offset_of(list);
}

static bool plan_socket(int file, const unsigned char *seen)
{
	uint64_t at, state, proto;
	const int socket = follow(file, seen, FILE_PRIVATE, SOCKET, &at);
	const unsigned char *found = see(SOCKET, at);
	static unsigned char sock[PIECE_MOST];
	uint32_t size;
	bool is_followed;

	if (socket == ROOT || !found)
		return false;
	state = number_in(found, SOCKET_STATE);
	found = state ? see(PROTOCOL_STATE, state) : NULL;
	if (!found)
		return false;
	memcpy(sock, found, size_of_kind(PROTOCOL_STATE));
	proto = number_in(sock, SOCK_PROTO);
	found = fetch(proto + offset_of(PROTO_SIZE), 4);
	if (!found)
		return false;
	memcpy(&size, found, sizeof size);
	is_followed = number_in(sock, SOCK_FAMILY) == 1; /* AF_UNIX */
	if (number_in(sock, SOCK_FAMILY) == 2 || number_in(sock, SOCK_FAMILY) == 10) /* AF_INET, AF_INET6 */
		is_followed = !number_in(sock, SOCK_OPTIONS) &&
			      (number_in(sock, SOCK_PROTOCOL) == 17 || (number_in(sock, SOCK_PROTOCOL) == 6 && number_in(sock, SOCK_STATE) == LISTENS));
	return is_followed && !number_in(sock, SOCK_FILTER) && size <= PIECE_MOST && size >= size_of_kind(PROTOCOL_STATE) &&
	       add(PROTOCOL_STATE, state, size, socket, offset_of(SOCKET_STATE), 0) != ROOT;
}

static bool is_plain(uint64_t magic)
{
	for (size_t i = 0; i < sizeof plain_file_systems / sizeof *plain_file_systems; i++)
		if (plain_file_systems[i] == magic)
			return true;
	return false;
}

/* The file that a descriptor leads to; false: it is always asked about. */
static bool plan_file(struct segment *s, uint64_t address)
{
	static unsigned char seen[PIECE_MOST];
	const unsigned char *found = see(OPEN_FILE, address), *inode;
	const uint32_t offset = 8 * (uint32_t)s->number;
	uint64_t at, file_system, locks, mode, device, magic;
	bool has_name, is_unowned;
	int file, object;

	if (!found)
		return false;
	memcpy(seen, found, size_of_kind(OPEN_FILE));
	is_unowned = is_clear(seen, FILE_OWNER);
	inode = see(INODE, number_in(seen, FILE_INODE));
	if (!inode || !is_unowned)
		return false;
	mode = number_in(inode, INODE_MODE);
	device = number_in(inode, INODE_DEVICE);
	has_name = number_in(inode, INODE_LINKS) > 0;
	locks = number_in(inode, INODE_LOCKS);
	s->is_regular = S_ISREG(mode);
	file = add(s->is_regular ? OPEN_REGULAR : OPEN_FILE, address, size_of_kind(OPEN_FILE), plan->files, offset, 0);
	object = add(S_ISDIR(mode) ? INODE_OF_DIRECTORY : INODE, number_in(seen, FILE_INODE), size_of_kind(INODE), file,
		     offset_of(FILE_INODE), 0);
	if (file == ROOT || object == ROOT || follow(object, inode, INODE_FILE_SYSTEM, FILE_SYSTEM, &file_system) == ROOT)
		return false;
	found = see(FILE_SYSTEM, file_system);
	if (!found)
		return false;
	magic = number_in(found, FILE_SYSTEM_MAGIC);
	if (locks) {
		found = see(LOCKS, locks);
		if (!found || !is_empty(found, locks, LOCKS_FLOCK) || !is_empty(found, locks, LOCKS_POSIX) ||
		    !is_empty(found, locks, LOCKS_LEASE) || add(LOCKS, locks, size_of_kind(LOCKS), object, offset_of(INODE_LOCKS), 0) == ROOT)
			return false;
	}
	if (!plan_path(file, offset_of(FILE_PATH), seen + offset_of(FILE_PATH)))
		return false;
	if (magic == OF_SOCKETS && S_ISSOCK(mode))
		return plan_socket(file, seen);
	if (magic == OF_PIPES && S_ISFIFO(mode))
		return follow(file, seen, FILE_PRIVATE, PIPE, &at) != ROOT;
	return is_plain(magic) && has_name && (s->is_regular || S_ISDIR(mode) || (S_ISCHR(mode) && device >> 20 == 1));
}

static bool plan_table(int task)
{
	const unsigned char *found = see(TASK, plan->objects[task].address);
	uint64_t descriptors, table;
	int object;

	if (!found)
		return false;
	object = follow(task, found, TASK_FILES, DESCRIPTORS, &descriptors);
	found = see(DESCRIPTORS, descriptors);
	if (object == ROOT || !found)
		return false;
	object = follow(object, found, DESCRIPTORS_TABLE, TABLE, &table);
	found = see(TABLE, table);
	if (object == ROOT || !found)
		return false;
	plan->most = (uint32_t)number_in(found, TABLE_MOST);
	/* The table itself may be longer than a piece; what is looked at in it is no more than this. */
	if (plan->most > PIECE_MOST / 8)
		return false;
	plan->files = add(WORDS, number_in(found, TABLE_FILES), 8 * plan->most, object, offset_of(TABLE_FILES), 0);
	plan->open = add(WORDS, number_in(found, TABLE_OPEN), plan->most / 8, object, offset_of(TABLE_OPEN), 0);
	plan->closing = add(WORDS, number_in(found, TABLE_CLOSING), plan->most / 8, object, offset_of(TABLE_CLOSING), 0);
	return !is_full;
}

static bool has_bit(const unsigned char *bits, int number)
{
	return bits[number / 8] >> number % 8 & 1;
}

static const unsigned char *object_read(int object)
{
	return pieces() + plan->objects[object].at;
}

static const struct segment *segment_before(int number)
{
	int low = 0, high = before->segment_count;

	while (low < high) {
		const int middle = (low + high) / 2;

		if (before->segments[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < before->segment_count && before->segments[low].number == number ? &before->segments[low] : NULL;
}

/* What is known of one of the same objects, at the same places, is known still. */
static void take_over(struct segment *s)
{
	const struct segment *old = before->is_made ? segment_before(s->number) : NULL;

	if (!old || !old->is_known || old->count != s->count || !s->can_be_known)
		return;
	for (int i = 0; i < s->count; i++) {
		const struct object *one = &plan->objects[s->first + i], *other = &before->objects[old->first + i];

		if (one->kind != other->kind || one->address != other->address || one->size != other->size)
			return;
	}
	for (int i = 0; i < s->count; i++)
		memcpy(plan->known + plan->objects[s->first + i].at, before->known + before->objects[old->first + i].at,
		       plan->objects[s->first + i].size);
	s->is_known = true;
	s->same = old->same;
	s->closes = old->closes;
	s->told = old->told;
	s->hidden = old->hidden;
	s->device = old->device;
	s->inode = old->inode;
}

static bool plan_segment(int number, uint64_t file)
{
	struct segment *s = &plan->segments[plan->segment_count++];

	memset(s, 0, sizeof *s);
	s->number = number;
	s->first = plan->object_count;
	s->can_be_known = number == OF_PROCESS ? plan_process() : plan_file(s, file);
	s->count = plan->object_count - s->first;
	take_over(s);
	return s->can_be_known;
}

static bool plan_descriptors(void)
{
	static unsigned char open[PIECE_MOST / 64], files[PIECE_MOST];
	const unsigned char *found = fetch(plan->objects[plan->open].address, plan->most / 8);
	uint64_t file;

	if (!found)
		return false;
	memcpy(open, found, plan->most / 8);
	found = fetch(plan->objects[plan->files].address, 8 * plan->most);
	if (!found)
		return false;
	memcpy(files, found, 8 * (size_t)plan->most);
	for (uint32_t i = 0; i < plan->most && i < DESCRIPTORS_MOST; i++) {
		memcpy(&file, files + 8 * (size_t)i, sizeof file);
		if (has_bit(open, (int)i) && file)
			plan_segment((int)i, file);
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
	/* The first thread's is the last but those that it leads to. */
	plan->is_made = plan_segment(OF_PROCESS, 0);
	for (int i = plan->object_count - 1; plan->is_made; i--)
		if (plan->objects[i].kind == TASK) {
			plan->is_made = plan_table(i) && plan_descriptors();
			break;
		}
	before->is_made = false;
}

/* Whether pointers lead to all objects of a part still. */
static bool are_linked(int first, int count)
{
	for (int i = first; i < first + count; i++) {
		const struct object *one = &plan->objects[i];
		uint64_t to;

		if (one->from == ROOT)
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

static struct segment *segment_of(int number)
{
	int low = 1, high = plan->segment_count;

	while (low < high) {
		const int middle = (low + high) / 2;

		if (plan->segments[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < plan->segment_count && plan->segments[low].number == number ? &plan->segments[low] : NULL;
}

/* Whether it is what there is now, as far as that can be told while the process runs. */
static bool is_plan_current(void)
{
	int known = 1;

	if (!plan->is_made || !read_pieces() || !is_process_linked())
		return false;
	for (uint32_t i = 0; i < plan->most && i < DESCRIPTORS_MOST; i++) {
		const struct segment *s;

		if (!has_bit(object_read(plan->open), (int)i))
			continue;
		s = segment_of((int)i);
		if (!s || !are_linked(s->first, s->count))
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
	is_unknown = false;
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
	if (!has_read || !s || !s->is_known || !are_linked(s->first, s->count) || !is_empty_pipe(s))
		return false;
	for (int i = s->first; i < s->first + s->count; i++) {
		const struct object *one = &plan->objects[i];

		if (!are_alike(one->kind, plan->known + one->at, pieces() + one->at, one->size))
			return false;
	}
	return true;
}

bool say_known_process(void)
{
	struct segment *s = has_read ? &plan->segments[PROCESS] : NULL;

	if (!is_as_known(s)) {
		is_unknown = true;
		return false;
	}
	s->now.at = text.size;
	append(known_text + s->told.at, s->told.size);
	s->now.size = text.size - s->now.at;
	s->hidden_now.size = 0;
	s->is_told = true;
	caught = known_caught;
	return true;
}

/* All but the break, of which nothing else is made: brk(2) may move it. */
bool say_known_hidden(void)
{
	struct segment *s = has_read ? &plan->segments[PROCESS] : NULL;

	if (!s || !s->is_told || !s->hidden.size || !is_as_known(s))
		return false;
	s->hidden_now.at = text.size;
	for (const char *at = known_text + s->hidden.at, *const end = at + s->hidden.size, *next; at < end; at = next) {
		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next + 1 : end;
		if (!strncmp(at, "?brk ", 5))
			say("?brk %" PRIx64 "\n", number_in(object_read(plan->memory), MEMORY_BREAK));
		else
			append(at, (size_t)(next - at));
	}
	s->hidden_now.size = text.size - s->hidden_now.at;
	return true;
}

bool say_known_descriptor(int number, int same)
{
	struct segment *s = segment_of(number);

	if (!is_as_known(s) || s->same != same || s->closes != has_bit(object_read(plan->closing), number)) {
		is_unknown = true;
		return false;
	}
	s->now.at = text.size;
	for (const char *at = known_text + s->told.at, *const end = at + s->told.size, *next; at < end; at = next) {
		next = memchr(at, '\n', (size_t)(end - at));
		next = next ? next + 1 : end;
		if (*at != '=')
			append(at, (size_t)(next - at));
	}
	if (s->is_regular)
		say("=position %d %" PRIu64 " %" PRId64 "\n", number, number_in(object_read(s->first), FILE_POSITION),
		    (int64_t)number_in(object_read(s->first + 1), INODE_SIZE));
	s->now.size = text.size - s->now.at;
	s->is_told = true;
	s->same_now = same;
	s->device_now = s->device;
	s->inode_now = s->inode;
	return note_held(number, s->device, s->inode, same, false);
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

	if (!s)
		return;
	if (number == HIDDEN) {
		s->hidden_now = told;
		return;
	}
	s->now = told;
	s->hidden_now.size = 0;
	s->is_told = true;
}

void note_told_held(int number, uint64_t device, uint64_t inode, int same)
{
	struct segment *s = has_read ? segment_of(number) : NULL;

	if (!s)
		return;
	s->device_now = device;
	s->inode_now = inode;
	s->same_now = same;
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
	s->is_known = s->is_told && s->can_be_known && are_linked(s->first, s->count) && is_empty_pipe(s);
	if (!s->is_known)
		return;
	for (int i = s->first; i < s->first + s->count; i++)
		memcpy(plan->known + plan->objects[i].at, object_read(i), plan->objects[i].size);
	s->told = s->now;
	s->hidden = s->hidden_now;
	s->same = s->same_now;
	s->device = s->device_now;
	s->inode = s->inode_now;
	s->closes = s->number >= 0 && has_bit(object_read(plan->closing), s->number);
}

void keep_facts(void)
{
	if (!has_read)
		return;
	for (int i = 0; i < plan->segment_count; i++)
		keep(&plan->segments[i]);
	known_count = told_count();
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
