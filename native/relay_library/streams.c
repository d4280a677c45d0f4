/* Streams: see streams.h. */
#include "streams.h"
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

struct piece *piece_new(int64_t at, const uint8_t *data, size_t size)
{
    struct piece *made = must(malloc(sizeof *made + (data ? size : 0)));
    made->next = NULL, made->at = at, made->size = size, made->is_untaken = !data, made->wall_ns = 0;
    if (data)
        memcpy(made->data, data, size);
    return made;
}

void pieces_add(struct pieces *pieces, uint64_t wall_ns, const uint8_t *data, size_t size)
{
    struct piece *made = piece_new(0, data, size);
    made->wall_ns = wall_ns;
    *(pieces->first ? &pieces->last->next : &pieces->first) = made;
    pieces->last = made;
}

void pieces_free(struct piece *first)
{
    while (first) {
        struct piece *next = first->next;
        free(first);
        first = next;
    }
}

void stream_begin(struct stream *stream, uint32_t sequence)
{
    memset(stream, 0, sizeof *stream);
    stream->base = sequence, stream->is_begun = 1;
}

void stream_free(struct stream *stream)
{
    pieces_free(stream->waiting);
    stream->waiting = NULL;
}

int64_t stream_place_of(const struct stream *stream, uint32_t sequence)
{
    int64_t off = (uint32_t)(sequence - stream->base - (uint32_t)stream->place);
    return stream->place + (off < 1ll << 31 ? off : off - (1ll << 32));
}

static uint64_t weight(const struct piece *piece)
{
    return (piece->is_untaken ? 0 : piece->size) + PIECE_COST;
}

static void wait_for_turn(struct stream *stream, struct piece *made)
{
    /* Behind a missing one they usually come in their order. */
    struct piece **at = stream->waiting && stream->last->at <= made->at ? &stream->last->next : &stream->waiting;
    while (*at && (*at)->at <= made->at)
        at = &(*at)->next;
    made->next = *at;
    *at = made;
    if (!made->next)
        stream->last = made;
    stream->ahead += weight(made);
}

static void give_fresh(struct stream *stream, int64_t at, const uint8_t *data, size_t size,
                       void (*give)(void *, const uint8_t *, size_t), void *who)
{
    uint64_t known = (uint64_t)(stream->place - at);
    if (known >= size)
        return;
    stream->place = at + (int64_t)size;
    give(who, data ? data + known : NULL, size - known);
}

void stream_add(struct stream *stream, uint32_t sequence, const uint8_t *data, size_t size,
                void (*give)(void *, const uint8_t *, size_t), void *who)
{
    int64_t at = stream_place_of(stream, sequence);
    if (at > stream->place) {
        wait_for_turn(stream, piece_new(at, data, size));
        return;
    }
    give_fresh(stream, at, data, size, give, who);
    while (stream->waiting && stream->waiting->at <= stream->place) {
        struct piece *first = stream->waiting;
        stream->waiting = first->next;
        stream->ahead -= weight(first);
        give_fresh(stream, first->at, first->is_untaken ? NULL : first->data, first->size, give, who);
        free(first);
    }
}

void stream_end_at(struct stream *stream, uint32_t sequence)
{
    if (stream->has_end)
        return;
    stream->has_end = 1;
    stream->end = stream_place_of(stream, sequence);
}

int stream_has_ended(const struct stream *stream)
{
    return stream->has_end && stream->place >= stream->end;
}

int stream_lacks_before(const struct stream *stream, uint32_t sequence)
{
    int64_t place = stream_place_of(stream, sequence);
    if (stream->has_end && stream->end < place) /* FIN takes a number too */
        place = stream->end;
    return place > stream->place;
}
