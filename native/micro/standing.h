/* What an established TCP connection tells by itself, in its `tcp_sock`: where it stands. It does so only while it is *still*: nothing waits in
 * it, all that was sent is acknowledged, and nobody is at it.
 *
 * The other end may send something at any moment, also while it is read. So the part of it that moves is read twice, the second time behind
 * all else: where both are the same, and the connection is not locked, each number was so at one moment, that between the two, and with it
 * those of all other connections of the process. (The numbers of segments that came and went only grow, and are in that part.) */
#pragma once
#include "plan.h"

/* Whether this kernel has in it all that is read. */
bool do_connections_tell(void);

/* Has that part of one read a second time, behind all that the plan reads; false: no room. */
bool read_again(struct object *connection);

/* As it was read. */
bool is_still(const struct object *connection);

/* Whether it has not moved, nor changed otherwise, since it was read. */
bool has_stood_still(const struct object *connection);

/* Where it stands; what does not move, `numbers` says already. */
void take_standing(const struct object *connection, struct stream_numbers *numbers);
uint32_t buffer_of(const struct object *connection, bool is_for_sending); /* [bytes]; SO_SNDBUF, SO_RCVBUF */

/* Whether these are the numbers of one that was still, but for the clock, which goes on. */
bool are_same_numbers(const struct stream_numbers *read, const struct stream_numbers *asked);

/* Whether it counts time otherwise than is done here, so that nothing is known of it. */
bool is_own_clock(const struct stream_numbers *asked);
