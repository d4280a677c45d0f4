/* See plan.h: what tells of descriptors. */
#define _GNU_SOURCE
#include "plan.h"

#include "kernel_memory.h"
#include "standing.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
	LISTENS = 10, /* TCP_LISTEN */
	ESTABLISHED = 1,
	MINOR_BITS = 20, /* of a device's number, as the kernel has it */
	OF_MEMORY = 1, /* the major number of /dev/null and its like */
};

/* File systems in which an inode says the size itself, and its device is that of its mapping; linux/magic.h. */
static const uint64_t plain_file_systems[] = { 0xef53, 0x58465342, 0x9123683e, 0x01021994 };
enum { OF_SOCKETS = 0x534f434b, OF_PIPES = 0x50495045 };

static bool is_of_tcp(const unsigned char *sock)
{
	enum { TCP = 6 };
	const uint64_t family = number_in(sock, SOCK_FAMILY);

	return (family == AF_INET || family == AF_INET6) && number_in(sock, SOCK_PROTOCOL) == TCP && number_in(sock, SOCK_STATE) != LISTENS;
}

/* What sockets have of their network namespace where they have nothing of their own. */
static bool plan_network(int sock)
{
	struct extent part;

	return find_extent(NETWORK_FIRST, NETWORK_LAST, &part) &&
	       add_object(WORDS, number_in(seen(sock), SOCK_NETWORK) + part.start, part.size, sock, offset_of(SOCK_NETWORK), part.start) != NONE;
}

static bool is_followed(int sock)
{
	enum { UDP = 17, TCP = 6 };
	const unsigned char *found = seen(sock);
	const uint64_t protocol = number_in(found, SOCK_PROTOCOL), state = number_in(found, SOCK_STATE);

	/* The name of a device may change. */
	if (number_in(found, SOCK_FILTER) || number_in(found, SOCK_DEVICE))
		return false;
	switch (number_in(found, SOCK_FAMILY)) {
	case AF_UNIX:
		return true;
	case AF_INET:
	case AF_INET6:
		return !number_in(found, SOCK_OPTIONS) && (protocol == UDP || (protocol == TCP && (state == LISTENS || state == ESTABLISHED))) &&
		       plan_network(sock);
	default:
		return false;
	}
}

/* A number of 4 or 8 bytes in an object that is in no plan; 0: nothing is there. */
static uint64_t fetch_number(uint64_t object, enum member member, uint32_t size)
{
	const unsigned char *found = fetch(object + offset_of(member), size);
	uint64_t number = 0;

	if (found)
		memcpy(&number, found, size);
	return number;
}

static bool plan_socket(struct segment *s, int file)
{
	const int socket = follow_pointer(file, FILE_PRIVATE, SOCKET);
	const uint64_t sock = socket == NONE ? 0 : number_in(seen(socket), SOCKET_STATE);
	const uint64_t proto = sock ? fetch_number(sock, SOCK_PROTO, 8) : 0;
	const uint32_t size = proto ? (uint32_t)fetch_number(proto, PROTO_SIZE, 4) : 0;
	const unsigned char *found = size && size <= PIECE_MOST ? fetch(sock, size_of_kind(PROTOCOL_STATE)) : NULL;
	const enum kind kind = found && is_of_tcp(found) ? CONNECTION : PROTOCOL_STATE;
	int object;

	if (!found || size < size_of_kind(kind) || (kind == CONNECTION && !do_connections_tell()))
		return false;
	object = add_object(kind, sock, size, socket, offset_of(SOCKET_STATE), 0);
	if (object == NONE || number_in(seen(object), SOCK_PROTO) != proto || is_of_tcp(seen(object)) != (kind == CONNECTION))
		return false;
	s->connection = kind == CONNECTION ? object : NONE;
	return is_followed(object);
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
	locks = follow_pointer(inode, INODE_LOCKS, LOCKS);
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
bool plan_file(struct segment *s, uint64_t address)
{
	const uint64_t mode = mode_of(address);
	const int file = add_object(S_ISREG(mode) ? OPEN_REGULAR : OPEN_FILE, address, size_of_kind(OPEN_FILE), plan->files, 8 * (uint32_t)s->number, 0);
	const int inode = file == NONE ? NONE : follow_pointer(file, FILE_INODE, S_ISDIR(mode) ? INODE_OF_DIRECTORY : INODE);
	const int file_system = inode == NONE ? NONE : follow_pointer(inode, INODE_FILE_SYSTEM, FILE_SYSTEM);
	uint64_t magic;

	s->is_regular = S_ISREG(mode);
	if (file_system == NONE || number_in(seen(inode), INODE_MODE) != mode || !is_clear(seen(file), FILE_OWNER) || !is_without_locks(inode) ||
	    !plan_path(file, offset_of(FILE_PATH)))
		return false;
	magic = number_in(seen(file_system), FILE_SYSTEM_MAGIC);
	if (magic == OF_SOCKETS && S_ISSOCK(mode))
		return plan_socket(s, file);
	if (magic == OF_PIPES && S_ISFIFO(mode))
		return follow_pointer(file, FILE_PRIVATE, PIPE) != NONE;
	if (!is_plain(magic) || !number_in(seen(inode), INODE_LINKS))
		return false;
	return s->is_regular || S_ISDIR(mode) || (S_ISCHR(mode) && number_in(seen(inode), INODE_DEVICE) >> MINOR_BITS == OF_MEMORY);
}

bool plan_table(void)
{
	const int descriptors = follow_pointer(plan->task, TASK_FILES, DESCRIPTORS);
	const int table = descriptors == NONE ? NONE : follow_pointer(descriptors, DESCRIPTORS_TABLE, TABLE);
	const unsigned char *found = table == NONE ? NULL : seen(table);

	/* No more than is read at a time. */
	if (!found || number_in(found, TABLE_MOST) > PIECE_MOST / 8)
		return false;
	plan->most = (uint32_t)number_in(found, TABLE_MOST);
	plan->files = add_object(LOOKED_AT, number_in(found, TABLE_FILES), 8 * plan->most, table, offset_of(TABLE_FILES), 0);
	plan->open = add_object(LOOKED_AT, number_in(found, TABLE_OPEN), plan->most / 8, table, offset_of(TABLE_OPEN), 0);
	plan->closing = add_object(LOOKED_AT, number_in(found, TABLE_CLOSING), plan->most / 8, table, offset_of(TABLE_CLOSING), 0);
	return plan->files != NONE && plan->open != NONE && plan->closing != NONE;
}
