/* Established TCP connections: what they are, and where each stands, with the bytes that wait in it.
 *
 * Sequence numbers are told in repair mode only (tcp(7), TCP_REPAIR), in which nobody can use the connection. So it lasts some microseconds,
 * with all threads stopped, each before a frame that has it sleep for a while should it be let go by our death (round_trip.h);
 * who started us has the connections taken out of that mode meanwhile (native/watchdog.c). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define WAITING_MOST (8 << 20) /* [bytes] copied with all stopped */

extern int connection_count; /* as of the last look; one that has two descriptors counts twice */
extern struct waiting_bytes {
	unsigned char *at;
	size_t size;
} waiting; /* of each connection that was told what it had received, and what it had sent that was not acknowledged */

void forget_connections(void);

/* Says "=connection ..." of a descriptor, if it is of a TCP connection; `flags`: with which it is open. */
bool say_connection(int number, ino_t inode, unsigned flags);

/* Says "=stream ..." of each connection; false: refused. */
bool read_streams(void);
