/* A thread that carries connections: one epoll set, and whatever is accepted stays with it, so no connection is ever in two threads.
 *
 * Everything of a worker is under its lock, which it holds from the first event of a round to the last. Python takes it to close the gate,
 * to report and to end: since a busy worker would take it again before anybody who waits is awake, who wants it takes `turn` first.
 * A connection that has ended is freed at the end of the round (`bury`): an event that comes later in it may still name it.
 * Time is looked at every TICK_MS, and only while something waits for it, so idle connections cost nothing. */
#define _GNU_SOURCE
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 64
#define ACCEPTS_AT_ONCE 16
#define TICK_MS 50
#define ACCEPT_PAUSE_NS 100000000ull

void worker_wake(struct worker *worker)
{
    uint64_t one = 1;
    ssize_t written = write(worker->wake, &one, sizeof one);
    (void)written; /* it fails only when the counter is full, and then the worker is woken anyway */
}

void worker_lock(struct worker *worker)
{
    pthread_mutex_lock(&worker->turn);
    pthread_mutex_lock(&worker->lock);
    pthread_mutex_unlock(&worker->turn);
}

static void ask_for_accepts(struct worker *worker, int wanted)
{
    for (int i = 0; i < worker->listener_count && wanted != worker->is_accepting; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.ptr = &worker->listeners[i]};
        epoll_ctl(worker->epoll, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, worker->listeners[i], &event);
    }
    worker->is_accepting = wanted;
}

static void accept_some(struct worker *worker, int listener)
{
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sockaddr_storage peer = {0};
        socklen_t size = sizeof peer;
        int fd = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            connection_accepted(worker, fd, &peer);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            ask_for_accepts(worker, 0); /* what waits in the queue would wake us again at once */
            worker->accept_again_ns = clock_ns(CLOCK_MONOTONIC) + ACCEPT_PAUSE_NS;
        }
        return;
    }
}

static void settle_all(struct worker *worker, int timed_only)
{
    for (struct connection *one = worker->first, *next; one; one = next) {
        next = one->next;
        if (!timed_only || one->is_timed)
            connection_settle(one);
    }
}

static void act_on(struct worker *worker, const struct epoll_event *event)
{
    char *what = event->data.ptr;
    if (what == (char *)&worker->wake) {
        uint64_t count;
        ssize_t got = read(worker->wake, &count, sizeof count);
        (void)got;
        return;
    }
    if (what >= (char *)worker->listeners && what < (char *)(worker->listeners + worker->listener_count)) {
        if (worker->is_accepting)
            accept_some(worker, *(int *)what);
        return;
    }
    struct connection **end = event->data.ptr, *connection = *end;
    connection_event(connection, (int)(end - connection->end), event->events);
}

static void look_at_time(struct worker *worker)
{
    if (worker->timed)
        settle_all(worker, 1);
    if (worker->accept_again_ns && clock_ns(CLOCK_MONOTONIC) >= worker->accept_again_ns) {
        worker->accept_again_ns = 0;
        ask_for_accepts(worker, 1);
    }
}

static void bury(struct worker *worker)
{
    while (worker->dead) {
        struct connection *one = worker->dead;
        worker->dead = one->next;
        connection_free(one);
    }
}

static void *carry(void *argument)
{
    struct worker *worker = argument;
    struct epoll_event events[EVENTS_AT_ONCE];
    uint64_t looked_ns = 0;
    int waits = 0; /* for what time alone brings */
    while (1) {
        int count = epoll_wait(worker->epoll, events, EVENTS_AT_ONCE, waits ? TICK_MS : -1);
        worker_lock(worker);
        if (worker->is_over) {
            pthread_mutex_unlock(&worker->lock);
            return NULL;
        }
        for (int i = 0; i < count; i++)
            act_on(worker, &events[i]);
        if (worker->has_thawed) {
            worker->has_thawed = 0;
            settle_all(worker, 0);
        }
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now - looked_ns > TICK_MS * 500000ull) {
            looked_ns = now;
            look_at_time(worker);
        }
        bury(worker);
        waits = worker->timed || worker->accept_again_ns;
        pthread_mutex_unlock(&worker->lock);
    }
}

int worker_begin(struct worker *worker)
{
    sigset_t all, before;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_mutex_init(&worker->turn, NULL);
    worker->read = malloc(READ_BYTES);
    worker->fields = malloc(worker->relay->fields_room);
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    worker->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!worker->read || !worker->fields || worker->epoll < 0 || worker->wake < 0)
        return -1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &worker->wake};
    if (epoll_ctl(worker->epoll, EPOLL_CTL_ADD, worker->wake, &event))
        return -1;
    ask_for_accepts(worker, 1);
    /* Signals are the main thread's. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, carry, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? -1 : 0;
}
