/* The way back: answers are framed by what their requests were, recorded and handed to the kernel's file, and only then sent.
 *
 * Invariant: `answer` says what the next byte of the service belongs to; at ANSWER_HEAD to the head of the first flight's answer.
 * A head that is not understood with certainty hands the connection to Python there, before anything of it was recorded. What stops
 * being HTTP in the middle of a body is passed on unframed (the client gets every byte), and recorded as a stream. */
#include "connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINGER_NS 2000000000ull /* how long a client may take to read our last bytes and close */

static double since(struct connection *connection, const struct flight *flight)
{
    return (double)(relay_gate_clock(connection->worker->relay) - flight->started) / 1e9;
}

static void end_answer(struct connection *connection)
{
    struct relay *relay = connection->worker->relay;
    struct flight *flight = connection_flight(connection, 0);
    int is_cut = connection->answer_total > connection->answer_kept, has_hash = is_cut && connection->is_hashed;
    uint8_t *at = connection->worker->fields;
    *at++ = (uint8_t)(0x81 + is_cut + has_hash + (relay->log_count != 0));
    at = put_number(PUT(at, "bytes"), connection->answer_total);
    if (is_cut)
        at = put_number(PUT(at, "cut"), connection->answer_total - connection->answer_kept);
    if (has_hash) {
        uint8_t digest[BLAKE2B_BYTES];
        char text[2 * BLAKE2B_BYTES + 1];
        blake2b_end(&connection->hash, digest);
        for (int i = 0; i < BLAKE2B_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", digest[i]);
        at = put_text(PUT(at, "blake2b"), text, 2 * BLAKE2B_BYTES);
    }
    if (relay->log_count)
        at = put_logs(relay, at);
    record_event(connection, "answer-ended", flight->number, at, NULL, 0);
    connection->answered++;
    connection->answer = ANSWER_HEAD;
    atomic_fetch_add(&relay->answered, 1);
    if (flight->status >= 500) {
        atomic_fetch_add(&relay->errors, 1);
        journal_flush(&relay->journal); /* the agent may look it up at once */
        relay_post(relay, &(struct post){.kind = POST_ANSWERED,
                                         .number = flight->number,
                                         .value = flight->status,
                                         .seconds = since(connection, flight),
                                         .wall_ns = journal_wall_ns(&relay->journal),
                                         .seq = relay->journal.numbers->seq});
    }
    flight_drop(connection);
}

static void start_answer(struct connection *connection, const uint8_t *data, const struct answer_head *head)
{
    struct flight *flight = connection_flight(connection, 0);
    uint8_t *at = connection->worker->fields;
    *at++ = 0x81;
    at = put_number(PUT(at, "status"), (uint64_t)head->status);
    record_event(connection, "answer-started", flight->number, at, data, head->size);
    flight->status = head->status;
    connection->answer_total = connection->answer_kept = 0;
    connection->is_passed_over = 0;
    int64_t announced = flight->is_head ? 0 : head->length;
    connection->is_hashed = announced < 0 || (uint64_t)announced > connection->worker->relay->body_limit;
    if (connection->is_hashed)
        blake2b_begin(&connection->hash);
    if (flight->is_head || head->status == 204 || head->status == 304 || !head->length) {
        end_answer(connection);
    } else if (head->length == UNTIL_CLOSE) {
        connection->answer = ANSWER_UNTIL_CLOSE;
    } else if (head->length == IN_CHUNKS) {
        connection->answer = ANSWER_CHUNKS;
        chunks_begin(&connection->chunks);
    } else {
        connection->answer = ANSWER_LENGTH, connection->answer_left = (uint64_t)head->length;
    }
}

/* The part of the next bytes that is kept. */
static size_t keep(struct connection *connection, const uint8_t *data, size_t size)
{
    uint64_t room = connection->is_passed_over ? 0 : connection->worker->relay->body_limit - connection->answer_kept;
    connection->answer_total += size;
    if (connection->is_hashed)
        blake2b_take(&connection->hash, data, size);
    size_t kept = room < size ? (size_t)room : size;
    connection->answer_kept += kept;
    return kept;
}

static void take_answer_body(struct connection *connection, const uint8_t *data, size_t size)
{
    size_t kept = keep(connection, data, size);
    if (kept)
        record_event(connection, "answer-body", connection_flight(connection, 0)->number, NULL, data, kept);
}

static void take_stream(struct connection *connection, const uint8_t *data, size_t size)
{
    size_t kept = keep(connection, data, size);
    if (kept)
        record_event(connection, "stream-to-client", 0, NULL, data, kept);
}

static void unframe(struct connection *connection, const char *why)
{
    char text[160];
    snprintf(text, sizeof text, "the service sent what is not HTTP/1.1: %s", why);
    record_note(connection, text);
    connection->answer = ANSWER_UNFRAMED;
    connection->is_hashed = connection->is_passed_over = 0, connection->answer_total = connection->answer_kept = 0;
}

/* The next bytes of an answer's body; returns how many were taken. */
static size_t take_answer(struct connection *connection, const uint8_t *data, size_t size)
{
    int is_over = 0;
    const char *why = NULL;
    int64_t taken = (int64_t)size;
    if (connection->answer == ANSWER_LENGTH) {
        taken = connection->answer_left < size ? (int64_t)connection->answer_left : (int64_t)size;
        connection->answer_left -= (uint64_t)taken;
        is_over = !connection->answer_left;
    } else if (connection->answer == ANSWER_CHUNKS) {
        taken = chunks_take(&connection->chunks, data, size, &is_over, &why);
        if (taken < 0) {
            unframe(connection, why);
            taken = (int64_t)size;
        }
    }
    if (connection->answer == ANSWER_UNFRAMED)
        take_stream(connection, data, (size_t)taken);
    else
        take_answer_body(connection, data, (size_t)taken);
    if (is_over)
        end_answer(connection);
    return (size_t)taken;
}

size_t frame_answers(struct connection *connection, const uint8_t *data, size_t size, int *is_odd)
{
    size_t at = 0;
    while (at < size) {
        if (connection->answer != ANSWER_HEAD) {
            at += take_answer(connection, data + at, size - at);
            continue;
        }
        struct answer_head head;
        enum verdict verdict = connection->flight_count ? read_answer_head(data + at, size - at, &head) : ODD;
        if (verdict == UNFINISHED && size - at <= HEAD_MOST)
            break;
        *is_odd = verdict != WHOLE;
        if (*is_odd)
            break;
        start_answer(connection, data + at, &head);
        at += head.size;
    }
    return at;
}

int pass_over_answer(struct connection *connection, uint64_t size)
{
    if (connection->answer != ANSWER_LENGTH || size > connection->answer_left)
        return 0;
    connection->answer_total += size, connection->answer_left -= size;
    connection->is_hashed = 0, connection->is_passed_over = 1;
    if (!connection->answer_left)
        end_answer(connection);
    return 1;
}

static void take_from_service(struct connection *connection, const uint8_t *data, size_t size)
{
    struct journal *journal = &connection->worker->relay->journal;
    struct bytes before = connection->held[SERVICE];
    int is_odd = 0;
    if (before.size) {
        bytes_add(&before, data, size);
        memset(&connection->held[SERVICE], 0, sizeof before);
        data = before.data + before.begin, size = before.size;
    }
    pthread_mutex_lock(&journal->lock);
    size_t passed = frame_answers(connection, data, size, &is_odd);
    journal_flush(journal);
    pthread_mutex_unlock(&journal->lock);
    send_on(connection, CLIENT, data, passed);
    if (is_odd && !connection->doom)
        connection_hand_over(connection, data + passed, size - passed, 0);
    else
        bytes_add(&connection->held[SERVICE], data + passed, size - passed);
    free(before.data);
}

void record_broken(struct connection *connection, int is_reset)
{
    struct relay *relay = connection->worker->relay;
    const char *how = is_reset ? "reset" : "closed";
    if (!is_reset && connection->answer == ANSWER_UNTIL_CLOSE && connection->flight_count)
        end_answer(connection);
    for (; connection->flight_count; flight_drop(connection)) {
        struct flight *flight = connection_flight(connection, 0);
        if (connection->client_eof) { /* the client left first, and the service did as it should: it stopped */
            record_how(connection, "request-abandoned", flight->number, "closed", 0);
            continue;
        }
        record_how(connection, "answer-broken", flight->number, how, 1);
        journal_flush(&relay->journal); /* the agent may look it up at once */
        atomic_fetch_add(&relay->broken, 1);
        relay_post(relay, &(struct post){.kind = POST_BROKEN,
                                         .number = flight->number,
                                         .value = is_reset,
                                         .extra = connection->answered,
                                         .seconds = since(connection, flight),
                                         .wall_ns = journal_wall_ns(&relay->journal)});
    }
}

void break_flights(struct connection *connection, int is_reset)
{
    struct journal *journal = &connection->worker->relay->journal;
    pthread_mutex_lock(&journal->lock);
    record_broken(connection, is_reset);
    journal_flush(journal);
    pthread_mutex_unlock(&journal->lock);
}

static void service_ended(struct connection *connection)
{
    if (connection->held[SERVICE].size) { /* in the middle of a head: Python reads the end once more, and says what it makes of it */
        struct bytes held = connection->held[SERVICE];
        memset(&connection->held[SERVICE], 0, sizeof held);
        connection_hand_over(connection, held.data + held.begin, held.size, 0);
        free(held.data);
        return;
    }
    break_flights(connection, 0);
    connection->service_eof = 1;
    connection->deadline_ns = clock_ns(CLOCK_MONOTONIC) + LINGER_NS;
    if (!connection->is_timed)
        connection->is_timed = 1, connection->worker->timed++;
}

void service_readable(struct connection *connection)
{
    ssize_t size = recv(connection->fd[SERVICE], connection->worker->read, READ_BYTES, 0);
    if (size > 0)
        take_from_service(connection, connection->worker->read, (size_t)size);
    else if (!size && !connection->service_deaf)
        service_ended(connection);
    else if (!size || is_gone(errno))
        service_lost(connection);
}
