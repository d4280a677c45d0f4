/* A buffer that grows at its end and is read from its beginning. */
#ifndef RELAY_BYTES_H
#define RELAY_BYTES_H

#include <stddef.h>
#include <stdint.h>

struct bytes {
    uint8_t *data;
    size_t begin, size, room; /* what it holds: size bytes from begin on */
};

void bytes_add(struct bytes *bytes, const uint8_t *data, size_t size);
void bytes_drop(struct bytes *bytes, size_t size); /* the first ones; an empty one keeps no memory */
void bytes_give(struct bytes *bytes, uint8_t **data, uint64_t *size); /* it is empty then, and the memory the caller's */
/* What was allocated. Without memory the process ends, as any does: the port falls back, and the agent starts another. */
void *must(void *memory);

#endif
