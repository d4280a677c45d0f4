/* CRC-32 as zlib has it (polynomial 0xEDB88320, bits reflected), for programs that are linked without a library for it.
 *
 *     crc32_prepare();                                             once, before anything else and in one thread
 *     sum = ~crc32_more(crc32_more(CRC32_BEGIN, a, n), b, m);      of n bytes at a and m at b
 *
 * Runs of 16 bytes go by carry-less multiplication where the processor has it: folding by four, as in "Fast CRC Computation for Generic
 * Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), with its constants for this polynomial; long runs by 256 bytes at a time where it
 * has that for 512 bits. The rest goes by tables, four bytes at a time. Tests hold all against zlib. Nothing here calls a function of the
 * C library by a name that has versions. */
#ifndef RELIVE_CRC32_H
#define RELIVE_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CRC32_BEGIN 0xFFFFFFFFu

static uint32_t crc32_table[4][256];

static inline uint32_t crc32_by_table(uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 4; p += 4, n -= 4) {
        uint32_t word;
        memcpy(&word, p, 4);
        crc ^= word;
        crc = crc32_table[3][crc & 255] ^ crc32_table[2][crc >> 8 & 255] ^ crc32_table[1][crc >> 16 & 255] ^ crc32_table[0][crc >> 24];
    }
    while (n--)
        crc = crc32_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

enum { CRC32_WIDE = 256, CRC32_LONG = 4 * CRC32_WIDE };

static int crc32_can_fold, crc32_can_fold_wide;

/* `n`: a multiple of 16, and not 0. */
__attribute__((target("pclmul,sse4.1"))) static inline uint32_t crc32_by_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    const __m128i by_four = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i y = _mm_xor_si128(_mm_loadu_si128((const __m128i *)p), _mm_cvtsi32_si128((int)crc)), x[4] = {y};
    if (n < 64) {
        p += 16, n -= 16;
    } else {
        for (int i = 1; i < 4; i++)
            x[i] = _mm_loadu_si128((const __m128i *)p + i);
        for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
            for (int i = 0; i < 4; i++) {
                __m128i low = _mm_clmulepi64_si128(x[i], by_four, 0x00), high = _mm_clmulepi64_si128(x[i], by_four, 0x11);
                x[i] = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)p + i));
            }
        y = x[0];
        for (int i = 1; i < 4; i++) {
            __m128i low = _mm_clmulepi64_si128(y, by_one, 0x00), high = _mm_clmulepi64_si128(y, by_one, 0x11);
            y = _mm_xor_si128(_mm_xor_si128(low, high), x[i]);
        }
    }
    for (; n >= 16; p += 16, n -= 16) {
        __m128i low = _mm_clmulepi64_si128(y, by_one, 0x00), high = _mm_clmulepi64_si128(y, by_one, 0x11);
        y = _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)p));
    }
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0); /* of 128 bits to 64, of 64 to 32 (Barrett) */
    y = _mm_xor_si128(_mm_srli_si128(y, 8), _mm_clmulepi64_si128(y, by_one, 0x10));
    __m128i z = _mm_srli_si128(y, 4);
    y = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(y, words), _mm_set_epi64x(0, 0x0163cd6124), 0x00), z);
    const __m128i last = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    z = _mm_clmulepi64_si128(_mm_and_si128(y, words), last, 0x10);
    z = _mm_clmulepi64_si128(_mm_and_si128(z, words), last, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(y, z), 1);
}

/* `n`: a multiple of CRC32_WIDE, and not 0. */
__attribute__((target("avx512f,vpclmulqdq"))) static inline uint32_t crc32_by_wide_folding(uint32_t crc, const uint8_t *p, size_t n)
{
    const __m512i by_sixteen = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01322d1430, 0x011542778a));
    const __m512i by_four = _mm512_broadcast_i32x4(_mm_set_epi64x(0x01c6e41596, 0x0154442bd4));
    __m512i x[4];
    for (int i = 0; i < 4; i++)
        x[i] = _mm512_loadu_si512(p + 64 * i);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (p += CRC32_WIDE, n -= CRC32_WIDE; n; p += CRC32_WIDE, n -= CRC32_WIDE)
        for (int i = 0; i < 4; i++) {
            __m512i low = _mm512_clmulepi64_epi128(x[i], by_sixteen, 0x00), high = _mm512_clmulepi64_epi128(x[i], by_sixteen, 0x11);
            x[i] = _mm512_xor_si512(_mm512_xor_si512(low, high), _mm512_loadu_si512(p + 64 * i));
        }
    __m512i y = x[0];
    for (int i = 1; i < 4; i++) {
        __m512i low = _mm512_clmulepi64_epi128(y, by_four, 0x00), high = _mm512_clmulepi64_epi128(y, by_four, 0x11);
        y = _mm512_xor_si512(_mm512_xor_si512(low, high), x[i]);
    }
    uint8_t rest[64];
    _mm512_storeu_si512(rest, y);
    return crc32_by_folding(0, rest, sizeof rest);
}

/* The processor has it, and the kernel keeps its registers. */
static inline int crc32_has_wide(void)
{
    unsigned a, b, c, d, kept, above;
    if (!crc32_can_fold || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(kept), "=d"(above) : "c"(0));
    return (kept & 0xe6) == 0xe6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F) && (c & bit_VPCLMULQDQ);
}
#endif

static inline void crc32_prepare(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        crc32_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int t = 1; t < 4; t++)
            crc32_table[t][i] = crc32_table[t - 1][i] >> 8 ^ crc32_table[0][crc32_table[t - 1][i] & 255];
#if defined(__x86_64__)
    unsigned a, b, c, d;
    crc32_can_fold = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
    crc32_can_fold_wide = crc32_has_wide();
#endif
}

static inline uint32_t crc32_more(uint32_t crc, const uint8_t *p, size_t n)
{
#if defined(__x86_64__)
    if (n >= CRC32_LONG && crc32_can_fold_wide) {
        size_t even = n & ~(size_t)(CRC32_WIDE - 1);
        crc = crc32_by_wide_folding(crc, p, even);
        p += even, n -= even;
    }
    if (n >= 16 && crc32_can_fold) {
        size_t even = n & ~(size_t)15;
        crc = crc32_by_folding(crc, p, even);
        p += even, n -= even;
    }
#endif
    return crc32_by_table(crc, p, n);
}

#endif
