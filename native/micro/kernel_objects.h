/* The kernel's objects that tell of a process: which of them are read, and which of their members must be as they were for what was told of
 * them to hold still. Where each member is the kernel says itself (kernel_types.h). */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* What an object is read as. */
enum kind {
	TASK, /* a thread */
	CHILD,
	PARENT,
	SIGNAL, /* what threads share */
	ACTIONS,
	MEMORY,
	RIGHTS,
	GROUPS,
	DIRECTORIES,
	DESCRIPTORS,
	TABLE, /* of descriptors */
	OPEN_FILE, /* with its position */
	OPEN_REGULAR, /* without */
	INODE,
	INODE_OF_DIRECTORY,
	LOCKS,
	FILE_SYSTEM,
	NAME,
	MOUNT,
	SOCKET,
	PROTOCOL_STATE, /* of a socket */
	CONNECTION, /* the same of an established TCP connection */
	PIPE,
	WORDS, /* all of it is compared; it has no members */
	LOOKED_AT, /* nothing is compared */
	KINDS,
};

/* Members that lead to others, or that are looked at by themselves. */
enum member {
	TASK_PTRACED, TASK_PTRACE_ENTRY, TASK_PID, TASK_MEMORY, TASK_SIGNAL, TASK_ACTIONS, TASK_FILES, TASK_DIRECTORIES, TASK_RIGHTS,
	TASK_OWN_RIGHTS, TASK_PARENT, TASK_CHILDREN, TASK_SIBLING, TASK_ALTERNATE, TASK_ALTERNATE_SIZE,
	SIGNAL_GROUP_IDS, SIGNAL_TERMINAL, SIGNAL_TIMERS, SIGNAL_THREADS,
	MEMORY_BREAK, MEMORY_PROGRAM, MEMORY_SEQUENCE, MEMORY_FLUSHES,
	RIGHTS_GROUPS, GROUPS_COUNT, GROUPS_LIST, NUMBERS_FIRST,
	/* Which number a process or thread gets next in its PID namespace. */
	TASK_NUMBERS, NUMBERS_LEVEL, NUMBER_SPACE, SPACE_NEXT,
	DIRECTORIES_ROOT, DIRECTORIES_WORKING,
	DESCRIPTORS_TABLE, TABLE_MOST, TABLE_FILES, TABLE_OPEN, TABLE_CLOSING,
	FILE_INODE, FILE_PATH, FILE_PRIVATE, FILE_POSITION, FILE_OWNER,
	INODE_MODE, INODE_DEVICE, INODE_SIZE, INODE_LINKS, INODE_LOCKS, INODE_FILE_SYSTEM,
	FILE_SYSTEM_MAGIC, LOCKS_FLOCK, LOCKS_POSIX, LOCKS_LEASE,
	PATH_MOUNT, PATH_NAME, NAME_PARENT, NAME_TEXT, NAME_LENGTH, NAME_SHORT,
	MOUNT_INNER, MOUNT_ROOT, MOUNT_PARENT, MOUNT_POINT,
	SOCKET_STATE, SOCK_FAMILY, SOCK_STATE, SOCK_PROTOCOL, SOCK_PROTO, SOCK_FILTER, SOCK_OPTIONS, SOCK_NETWORK, SOCK_DEVICE, PROTO_SIZE,
	PIPE_HEAD, PIPE_TAIL,
	/* Whether a timer that is over is still to expire (timers.c). */
	TIMER_ITSELF, TIMER_QUEUED, TIMER_QUEUE, QUEUE_RUNNING,
	/* What an established connection tells by itself, and what of it has to be zero for that. */
	TCP_SEND_BUFFER, TCP_RECEIVE_BUFFER, TCP_WRITTEN, TCP_SENT, TCP_ACKNOWLEDGED, TCP_RECEIVED, TCP_READ, TCP_WINDOW_AT, TCP_SEND_WINDOW,
	TCP_WINDOW_MOST, TCP_RECEIVE_WINDOW, TCP_WINDOW_TOLD, TCP_TIME_OFFSET,
	TCP_LOCK, TCP_OWNED, TCP_WAITING, TCP_SHUT, TCP_ERROR, TCP_ERRORS, TCP_URGENT, TCP_USER,
	/* Of a network namespace, what its sockets have where they have nothing of their own. */
	NETWORK_LIFETIME, NETWORK_IDLE, NETWORK_INTERVAL, NETWORK_PROBES, NETWORK_TRIES, NETWORK_LINGER,
	MEMBERS,
	TCP_FIRST = TCP_SEND_BUFFER,
	TCP_LAST = TCP_USER,
	NETWORK_FIRST = NETWORK_LIFETIME,
	NETWORK_LAST = NETWORK_LINGER,
};

/* Finds all members, once. NULL, or why this kernel cannot be read. */
const char *find_members(void);

/* [bytes] that are read of an object; 0: it depends. */
uint32_t size_of_kind(enum kind kind);

uint64_t number_in(const unsigned char *object, enum member member);
uint32_t offset_of(enum member member);

bool is_clear(const unsigned char *object, enum member member); /* all of it is zero */

/* Whether this kernel has one of those that not all have. */
bool has_member(enum member member);

/* What of an object members lie in: from the first byte of any to behind the last of any. False: this kernel has not all of them. */
struct extent {
	uint32_t start, size; /* [bytes] */
};
bool find_extent(enum member first, enum member last, struct extent *found);

/* Whether two states of one object are the same in all that counts. */
bool are_alike(enum kind kind, const unsigned char *one, const unsigned char *other, uint32_t size);
