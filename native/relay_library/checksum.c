/* Checksums: see checksum.h. BLAKE2b as in RFC 7693, without a key. Tests hold both against zlib and hashlib. */
#include "checksum.h"
#include "../crc32.h"

#include <string.h>

__attribute__((constructor)) static void prepare(void)
{
    crc32_prepare();
}

uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t size)
{
    return ~crc32_more(~crc, data, size);
}

static const uint64_t blake_iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};
static const uint8_t blake_sigma[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t turned(uint64_t value, int by)
{
    return value >> by | value << (64 - by);
}

#define MIX(a, b, c, d, x, y)                                                                                                    \
    a += b + x, d = turned(d ^ a, 32), c += d, b = turned(b ^ c, 24), a += b + y, d = turned(d ^ a, 16), c += d,                  \
        b = turned(b ^ c, 63)

static void blake2b_block(struct blake2b *hash, const uint8_t *block, int is_last)
{
    uint64_t v[16], m[16];
    memcpy(m, block, sizeof m); /* this machine is little-endian, as the recording's layout */
    memcpy(v, hash->state, 64);
    memcpy(v + 8, blake_iv, 64);
    v[12] ^= hash->count;
    if (is_last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = blake_sigma[round % 10];
        MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        hash->state[i] ^= v[i] ^ v[i + 8];
}

void blake2b_begin(struct blake2b *hash)
{
    memcpy(hash->state, blake_iv, sizeof hash->state);
    hash->state[0] ^= 0x01010000 ^ BLAKE2B_BYTES;
    hash->count = 0;
    hash->filled = 0;
}

void blake2b_take(struct blake2b *hash, const uint8_t *data, size_t size)
{
    while (size) {
        if (hash->filled == sizeof hash->block) { /* not before more has come: the last block is another */
            hash->count += sizeof hash->block;
            blake2b_block(hash, hash->block, 0);
            hash->filled = 0;
        }
        size_t take = sizeof hash->block - hash->filled;
        take = take < size ? take : size;
        memcpy(hash->block + hash->filled, data, take);
        hash->filled += take, data += take, size -= take;
    }
}

void blake2b_end(struct blake2b *hash, uint8_t digest[BLAKE2B_BYTES])
{
    hash->count += hash->filled;
    memset(hash->block + hash->filled, 0, sizeof hash->block - hash->filled);
    blake2b_block(hash, hash->block, 1);
    memcpy(digest, hash->state, BLAKE2B_BYTES);
}
