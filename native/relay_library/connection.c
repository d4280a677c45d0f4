/* One connection of a client, and the one to the service behind it.
 *
 * What is read is framed, recorded and handed to the kernel's file before it is sent on. What is not understood with certainty is not
 * acted on: the connection goes to Python, with what was read of it, at a point where nothing is half done: before a request's head
 * when no answer is due, or before an answer's head. */
#define _GNU_SOURCE
#include "engine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINGER_NS 2000000000ull /* how long a client may take to read our last bytes and close */
#define SILENT_NS 200000000ull /* a client that says nothing for so long may wait for the service to speak first */

static void *must(void *memory)
{
    if (!memory)
        abort(); /* as any process without memory: the port falls back, and the agent starts another */
    return memory;
}

static void bytes_add(struct bytes *bytes, const uint8_t *data, size_t size)
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

static void bytes_drop(struct bytes *bytes, size_t size)
{
    bytes->begin += size, bytes->size -= size;
    if (!bytes->size) {
        free(bytes->data);
        memset(bytes, 0, sizeof *bytes);
    }
}

struct flight *connection_flight(struct connection *connection, size_t index)
{
    return &connection->flights[(connection->flight_begin + index) % connection->flight_room];
}

static struct flight *add_flight(struct connection *connection)
{
    if (connection->flight_count == connection->flight_room) {
        size_t room = connection->flight_room ? connection->flight_room * 2 : 2;
        struct flight *flights = must(calloc(room, sizeof *flights));
        for (size_t i = 0; i < connection->flight_count; i++)
            flights[i] = *connection_flight(connection, i);
        free(connection->flights);
        connection->flights = flights, connection->flight_begin = 0, connection->flight_room = room;
    }
    struct flight *flight = connection_flight(connection, connection->flight_count++);
    memset(flight, 0, sizeof *flight);
    atomic_fetch_add(&connection->worker->relay->in_flight, 1);
    return flight;
}

static void drop_flight(struct connection *connection)
{
    connection->flight_begin = (connection->flight_begin + 1) % connection->flight_room;
    connection->flight_count--;
    struct relay *relay = connection->worker->relay;
    atomic_fetch_sub(&relay->in_flight, 1);
    if (connection->flight_count)
        connection_flight(connection, 0)->touched = relay_gate_clock(relay);
}

/* Events. All want the journal's lock. */

static void append(struct connection *connection, const char *kind, uint64_t request, const uint8_t *fields_end, const uint8_t *data,
                   size_t size)
{
    static const uint8_t none = 0x80;
    const uint8_t *fields = fields_end ? connection->worker->fields : &none;
    size_t fields_size = fields_end ? (size_t)(fields_end - fields) : 1;
    journal_append(&connection->worker->relay->journal, kind, connection->number, request, fields, fields_size, data, size);
}

#define PUT(at, text) put_text(at, text, sizeof text - 1)

static int log_size(struct log_file *file, uint64_t *size)
{
    struct stat found;
    if (file->fd < 0)
        file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &found))
        return 0;
    *size = (uint64_t)found.st_size;
    return 1;
}

static uint8_t *put_logs(struct relay *relay, uint8_t *at)
{
    uint64_t sizes[LOGS_MOST];
    int found[LOGS_MOST], count = 0;
    for (size_t i = 0; i < relay->log_count; i++)
        count += found[i] = log_size(&relay->logs[i], &sizes[i]);
    at = PUT(at, "log_offsets");
    *at++ = (uint8_t)(0x80 | count); /* a fixmap holds LOGS_MOST - 1; one more is refused when the relay is made */
    for (size_t i = 0; i < relay->log_count; i++)
        if (found[i])
            at = put_number(put_text(at, relay->logs[i].path, relay->logs[i].size), sizes[i]);
    return at;
}

static uint8_t *put_ends(struct connection *connection, uint8_t *at, int logs)
{
    *at++ = (uint8_t)(0x82 + logs);
    at = put_text(PUT(at, "client"), connection->address, strlen(connection->address));
    return put_number(PUT(at, "local_port"), connection->local_port);
}

static void record_opened(struct connection *connection)
{
    append(connection, "connection-opened", 0, put_ends(connection, connection->worker->fields, 0), NULL, 0);
}

static void record_closed(struct connection *connection)
{
    uint8_t *at = connection->worker->fields;
    *at++ = 0x82;
    at = put_number(PUT(at, "sent"), connection->sent);
    at = put_number(PUT(at, "requests"), connection->requests);
    append(connection, "connection-closed", 0, at, NULL, 0);
}

static void record_note(struct connection *connection, const char *text)
{
    uint8_t *at = connection->worker->fields;
    *at++ = 0x82;
    at = PUT(PUT(at, "about"), "unframed");
    at = put_text(PUT(at, "text"), text, strlen(text));
    append(connection, "note", 0, at, NULL, 0);
}

static void record_how(struct connection *connection, const char *kind, uint64_t request, const char *how, int has_reused)
{
    uint8_t *at = connection->worker->fields;
    *at++ = (uint8_t)(0x81 + has_reused);
    at = put_text(PUT(at, "how"), how, strlen(how));
    if (has_reused)
        at = put_number(PUT(at, "reused"), connection->answered);
    append(connection, kind, request, at, NULL, 0);
}

/* Sending */

static int is_gone(int error)
{
    return error != EAGAIN && error != EWOULDBLOCK && error != EINTR && error != ENOBUFS;
}

static void break_flights(struct connection *connection, int is_reset);

static void service_lost(struct connection *connection)
{
    if (connection->service_lost)
        return;
    connection->service_lost = 1;
    break_flights(connection, 1);
    connection->client_reset = 1, connection->is_ending = 1;
}

/* A service that answers early and closes resets us while its answer waits to be read: that comes first. */
static void service_refuses(struct connection *connection, int error)
{
    struct bytes *out = &connection->out[SERVICE];
    if (connection->service_eof || (error != EPIPE && error != ECONNRESET)) {
        service_lost(connection);
        return;
    }
    connection->service_deaf = 1;
    bytes_drop(out, out->size);
}

static void send_on(struct connection *connection, int side, const uint8_t *data, size_t size)
{
    struct bytes *out = &connection->out[side];
    if (!size || connection->doom || (side == SERVICE && (connection->service_lost || connection->service_deaf)))
        return;
    if (!out->size) {
        ssize_t sent = send(connection->fd[side], data, size, MSG_NOSIGNAL);
        if (sent < 0 && is_gone(errno)) {
            if (side == CLIENT)
                connection->doom = ENDS_BY_RESET;
            else
                service_refuses(connection, errno);
            return;
        }
        sent = sent < 0 ? 0 : sent;
        if (side == SERVICE)
            connection->sent += (uint64_t)sent;
        data += sent, size -= (size_t)sent;
    }
    bytes_add(out, data, size);
}

static void send_waiting(struct connection *connection, int side)
{
    struct bytes *out = &connection->out[side];
    while (out->size) {
        ssize_t sent = send(connection->fd[side], out->data + out->begin, out->size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (!is_gone(errno))
                return;
            if (side == CLIENT)
                connection->doom = ENDS_BY_RESET;
            else
                service_refuses(connection, errno);
            return;
        }
        if (side == SERVICE)
            connection->sent += (uint64_t)sent;
        bytes_drop(out, (size_t)sent);
    }
    if (side == SERVICE && connection->flight_count)
        connection_flight(connection, 0)->touched = relay_gate_clock(connection->worker->relay);
}

/* The way to the service */

static int is_same(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    if (one->ss_family == AF_INET) {
        const struct sockaddr_in *a = (const struct sockaddr_in *)one, *b = (const struct sockaddr_in *)other;
        return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
    }
    const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)one, *b = (const struct sockaddr_in6 *)other;
    return a->sin6_port == b->sin6_port && !memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr);
}

static int dial(struct connection *connection)
{
    struct relay *relay = connection->worker->relay;
    int on = 1, fd = socket(relay->upstream.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int is_made = (!relay->mark || !setsockopt(fd, SOL_SOCKET, SO_MARK, &relay->mark, sizeof relay->mark));
    if (is_made && relay->source_size) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        is_made = !bind(fd, (struct sockaddr *)&relay->source, relay->source_size);
    }
    struct sockaddr *to = (struct sockaddr *)&relay->upstream;
    /* On the same host the connection is usually made by now: the second call says so. */
    if (is_made && connect(fd, to, relay->upstream_size))
        is_made = errno == EINPROGRESS && (!connect(fd, to, relay->upstream_size) || errno == EISCONN);
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    /* Where nobody listens the kernel may choose the very port that we call, and connect us to ourselves. */
    if (!is_made || getsockname(fd, (struct sockaddr *)&own, &size) || is_same(&own, &relay->upstream)) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connection->fd[SERVICE] = fd;
    connection->local_port =
        ntohs(own.ss_family == AF_INET ? ((struct sockaddr_in *)&own)->sin_port : ((struct sockaddr_in6 *)&own)->sin6_port);
    if (!atomic_exchange(&relay->service_seen, 1))
        relay_post(relay, &(struct post){.kind = POST_SERVICE_SEEN});
    return 0;
}

static void start_request(struct connection *connection, const uint8_t *data, const struct request_head *head)
{
    struct relay *relay = connection->worker->relay;
    struct flight *flight = add_flight(connection);
    flight->number = ++relay->journal.numbers->request;
    flight->announced = head->length;
    flight->is_head = head->is_head;
    flight->started = flight->touched = relay_gate_clock(relay);
    uint8_t *at = put_ends(connection, connection->worker->fields, relay->log_count != 0);
    if (relay->log_count)
        at = put_logs(relay, at);
    append(connection, "request-started", flight->number, at, data, head->size);
    connection->requests++;
    connection->is_uploading = 1;
    connection->upload_number = flight->number, connection->upload_left = head->length, connection->upload_total = 0;
}

/* The flight whose body the client is sending; NULL when its answer was whole before. */
static struct flight *uploading(struct connection *connection)
{
    struct flight *last = connection->flight_count ? connection_flight(connection, connection->flight_count - 1) : NULL;
    return last && last->number == connection->upload_number ? last : NULL;
}

static size_t take_upload(struct connection *connection, const uint8_t *data, size_t size)
{
    size_t take = connection->upload_left < size ? (size_t)connection->upload_left : size;
    struct flight *flight = uploading(connection);
    if (take) { /* all of it is kept: what announces more than the limit was left to Python */
        append(connection, "request-body", connection->upload_number, NULL, data, take);
        connection->upload_left -= take, connection->upload_total += take;
        if (flight)
            flight->total += take, flight->touched = relay_gate_clock(connection->worker->relay);
    }
    if (!connection->upload_left) {
        uint8_t *at = connection->worker->fields;
        *at++ = 0x81;
        at = put_number(PUT(at, "bytes"), connection->upload_total);
        append(connection, "request-ended", connection->upload_number, at, NULL, 0);
        connection->is_uploading = 0;
        if (flight)
            flight->is_sent = 1;
    }
    return take;
}

/* How much of the bytes goes on now; what does not is held. */
static size_t frame_requests(struct connection *connection, const uint8_t *data, size_t size)
{
    size_t at = 0;
    while (at < size) {
        struct request_head head;
        if (!connection->is_uploading) {
            enum verdict verdict = read_request_head(data + at, size - at, &head);
            if (verdict == UNFINISHED && size - at <= HEAD_MOST)
                break;
            if (verdict != WHOLE || head.length > connection->worker->relay->body_limit) {
                connection->is_odd = 1;
                break;
            }
            start_request(connection, data + at, &head);
            at += head.size;
        }
        at += take_upload(connection, data + at, size - at);
    }
    return at;
}

static void take_from_client(struct connection *connection, const uint8_t *data, size_t size)
{
    struct journal *journal = &connection->worker->relay->journal;
    struct bytes before = connection->held[CLIENT];
    if (before.size) {
        bytes_add(&before, data, size);
        memset(&connection->held[CLIENT], 0, sizeof before);
        data = before.data + before.begin, size = before.size;
    }
    pthread_mutex_lock(&journal->lock);
    size_t passed = frame_requests(connection, data, size);
    journal_flush(journal);
    pthread_mutex_unlock(&journal->lock);
    bytes_add(&connection->held[CLIENT], data + passed, size - passed);
    send_on(connection, SERVICE, data, passed);
    free(before.data);
}

/* The connection is Python's before anything of it was recorded, or it has its way to the service. */
static int is_begun(struct connection *connection, const uint8_t *data, size_t size)
{
    struct relay *relay = connection->worker->relay;
    if (connection->is_spoken)
        return 1;
    int is_ours = begins_request(data, size) && !dial(connection);
    if (!is_ours) {
        bytes_add(&connection->held[CLIENT], data, size);
        connection_hand_over(connection, NULL, 0, 0);
        return 0;
    }
    connection->is_spoken = 1;
    if (connection->is_timed)
        connection->is_timed = 0, connection->worker->timed--;
    pthread_mutex_lock(&relay->journal.lock);
    record_opened(connection);
    pthread_mutex_unlock(&relay->journal.lock);
    if (!atomic_exchange(&relay->speaks_http, 1))
        relay_post(relay, &(struct post){.kind = POST_SPEAKS_HTTP});
    return 1;
}

static void client_readable(struct connection *connection)
{
    ssize_t size = recv(connection->fd[CLIENT], connection->worker->read, READ_BYTES, 0);
    if (size > 0) {
        if (is_begun(connection, connection->worker->read, (size_t)size))
            take_from_client(connection, connection->worker->read, (size_t)size);
    } else if (!size) {
        connection->client_eof = 1;
    } else if (is_gone(errno)) {
        connection->doom = ENDS_BY_RESET;
    }
}

/* The way back */

static double since(struct connection *connection, const struct flight *flight)
{
    return (double)(relay_gate_clock(connection->worker->relay) - flight->started) / 1e9;
}

static void end_answer(struct connection *connection)
{
    struct relay *relay = connection->worker->relay;
    struct flight *flight = connection_flight(connection, 0);
    int is_cut = connection->answer_total > connection->answer_kept && connection->is_hashed;
    uint8_t *at = connection->worker->fields;
    *at++ = (uint8_t)(0x81 + 2 * is_cut + (relay->log_count != 0));
    at = put_number(PUT(at, "bytes"), connection->answer_total);
    if (is_cut) {
        uint8_t digest[BLAKE2B_BYTES];
        char text[2 * BLAKE2B_BYTES + 1];
        blake2b_end(&connection->hash, digest);
        for (int i = 0; i < BLAKE2B_BYTES; i++)
            snprintf(text + 2 * i, 3, "%02x", digest[i]);
        at = put_number(PUT(at, "cut"), connection->answer_total - connection->answer_kept);
        at = put_text(PUT(at, "blake2b"), text, 2 * BLAKE2B_BYTES);
    }
    if (relay->log_count)
        at = put_logs(relay, at);
    append(connection, "answer-ended", flight->number, at, NULL, 0);
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
                                         .wall_ns = clock_ns(CLOCK_REALTIME),
                                         .seq = relay->journal.numbers->seq});
    }
    drop_flight(connection);
}

static void start_answer(struct connection *connection, const uint8_t *data, const struct answer_head *head)
{
    struct flight *flight = connection_flight(connection, 0);
    uint8_t *at = connection->worker->fields;
    *at++ = 0x81;
    at = put_number(PUT(at, "status"), (uint64_t)head->status);
    append(connection, "answer-started", flight->number, at, data, head->size);
    flight->status = head->status;
    connection->answer_total = connection->answer_kept = 0;
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
    uint64_t room = connection->worker->relay->body_limit - connection->answer_kept;
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
        append(connection, "answer-body", connection_flight(connection, 0)->number, NULL, data, kept);
}

static void take_stream(struct connection *connection, const uint8_t *data, size_t size)
{
    size_t kept = keep(connection, data, size);
    if (kept)
        append(connection, "stream-to-client", 0, NULL, data, kept);
}

static void unframe(struct connection *connection, const char *why)
{
    char text[160];
    snprintf(text, sizeof text, "the service sent what is not HTTP/1.1: %s", why);
    record_note(connection, text);
    connection->answer = ANSWER_UNFRAMED;
    connection->is_hashed = 0, connection->answer_total = connection->answer_kept = 0;
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

/* How much of the bytes goes on now. What does not is the beginning of a head; *is_odd: one that Python must judge. */
static size_t frame_answers(struct connection *connection, const uint8_t *data, size_t size, int *is_odd)
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

/* The service's side ended; answers that are not whole are broken. */
static void break_flights(struct connection *connection, int is_reset)
{
    struct relay *relay = connection->worker->relay;
    const char *how = is_reset ? "reset" : "closed";
    pthread_mutex_lock(&relay->journal.lock);
    if (!is_reset && connection->answer == ANSWER_UNTIL_CLOSE && connection->flight_count)
        end_answer(connection);
    for (; connection->flight_count; drop_flight(connection)) {
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
                                         .wall_ns = clock_ns(CLOCK_REALTIME)});
    }
    journal_flush(&relay->journal);
    pthread_mutex_unlock(&relay->journal.lock);
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

static void service_readable(struct connection *connection)
{
    ssize_t size = recv(connection->fd[SERVICE], connection->worker->read, READ_BYTES, 0);
    if (size > 0)
        take_from_service(connection, connection->worker->read, (size_t)size);
    else if (!size && !connection->service_deaf)
        service_ended(connection);
    else if (!size || is_gone(errno))
        service_lost(connection);
}

/* Life */

void connection_accepted(struct worker *worker, int fd, const struct sockaddr_storage *peer)
{
    struct relay *relay = worker->relay;
    struct connection *connection = must(calloc(1, sizeof *connection));
    char text[INET6_ADDRSTRLEN] = "";
    int on = 1, port = 0;
    if (peer->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)peer;
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
        port = ntohs(four->sin_port);
    } else if (peer->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)peer;
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
        port = ntohs(six->sin6_port);
    }
    snprintf(connection->address, sizeof connection->address, "%s:%d", text, port);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* the service's own finds us alive for ever */
    connection->worker = worker;
    connection->fd[CLIENT] = fd, connection->fd[SERVICE] = -1;
    connection->end[CLIENT] = connection->end[SERVICE] = connection;
    connection->next = worker->first;
    if (worker->first)
        worker->first->previous = connection;
    worker->first = connection;
    atomic_fetch_add(&relay->connections, 1);
    pthread_mutex_lock(&relay->journal.lock);
    connection->number = ++relay->journal.numbers->connection;
    pthread_mutex_unlock(&relay->journal.lock);
    if (atomic_load(&relay->service_speaks_first)) {
        connection_hand_over(connection, NULL, 0, 1);
        return;
    }
    if (!atomic_load(&relay->speaks_http)) {
        connection->is_timed = 1, worker->timed++;
        connection->deadline_ns = clock_ns(CLOCK_MONOTONIC) + SILENT_NS;
    }
    connection_settle(connection);
}

static void ask_epoll(struct connection *connection, int side, uint32_t mask)
{
    int epoll = connection->worker->epoll, fd = connection->fd[side];
    uint32_t before = connection->mask[side];
    struct epoll_event event = {.events = mask, .data.ptr = &connection->end[side]};
    if (fd < 0 || mask == before)
        return;
    /* One that nothing is wanted of is taken out: its end would be told again and again otherwise. */
    if (epoll_ctl(epoll, !mask ? EPOLL_CTL_DEL : !before ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) && mask) {
        connection->doom = ENDS_BY_RESET; /* no memory */
        return;
    }
    connection->mask[side] = mask;
}

static void ask_for_both(struct connection *connection)
{
    int is_frozen = connection->worker->is_frozen, ends = connection->is_ending || connection->doom != LIVES;
    uint32_t client = connection->out[CLIENT].size ? EPOLLOUT : 0, service = 0;
    if (!is_frozen && !connection->client_eof && !connection->service_deaf && !ends && !connection->is_odd &&
        connection->out[SERVICE].size <= BACKLOG_MOST && connection->flight_count < FLIGHTS_MOST)
        client |= EPOLLIN;
    if (!connection->service_eof && !ends && connection->out[CLIENT].size <= BACKLOG_MOST)
        service |= EPOLLIN;
    if (connection->out[SERVICE].size && !is_frozen && !ends)
        service |= EPOLLOUT;
    if (!client && is_frozen && !connection->client_eof)
        client = EPOLLERR; /* told unasked: that it left is recorded at once */
    ask_epoll(connection, CLIENT, connection->doom ? 0 : client);
    ask_epoll(connection, SERVICE, service);
}

static int is_late(struct connection *connection)
{
    return connection->is_timed && clock_ns(CLOCK_MONOTONIC) >= connection->deadline_ns;
}

static void pass_ends_on(struct connection *connection)
{
    int has_service = connection->fd[SERVICE] >= 0 && !connection->service_lost;
    if (connection->client_eof && !connection->worker->is_frozen && has_service && !connection->out[SERVICE].size &&
        !connection->service_shut) {
        connection->service_shut = 1;
        shutdown(connection->fd[SERVICE], SHUT_WR);
    }
    if (connection->service_eof && !connection->out[CLIENT].size && !connection->client_shut) {
        connection->client_shut = 1;
        shutdown(connection->fd[CLIENT], SHUT_WR);
    }
    int is_over = connection->client_eof && (connection->fd[SERVICE] < 0 || connection->service_eof);
    if (is_over || (connection->service_eof && is_late(connection)))
        connection->is_ending = 1;
    if (connection->is_ending && !connection->out[CLIENT].size && !connection->doom)
        connection->doom = ENDS;
}

static void record_end(struct connection *connection)
{
    struct journal *journal = &connection->worker->relay->journal;
    int is_reset = connection->doom == ENDS_BY_RESET;
    if (connection->is_end_recorded)
        return;
    connection->is_end_recorded = 1;
    pthread_mutex_lock(&journal->lock);
    for (; connection->flight_count; drop_flight(connection)) {
        uint64_t number = connection_flight(connection, 0)->number;
        record_how(connection, "request-abandoned", number, is_reset ? "reset" : "closed", 0);
    }
    if (connection->fd[SERVICE] >= 0)
        record_closed(connection);
    journal_flush(journal);
    pthread_mutex_unlock(&journal->lock);
}

void connection_settle(struct connection *connection)
{
    if (connection->is_dead)
        return;
    if (!connection->worker->is_frozen) {
        int is_silent = !connection->is_spoken && !connection->client_eof && is_late(connection) &&
                        !atomic_load(&connection->worker->relay->speaks_http);
        if (!connection->doom && !connection->is_ending && (is_silent || (connection->is_odd && !connection->flight_count))) {
            connection_hand_over(connection, NULL, 0, is_silent);
            return;
        }
        if (!connection->is_spoken && connection->is_timed && is_late(connection))
            connection->is_timed = 0, connection->worker->timed--;
    }
    if (!connection->doom)
        pass_ends_on(connection);
    ask_for_both(connection);
    if (connection->doom && !connection->worker->is_frozen)
        connection_finish(connection);
    else if (connection->doom) /* the service must not hear of it while the gate is closed */
        record_end(connection);
}

void connection_event(struct connection *connection, int side, uint32_t events)
{
    if (connection->is_dead)
        return;
    if (side == CLIENT && connection->worker->is_frozen && events & EPOLLERR && !connection->doom)
        connection->doom = ENDS_BY_RESET;
    else if (side == CLIENT && connection->worker->is_frozen && events & EPOLLHUP)
        connection->client_eof = 1; /* both ways are shut: it would be told again and again */
    uint32_t either = events & (EPOLLHUP | EPOLLERR) ? EPOLLIN | EPOLLOUT : 0;
    events = (events | either) & connection->mask[side];
    if (events & EPOLLOUT && !connection->doom && !(side == SERVICE && connection->worker->is_frozen))
        send_waiting(connection, side);
    if (events & EPOLLIN && !connection->is_dead && !connection->doom) {
        if (side == SERVICE && !connection->service_lost)
            service_readable(connection);
        else if (side == CLIENT && !connection->worker->is_frozen)
            client_readable(connection);
    }
    connection_settle(connection);
}

static void close_side(int fd, int is_reset)
{
    struct linger at_once = {.l_onoff = 1};
    if (fd < 0)
        return;
    if (is_reset)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* Out of the worker's hands; its memory is freed when no event of this round can name it any more. */
static void leave(struct connection *connection)
{
    struct worker *worker = connection->worker;
    for (int side = 0; side < 2; side++)
        ask_epoll(connection, side, 0);
    if (connection->next)
        connection->next->previous = connection->previous;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        worker->first = connection->next;
    if (connection->is_timed)
        worker->timed--;
    atomic_fetch_sub(&worker->relay->connections, 1);
    connection->is_dead = 1;
    connection->next = worker->dead;
    worker->dead = connection;
}

void connection_finish(struct connection *connection)
{
    if (connection->is_dead)
        return;
    record_end(connection);
    leave(connection);
    close_side(connection->fd[SERVICE], connection->doom == ENDS_BY_RESET && !connection->service_lost);
    close_side(connection->fd[CLIENT], connection->client_reset);
}

static void give(struct bytes *bytes, uint8_t **data, uint64_t *size)
{
    if (bytes->begin)
        memmove(bytes->data, bytes->data + bytes->begin, bytes->size);
    *data = bytes->data, *size = bytes->size;
    memset(bytes, 0, sizeof *bytes);
}

void connection_hand_over(struct connection *connection, const uint8_t *from_service, size_t size, int is_silent)
{
    struct handed *handed = must(calloc(1, sizeof *handed));
    for (int side = 0; side < 2; side++) {
        handed->fd[side] = connection->fd[side];
        give(&connection->out[side], &handed->to[side], &handed->to_bytes[side]);
    }
    give(&connection->held[CLIENT], &handed->from[CLIENT], &handed->from_bytes[CLIENT]);
    struct bytes rest = {0};
    bytes_add(&rest, from_service, size);
    give(&rest, &handed->from[SERVICE], &handed->from_bytes[SERVICE]);
    handed->is_silent = is_silent;
    handed->connection = connection->number, handed->requests = connection->requests;
    handed->answered = connection->answered, handed->sent = connection->sent;
    handed->is_uploading = connection->is_uploading;
    handed->upload_number = connection->upload_number, handed->upload_left = connection->upload_left;
    handed->upload_total = connection->upload_total;
    handed->flight = must(calloc(connection->flight_count + 1, sizeof *handed->flight));
    handed->flights = connection->flight_count;
    for (size_t i = 0; i < handed->flights; i++)
        handed->flight[i] = *connection_flight(connection, i);
    memcpy(handed->address, connection->address, sizeof handed->address);
    while (connection->flight_count)
        drop_flight(connection);
    leave(connection);
    relay_post(connection->worker->relay, &(struct post){.kind = POST_HANDED, .handed = handed});
}

void connection_free(struct connection *connection)
{
    for (int side = 0; side < 2; side++) {
        free(connection->held[side].data);
        free(connection->out[side].data);
    }
    free(connection->flights);
    free(connection);
}

int connection_waits_on_service(struct connection *connection)
{
    if (!connection->flight_count || connection->fd[SERVICE] < 0)
        return 0;
    struct flight *first = connection_flight(connection, 0);
    return !first->status && (first->is_sent || connection->out[SERVICE].size);
}
