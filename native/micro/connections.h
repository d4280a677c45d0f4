/* Established TCP connections: what they are, and where each stands, with the bytes that wait in it.
 *
 * Sequence numbers are told in repair mode only (tcp(7), TCP_REPAIR), in which nobody can use the connection. So it lasts some microseconds,
 * with all threads stopped, each before a frame that has it sleep for a while should it be let go by our death (round_trip.h);
 * who started us has the connections taken out of that mode meanwhile (native/watchdog.c). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WAITING_MOST (8 << 20) /* [bytes] copied with all stopped */

extern int connection_count; /* as of the last look; one that has two descriptors counts twice */
extern struct waiting_bytes {
	unsigned char *at;
	size_t size;
} waiting; /* of each connection that was told what it had received, and what it had sent that was not acknowledged */

/* What is said of where one stands. */
struct stream_numbers {
	uint64_t inode;
	uint32_t state, received, received_next, sent, sent_next; /* how many bytes wait, and up to where a queue goes */
	uint32_t options, send_scale, receive_scale, segment, timestamp;
	uint32_t window[5]; /* struct tcp_repair_window */
	int32_t reuse; /* SO_REUSEADDR */
};

void forget_connections(void);

/* What there is to say of a connection is known (unchanged.h), unless `read_streams` has to be called for others. False: there are too many. */
bool note_connection(int number, ino_t inode);
void take_back_connection(void); /* the last one; it is asked about */

/* Whether something was asked of any since they were forgotten. */
bool is_any_asked(void);

/* Says "=connection ..." of a descriptor, if it is of a TCP connection; `flags`: with which it is open. */
bool say_connection(int number, ino_t inode, unsigned flags);

/* Says "=stream ..." of each connection; false: refused. */
bool read_streams(void);
void say_numbers(const struct stream_numbers *numbers);
