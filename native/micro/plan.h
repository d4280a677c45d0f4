/* Which of the kernel's objects tell of the process, and where they are.
 *
 * A *plan* lists all of them, each with the pointer in another one by which it is reached. In the pause all are read at once, where they were
 * when the plan was made, and then it is seen whether the pointers lead there still: an object that was given back, and is another's by now,
 * is one to which none leads.
 *
 * Its *segments* are the parts of what is told: one of the process, and one for each descriptor. What is known of each lies with it, for
 * unchanged.c. */
#pragma once
#include "connections.h"
#include "kernel_objects.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	OBJECTS_MOST = 4096,
	DESCRIPTORS_MOST = 4096,
	NONE = -1, /* no object */
	OF_PROCESS = -1, /* the number of the first segment; the others have that of their descriptor */
};

struct object {
	enum kind kind;
	uint32_t size;
	uint64_t address;
	int at; /* among what is read */
	int again; /* of a connection: where a part of it is read once more, behind all else (standing.h) */
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
	bool has_stream; /* it is a connection, which stood still while its numbers were told, and tells the same numbers by itself */
	struct stream_numbers stream;
};

struct segment {
	int number;
	int first, count; /* of its objects */
	bool can_be_known, is_regular;
	int connection; /* the object of one; NONE */
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

extern struct plan *plan;

uint64_t memory_address(void); /* of the process's `mm_struct`, as it was planned last; 0: never */

/* Once; false: no room. */
bool begin_plans(void);

/* While the process runs, with all its threads seized: reads all, and makes another plan where this is not of what there is now. What was
 * known of a segment is known in the new one, if its objects are the same. */
void renew_plan(void);

/* -- for those who make one -- */

/* As it was planned. */
const unsigned char *seen(int object);

/* Adds an object to it; NONE: nothing is there, or there is no room. */
int add_object(enum kind kind, uint64_t address, uint32_t size, int from, uint32_t offset, int64_t distance);
int follow_pointer(int from, enum member pointer, enum kind kind);

/* All that a path is made of: its names, up to the root of each mount on the way; `offset`: of the struct path in an object. */
bool plan_path(int from, uint32_t offset);

bool plan_process(void); /* plan_process.c */
bool plan_table(void); /* plan_descriptors.c; behind what is the process's */
bool plan_file(struct segment *s, uint64_t address); /* false: it is always asked about */

/* -- after all was read -- */

const unsigned char *object_read(int object);
bool is_process_linked(void);
bool is_as_planned(const struct segment *s);
struct segment *process_segment(void);
struct segment *segment_of(int number); /* NULL: there is none */
bool is_bit_set(const unsigned char *bits, int number);
uint64_t file_read(int number); /* the `struct file` of a descriptor */
