/* One direction of a TCP connection, put together from its segments; `relive.proxies.ingress._reassembly` is its specification. */
#ifndef RELAY_STREAMS_H
#define RELAY_STREAMS_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that wait for something, or such that were not taken, of which only the number is known: wherever bytes have their turn, these
 * have it as well, with NULL for `data`. Mirrored by `relive.proxies.ingress._sights`. */
struct piece {
    struct piece *next;
    int64_t at; /* place in a stream */
    uint64_t size;
    uint64_t is_untaken; /* there are no data */
    uint64_t wall_ns; /* when its segment was seen; of one in a stream's order: 0 */
    uint8_t data[];
};

struct pieces {
    struct piece *first, *last;
};

struct piece *piece_new(int64_t at, const uint8_t *data, size_t size);
void pieces_add(struct pieces *pieces, uint64_t wall_ns, const uint8_t *data, size_t size);
void pieces_free(struct piece *first);

#define PIECE_COST 1024 /* [bytes] what a piece that waits counts for besides its data: they are few enough to be walked along */

/* A place is a number of bytes from where the stream was begun. */
struct stream {
    uint32_t base; /* sequence number */
    int is_begun, has_end;
    int64_t place; /* bytes that were given out */
    int64_t end;
    uint64_t ahead; /* bytes that wait for those before them, and PIECE_COST for each piece */
    struct piece *waiting, *last; /* in the order of their places */
};

void stream_begin(struct stream *stream, uint32_t sequence);
void stream_free(struct stream *stream);
/* Take a segment's bytes, and give out those that have their turn, in order. */
void stream_add(struct stream *stream, uint32_t sequence, const uint8_t *data, size_t size,
                void (*give)(void *who, const uint8_t *data, size_t size), void *who);
void stream_end_at(struct stream *stream, uint32_t sequence);
int stream_has_ended(const struct stream *stream);
/* Bytes before that sequence number have not come, though the receiver has acknowledged them. */
int stream_lacks_before(const struct stream *stream, uint32_t sequence);
/* The place of a sequence number: of all that it can mean, the one nearest to what was given out. */
int64_t stream_place_of(const struct stream *stream, uint32_t sequence);

#endif
