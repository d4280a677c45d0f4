/* One connection of a client, and the one to the service behind it: its beginning, what epoll is asked for, its end.
 *
 * What is read is framed, recorded and handed to the kernel's file before it is sent on (requests.c, answers.c). What is not understood
 * with certainty is not acted on: the connection goes to Python, with what was read of it, at a point where nothing is half done: before
 * a request's head when no answer is due, or before an answer's head. */
#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SILENT_NS 200000000ull /* a client that says nothing for so long may wait for the service to speak first */

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
    for (; connection->flight_count; flight_drop(connection)) {
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

void connection_hand_over(struct connection *connection, const uint8_t *from_service, size_t size, int is_silent)
{
    struct handed *handed = must(calloc(1, sizeof *handed));
    for (int side = 0; side < 2; side++) {
        handed->fd[side] = connection->fd[side];
        bytes_give(&connection->out[side], &handed->to[side], &handed->to_bytes[side]);
    }
    bytes_give(&connection->held[CLIENT], &handed->from[CLIENT], &handed->from_bytes[CLIENT]);
    struct bytes rest = {0};
    bytes_add(&rest, from_service, size);
    bytes_give(&rest, &handed->from[SERVICE], &handed->from_bytes[SERVICE]);
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
        flight_drop(connection);
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
