/* TCP segments out of the blocks that `relive-capture` hands on; `relive.proxies.ingress._segments` is their specification. */
#ifndef RELAY_PACKETS_H
#define RELAY_PACKETS_H

#include <stddef.h>
#include <stdint.h>

enum { FLAG_FIN = 1, FLAG_SYN = 2, FLAG_RST = 4, FLAG_ACK = 16 };

/* What tells a connection from all others at the port of the service. Compared as memory: what is not used is 0. */
struct ends {
    uint8_t client[16], service[16];
    uint16_t client_port, address_bytes; /* 4 or 16 */
};

/* Mirrored by `relive.proxies.ingress._sights`. */
struct segment {
    uint64_t wall_ns;
    struct ends ends;
    uint32_t sequence, acknowledged;
    uint32_t flags, from_client;
    const uint8_t *data;
    uint64_t size, lacks; /* lacks: bytes behind those that were not taken */
};

/* Where the next packet of a block is. */
struct place {
    uint64_t at;
    uint64_t left; /* packets; 0: none is there */
};

/* Go to the next packet. Returns 1 with the segment in it, 0 if it is none of the service's, or damaged. */
int next_segment(const uint8_t *block, size_t size, uint16_t port, struct place *place, struct segment *segment);

/* A block that lies in the kernel's ring still, as long as `*released` is at most its number. */
struct in_ring {
    const uint64_t *released;
    uint64_t number;
};

/* As `next_segment`, of such a block: what the segment points to is a copy in `room`, of `size` bytes. -1: the block is gone, and
 * nothing has happened. */
int next_segment_in_ring(const struct in_ring *ring, const uint8_t *block, size_t size, uint8_t *room, uint16_t port,
                         struct place *place, struct segment *segment);

#endif
