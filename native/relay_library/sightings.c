/* All connections of a port as packets show them: which segment belongs to which, and what a commit has of each.
 * `relive.proxies.ingress._sightings` is its specification, and goes on with connections that are Python's; `_sights` is the door.
 *
 * All functions want to be called by one thread, as a recording beside the way has only one. None calls back. */
#define _GNU_SOURCE
#include "sighted.h"

#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* What a commit has of a connection; mirrored by Python. */
struct crossed {
    struct ends ends;
    uint32_t next[2]; /* sequence numbers of the first byte of either side that it has not */
};

/* A connection that Python goes on with; mirrored by Python. */
struct handed_sight {
    struct handed_sight *next;
    struct ends ends;
    uint64_t connection, requests, answered, given;
    uint64_t upload_number, upload_left, upload_total, flights;
    struct flight *flight;
    uint8_t *held[2];
    uint64_t held_bytes[2], odd_ns; /* odd_ns: when the last of the client's were seen; 0: before this segment */
    struct piece *rest[2], *beyond;
    struct stream side[2];
    uint32_t first, following;
    int32_t is_spoken, is_uploading, client_eof, service_eof, began_in_middle, first_answer_is_open, heard_service, is_limited,
        has_following, is_split, is_answering; /* is_answering: the first flight's answer has begun, and is `sights_answer`'s */
};

/* A connection between two messages, or one that carries no HTTP, which Python gives back; mirrored by Python. */
struct plain_sight {
    uint64_t connection, requests, answered, given;
    uint64_t place[2];
    uint32_t base[2];
    uint64_t bytes[2], in_a_row; /* of one that carries no HTTP: see struct speech */
    uint32_t first;
    int32_t began_in_middle, is_speech, latest;
};

#define PACKET_MOST (1 << 20) /* a block of the ring */
#define CONNECTIONS_MANY 65536 /* more, and those of which nothing came but a SYN are let go, the oldest first */

struct sights {
    struct relay *relay;
    struct worker worker;
    struct sighted **buckets;
    size_t bucket_count, count, many;
    struct sighted *first, *last; /* in the order in which they were begun */
    uint16_t port, address_bytes;
    uint8_t address[16]; /* of the service; address_bytes 0: it listens at all of them */
    struct crossed *limits; /* sorted; NULL: no commit is being placed */
    size_t limit_count;
    struct handed_sight *handed, **handed_end;
    uint64_t gaps;
    uint8_t *packet; /* room for one out of the ring: PACKET_MOST bytes, of which few were ever touched */
};

struct sight_counts {
    uint64_t connections, gaps;
};

API int sights_layout(int which)
{
    const size_t layout[] = {sizeof(struct segment), sizeof(struct crossed), sizeof(struct handed_sight), sizeof(struct place), sizeof(struct plain_sight), sizeof(struct in_ring), sizeof(struct piece)};
    return which >= 0 && (size_t)which < sizeof layout / sizeof *layout ? (int)layout[which] : -1;
}

/* NULL: there is no memory. `relay` has its logs by now, and must outlive it. */
API struct sights *sights_new(struct relay *relay, uint16_t port, const uint8_t *address, size_t address_bytes, uint64_t body_limit)
{
    struct sights *made = calloc(1, sizeof *made);
    if (!made || address_bytes > sizeof made->address || journal_keep_back(&relay->journal))
        return NULL;
    relay->body_limit = body_limit;
    relay->fields_room = 1024;
    for (size_t i = 0; i < relay->log_count; i++)
        relay->fields_room += relay->logs[i].size + 16;
    made->relay = made->worker.relay = relay;
    made->bucket_count = 64, made->many = CONNECTIONS_MANY;
    made->buckets = must(calloc(made->bucket_count, sizeof *made->buckets));
    made->worker.fields = must(malloc(relay->fields_room));
    made->packet = must(malloc(PACKET_MOST));
    relay->notes = relay->log_count ? must(calloc(NOTES_MOST, sizeof *relay->notes)) : NULL;
    made->port = port, made->address_bytes = (uint16_t)address_bytes;
    if (address_bytes)
        memcpy(made->address, address, address_bytes);
    made->handed_end = &made->handed;
    return made;
}

/* What is recorded until `leave` came before now. */
static void enter(struct sights *sights)
{
    pthread_mutex_lock(&sights->relay->journal.lock);
    sights->relay->has_sizes = 0;
}

static void leave(struct sights *sights)
{
    pthread_mutex_unlock(&sights->relay->journal.lock);
}

/* The table */

static struct sighted **bucket_of(struct sights *sights, const struct ends *ends)
{
    uint32_t words[sizeof *ends / 4];
    uint64_t hash = 14695981039346656037ull;
    _Static_assert(sizeof words == sizeof *ends, "of whole words");
    memcpy(words, ends, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ words[i]) * 1099511628211ull, hash ^= hash >> 32;
    return &sights->buckets[hash & (sights->bucket_count - 1)];
}

static struct sighted *find(struct sights *sights, const struct ends *ends)
{
    struct sighted *one = *bucket_of(sights, ends);
    while (one && memcmp(&one->ends, ends, sizeof *ends))
        one = one->in_bucket;
    return one;
}

static void put(struct sights *sights, struct sighted *one)
{
    struct sighted **bucket = bucket_of(sights, &one->ends);
    one->in_bucket = *bucket;
    *bucket = one;
}

static void grow(struct sights *sights)
{
    free(sights->buckets);
    sights->bucket_count *= 2;
    sights->buckets = must(calloc(sights->bucket_count, sizeof *sights->buckets));
    for (struct sighted *one = sights->first; one; one = one->next)
        put(sights, one);
}

static void drop(struct sights *sights, struct sighted *one)
{
    struct sighted **at = bucket_of(sights, &one->ends);
    while (*at != one)
        at = &(*at)->in_bucket;
    *at = one->in_bucket;
    *(one->previous ? &one->previous->next : &sights->first) = one->next;
    *(one->next ? &one->next->previous : &sights->last) = one->previous;
    sights->count--;
    sighted_free(one);
}

/* Half of what there may be, so that this is seldom done. One that speaks after all is begun in the middle. */
static void let_go_of_silent(struct sights *sights)
{
    for (struct sighted *next, *one = sights->first; one && sights->count > sights->many / 2; one = next) {
        next = one->next;
        if (sighted_is_silent(one))
            drop(sights, one);
    }
    sights->many = sights->count > CONNECTIONS_MANY / 2 ? sights->count * 2 : CONNECTIONS_MANY;
}

static int by_ends(const void *one, const void *other)
{
    return memcmp(one, other, sizeof(struct ends));
}

static const struct crossed *limit_of(const struct sights *sights, const struct ends *ends)
{
    return sights->limit_count ? bsearch(ends, sights->limits, sights->limit_count, sizeof *sights->limits, by_ends) : NULL;
}

static void limit(struct sights *sights, struct sighted *one)
{
    const struct crossed *has = limit_of(sights, &one->ends);
    sighted_limit(one, has ? &has->next[CLIENT] : NULL);
}

static struct sighted *begin(struct sights *sights, const struct ends *ends)
{
    if (sights->count >= sights->many)
        let_go_of_silent(sights);
    struct sighted *made = must(malloc(sizeof *made));
    sighted_begin(made, &sights->worker, ends);
    if (++sights->count > sights->bucket_count)
        grow(sights);
    put(sights, made);
    made->previous = sights->last;
    *(sights->last ? &sights->last->next : &sights->first) = made;
    sights->last = made;
    if (sights->limits)
        limit(sights, made);
    return made;
}

/* For Python */

static struct handed_sight *describe(struct sighted *one)
{
    struct connection *carried = &one->carried;
    struct handed_sight *made = must(calloc(1, sizeof *made));
    made->ends = one->ends;
    made->connection = carried->number, made->requests = carried->requests, made->answered = carried->answered;
    made->given = carried->sent, made->is_spoken = carried->is_spoken, made->is_uploading = carried->is_uploading;
    made->upload_number = carried->upload_number, made->upload_left = carried->upload_left;
    made->upload_total = carried->upload_total;
    made->client_eof = carried->client_eof, made->is_split = carried->is_split;
    made->service_eof = one->service_eof, made->began_in_middle = one->began_in_middle;
    made->first_answer_is_open = one->first_answer_is_open, made->heard_service = one->heard_service;
    made->is_limited = one->is_limited, made->has_following = one->has_following;
    made->odd_ns = one->odd_ns;
    made->first = one->first, made->following = one->following;
    made->is_answering = carried->answer != ANSWER_HEAD;
    return made;
}

/* Of the flights, only that whose answer has begun stays. */
static void keep_answered(struct connection *carried)
{
    if (carried->answer == ANSWER_HEAD)
        while (carried->flight_count)
            flight_drop(carried);
    while (carried->flight_count > 1)
        flight_drop_last(carried);
}

static void hand_over(struct sights *sights, struct sighted *one)
{
    struct connection *carried = &one->carried;
    struct handed_sight *made = describe(one);
    made->flights = carried->flight_count;
    made->flight = must(calloc(made->flights + 1, sizeof *made->flight));
    for (size_t i = 0; i < made->flights; i++)
        made->flight[i] = *connection_flight(carried, i);
    keep_answered(carried);
    for (int side = 0; side < 2; side++) {
        bytes_give(&carried->held[side], &made->held[side], &made->held_bytes[side]);
        made->rest[side] = one->rest[side].first;
        one->rest[side].first = NULL;
        made->side[side] = one->side[side];
        memset(&one->side[side], 0, sizeof one->side[side]);
    }
    made->beyond = one->beyond.first;
    one->beyond.first = NULL;
    one->is_foreign = 1;
    *sights->handed_end = made;
    sights->handed_end = &made->next;
}

/* The next connection that was handed over; NULL: there is none. `sights_free_handed` frees it. */
API struct handed_sight *sights_handed(struct sights *sights)
{
    struct handed_sight *first = sights->handed;
    if (first && !(sights->handed = first->next))
        sights->handed_end = &sights->handed;
    return first;
}

API void sights_free_handed(struct handed_sight *handed)
{
    for (int side = 0; side < 2; side++) {
        free(handed->held[side]);
        pieces_free(handed->rest[side]);
        stream_free(&handed->side[side]);
    }
    pieces_free(handed->beyond);
    free(handed->flight);
    free(handed);
}

/* The service's next bytes on a connection that was handed over in the middle of an answer; `data` NULL: they were not taken. Returns
 * how many of them are that answer's, of such that were not taken all or none; *is_over: it is whole. */
API size_t sights_answer(struct sights *sights, const struct ends *ends, const uint8_t *data, size_t size, int *is_over)
{
    struct sighted *one = find(sights, ends);
    int is_odd;
    enter(sights);
    size_t taken = data ? frame_answers(&one->carried, data, size, &is_odd) /* for a second answer there is no flight */
                   : pass_over_answer(&one->carried, size) ? size : 0;
    leave(sights);
    *is_over = one->carried.answer == ANSWER_HEAD;
    return taken;
}

/* The service's side of it ended: the answer is whole now, or broken. Returns which of them, and records it. */
API int sights_answer_ended(struct sights *sights, const struct ends *ends, int is_reset, int client_eof)
{
    struct sighted *one = find(sights, ends);
    one->carried.client_eof = client_eof;
    enter(sights);
    record_broken(&one->carried, is_reset);
    leave(sights);
    return one->carried.answer == ANSWER_HEAD;
}

/* One that was handed over has ended, as far as Python knows: what comes next is another one. */
API void sights_forget(struct sights *sights, const struct ends *ends)
{
    struct sighted *one = find(sights, ends);
    if (one && one->is_foreign)
        drop(sights, one);
}

/* Of one of which nothing was known before it became Python's: 1, something was missed, and 2, the service has told HTTP. */
API int sights_unknown(struct sights *sights, const struct ends *ends)
{
    struct sighted *one = find(sights, ends);
    return one ? one->has_missed | one->tells_http << 1 : 0;
}

/* Python knows nothing of one that stood either. */
API void sights_refuse(struct sights *sights, const struct ends *ends)
{
    struct sighted *one = find(sights, ends);
    if (one)
        one->is_foreign = one->has_told = 0, one->has_missed = 1;
}

/* Go on with one that was handed over. No commit is being placed. */
API void sights_take_back(struct sights *sights, const struct ends *ends, const struct plain_sight *plain)
{
    struct sighted *one = find(sights, ends);
    if (one && one->is_foreign)
        drop(sights, one);
    one = begin(sights, ends);
    one->carried.number = plain->connection, one->carried.requests = plain->requests;
    one->carried.answered = plain->answered, one->carried.sent = plain->given, one->carried.is_spoken = 1;
    one->speech = (struct speech){{plain->bytes[0], plain->bytes[1]}, plain->in_a_row, plain->is_speech, plain->latest};
    one->first = plain->first, one->began_in_middle = plain->began_in_middle, one->heard_service = 1;
    for (int side = 0; side < 2; side++) {
        stream_begin(&one->side[side], plain->base[side]);
        one->side[side].place = (int64_t)plain->place[side];
    }
}

/* Segments */

static void note_gap(struct sights *sights, uint64_t connection, const char *text)
{
    uint8_t *at = sights->worker.fields;
    sights->gaps++;
    *at++ = 0x83;
    at = PUT(PUT(at, "about"), "capture");
    at = put_text(PUT(at, "text"), text, strlen(text));
    at = put_number(PUT(at, "lost"), 0);
    journal_append(&sights->relay->journal, "note", connection, 0, sights->worker.fields, (size_t)(at - sights->worker.fields), NULL, 0);
}

static void give_up(struct sights *sights, struct sighted *one)
{
    note_gap(sights, one->carried.number, "packets of a connection are missing");
    sighted_lose(one);
    drop(sights, one);
}

static enum verdict_of_segment conclude(struct sights *sights, struct sighted *one, enum verdict_of_segment verdict)
{
    if (verdict == HANDED)
        hand_over(sights, one);
    else if (verdict == FOREIGN || verdict == STOOD)
        one->is_foreign = 1;
    else if (one->is_over)
        drop(sights, one);
    return verdict == LOST ? TAKEN : verdict;
}

static enum verdict_of_segment observe(struct sights *sights, const struct segment *segment)
{
    if (sights->address_bytes && (sights->address_bytes != segment->ends.address_bytes ||
                                  memcmp(sights->address, segment->ends.service, sights->address_bytes)))
        return TAKEN;
    struct sighted *one = find(sights, &segment->ends);
    if (one && one->is_foreign)
        return FOREIGN;
    if (one && segment->flags & FLAG_SYN && segment->from_client && sighted_began_with(one, segment)) {
        sighted_lose(one); /* its end was not seen */
        drop(sights, one);
        one = NULL;
    }
    if (!one)
        one = begin(sights, &segment->ends);
    enum verdict_of_segment verdict = sighted_observe(one, segment);
    if (verdict == LOST) {
        give_up(sights, one);
        one = begin(sights, &segment->ends);
        verdict = sighted_observe(one, segment);
    }
    return conclude(sights, one, verdict);
}

/* One segment; `numbers` say when it was seen. Returns TAKEN, HANDED, FOREIGN or STOOD. */
API int sights_observe(struct sights *sights, const struct segment *segment)
{
    enter(sights);
    int verdict = (int)observe(sights, segment);
    leave(sights);
    return verdict;
}

enum { BLOCK_OVER = 16, TOO_LATE, PAUSED, GONE };
#define SEGMENT_WEIGHT 4096

static int take(struct sights *sights, const struct in_ring *ring, const uint8_t *block, size_t size, struct place *place,
                uint64_t until_ns, int64_t apart_ns, uint64_t most, struct segment *segment, uint64_t *latest_ns)
{
    struct numbers *numbers = sights->relay->journal.numbers;
    uint64_t done = 0;
    for (size = size < PACKET_MOST ? size : PACKET_MOST; place->left; done++) {
        if (done >= most)
            return PAUSED;
        int found = ring ? next_segment_in_ring(ring, block, size, sights->packet, sights->port, place, segment)
                         : next_segment(block, size, sights->port, place, segment);
        if (found < 0)
            return GONE;
        if (!found)
            continue;
        *latest_ns = segment->wall_ns;
        if (segment->wall_ns > until_ns)
            return TOO_LATE;
        numbers->seen_wall_ns = segment->wall_ns;
        numbers->seen_mono_ns = segment->wall_ns - (uint64_t)apart_ns;
        done += segment->size / SEGMENT_WEIGHT;
        int verdict = (int)observe(sights, segment);
        if (verdict != TAKEN)
            return verdict;
    }
    return BLOCK_OVER;
}

/* Take the segments of a block from `place` on, until one is not for here (HANDED, FOREIGN, STOOD, or TOO_LATE: it came later than `until_ns`),
 * which is in `segment` then; or PAUSED: there have been `most`, where SEGMENT_WEIGHT bytes count as one more; or BLOCK_OVER. `ring`: where
 * the block lies, NULL: elsewhere; GONE: it is not there any more. `latest_ns`: when the last one came. `apart_ns`: CLOCK_REALTIME less
 * CLOCK_MONOTONIC. */
API int sights_take(struct sights *sights, const struct in_ring *ring, const uint8_t *block, size_t size, struct place *place,
                    uint64_t until_ns, int64_t apart_ns, unsigned most, struct segment *segment, uint64_t *latest_ns)
{
    enter(sights);
    int verdict = take(sights, ring, block, size, place, until_ns, apart_ns, most, segment, latest_ns);
    leave(sights);
    return verdict;
}

/* Packets are missing, of whatever connections. */
API void sights_lose(struct sights *sights)
{
    enter(sights);
    for (struct sighted *next, *one = sights->first; one; one = next) {
        next = one->next;
        if (one->is_foreign || !sighted_is_busy(one))
            continue;
        sighted_lose(one);
        drop(sights, one);
    }
    leave(sights);
}

/* A commit */

API void sights_limit(struct sights *sights, const struct crossed *crossed, size_t count)
{
    free(sights->limits);
    sights->limits = must(calloc(count + 1, sizeof *crossed)), sights->limit_count = count;
    if (count)
        memcpy(sights->limits, crossed, count * sizeof *crossed);
    qsort(sights->limits, count, sizeof *crossed, by_ends);
    for (struct sighted *one = sights->first; one; one = one->next)
        if (!one->is_foreign)
            limit(sights, one);
}

/* Go on with what waited; `sights_handed` may have connections then. */
API void sights_unlimit(struct sights *sights)
{
    free(sights->limits);
    sights->limits = NULL, sights->limit_count = 0;
    enter(sights);
    for (struct sighted *next, *one = sights->first; one; one = next) {
        next = one->next;
        if (one->is_foreign)
            continue;
        enum verdict_of_segment verdict = sighted_release(one);
        if (verdict == LOST)
            give_up(sights, one);
        else
            conclude(sights, one, verdict);
    }
    leave(sights);
}

/* The commit that is being placed has all of this segment of the service. */
API int sights_is_written(struct sights *sights, const struct segment *segment)
{
    struct sighted *one = find(sights, &segment->ends);
    const struct crossed *has = limit_of(sights, &segment->ends);
    return one && has && !one->is_foreign && sighted_is_written(one, segment, has->next[SERVICE]);
}

/* The oldest request of each connection whose answer is not whole, at most `most` of them. Returns how many there are. */
API size_t sights_open_requests(struct sights *sights, struct report *reports, size_t most)
{
    size_t count = 0;
    for (struct sighted *one = sights->first; one; one = one->next) {
        struct connection *carried = &one->carried;
        if (one->is_foreign || !carried->flight_count)
            continue;
        if (count < most)
            reports[count] = (struct report){.connection = carried->number,
                                             .local_port = carried->is_split ? 0 : carried->local_port,
                                             .request = connection_flight(carried, 0)->number,
                                             .sent = carried->sent};
        count++;
    }
    return count;
}

/* For so long the service stood still: the clock that requests are timed by does not count it. */
API void sights_stood_still(struct sights *sights, uint64_t ns)
{
    atomic_fetch_add(&sights->relay->closed_before_ns, ns);
}

/* Post, once each, which requests have waited for so long at that moment of the gate's clock. */
API void sights_look_for_hangs(struct sights *sights, uint64_t limit_ns, uint64_t now_ns)
{
    for (struct sighted *one = sights->first; one; one = one->next) {
        struct flight *first = one->carried.flight_count ? connection_flight(&one->carried, 0) : NULL;
        if (!first || first->status || !first->is_sent || first->is_reported || now_ns < first->touched + limit_ns)
            continue;
        first->is_reported = 1;
        relay_post(sights->relay, &(struct post){.kind = POST_UNANSWERED,
                                                 .number = first->number,
                                                 .seconds = (double)(now_ns - first->touched) / 1e9,
                                                 .wall_ns = clock_ns(CLOCK_REALTIME)});
    }
}

/* The sizes of the logs at a moment, in the order in which they were told; -1: it is not there. */
API void sights_note_logs(struct sights *sights, uint64_t wall_ns, const int64_t *sizes)
{
    struct relay *relay = sights->relay;
    if (!relay->notes)
        return;
    struct log_note *note = &relay->notes[relay->note_count++ % NOTES_MOST];
    note->wall_ns = wall_ns;
    memcpy(note->sizes, sizes, relay->log_count * sizeof *sizes);
}

API void sights_count(struct sights *sights, struct sight_counts *counts)
{
    counts->gaps = sights->gaps, counts->connections = 0;
    for (struct sighted *one = sights->first; one; one = one->next)
        counts->connections += !one->is_foreign && one->side[CLIENT].is_begun;
}

API void sights_end(struct sights *sights)
{
    struct handed_sight *handed;
    while ((handed = sights_handed(sights)))
        sights_free_handed(handed);
    while (sights->first)
        drop(sights, sights->first);
    free(sights->buckets);
    free(sights->limits);
    free(sights->worker.fields);
    free(sights->packet);
    free(sights->relay->notes);
    sights->relay->notes = NULL;
    free(sights);
}
