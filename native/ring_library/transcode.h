/* The JSON of a ring's record as the msgpack of a recording's. */
#ifndef RING_TRANSCODE_H
#define RING_TRANSCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No text of `size` bytes becomes more than so many. A number such as 1e9, or an empty string before one, grows most: 2 to 9. */
#define TRANSCODED_MOST(size) (5 * (size) + 64)

/* What an event's fields hold that an agent looks into: see `relive.recording.ring_batch`. */
struct noticed {
    bool has_file, has_asked;
};

/* The numbers and the kind of an event that are not only handed on. `kind` is UTF-8 within the text. */
struct meta {
    uint64_t seq, mono_ns, wall_ns, thread, lane, request;
    const uint8_t *kind;
    size_t kind_size;
};

/* Read `[seq, mono_ns, wall_ns, kind, thread, lane, request, fields]`, and write of it what stands behind the seq in the body of a
 * record: mono_ns, wall_ns, kind, the connection (0), request and fields, to which own_seq, thread, lane and pid are added.
 * Returns where that ended, NULL where the text is not the plain JSON that recorders write. That may be right all the same: numbers
 * beyond 64 bits, halves of surrogate pairs, NaN and blanks are for Python to judge. */
uint8_t *transcode(const uint8_t *text, size_t size, uint64_t pid, uint8_t *out, struct meta *meta, struct noticed *noticed);

#endif
