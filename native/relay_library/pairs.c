/* Carrying bytes between two sockets so that the kernel alone knows where each way stands.
 *
 * Bytes are peeked at, recorded, sent, and only then taken from where they came. Nothing is held in this process: if it is killed at any
 * moment, whoever has the same two sockets (native/keeper.c) goes on from what the kernel says of them. Bytes that were sent and not
 * taken are the difference of two counts (`socket_places`); bytes that were recorded and not sent are recorded again, at the same place.
 *
 * `way` and `side` are one number: what is read at fd[UP] goes up. Threads and locks are as in worker.c: the carrier's lock is held for a
 * round of events, and a pair that has ended is freed at the end of it. The journal's lock is taken within. */
#define _GNU_SOURCE
#include "pairs.h"
#include "bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 64
#define ROUNDS_AT_ONCE 4 /* then other pairs have their turn */
#define READ_LEAST (16 * 1024)
#define READ_FIRST (64 * 1024)
#define READ_MOST (256 * 1024)
#define PUT(at, text) put_text(at, text, sizeof text - 1)

struct way {
    uint64_t said, kept; /* recorded; up to the last byte that is in the recording */
    size_t ahead; /* recorded and not sent: at the front of what the kernel has */
    size_t most; /* so much is looked at; less where the other end takes less, since what it leaves is copied again */
    int is_blocked, has_eof, is_ended;
};

struct pair {
    struct pair *next, *previous;
    struct pair *end[2]; /* &end[side] is what epoll says */
    int fd[2];
    uint32_t mask[2];
    uint64_t number, told_in;
    int is_over, resets;
    int is_deaf[2]; /* by side: it takes no more, but what it said before may still be there to read */
    struct way way[2];
    uint8_t *fields;
    size_t fields_size;
};

static const char *const KIND[] = {"dialogue-up", "dialogue-down"};

static void lock_carrier(struct carrier *carrier)
{
    pthread_mutex_lock(&carrier->turn);
    pthread_mutex_lock(&carrier->lock);
    pthread_mutex_unlock(&carrier->turn);
}

static void wake(struct carrier *carrier)
{
    uint64_t one = 1;
    ssize_t written = write(carrier->wake, &one, sizeof one);
    (void)written; /* it fails only when the counter is full */
}

/* The recording, as relive.proxies.egress._carrier writes it */

static void append(struct carrier *carrier, struct pair *pair, const char *kind, const uint8_t *end, const uint8_t *data, size_t size)
{
    journal_append(carrier->journal, kind, pair->number, 0, carrier->fields, (size_t)(end - carrier->fields), data, size);
}

/* So that each segment can be read without those before it. With the journal's lock. */
static void tell_again(struct carrier *carrier, struct pair *pair)
{
    uint8_t *at = carrier->fields;
    *at++ = (uint8_t)(pair->fields[0] + 2);
    memcpy(at, pair->fields + 1, pair->fields_size - 1);
    at += pair->fields_size - 1;
    at = put_number(PUT(at, "up_at"), pair->way[UP].said);
    at = put_number(PUT(at, "down_at"), pair->way[DOWN].said);
    append(carrier, pair, "dialogue-opened", at, NULL, 0);
    journal_flush(carrier->journal);
    pair->told_in = carrier->journal->numbers->first_seq;
}

static void record_said(struct carrier *carrier, struct pair *pair, int side, const uint8_t *data, size_t size)
{
    struct way *way = &pair->way[side];
    struct journal *journal = carrier->journal;
    pthread_mutex_lock(&journal->lock);
    if (pair->told_in != journal->numbers->first_seq)
        tell_again(carrier, pair);
    uint8_t *at = carrier->fields;
    *at++ = 0x81;
    at = put_number(PUT(at, "at"), way->said);
    append(carrier, pair, KIND[side], at, data, size);
    journal_flush(journal);
    if (!journal->numbers->retry_at_ns)
        way->kept = way->said + size;
    pthread_mutex_unlock(&journal->lock);
    way->said += size;
}

static void record_end(struct carrier *carrier, struct pair *pair, int side, const char *how)
{
    struct way *way = &pair->way[side];
    if (way->is_ended)
        return;
    way->is_ended = 1;
    int is_cut = way->kept < way->said;
    uint8_t *at = carrier->fields;
    pthread_mutex_lock(&carrier->journal->lock);
    *at++ = (uint8_t)(0x83 + is_cut);
    at = side == UP ? PUT(PUT(at, "way"), "up") : PUT(PUT(at, "way"), "down");
    at = put_text(PUT(at, "how"), how, strlen(how));
    at = put_number(PUT(at, "bytes"), way->said);
    if (is_cut)
        at = put_number(PUT(at, "cut"), way->said - way->kept);
    append(carrier, pair, "dialogue-ended", at, NULL, 0);
    journal_flush(carrier->journal);
    pthread_mutex_unlock(&carrier->journal->lock);
}

/* What epoll is asked for */

static int is_held(const struct carrier *carrier, int side)
{
    return carrier->is_frozen && side == DOWN;
}

static int ask(struct carrier *carrier, struct pair *pair, int side, uint32_t mask)
{
    uint32_t before = pair->mask[side];
    struct epoll_event event = {.events = mask, .data.ptr = &pair->end[side]};
    if (mask == before)
        return 0;
    /* One that nothing is wanted of is taken out: its end would be told again and again otherwise. */
    if (epoll_ctl(carrier->epoll, !mask ? EPOLL_CTL_DEL : !before ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, pair->fd[side], &event) && mask)
        return -1;
    pair->mask[side] = mask;
    return 0;
}

/* Its ends */

static void finish(struct carrier *carrier, struct pair *pair, int resets)
{
    static const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    struct linger at_once = {1, 0};
    pair->is_over = 1, pair->resets |= resets;
    for (int side = UP; side <= DOWN; side++)
        ask(carrier, pair, side, 0); /* a close alone does not, where another process has the socket as well */
    if (carrier->is_frozen && !carrier->is_over)
        return; /* goes on when thawed */
    for (int side = UP; side <= DOWN; side++) {
        if (pair->resets) {
            setsockopt(pair->fd[side], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
            connect(pair->fd[side], &nowhere, sizeof nowhere); /* RST now, whoever else has it */
        }
        close(pair->fd[side]);
    }
    if (pair->next)
        pair->next->previous = pair->previous;
    *(pair->previous ? &pair->previous->next : &carrier->first) = pair->next;
    pair->next = carrier->dead;
    carrier->dead = pair;
    carrier->tell(carrier->who, pair->number);
}

static void broke(struct carrier *carrier, struct pair *pair, int side)
{
    record_end(carrier, pair, side, "reset"); /* in this order: the first one tells who ended it */
    record_end(carrier, pair, 1 - side, "reset");
    finish(carrier, pair, 1);
}

static void ended(struct carrier *carrier, struct pair *pair, int side)
{
    pair->way[side].has_eof = 1;
    if (pair->is_deaf[side]) {
        broke(carrier, pair, side);
        return;
    }
    record_end(carrier, pair, side, "closed");
    shutdown(pair->fd[1 - side], SHUT_WR);
    if (pair->way[1 - side].is_ended)
        finish(carrier, pair, 0);
}

static int is_later(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

/* A server that answers early and closes resets us while its answer waits to be read: that comes first. */
static void refused(struct carrier *carrier, struct pair *pair, int side, int error)
{
    if (pair->way[side].has_eof || (error != EPIPE && error != ECONNRESET))
        broke(carrier, pair, side);
    else
        pair->is_deaf[side] = 1;
}

static void take(int fd, size_t size)
{
    while (size) { /* one call ends at urgent data */
        ssize_t taken = recv(fd, NULL, size, MSG_TRUNC | MSG_DONTWAIT);
        if (taken <= 0)
            return;
        size -= (size_t)taken;
    }
}

/* Returns whether there may be more. */
static int carry_once(struct carrier *carrier, struct pair *pair, int side)
{
    struct way *way = &pair->way[side];
    size_t most = way->most;
    ssize_t size = recv(pair->fd[side], carrier->read, most, MSG_PEEK | MSG_DONTWAIT), sent;
    if (size <= 0) {
        if (!size)
            ended(carrier, pair, side);
        else if (!is_later(errno))
            broke(carrier, pair, side);
        return 0;
    }
    if ((size_t)size > way->ahead) {
        record_said(carrier, pair, side, carrier->read + way->ahead, (size_t)size - way->ahead);
        way->ahead = (size_t)size;
    }
    sent = pair->is_deaf[1 - side] ? size : send(pair->fd[1 - side], carrier->read, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !is_later(errno)) {
        refused(carrier, pair, 1 - side, errno);
        sent = size; /* nobody wants it any more */
    }
    sent = sent < 0 ? 0 : sent;
    if (pair->is_over)
        return 0;
    take(pair->fd[side], (size_t)sent);
    way->ahead -= (size_t)sent;
    way->is_blocked = sent < size;
    if (way->is_blocked)
        way->most = sent > READ_LEAST ? (size_t)sent : READ_LEAST;
    else if ((size_t)size == most)
        way->most = most * 2 > READ_MOST ? READ_MOST : most * 2;
    return !way->is_blocked && (size_t)size == most;
}

static void settle(struct carrier *carrier, struct pair *pair)
{
    for (int side = UP; side <= DOWN && !pair->is_over; side++) {
        const struct way *in = &pair->way[side], *out = &pair->way[1 - side];
        uint32_t mask = 0;
        if (!in->has_eof && !in->is_blocked && !is_held(carrier, side))
            mask |= EPOLLIN;
        if (out->is_blocked && !is_held(carrier, 1 - side))
            mask |= EPOLLOUT;
        if (ask(carrier, pair, side, mask))
            broke(carrier, pair, side); /* no memory */
    }
}

static void carry(struct carrier *carrier, struct pair *pair, int side)
{
    for (int i = 0; i < ROUNDS_AT_ONCE && !pair->is_over && carry_once(carrier, pair, side); i++)
        ;
}

static void act_on(struct carrier *carrier, const struct epoll_event *event)
{
    struct pair **end = event->data.ptr, *pair = *end;
    int side = (int)(end - pair->end);
    if (pair->is_over)
        return;
    if ((event->events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) && (pair->mask[side] & EPOLLOUT))
        carry(carrier, pair, 1 - side);
    if (!pair->is_over && (event->events & (EPOLLIN | EPOLLERR | EPOLLHUP)) && (pair->mask[side] & EPOLLIN))
        carry(carrier, pair, side);
    if (!pair->is_over)
        settle(carrier, pair);
}

static void after_thaw(struct carrier *carrier)
{
    for (struct pair *pair = carrier->first, *next; pair; pair = next) {
        next = pair->next;
        if (pair->is_over)
            finish(carrier, pair, 0);
        else
            settle(carrier, pair);
    }
}

static void bury(struct carrier *carrier)
{
    while (carrier->dead) {
        struct pair *pair = carrier->dead;
        carrier->dead = pair->next;
        free(pair->fields);
        free(pair);
    }
}

static void *carry_all(void *argument)
{
    struct carrier *carrier = argument;
    struct epoll_event events[EVENTS_AT_ONCE];
    while (1) {
        int count = epoll_wait(carrier->epoll, events, EVENTS_AT_ONCE, -1);
        lock_carrier(carrier);
        if (carrier->is_over) {
            pthread_mutex_unlock(&carrier->lock);
            return NULL;
        }
        for (int i = 0; i < count; i++) {
            uint64_t woken;
            if (events[i].data.ptr)
                act_on(carrier, &events[i]);
            else if (read(carrier->wake, &woken, sizeof woken) < 0)
                continue;
        }
        if (carrier->has_thawed) {
            carrier->has_thawed = 0;
            after_thaw(carrier);
        }
        bury(carrier);
        pthread_mutex_unlock(&carrier->lock);
    }
}

int carrier_begin(struct carrier *carrier)
{
    sigset_t all, before;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    pthread_mutex_init(&carrier->lock, NULL);
    pthread_mutex_init(&carrier->turn, NULL);
    carrier->read = malloc(READ_MOST);
    carrier->fields = malloc(FIELDS_MOST);
    carrier->epoll = epoll_create1(EPOLL_CLOEXEC);
    carrier->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!carrier->read || !carrier->fields || carrier->epoll < 0 || carrier->wake < 0 ||
        epoll_ctl(carrier->epoll, EPOLL_CTL_ADD, carrier->wake, &event))
        return -1;
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&carrier->thread, NULL, carry_all, carrier);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? -1 : 0;
}

int carrier_add(struct carrier *carrier, const struct pair_order *order)
{
    int on = 1;
    if (!order->fields_size || order->fields_size > FIELDS_MOST / 2 || (order->fields[0] & 0xf0) != 0x80 ||
        (order->fields[0] & 0x0f) > FIELDS_OPENED)
        return -1;
    struct pair *pair = must(calloc(1, sizeof *pair));
    pair->number = order->number, pair->told_in = order->told_in;
    pair->fields = must(malloc(order->fields_size));
    memcpy(pair->fields, order->fields, order->fields_size);
    pair->fields_size = order->fields_size;
    for (int side = UP; side <= DOWN; side++) {
        pair->fd[side] = order->fd[side];
        pair->end[side] = pair;
        pair->way[side].said = pair->way[side].kept = order->said[side];
        pair->way[side].most = READ_FIRST;
        setsockopt(pair->fd[side], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(pair->fd[side], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
    }
    lock_carrier(carrier);
    pair->next = carrier->first;
    if (carrier->first)
        carrier->first->previous = pair;
    carrier->first = pair;
    settle(carrier, pair);
    pthread_mutex_unlock(&carrier->lock);
    return 0;
}

void carrier_freeze(struct carrier *carrier)
{
    lock_carrier(carrier);
    carrier->is_frozen = 1;
    for (struct pair *pair = carrier->first, *next; pair; pair = next) {
        next = pair->next;
        if (!pair->is_over)
            settle(carrier, pair); /* else what waits for the service would wake the thread again and again */
    }
    pthread_mutex_unlock(&carrier->lock);
}

void carrier_thaw(struct carrier *carrier)
{
    lock_carrier(carrier);
    carrier->is_frozen = 0, carrier->has_thawed = 1;
    pthread_mutex_unlock(&carrier->lock);
    wake(carrier);
}

size_t carrier_talking(struct carrier *carrier)
{
    size_t count = 0;
    lock_carrier(carrier);
    for (struct pair *pair = carrier->first; pair; pair = pair->next)
        count += !pair->way[UP].is_ended;
    pthread_mutex_unlock(&carrier->lock);
    return count;
}

int carrier_copies(struct carrier *carrier, uint64_t number, int fd[2])
{
    int found = -1;
    lock_carrier(carrier);
    for (struct pair *pair = carrier->first; pair && found; pair = pair->next) {
        if (pair->number != number)
            continue;
        fd[UP] = fcntl(pair->fd[UP], F_DUPFD_CLOEXEC, 0), fd[DOWN] = fcntl(pair->fd[DOWN], F_DUPFD_CLOEXEC, 0);
        found = 0;
    }
    pthread_mutex_unlock(&carrier->lock);
    return found;
}

void carrier_end(struct carrier *carrier)
{
    lock_carrier(carrier);
    carrier->is_over = 1;
    while (carrier->first) {
        struct pair *first = carrier->first;
        record_end(carrier, first, UP, "lost");
        record_end(carrier, first, DOWN, "lost");
        finish(carrier, first, 0);
    }
    bury(carrier);
    pthread_mutex_unlock(&carrier->lock);
    wake(carrier);
    pthread_join(carrier->thread, NULL);
}

/* Whether a FIN has come, and whether one was sent. A socket whose both ways have ended in order is told by its having no error. */
static void fins_of(int fd, int state, int fins[2])
{
    enum { FIN_WAIT1 = 4, FIN_WAIT2, TIME_WAIT, CLOSED, CLOSE_WAIT, LAST_ACK, CLOSING = 11 }; /* include/net/tcp_states.h */
    struct pollfd looked = {.fd = fd, .events = POLLIN};
    int is_over = state == TIME_WAIT || (state == CLOSED && poll(&looked, 1, 0) >= 0 && !(looked.revents & POLLERR));
    fins[0] = is_over || state == CLOSE_WAIT || state == LAST_ACK || state == CLOSING;
    fins[1] = is_over || state == FIN_WAIT1 || state == FIN_WAIT2 || state == LAST_ACK || state == CLOSING;
}

/* What the kernel counts as received and as acknowledged, with less what waits to be read, and more what waits to be sent. */
int socket_places(int fd, uint64_t places[2])
{
    struct tcp_info before, after;
    int unread, unsent, fins[2];
    for (int i = 0; i < 100; i++) { /* until nothing has come in between */
        socklen_t size = sizeof before;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &before, &size) || ioctl(fd, SIOCINQ, &unread) || ioctl(fd, SIOCOUTQ, &unsent))
            return -1;
        size = sizeof after;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &after, &size))
            return -1;
        if (before.tcpi_bytes_received != after.tcpi_bytes_received || before.tcpi_bytes_acked != after.tcpi_bytes_acked ||
            before.tcpi_state != after.tcpi_state)
            continue;
        fins_of(fd, after.tcpi_state, fins); /* each counts as a byte */
        places[0] = after.tcpi_bytes_received - (uint64_t)unread - (uint64_t)fins[0];
        places[1] = after.tcpi_bytes_acked + (uint64_t)unsent - (uint64_t)fins[1];
        return 0;
    }
    return -1;
}
