/* Checksums: see checksum.h. CRC-32 in runs of 64 bytes by carry-less multiplication where the processor has it (`fold`), else by a table;
 * BLAKE2b as in RFC 7693, without a key. Tests hold both against zlib and hashlib. */
#include "checksum.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* Intel, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (2009), with the constants of the reflected
 * polynomial 0xEDB88320. `size` is a multiple of 16 and at least 64. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold(uint32_t crc, const uint8_t *data, size_t size)
{
    const __m128i by_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x0163cd6124), barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4];
    for (int i = 0; i < 4; i++)
        lane[i] = _mm_loadu_si128((const __m128i *)data + i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64)
        for (int i = 0; i < 4; i++) {
            __m128i here = _mm_loadu_si128((const __m128i *)data + i);
            __m128i high = _mm_clmulepi64_si128(lane[i], by_512, 0x11);
            lane[i] = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane[i], by_512, 0x00), high), here);
        }
    __m128i one = lane[0];
    for (int i = 1; i < 4; i++) {
        __m128i high = _mm_clmulepi64_si128(one, by_128, 0x11);
        one = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(one, by_128, 0x00), high), lane[i]);
    }
    for (; size >= 16; data += 16, size -= 16) {
        __m128i high = _mm_clmulepi64_si128(one, by_128, 0x11), here = _mm_loadu_si128((const __m128i *)data);
        one = _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(one, by_128, 0x00), high), here);
    }
    one = _mm_xor_si128(_mm_srli_si128(one, 8), _mm_clmulepi64_si128(one, by_128, 0x10));
    one = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(one, low), by_64, 0x00), _mm_srli_si128(one, 4));
    __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(one, low), barrett, 0x10), low);
    one = _mm_xor_si128(one, _mm_clmulepi64_si128(quotient, barrett, 0x00));
    return (uint32_t)_mm_extract_epi32(one, 1);
}

static int can_fold(void)
{
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
static uint32_t fold(uint32_t crc, const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return crc;
}
static int can_fold(void)
{
    return 0;
}
#endif

static uint32_t table[256];

__attribute__((constructor)) static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
        table[i] = value;
    }
}

uint32_t crc32_of(uint32_t crc, const uint8_t *data, size_t size)
{
    crc = ~crc;
    if (size >= 64 && can_fold()) {
        size_t whole = size & ~(size_t)15;
        crc = fold(crc, data, whole);
        data += whole, size -= whole;
    }
    for (; size; size--)
        crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
    return ~crc;
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
