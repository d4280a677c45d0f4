/* See standing.h. */
#define _GNU_SOURCE
#include "standing.h"

#include "kernel_memory.h"

#include <string.h>

enum {
	NS_IN_MS = 1000000,
	LATER_MOST = 60000, /* [ms] that pass between reading and asking, and as far as a clock of its own goes in that time */
	MICROSECONDS = 1, /* a bit of a timestamp as it is told: its connection counts by these (TCP_TIMESTAMP in net/ipv4/tcp.c) */
};

static bool find_moving(struct extent *found)
{
	return find_extent(TCP_FIRST, TCP_LAST, found);
}

bool do_connections_tell(void)
{
	struct extent moving;

	return find_moving(&moving);
}

bool read_again(struct object *connection)
{
	struct extent moving;

	connection->again = find_moving(&moving) ? add_piece(connection->address + moving.start, moving.size) : NONE;
	return connection->again != NONE;
}

static const unsigned char *first_reading(const struct object *connection)
{
	return pieces() + connection->at;
}

static uint32_t word(const struct object *connection, enum member member)
{
	return (uint32_t)number_in(first_reading(connection), member);
}

bool is_still(const struct object *connection)
{
	const unsigned char *read = first_reading(connection);
	struct extent moving;

	if (!find_moving(&moving) || memcmp(read + moving.start, pieces() + connection->again, moving.size))
		return false;
	for (int i = TCP_LOCK; i <= TCP_USER; i++)
		if (!is_clear(read, (enum member)i))
			return false;
	return word(connection, TCP_READ) == word(connection, TCP_RECEIVED) &&
	       word(connection, TCP_SENT) == word(connection, TCP_WRITTEN) && word(connection, TCP_ACKNOWLEDGED) == word(connection, TCP_WRITTEN);
}

bool has_stood_still(const struct object *connection)
{
	const unsigned char *read = first_reading(connection), *now = fetch(connection->address, connection->size);
	struct extent moving;

	return now && find_moving(&moving) && !memcmp(read + moving.start, now + moving.start, moving.size) &&
	       are_alike(CONNECTION, read, now, connection->size);
}

void take_standing(const struct object *connection, struct stream_numbers *numbers)
{
	static const enum member windows[] = { TCP_WINDOW_AT, TCP_SEND_WINDOW, TCP_WINDOW_MOST, TCP_RECEIVE_WINDOW, TCP_WINDOW_TOLD };

	numbers->received = numbers->sent = 0;
	numbers->received_next = word(connection, TCP_RECEIVED);
	numbers->sent_next = word(connection, TCP_WRITTEN);
	numbers->timestamp = ((uint32_t)(read_at_ns() / NS_IN_MS) + word(connection, TCP_TIME_OFFSET)) & ~(uint32_t)MICROSECONDS;
	for (int i = 0; i < 5; i++)
		numbers->window[i] = word(connection, windows[i]);
}

uint32_t buffer_of(const struct object *connection, bool is_for_sending)
{
	return word(connection, is_for_sending ? TCP_SEND_BUFFER : TCP_RECEIVE_BUFFER);
}

bool are_same_numbers(const struct stream_numbers *read, const struct stream_numbers *asked)
{
	struct stream_numbers other = *asked;

	if (asked->timestamp & MICROSECONDS || asked->timestamp - read->timestamp > LATER_MOST)
		return false;
	other.timestamp = read->timestamp;
	return !memcmp(read, &other, sizeof other);
}

bool is_own_clock(const struct stream_numbers *asked)
{
	return asked->timestamp & MICROSECONDS;
}
