/* msgpack (https://github.com/msgpack/msgpack/blob/master/spec.md), as much as records of a recording need, in the shortest form of each
 * value, as Python's msgpack packs them. Each function writes at `at`, where there is room, and returns where it ended. */
#ifndef RELIVE_MSGPACK_H
#define RELIVE_MSGPACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PUT_NUMBER_MOST 9
#define PUT_TEXT_MOST(size) ((size) + 5)
#define PUT_COUNT_MOST 5

/* The lowest `bytes` bytes of a number, highest first. */
static inline uint8_t *put_bytes(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static inline uint8_t *put_number(uint8_t *at, uint64_t value)
{
    if (value < 128) {
        *at++ = (uint8_t)value;
        return at;
    }
    int which = value < 1u << 8 ? 0 : value < 1u << 16 ? 1 : value < 1ull << 32 ? 2 : 3;
    *at++ = (uint8_t)(0xcc + which);
    return put_bytes(at, value, 1 << which);
}

/* Below zero. */
static inline uint8_t *put_negative(uint8_t *at, int64_t value)
{
    if (value >= -32) {
        *at++ = (uint8_t)value;
        return at;
    }
    int which = value >= INT8_MIN ? 0 : value >= INT16_MIN ? 1 : value >= INT32_MIN ? 2 : 3;
    *at++ = (uint8_t)(0xd0 + which);
    return put_bytes(at, (uint64_t)value, 1 << which);
}

static inline uint8_t *put_double(uint8_t *at, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *at++ = 0xcb;
    return put_bytes(at, bits, 8);
}

/* What stands before `size` bytes of UTF-8, less than 4 GiB. */
static inline uint8_t *put_text_head(uint8_t *at, size_t size)
{
    if (size < 32) {
        *at++ = (uint8_t)(0xa0 | size);
        return at;
    }
    int which = size < 1u << 8 ? 0 : size < 1u << 16 ? 1 : 2;
    *at++ = (uint8_t)(0xd9 + which);
    return put_bytes(at, size, 1 << which);
}

static inline uint8_t *put_text(uint8_t *at, const char *text, size_t size)
{
    at = put_text_head(at, size);
    memcpy(at, text, size);
    return at + size;
}

/* What stands before `size` bytes that are no text, less than 4 GiB. */
static inline uint8_t *put_bin_head(uint8_t *at, size_t size)
{
    int which = size < 1u << 8 ? 0 : size < 1u << 16 ? 1 : 2;
    *at++ = (uint8_t)(0xc4 + which);
    return put_bytes(at, size, 1 << which);
}

/* What stands before the items of an array, or the pairs of a map: `few` is 0x90 or 0x80, `many` 0xdc or 0xde. */
static inline uint8_t *put_count(uint8_t *at, uint8_t few, uint8_t many, size_t count)
{
    if (count < 16) {
        *at++ = (uint8_t)(few | count);
        return at;
    }
    int is_long = count >= 1u << 16;
    *at++ = (uint8_t)(many + is_long);
    return put_bytes(at, count, is_long ? 4 : 2);
}

#endif
