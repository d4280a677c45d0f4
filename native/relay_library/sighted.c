/* One connection from its first segment to its last one: see sighted.h.
 *
 * Invariant: once `is_handed`, nothing is recorded of it here; bytes that have their turn go to `rest`. */
#define _GNU_SOURCE
#include "sighted.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_address(struct connection *carried, const struct ends *ends)
{
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(ends->address_bytes == 4 ? AF_INET : AF_INET6, ends->client, text, sizeof text);
    const char *shown = strncmp(text, "::ffff:", 7) ? text : text + 7;
    snprintf(carried->address, sizeof carried->address, "%s:%d", shown, ends->client_port);
}

static uint64_t seen_ns(const struct sighted *one)
{
    return one->carried.worker->relay->journal.numbers->seen_wall_ns;
}

/* What follows was seen then. */
static void see(struct sighted *one, uint64_t wall_ns)
{
    struct numbers *numbers = one->carried.worker->relay->journal.numbers;
    numbers->seen_mono_ns += wall_ns - numbers->seen_wall_ns;
    numbers->seen_wall_ns = wall_ns;
}

void sighted_begin(struct sighted *one, struct worker *worker, const struct ends *ends)
{
    memset(one, 0, sizeof *one);
    one->carried.worker = worker;
    one->carried.local_port = ends->client_port;
    write_address(&one->carried, ends);
    one->ends = *ends;
}

void sighted_free(struct sighted *one)
{
    while (one->carried.flight_count)
        flight_drop(&one->carried);
    for (int side = 0; side < 2; side++) {
        free(one->carried.held[side].data);
        pieces_free(one->rest[side].first);
        stream_free(&one->side[side]);
    }
    pieces_free(one->beyond.first);
    free(one->carried.flights);
    free(one);
}

int sighted_began_with(const struct sighted *one, const struct segment *syn)
{
    return one->side[CLIENT].is_begun && one->first != syn->sequence + 1;
}

int sighted_is_busy(const struct sighted *one)
{
    return one->carried.flight_count || one->carried.held[CLIENT].size;
}

int sighted_is_silent(const struct sighted *one)
{
    return !one->is_foreign && !one->carried.number && !one->beyond.first && !one->side[CLIENT].waiting && !one->side[SERVICE].waiting;
}

/* As `ObservedTraffic.note_missed`. */
static void record_missed(struct connection *carried)
{
    uint8_t *at = carried->worker->fields;
    *at++ = 0x84;
    at = PUT(PUT(at, "about"), "capture");
    at = PUT(PUT(at, "text"), "a connection stood before it was recorded: what was said on it until here is missing");
    at = put_number(PUT(at, "lost"), 0);
    at = PUT(at, "stood");
    *at++ = 0xc3;
    record_event(carried, "note", 0, at, NULL, 0);
}

static void record_begin(struct sighted *one)
{
    struct connection *carried = &one->carried;
    if (carried->number)
        return;
    carried->number = ++carried->worker->relay->journal.numbers->connection;
    uint8_t *at = put_ends(carried, carried->worker->fields, one->began_in_middle);
    if (one->began_in_middle) {
        at = PUT(at, "from_middle");
        *at++ = 0xc3;
    }
    record_event(carried, "connection-opened", 0, at, NULL, 0);
    if (one->has_missed)
        record_missed(carried);
}

static void record_speech(struct sighted *one, int side, const uint8_t *data, size_t size)
{
    static const char *const kinds[] = {"stream-to-service", "stream-to-client"};
    struct connection *carried = &one->carried;
    struct speech *speech = &one->speech;
    uint64_t limit = carried->worker->relay->body_limit;
    if (side != speech->latest)
        speech->latest = side, speech->in_a_row = 0;
    uint64_t room = limit > speech->in_a_row ? limit - speech->in_a_row : 0;
    size_t kept = size < room ? size : (size_t)room;
    speech->bytes[side] += size, speech->in_a_row += size;
    uint8_t *at = carried->worker->fields;
    *at++ = (uint8_t)(0x80 + (kept < size));
    if (kept < size)
        at = put_number(PUT(at, "cut"), size - kept);
    record_event(carried, kinds[side], 0, at, data, kept);
}

static void record_speech_ended(struct sighted *one)
{
    uint8_t *at = one->carried.worker->fields;
    *at++ = 0x81;
    at = PUT(at, "ended");
    *at++ = 0xc3;
    record_event(&one->carried, "stream-to-service", 0, at, NULL, 0);
}

static void record_last(struct sighted *one, int is_lost)
{
    struct connection *carried = &one->carried;
    if (one->is_over)
        return;
    one->is_over = 1;
    if (!carried->number)
        return;
    uint8_t *at = carried->worker->fields;
    *at++ = (uint8_t)(0x82 + 3 * one->speech.is_on + is_lost);
    at = put_number(PUT(at, "sent"), carried->sent);
    at = put_number(PUT(at, "requests"), carried->requests);
    if (one->speech.is_on) {
        at = PUT(at, "unframed");
        *at++ = 0xc3;
        at = put_number(PUT(at, "up_bytes"), one->speech.bytes[CLIENT]);
        at = put_number(PUT(at, "down_bytes"), one->speech.bytes[SERVICE]);
    }
    if (is_lost) {
        at = PUT(at, "lost");
        *at++ = 0xc3;
    }
    record_event(carried, "connection-closed", 0, at, NULL, 0);
}

void sighted_lose(struct sighted *one)
{
    while (one->carried.flight_count)
        flight_drop(&one->carried);
    record_last(one, 1);
}

static void frame_client(struct sighted *one, const uint8_t *data, size_t size)
{
    struct connection *carried = &one->carried;
    struct bytes before = carried->held[CLIENT];
    carried->sent += size;
    if (before.size) {
        bytes_add(&before, data, size);
        memset(&carried->held[CLIENT], 0, sizeof before);
        data = before.data + before.begin, size = before.size;
    }
    size_t passed = frame_requests(carried, data, size);
    bytes_add(&carried->held[CLIENT], data + passed, size - passed);
    free(before.data);
    if (carried->is_odd)
        one->is_handed = 1, one->odd_ns = seen_ns(one);
}

/* How many of the client's next bytes the commit has. */
static size_t allowed(const struct sighted *one, size_t size)
{
    if (!one->has_following || !one->side[CLIENT].is_begun)
        return 0;
    int64_t most = stream_place_of(&one->side[CLIENT], one->following) - (int64_t)one->carried.sent;
    return most <= 0 ? 0 : (uint64_t)most < size ? (size_t)most : size;
}

static void client_bytes(void *who, const uint8_t *data, size_t size)
{
    struct sighted *one = who;
    if (one->is_handed || one->is_lost) {
        pieces_add(&one->rest[CLIENT], seen_ns(one), data, size);
        return;
    }
    if (one->is_limited) {
        size_t most = allowed(one, size);
        if (most < size)
            pieces_add(&one->beyond, seen_ns(one), data + most, size - most);
        if (!(size = most))
            return;
    }
    if (one->speech.is_on) {
        one->carried.sent += size;
        record_speech(one, CLIENT, data, size);
        return;
    }
    if (!one->carried.is_spoken && !begins_request(data, size)) {
        one->is_handed = 1;
        pieces_add(&one->rest[CLIENT], seen_ns(one), data, size);
        return;
    }
    one->carried.is_spoken = 1;
    record_begin(one);
    frame_client(one, data, size);
}

static void release(struct sighted *one)
{
    struct piece *waiting = one->beyond.first;
    uint64_t now = seen_ns(one);
    one->is_limited = 0;
    one->beyond.first = NULL;
    if (one->carried.held[CLIENT].size)
        one->carried.is_split = 1;
    for (struct piece *piece = waiting; piece; piece = piece->next) {
        see(one, piece->wall_ns);
        client_bytes(one, piece->data, piece->size);
    }
    see(one, now);
    pieces_free(waiting);
}

static void hear_service(struct sighted *one)
{
    one->heard_service = 1;
    if (one->is_limited && !one->has_following) /* it had taken the connection, which was over by the commit */
        release(one);
}

static void frame_service(struct sighted *one, const uint8_t *data, size_t size)
{
    struct connection *carried = &one->carried;
    struct bytes before = carried->held[SERVICE];
    int is_odd = 0;
    if (before.size) {
        bytes_add(&before, data, size);
        memset(&carried->held[SERVICE], 0, sizeof before);
        data = before.data + before.begin, size = before.size;
    }
    size_t passed = frame_answers(carried, data, size, &is_odd);
    if (is_odd)
        pieces_add(&one->rest[SERVICE], seen_ns(one), data + passed, size - passed);
    else
        bytes_add(&carried->held[SERVICE], data + passed, size - passed);
    free(before.data);
    one->is_handed |= is_odd;
}

static void service_bytes(void *who, const uint8_t *data, size_t size)
{
    struct sighted *one = who;
    if (!one->is_handed && !one->is_lost)
        hear_service(one);
    if (one->speech.is_on && !one->is_lost) {
        if (data)
            record_speech(one, SERVICE, data, size);
        one->is_lost = !data;
        return;
    }
    if (!one->is_handed && !one->is_lost && one->first_answer_is_open) {
        one->first_answer_is_open = 0;
        one->is_lost = !data || memcmp(data, "HTTP/1.", size < 7 ? size : 7) != 0; /* the rest of an answer whose request was not seen */
    }
    if (!one->carried.requests)
        one->is_handed = 1;
    if (one->is_handed || one->is_lost)
        pieces_add(&one->rest[SERVICE], seen_ns(one), data, size);
    else if (data)
        frame_service(one, data, size);
    else
        one->is_lost = !pass_over_answer(&one->carried, size);
}

static void end(struct sighted *one, const char *how)
{
    struct connection *carried = &one->carried;
    for (; carried->flight_count; flight_drop(carried))
        record_how(carried, "request-abandoned", connection_flight(carried, 0)->number, how, 0);
    record_last(one, 0);
}

/* The service's side ended, in the middle of a head perhaps, of which Python says what it makes. */
static void service_ended(struct sighted *one)
{
    hear_service(one);
    one->is_handed |= one->carried.held[SERVICE].size != 0;
    if (one->is_handed)
        return;
    one->service_eof = 1;
    record_broken(&one->carried, 0);
}

static void see_ends(struct sighted *one)
{
    if (stream_has_ended(&one->side[CLIENT]) && !one->beyond.first) {
        if (one->speech.is_on && !one->carried.client_eof)
            record_speech_ended(one);
        one->carried.client_eof = 1;
    }
    if (stream_has_ended(&one->side[SERVICE]) && !one->service_eof)
        service_ended(one);
    if (!one->is_handed && one->carried.client_eof && one->service_eof)
        end(one, "closed");
}

static void reset(struct sighted *one, int by_client)
{
    if (!by_client) {
        hear_service(one);
        if (one->is_handed)
            return;
        record_broken(&one->carried, 1);
    }
    end(one, "reset");
}

static enum verdict_of_segment verdict_now(const struct sighted *one)
{
    return one->is_lost ? LOST : one->is_handed ? HANDED : TAKEN;
}

static int has_whole_head(const struct segment *segment)
{
    return memmem(segment->data, segment->size, "\n\r\n", 3) || memmem(segment->data, segment->size, "\n\n", 2);
}

/* A request begins, and with it what is known: its head came whole, and nothing of an answer is under way. */
static int begins_here(struct sighted *one, const struct segment *segment)
{
    if (!segment->from_client || !(segment->flags & FLAG_ACK) || !begins_request(segment->data, segment->size) ||
        !has_whole_head(segment))
        return 0;
    one->first = segment->sequence;
    stream_begin(&one->side[CLIENT], segment->sequence);
    stream_begin(&one->side[SERVICE], segment->acknowledged);
    one->began_in_middle = one->first_answer_is_open = 1;
    return 1;
}

/* As `ObservedConnection._note_told`. */
static void note_told(struct sighted *one, const struct segment *segment)
{
    if (segment->from_client) {
        one->has_told &= !segment->size;
        one->has_missed |= segment->size != 0;
    } else if (segment->size) {
        one->tells_http |= segment->size >= 7 && !memcmp(segment->data, "HTTP/1.", 7);
        one->has_told = !one->tells_http;
        one->told_until = segment->sequence + (uint32_t)(segment->size + segment->lacks);
    }
}

static int answers_told(const struct sighted *one, const struct segment *segment)
{
    return segment->from_client && segment->size && one->has_told && segment->flags & FLAG_ACK && segment->acknowledged == one->told_until;
}

static void observe_syn(struct sighted *one, const struct segment *segment)
{
    struct stream *stream = &one->side[segment->from_client ? CLIENT : SERVICE];
    if (stream->is_begun)
        return;
    stream_begin(stream, segment->sequence + 1);
    if (segment->from_client)
        one->first = segment->sequence + 1;
}

static enum verdict_of_segment take(struct sighted *one, const struct segment *segment, struct stream *stream)
{
    uint32_t first = segment->sequence + !!(segment->flags & FLAG_SYN), behind = first + (uint32_t)segment->size;
    int may_lack = !segment->from_client;
    if (segment->size)
        stream_add(stream, first, segment->data, segment->size, segment->from_client ? client_bytes : service_bytes, one);
    if (segment->lacks && may_lack)
        stream_add(stream, behind, NULL, segment->lacks, service_bytes, one);
    if (verdict_now(one) != TAKEN)
        return verdict_now(one);
    if (segment->flags & FLAG_FIN && (may_lack || !segment->lacks))
        stream_end_at(stream, behind + (uint32_t)segment->lacks);
    see_ends(one);
    if (segment->flags & FLAG_RST && verdict_now(one) == TAKEN)
        reset(one, (int)segment->from_client);
    return verdict_now(one) == TAKEN && stream->ahead > AHEAD_MOST ? LOST : verdict_now(one);
}

enum verdict_of_segment sighted_observe(struct sighted *one, const struct segment *segment)
{
    if (segment->flags & FLAG_SYN) {
        observe_syn(one, segment);
    } else if (!one->side[CLIENT].is_begun && !begins_here(one, segment)) {
        if (answers_told(one, segment))
            return STOOD;
        int may_begin = segment->from_client && segment->flags & FLAG_ACK && has_whole_head(segment);
        if (may_begin) /* by a method that is not common; Python knows */
            return FOREIGN;
        note_told(one, segment);
        one->is_over = (segment->flags & (FLAG_FIN | FLAG_RST)) != 0;
        return TAKEN;
    }
    if (!one->side[CLIENT].is_begun) /* only the service's SYN was seen */
        return TAKEN;
    if (!one->side[SERVICE].is_begun && segment->from_client && segment->flags & FLAG_ACK)
        stream_begin(&one->side[SERVICE], segment->acknowledged);
    struct stream *stream = &one->side[segment->from_client ? CLIENT : SERVICE];
    struct stream *other = &one->side[segment->from_client ? SERVICE : CLIENT];
    if (!stream->is_begun) {
        one->is_over = (segment->flags & FLAG_RST) != 0; /* nobody listens */
        return TAKEN;
    }
    if (segment->flags & FLAG_ACK && other->is_begun && stream_lacks_before(other, segment->acknowledged))
        return LOST;
    return take(one, segment, stream);
}

void sighted_limit(struct sighted *one, const uint32_t *following)
{
    one->is_limited = following || !one->heard_service;
    one->has_following = following != NULL;
    one->following = following ? *following : 0;
}

enum verdict_of_segment sighted_release(struct sighted *one)
{
    release(one);
    if (one->side[CLIENT].is_begun && verdict_now(one) == TAKEN)
        see_ends(one);
    return verdict_now(one);
}

int sighted_is_written(const struct sighted *one, const struct segment *segment, uint32_t following)
{
    const struct stream *down = &one->side[SERVICE];
    uint64_t size = segment->size + segment->lacks;
    if (segment->from_client || !down->is_begun || !size || segment->flags & (FLAG_SYN | FLAG_FIN | FLAG_RST))
        return 0;
    return stream_place_of(down, segment->sequence + (uint32_t)size) <= stream_place_of(down, following);
}
