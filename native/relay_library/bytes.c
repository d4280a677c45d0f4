#include "bytes.h"

#include <stdlib.h>
#include <string.h>

void *must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

void bytes_add(struct bytes *bytes, const uint8_t *data, size_t size)
{
    if (!size)
        return;
    if (bytes->begin + bytes->size + size > bytes->room) {
        if (bytes->begin) {
            memmove(bytes->data, bytes->data + bytes->begin, bytes->size);
            bytes->begin = 0;
        }
        if (bytes->size + size > bytes->room) {
            bytes->room = (bytes->size + size) * 2;
            bytes->data = must(realloc(bytes->data, bytes->room));
        }
    }
    memcpy(bytes->data + bytes->begin + bytes->size, data, size);
    bytes->size += size;
}

void bytes_drop(struct bytes *bytes, size_t size)
{
    bytes->begin += size, bytes->size -= size;
    if (!bytes->size) {
        free(bytes->data);
        memset(bytes, 0, sizeof *bytes);
    }
}

void bytes_give(struct bytes *bytes, uint8_t **data, uint64_t *size)
{
    if (bytes->begin)
        memmove(bytes->data, bytes->data + bytes->begin, bytes->size);
    *data = bytes->data, *size = bytes->size;
    memset(bytes, 0, sizeof *bytes);
}
