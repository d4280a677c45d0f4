/* Records of rings as records of a recording, many at a time: what the agent of a service with the recorder inside does most.
 *
 * What is in rings is written by the service: it is read as something hostile. The rules are those of `relive.recording.rings` (a ring's
 * record) and `relive.recording.layout` (a recording's), and what is plain in them is done here, to the byte as Python does it. All
 * else, and what an agent wants to see as an event, is left to Python: see `relive.recording.packed_batch`, the one caller.
 *
 *     batch = batch_new(sources, count, kinds, kind_count)   all records of some rings, in the order of their time
 *     n = batch_run(batch, first)                            so many from the `first` on can be packed
 *     size = batch_pack(batch, first, n, seq, &raw)          they are; good until the next call
 *     batch_free(batch)
 *
 * Nothing is kept between batches, so several threads may have one each.
 */
#define _GNU_SOURCE
#include "crc32.h"
#include "msgpack.h"
#include "ring_library/transcode.h"

#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

enum { RING_HEADER = 16, RECORD_HEADER = 12, RING_LIBRARY_VERSION = 1 };
enum kind_class {
    HANDED_ON,
    READING, /* of a clock or of randomness */
    WANTED, /* by Python, always */
    BEGINNING, /* WANTED, and what follows it is the beginning of a process */
};

/* In `relive.recording.packed_batch`, too. */
struct source {
    const uint8_t *raw; /* whole records of one ring; kept while the batch lives */
    uint64_t size, pid;
    int64_t records; /* out: how many there are; -1: what stands there is no record, and none of them counts */
    uint64_t is_beginning; /* Python wants calls, and readings outside of requests */
};

struct kind {
    const uint8_t *name;
    uint64_t size, class;
};

/* One record. */
struct entry {
    uint64_t mono_ns, source, at; /* `at`: where it begins in its ring's bytes */
    uint64_t packed_at, packed_size; /* in `packed`: what stands behind the seq in its body; size 0: it is for Python */
    uint64_t data_at, data_size;
};

struct batch {
    struct source *sources;
    struct entry *entries;
    size_t count, room;
    uint8_t *packed, *out;
    size_t packed_size, out_room;
};

__attribute__((constructor)) static void prepare(void)
{
    crc32_prepare();
}

EXPORTED int ring_library_version(void)
{
    return RING_LIBRARY_VERSION;
}

static const struct kind *kind_of(const struct meta *meta, const struct kind *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (kinds[i].size == meta->kind_size && !memcmp(kinds[i].name, meta->kind, meta->kind_size))
            return &kinds[i];
    return NULL;
}

static bool is_for_python(const struct source *source, const struct kind *kind, const struct meta *meta, const struct noticed *noticed)
{
    if (!kind || kind->class >= WANTED || noticed->has_file)
        return true;
    return source->is_beginning && (noticed->has_asked || (kind->class == READING && !meta->request));
}

/* The time is known where the rest is for Python, too, but for text that Python refuses, or that no recorder writes. */
static void pack_entry(struct batch *batch, struct entry *entry, uint32_t meta_size, const struct kind *kinds, size_t kind_count)
{
    struct source *source = &batch->sources[entry->source];
    uint8_t *out = batch->packed + batch->packed_size;
    struct meta meta = { 0 };
    struct noticed noticed;
    const uint8_t *end = transcode(source->raw + entry->at + RING_HEADER, meta_size, source->pid, out, &meta, &noticed);
    const struct kind *kind = end ? kind_of(&meta, kinds, kind_count) : NULL;

    entry->mono_ns = meta.mono_ns;
    if (kind && kind->class == BEGINNING)
        source->is_beginning = 1;
    if (!end || is_for_python(source, kind, &meta, &noticed))
        return;
    entry->packed_at = batch->packed_size, entry->packed_size = (size_t)(end - out);
    batch->packed_size += entry->packed_size;
}

/* The record at `at`; its length with the header, 0: what stands there is none. `meta_size`: of its JSON. */
static uint64_t measure(const struct source *source, uint64_t at, uint32_t *meta_size)
{
    uint32_t head[4];
    if (source->size - at < RING_HEADER)
        return 0;
    memcpy(head, source->raw + at, sizeof head);
    if ((head[0] ^ head[3]) != UINT32_MAX || head[1] > head[0] || source->size - at - RING_HEADER < head[0])
        return 0;
    if (~crc32_more(CRC32_BEGIN, source->raw + at + RING_HEADER, head[0]) != head[2])
        return 0;
    *meta_size = head[1];
    return RING_HEADER + (uint64_t)head[0];
}

static bool has_room(struct batch *batch)
{
    if (batch->count < batch->room)
        return true;
    size_t room = batch->room ? 2 * batch->room : 1024;
    struct entry *entries = realloc(batch->entries, room * sizeof *entries);
    if (!entries)
        return false;
    batch->entries = entries, batch->room = room;
    return true;
}

/* Returns whether there was memory. */
static bool read_source(struct batch *batch, size_t number, const struct kind *kinds, size_t kind_count)
{
    struct source *source = &batch->sources[number];
    size_t before = batch->count;
    for (uint64_t at = 0; at < source->size;) {
        uint32_t meta_size;
        uint64_t size = measure(source, at, &meta_size);
        if (!size) {
            batch->count = before;
            source->records = -1;
            return true;
        }
        if (!has_room(batch))
            return false;
        struct entry *entry = &batch->entries[batch->count++];
        *entry = (struct entry){ .source = number, .at = at };
        entry->data_at = at + RING_HEADER + meta_size, entry->data_size = at + size - entry->data_at;
        pack_entry(batch, entry, meta_size, kinds, kind_count);
        at += size;
    }
    source->records = (int64_t)(batch->count - before);
    return true;
}

/* By time; of one time those of the earlier source first, and of one source as they were written. */
static int in_order(const void *one, const void *other)
{
    const struct entry *a = one, *b = other;
    if (a->mono_ns != b->mono_ns)
        return a->mono_ns < b->mono_ns ? -1 : 1;
    if (a->source != b->source)
        return a->source < b->source ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

static void sort(struct batch *batch)
{
    for (size_t i = 1; i < batch->count; i++)
        if (in_order(&batch->entries[i - 1], &batch->entries[i]) > 0) {
            qsort(batch->entries, batch->count, sizeof *batch->entries, in_order);
            return;
        }
}

EXPORTED void batch_free(struct batch *batch)
{
    if (!batch)
        return;
    free(batch->entries);
    free(batch->packed);
    free(batch->out);
    free(batch);
}

/* `sources` is kept while the batch lives, and their `records` are set. NULL: no memory. */
EXPORTED struct batch *batch_new(struct source *sources, size_t count, const struct kind *kinds, size_t kind_count)
{
    struct batch *batch = calloc(1, sizeof *batch);
    size_t most = 0;
    if (!batch)
        return NULL;
    for (size_t i = 0; i < count; i++)
        most += TRANSCODED_MOST(sources[i].size);
    batch->sources = sources;
    batch->packed = malloc(most + 1);
    for (size_t i = 0; i < count; i++)
        if (!batch->packed || !read_source(batch, i, kinds, kind_count)) {
            batch_free(batch);
            return NULL;
        }
    sort(batch);
    return batch;
}

EXPORTED size_t batch_count(const struct batch *batch)
{
    return batch->count;
}

/* Which ring an entry is of, and where in its bytes it begins. */
EXPORTED void batch_place(const struct batch *batch, size_t number, uint64_t *source, uint64_t *at)
{
    *source = batch->entries[number].source, *at = batch->entries[number].at;
}

EXPORTED size_t batch_run(const struct batch *batch, size_t first)
{
    size_t end = first;
    while (end < batch->count && batch->entries[end].packed_size)
        end++;
    return end - first;
}

static uint8_t *put_record(const struct batch *batch, const struct entry *entry, uint64_t seq, uint8_t *record)
{
    uint8_t *body = record + RECORD_HEADER, *at = body;
    *at++ = 0x92, *at++ = 0x97;
    at = put_number(at, seq);
    memcpy(at, batch->packed + entry->packed_at, entry->packed_size);
    at = put_bin_head(at + entry->packed_size, entry->data_size);
    memcpy(at, batch->sources[entry->source].raw + entry->data_at, entry->data_size);
    at += entry->data_size;
    uint32_t size = (uint32_t)(at - body);
    uint32_t header[3] = { size, ~size, ~crc32_more(CRC32_BEGIN, body, size) };
    memcpy(record, header, sizeof header);
    return at;
}

/* The records of `count` entries, the first with that seq, each next one with the next. Returns their size, -1: no memory. */
EXPORTED int64_t batch_pack(struct batch *batch, size_t first, size_t count, uint64_t seq, const uint8_t **raw)
{
    size_t size = 0;
    for (size_t i = first; i < first + count; i++)
        size += RECORD_HEADER + 2 + PUT_NUMBER_MOST + batch->entries[i].packed_size + 5 + batch->entries[i].data_size;
    if (size > batch->out_room) {
        free(batch->out);
        batch->out = malloc(size);
        batch->out_room = batch->out ? size : 0;
    }
    if (!batch->out)
        return -1;
    uint8_t *at = batch->out;
    for (size_t i = first; i < first + count; i++)
        at = put_record(batch, &batch->entries[i], seq++, at);
    *raw = batch->out;
    return at - batch->out;
}
