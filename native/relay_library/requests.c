/* The way to the service: heads and bodies of requests are framed, recorded and handed to the kernel's file, and only then sent.
 *
 * Invariant: `flights` grows by one for each head that is passed on, before its bytes are, so that no answer can come without one.
 * Where a head is not understood with certainty, or announces more than is kept of a body, nothing of it is acted on: it stays in
 * `held`, and `is_odd` has the connection handed to Python once the answers before it are out. */
#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    int is_made = 1;
    if (relay->source_size) {
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
    struct flight *flight = flight_add(connection);
    flight->number = ++relay->journal.numbers->request;
    flight->announced = head->length;
    flight->is_head = head->is_head;
    flight->started = flight->touched = relay_gate_clock(relay);
    uint8_t *at = put_ends(connection, connection->worker->fields, relay->log_count != 0);
    if (relay->log_count)
        at = put_logs_before(relay, at);
    record_event(connection, "request-started", flight->number, at, data, head->size);
    connection->requests++, connection->is_split = 0;
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
        record_event(connection, "request-body", connection->upload_number, NULL, data, take);
        connection->upload_left -= take, connection->upload_total += take;
        if (flight)
            flight->total += take, flight->touched = relay_gate_clock(connection->worker->relay);
    }
    if (!connection->upload_left) {
        uint8_t *at = connection->worker->fields;
        *at++ = 0x81;
        at = put_number(PUT(at, "bytes"), connection->upload_total);
        record_event(connection, "request-ended", connection->upload_number, at, NULL, 0);
        connection->is_uploading = 0;
        if (flight)
            flight->is_sent = 1;
    }
    return take;
}

size_t frame_requests(struct connection *connection, const uint8_t *data, size_t size)
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

void client_readable(struct connection *connection)
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
