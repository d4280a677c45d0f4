/* Nodes of the tree that BLAKE3 makes of a file of pages, so that of a file of which some pages changed only these are hashed again.
 *
 * BLAKE3 (the paper, "BLAKE3: one function, fast everywhere", section 2) hashes chunks of 1024 bytes, each with its number in the file,
 * and joins two neighbours at a time. A page is four chunks that begin at a multiple of four: a whole subtree, one node of 32 bytes.
 * Eight nodes are made at a time, one in each lane of a vector; built with -O3, which unrolls what exchanges rows and lanes.
 *
 * Loaded by relive.store.pages.page_tree; it holds nothing and touches only what it is given.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpsabi" /* vectors are passed between functions that are inlined only */

enum { LANES = 8, WORDS = 8, BLOCK = 64, NODE = 32, CHUNK = 1024, PAGE = 4096, CHUNKS = PAGE / CHUNK, ROUNDS = 7 };
enum { PAGE_WORDS = PAGE / 8, MAP_WORDS = 64, MAPS = PAGE_WORDS / MAP_WORDS };
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

typedef uint32_t lanes __attribute__((vector_size(4 * LANES)));

static const uint32_t initial[WORDS] = {
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
};

#define INLINE static inline __attribute__((always_inline))
#ifndef CLONES /* a test builds each by itself */
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#endif

INLINE lanes of_all(uint32_t value)
{
    return (lanes){value, value, value, value, value, value, value, value};
}

INLINE lanes turned(lanes word, int bits)
{
    return word >> bits | word << (32 - bits);
}

INLINE void mix(lanes *v, int a, int b, int c, int d, lanes x, lanes y)
{
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 7);
}

/* One block of 64 bytes into each of eight chaining values. */
INLINE void compress(lanes value[WORDS], const lanes block[16], const lanes *low, const lanes *high, uint32_t flags)
{
    static const uint8_t order[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
    lanes v[16], m[16], next[16];
    memcpy(m, block, sizeof m);
    for (int word = 0; word < WORDS; word++)
        v[word] = value[word];
    for (int word = 0; word < 4; word++)
        v[8 + word] = of_all(initial[word]);
    v[12] = *low;
    v[13] = *high;
    v[14] = of_all(BLOCK);
    v[15] = of_all(flags);
#pragma GCC unroll 7
    for (int round = 0; round < ROUNDS; round++) {
        mix(v, 0, 4, 8, 12, m[0], m[1]);
        mix(v, 1, 5, 9, 13, m[2], m[3]);
        mix(v, 2, 6, 10, 14, m[4], m[5]);
        mix(v, 3, 7, 11, 15, m[6], m[7]);
        mix(v, 0, 5, 10, 15, m[8], m[9]);
        mix(v, 1, 6, 11, 12, m[10], m[11]);
        mix(v, 2, 7, 8, 13, m[12], m[13]);
        mix(v, 3, 4, 9, 14, m[14], m[15]);
#pragma GCC unroll 16
        for (int word = 0; word < 16; word++)
            next[word] = m[order[word]];
#pragma GCC unroll 16
        for (int word = 0; word < 16; word++)
            m[word] = next[word];
    }
    for (int word = 0; word < WORDS; word++)
        value[word] = v[word] ^ v[word + 8];
}

/* Exchange rows and columns. */
INLINE void turn(lanes rows[LANES])
{
    static const lanes low = {0, 8, 1, 9, 4, 12, 5, 13}, high = {2, 10, 3, 11, 6, 14, 7, 15};
    static const lanes low_pairs = {0, 1, 8, 9, 4, 5, 12, 13}, high_pairs = {2, 3, 10, 11, 6, 7, 14, 15};
    static const lanes low_half = {0, 1, 2, 3, 8, 9, 10, 11}, high_half = {4, 5, 6, 7, 12, 13, 14, 15};
    lanes words[LANES], pairs[LANES];
    for (int row = 0; row < LANES; row += 2) {
        words[row] = __builtin_shuffle(rows[row], rows[row + 1], low);
        words[row + 1] = __builtin_shuffle(rows[row], rows[row + 1], high);
    }
    for (int row = 0; row < LANES; row += 4)
        for (int half = 0; half < 2; half++) {
            pairs[row + 2 * half] = __builtin_shuffle(words[row + half], words[row + half + 2], low_pairs);
            pairs[row + 2 * half + 1] = __builtin_shuffle(words[row + half], words[row + half + 2], high_pairs);
        }
    for (int row = 0; row < LANES / 2; row++) {
        rows[row] = __builtin_shuffle(pairs[row], pairs[row + LANES / 2], low_half);
        rows[row + LANES / 2] = __builtin_shuffle(pairs[row], pairs[row + LANES / 2], high_half);
    }
}

/* The block that begins at each of eight places; words are little-endian, as this machine is. */
INLINE void load(lanes block[16], const uint8_t *const places[LANES], size_t offset)
{
    for (int half = 0; half < 2; half++) {
        for (int lane = 0; lane < LANES; lane++)
            memcpy(&block[half * LANES + lane], places[lane] + offset + half * NODE, NODE);
        turn(block + half * LANES);
    }
}

INLINE void store(const lanes value[WORDS], uint8_t *const places[LANES])
{
    lanes rows[LANES];
    memcpy(rows, value, sizeof rows);
    turn(rows);
    for (int lane = 0; lane < LANES; lane++)
        memcpy(places[lane], &rows[lane], NODE);
}

INLINE void begin(lanes value[WORDS])
{
    for (int word = 0; word < WORDS; word++)
        value[word] = of_all(initial[word]);
}

INLINE void hash_chunks(const uint8_t *const places[LANES], const uint64_t numbers[LANES], uint8_t *const nodes[LANES])
{
    lanes value[WORDS], block[16], low, high;
    begin(value);
    for (int lane = 0; lane < LANES; lane++) {
        low[lane] = (uint32_t)numbers[lane];
        high[lane] = (uint32_t)(numbers[lane] >> 32);
    }
    for (size_t offset = 0; offset < CHUNK; offset += BLOCK) {
        uint32_t flags = (offset == 0 ? CHUNK_START : 0) | (offset + BLOCK == CHUNK ? CHUNK_END : 0);
        load(block, places, offset);
        compress(value, block, &low, &high, flags);
    }
    store(value, nodes);
}

INLINE void join_pairs(const uint8_t *const pairs[LANES], uint32_t flags, uint8_t *const nodes[LANES])
{
    lanes value[WORDS], block[16], none = of_all(0);
    begin(value);
    load(block, pairs, 0);
    compress(value, block, &none, &none, PARENT | flags);
    store(value, nodes);
}

/* Join pairs that follow each other, a multiple of eight. */
INLINE void join_row(const uint8_t *children, size_t pairs, uint8_t *row)
{
    for (size_t first = 0; first < pairs; first += LANES) {
        const uint8_t *places[LANES];
        uint8_t *nodes[LANES];
        for (size_t lane = 0; lane < LANES; lane++) {
            places[lane] = children + (first + lane) * 2 * NODE;
            nodes[lane] = row + (first + lane) * NODE;
        }
        join_pairs(places, 0, nodes);
    }
}

/* The nodes of `count` pages: that of the page in slots[i] of `pages`, which is number positions[i] of its file, goes to
 * nodes[positions[i]]. */
CLONES __attribute__((visibility("default"))) void relive_hash_pages(
    const uint8_t *pages, const int64_t *slots, const int64_t *positions, size_t count, uint8_t *nodes)
{
    uint8_t chunks[LANES * CHUNKS * NODE], halves[LANES * CHUNKS / 2 * NODE], whole[LANES * NODE];
    for (size_t first = 0; first < count; first += LANES) {
        size_t some = count - first < LANES ? count - first : LANES;
        for (size_t begun = 0; begun < LANES * CHUNKS; begun += LANES) {
            const uint8_t *places[LANES];
            uint64_t numbers[LANES];
            uint8_t *results[LANES];
            for (size_t lane = 0; lane < LANES; lane++) {
                size_t page = (begun + lane) / CHUNKS, chunk = (begun + lane) % CHUNKS;
                size_t index = first + (page < some ? page : some - 1); /* the last once more, to fill the lanes */
                places[lane] = pages + slots[index] * PAGE + chunk * CHUNK;
                numbers[lane] = (uint64_t)positions[index] * CHUNKS + chunk;
                results[lane] = chunks + (begun + lane) * NODE;
            }
            hash_chunks(places, numbers, results);
        }
        join_row(chunks, LANES * CHUNKS / 2, halves);
        join_row(halves, LANES, whole);
        for (size_t page = 0; page < some; page++)
            memcpy(nodes + positions[first + page] * NODE, whole + page * NODE, NODE);
    }
}

/* For each of `count` wanted numbers i join children 2i and 2i + 1 to nodes[i]; with ROOT to the hash of the file. */
INLINE void join_some(const uint8_t *children, const int64_t *wanted, size_t count, uint32_t flags, uint8_t *nodes)
{
    for (size_t first = 0; first < count; first += LANES) {
        const uint8_t *places[LANES];
        uint8_t *results[LANES];
        for (size_t lane = 0; lane < LANES; lane++) {
            size_t index = first + lane < count ? first + lane : count - 1;
            places[lane] = children + wanted[index] * 2 * NODE;
            results[lane] = nodes + wanted[index] * NODE;
        }
        join_pairs(places, flags, results);
    }
}

/* The parents of `count` numbers in ascending order, each once, in their place; those from `most` on are left out. */
static size_t to_parents(int64_t *numbers, size_t count, int64_t most)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t parent = numbers[i] >> 1;
        if (parent < most && (!kept || numbers[kept - 1] != parent))
            numbers[kept++] = parent;
    }
    return kept;
}

/* The nodes above `count` pages, at least two, whose own are at the beginning of `nodes`: level behind level, of each half as many
 * rounded up, until two are left, which are joined to `root`.
 *
 * `numbers` are those of the `changed` pages in ascending order, with room for `count` of them; they are lost. Of the levels from
 * number `known` on all nodes are made, of those before only the ones above these pages. */
CLONES __attribute__((visibility("default"))) void relive_join_tree(
    uint8_t *nodes, size_t count, int64_t *numbers, size_t changed, size_t known, uint8_t *root)
{
    static const int64_t first[1] = {0};
    for (size_t level = 1; count > 2; level++) {
        uint8_t *above = nodes + count * NODE;
        size_t pairs = count / 2;
        size_t last_changed = changed && (size_t)numbers[changed - 1] == count - 1;
        if (level < known) {
            changed = to_parents(numbers, changed, (int64_t)pairs);
        } else {
            changed = pairs;
            for (size_t i = 0; i < pairs; i++)
                numbers[i] = (int64_t)i;
        }
        join_some(nodes, numbers, changed, 0, above);
        if (count % 2) { /* without a neighbour it goes up as it is */
            memcpy(above + pairs * NODE, nodes + (count - 1) * NODE, NODE);
            if (level >= known || last_changed)
                numbers[changed++] = (int64_t)pairs;
        }
        nodes = above;
        count = pairs + count % 2;
    }
    join_some(nodes, first, 1, ROOT, root);
}

/* For each of `count` pages, that at offsets[i] of `copied`, whether it is as the one in slots[i] of `pages`; -1 is no slot. */
__attribute__((visibility("default"))) void relive_compare_pages(
    const uint8_t *copied, const int64_t *offsets, const uint8_t *pages, const int64_t *slots, size_t count, uint8_t *same)
{
    for (size_t i = 0; i < count; i++)
        same[i] = slots[i] >= 0 && !memcmp(copied + offsets[i], pages + slots[i] * PAGE, PAGE);
}

/* Of each of `count` pages, that in rows[i] of `pages`, whether it holds anything but zeros. */
CLONES __attribute__((visibility("default"))) void relive_have_content(
    const uint64_t *pages, const int64_t *rows, size_t count, uint8_t *flags)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t *page = pages + rows[i] * PAGE_WORDS;
        uint64_t any = 0;
        for (size_t word = 0; word < PAGE_WORDS && !any; word += MAP_WORDS)
            for (size_t next = 0; next < MAP_WORDS; next++)
                any |= page[word + next];
        flags[i] = any != 0;
    }
}

/* How many words of each of `count` pages, that in rows[i] of `pages`, differ from its base: row others[i] of `other`, or row bases[i]
 * of `base` where that is -1. Of each that differs in 1 to `most` words a map of 512 bits is appended to `maps`, and these words as
 * they are in the page to `words`, which has room for `most` of each page and for one page more. */
CLONES __attribute__((visibility("default"))) void relive_changed_words(
    const uint64_t *pages, const int64_t *rows, const uint64_t *base, const int64_t *bases, const uint64_t *other,
    const int64_t *others, size_t count, size_t most, int64_t *counts, uint64_t *maps, uint64_t *words)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t *page = pages + rows[i] * PAGE_WORDS;
        const uint64_t *was = others[i] >= 0 ? other + others[i] * PAGE_WORDS : base + bases[i] * PAGE_WORDS;
        uint64_t *end = words;
        for (size_t part = 0; part < MAPS; part++) {
            uint64_t map = 0;
            for (size_t word = 0; word < MAP_WORDS; word++)
                map |= (uint64_t)(page[part * MAP_WORDS + word] != was[part * MAP_WORDS + word]) << word;
            maps[part] = map;
            for (; map; map &= map - 1)
                *end++ = page[part * MAP_WORDS + (size_t)__builtin_ctzll(map)];
        }
        size_t differ = (size_t)(end - words);
        counts[i] = (int64_t)differ;
        if (differ && differ <= most) {
            words = end;
            maps += MAPS;
        }
    }
}

/* Copy each of `count` pages from that place in `copied` to that slot of `pages`. */
__attribute__((visibility("default"))) void relive_copy_pages(
    const uint8_t *copied, const int64_t *offsets, uint8_t *pages, const int64_t *slots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        memcpy(pages + slots[i] * PAGE, copied + offsets[i], PAGE);
}
