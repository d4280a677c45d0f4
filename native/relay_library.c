/* relay_library.so: the recording proxy's way for plain HTTP/1 traffic. `relive.proxies.relay` loads it into the proxy's process.
 *
 * Threads of its own accept clients, carry bytes, and write the recording; Python takes no part in that. They know as much of HTTP/1
 * as is certain (heads.h). Any connection on which something else comes is given to Python with all that is known of it, and stays
 * there. Python also has the word for the gate, tells agents of failures, and drops old segments.
 *
 * Locks, in the order in which they are taken: a worker's, the journal's, that of the posts. Python takes each alone.
 *
 * All functions here may be called from any thread, but `relay_start` and `relay_end` once each. None calls back. */
#define _GNU_SOURCE
#include "relay_library/engine.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

/* One more with each change of what the functions below take or mean: Python and the library may come from different trees. */
#define RELAY_VERSION 4

/* Of what Python mirrors: the version, then the sizes of its structures. */
API int relay_layout(int which)
{
    const size_t layout[] = {RELAY_VERSION, sizeof(struct numbers), sizeof(struct handed), sizeof(struct flight), sizeof(struct post),
                             sizeof(struct pair_order)};
    return which >= 0 && (size_t)which < sizeof layout / sizeof *layout ? (int)layout[which] : -1;
}

static void tell_of_journal(void *who, int what, uint64_t value)
{
    relay_post(who, &(struct post){.kind = what, .extra = value});
}

/* A recording's writer; `numbers` and `head` (mapped memory) must outlive it. NULL: no memory, or a name that is too long. */
API struct relay *relay_new(const char *directory, struct numbers *numbers, uint64_t *head)
{
    struct relay *relay = calloc(1, sizeof *relay);
    if (!relay)
        return NULL;
    relay->posts_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (relay->posts_fd < 0 || journal_open(&relay->journal, directory, numbers, head)) {
        free(relay);
        return NULL;
    }
    pthread_mutex_init(&relay->posts_lock, NULL);
    relay->journal.tell = tell_of_journal;
    relay->journal.who = relay;
    return relay;
}

/* Readable when `relay_take` has something. */
API int relay_posts_fd(struct relay *relay)
{
    return relay->posts_fd;
}

void relay_post(struct relay *relay, const struct post *post)
{
    uint64_t one = 1;
    pthread_mutex_lock(&relay->posts_lock);
    if (relay->posts_begin + relay->posts_size == relay->posts_room) {
        if (relay->posts_begin)
            memmove(relay->posts, relay->posts + relay->posts_begin, relay->posts_size * sizeof *post);
        relay->posts_begin = 0;
        if (relay->posts_size == relay->posts_room) {
            relay->posts_room = relay->posts_room ? relay->posts_room * 2 : 64;
            relay->posts = realloc(relay->posts, relay->posts_room * sizeof *post);
            if (!relay->posts)
                abort();
        }
    }
    relay->posts[relay->posts_begin + relay->posts_size++] = *post;
    pthread_mutex_unlock(&relay->posts_lock);
    ssize_t written = write(relay->posts_fd, &one, sizeof one);
    (void)written;
}

/* The next thing that Python has to hear of. 0: there is none. */
API int relay_take(struct relay *relay, struct post *post)
{
    uint64_t count;
    int found = 0;
    pthread_mutex_lock(&relay->posts_lock);
    if (relay->posts_size) {
        *post = relay->posts[relay->posts_begin++];
        relay->posts_size--;
        found = 1;
    } else {
        relay->posts_begin = 0;
        ssize_t got = read(relay->posts_fd, &count, sizeof count);
        (void)got;
    }
    pthread_mutex_unlock(&relay->posts_lock);
    return found;
}

API void relay_forget(struct handed *handed)
{
    for (int side = 0; side < 2; side++) {
        free(handed->from[side]);
        free(handed->to[side]);
    }
    free(handed->flight);
    free(handed);
}

API uint64_t relay_append(struct relay *relay, const char *kind, uint64_t connection, uint64_t request, const uint8_t *fields,
                          size_t fields_size, const uint8_t *data, size_t size)
{
    pthread_mutex_lock(&relay->journal.lock);
    uint64_t seq = journal_append(&relay->journal, kind, connection, request, fields, fields_size, data, size);
    pthread_mutex_unlock(&relay->journal.lock);
    return seq;
}

/* An event that was seen before. */
API uint64_t relay_append_at(struct relay *relay, uint64_t mono_ns, uint64_t wall_ns, const char *kind, uint64_t connection,
                             uint64_t request, const uint8_t *fields, size_t fields_size, const uint8_t *data, size_t size)
{
    pthread_mutex_lock(&relay->journal.lock);
    uint64_t seq =
        journal_append_at(&relay->journal, mono_ns, wall_ns, kind, connection, request, fields, fields_size, data, size);
    pthread_mutex_unlock(&relay->journal.lock);
    return seq;
}

API void relay_flush(struct relay *relay)
{
    pthread_mutex_lock(&relay->journal.lock);
    journal_flush(&relay->journal);
    pthread_mutex_unlock(&relay->journal.lock);
}

API uint64_t relay_next_request(struct relay *relay)
{
    pthread_mutex_lock(&relay->journal.lock);
    uint64_t number = ++relay->journal.numbers->request;
    pthread_mutex_unlock(&relay->journal.lock);
    return number;
}

API uint64_t relay_next_connection(struct relay *relay)
{
    pthread_mutex_lock(&relay->journal.lock);
    uint64_t number = ++relay->journal.numbers->connection;
    pthread_mutex_unlock(&relay->journal.lock);
    return number;
}

/* Before `relay_start`: a file whose size is recorded with requests. -1: there are too many. */
API int relay_log(struct relay *relay, const char *path)
{
    size_t size = strlen(path);
    if (relay->log_count == LOGS_MOST - 1 || size > 4096)
        return -1;
    struct log_file *file = &relay->logs[relay->log_count];
    *file = (struct log_file){.path = strdup(path), .size = size, .fd = -1};
    relay->log_count += file->path != NULL;
    return file->path ? 0 : -1;
}

/* Carry what comes to the listeners to `upstream`. `source`: own address to connect from, or NULL.
 * -1: the threads cannot be made; nothing was accepted. */
API int relay_start(struct relay *relay, const int *listeners, int listener_count, const void *upstream, size_t upstream_size,
                    const void *source, size_t source_size, uint64_t body_limit, int threads)
{
    if (listener_count < 1 || listener_count > 4 || upstream_size > sizeof relay->upstream || source_size > sizeof relay->source)
        return -1;
    memcpy(&relay->upstream, upstream, upstream_size);
    relay->upstream_size = (socklen_t)upstream_size;
    if (source)
        memcpy(&relay->source, source, source_size);
    relay->source_size = source ? (socklen_t)source_size : 0;
    relay->body_limit = body_limit;
    relay->fields_room = 1024;
    for (size_t i = 0; i < relay->log_count; i++)
        relay->fields_room += relay->logs[i].size + 16;
    relay->workers = calloc((size_t)threads, sizeof *relay->workers);
    if (!relay->workers)
        return -1;
    for (int i = 0; i < threads; i++) {
        struct worker *worker = &relay->workers[i];
        worker->relay = relay;
        worker->listener_count = listener_count;
        memcpy(worker->listeners, listeners, (size_t)listener_count * sizeof *listeners);
        if (worker_begin(worker))
            return i ? 0 : -1; /* fewer carry as well */
        relay->worker_count = i + 1;
    }
    return 0;
}

uint64_t relay_gate_clock(struct relay *relay)
{
    uint64_t closed_at = atomic_load(&relay->closed_at_ns);
    return (closed_at ? closed_at : journal_mono_ns(&relay->journal)) - atomic_load(&relay->closed_before_ns);
}

#define EACH_WORKER(relay, worker)                                                                                               \
    for (struct worker *worker = (relay)->workers; worker && worker < (relay)->workers + (relay)->worker_count; worker++)

/* When it returns no byte, FIN or connection goes to the service any more. */
API void relay_freeze(struct relay *relay)
{
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        worker->is_frozen = 1;
        pthread_mutex_unlock(&worker->lock);
    }
    atomic_store(&relay->closed_at_ns, clock_ns(CLOCK_MONOTONIC));
}

API void relay_thaw(struct relay *relay)
{
    uint64_t closed_at = atomic_load(&relay->closed_at_ns);
    if (closed_at)
        atomic_fetch_add(&relay->closed_before_ns, clock_ns(CLOCK_MONOTONIC) - closed_at);
    atomic_store(&relay->closed_at_ns, 0);
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        worker->is_frozen = 0, worker->has_thawed = 1;
        pthread_mutex_unlock(&worker->lock);
        worker_wake(worker);
    }
}

/* The connections that have reached the service, at most `most` of them. Returns how many there are. */
API size_t relay_report(struct relay *relay, struct report *reports, size_t most)
{
    size_t count = 0;
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        for (struct connection *one = worker->first; one; one = one->next) {
            if (one->fd[SERVICE] < 0 || one->service_lost || one->service_deaf || one->doom)
                continue;
            if (count < most)
                reports[count] = (struct report){.connection = one->number,
                                                 .local_port = one->local_port,
                                                 .request = one->flight_count ? connection_flight(one, 0)->number : 0,
                                                 .sent = one->sent};
            count++;
        }
        pthread_mutex_unlock(&worker->lock);
    }
    return count;
}

API void relay_count(struct relay *relay, struct counts *counts)
{
    counts->connections = atomic_load(&relay->connections);
    counts->in_flight = atomic_load(&relay->in_flight);
    counts->answered = atomic_load(&relay->answered);
    counts->errors = atomic_load(&relay->errors);
    counts->broken = atomic_load(&relay->broken);
}

static void look_for_hang(struct connection *connection, uint64_t limit_ns, uint64_t now)
{
    if (!connection_waits_on_service(connection))
        return;
    struct flight *first = connection_flight(connection, 0);
    if (first->is_reported || now < first->touched + limit_ns)
        return;
    first->is_reported = 1;
    relay_post(connection->worker->relay, &(struct post){.kind = POST_UNANSWERED,
                                                         .number = first->number,
                                                         .seconds = (double)(now - first->touched) / 1e9,
                                                         .wall_ns = clock_ns(CLOCK_REALTIME)});
}

/* Post, once each, which requests have waited for so long. */
API void relay_look_for_hangs(struct relay *relay, uint64_t limit_ns)
{
    uint64_t now = relay_gate_clock(relay);
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        for (struct connection *one = worker->first; one; one = one->next)
            look_for_hang(one, limit_ns, now);
        pthread_mutex_unlock(&worker->lock);
    }
}

/* The service speaks before its clients: connections to come are Python's. */
API void relay_service_speaks_first(struct relay *relay)
{
    atomic_store(&relay->service_speaks_first, 1);
}

/* A client that Python carries has spoken HTTP/1: others that are silent need not be what a service would speak to first. */
API void relay_client_speaks_http(struct relay *relay)
{
    atomic_store(&relay->speaks_http, 1);
}

/* Accept no more. */
API void relay_stop_accepting(struct relay *relay)
{
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        struct worker *one = worker;
        for (int i = 0; i < one->listener_count && one->is_accepting; i++)
            epoll_ctl(one->epoll, EPOLL_CTL_DEL, one->listeners[i], NULL);
        one->is_accepting = 0, one->accept_again_ns = 0;
        pthread_mutex_unlock(&worker->lock);
    }
}

/* End the connections and the threads, and hand the last events to the kernel. `relay_take` still gives what was posted. */
API void relay_end(struct relay *relay)
{
    EACH_WORKER(relay, worker) {
        worker_lock(worker);
        worker->is_over = 1;
        while (worker->first) {
            struct connection *first = worker->first;
            /* Whatever is cut off must not look whole; what is whole must not be thrown away, as a reset does with what the kernel has. */
            first->client_reset = first->flight_count || first->out[CLIENT].size || first->held[SERVICE].size;
            connection_finish(first);
        }
        pthread_mutex_unlock(&worker->lock);
        worker_wake(worker);
        pthread_join(worker->thread, NULL);
    }
    relay_flush(relay);
}

/* Pairs of sockets between which bytes are carried (pairs.c) */

static void tell_of_pair(void *who, uint64_t number)
{
    relay_post(who, &(struct post){.kind = POST_PAIR_ENDED, .number = number});
}

/* Begin the threads; -1: there is none. */
API int relay_pairs_start(struct relay *relay, int threads)
{
    for (int i = 0; i < threads && i < CARRIERS_MOST; i++) {
        struct carrier *carrier = &relay->carriers[i];
        carrier->journal = &relay->journal, carrier->tell = tell_of_pair, carrier->who = relay;
        if (carrier_begin(carrier))
            break;
        relay->carrier_count = i + 1;
    }
    return relay->carrier_count ? 0 : -1;
}

/* Carry between two connected, non-blocking sockets from now on; they are the relay's if this returns 0. */
API int relay_pair_add(struct relay *relay, const struct pair_order *order)
{
    relay->carrier_next = (relay->carrier_next + 1) % relay->carrier_count;
    return carrier_add(&relay->carriers[relay->carrier_next], order);
}

API void relay_pairs_freeze(struct relay *relay)
{
    for (int i = 0; i < relay->carrier_count; i++)
        carrier_freeze(&relay->carriers[i]);
}

API void relay_pairs_thaw(struct relay *relay)
{
    for (int i = 0; i < relay->carrier_count; i++)
        carrier_thaw(&relay->carriers[i]);
}

/* Of how many the service has not ended its direction. */
API uint64_t relay_pairs_talking(struct relay *relay)
{
    uint64_t count = 0;
    for (int i = 0; i < relay->carrier_count; i++)
        count += carrier_talking(&relay->carriers[i]);
    return count;
}

/* Other descriptors of a pair's sockets, which are the caller's; one that cannot be had is -1. -1: there is no such pair. */
API int relay_pair_copies(struct relay *relay, uint64_t number, int fd[2])
{
    for (int i = 0; i < relay->carrier_count; i++)
        if (carrier_copies(&relay->carriers[i], number, fd) == 0)
            return 0;
    return -1;
}

/* End all pairs and their threads. */
API void relay_pairs_end(struct relay *relay)
{
    for (int i = 0; i < relay->carrier_count; i++)
        carrier_end(&relay->carriers[i]);
    relay->carrier_count = 0;
    relay_flush(relay);
}

API int relay_socket_places(int fd, uint64_t places[2])
{
    return socket_places(fd, places);
}

/* For tests: what the parts make of bytes. */

API int relay_read_request_head(const uint8_t *data, size_t size, uint64_t *found)
{
    struct request_head head;
    enum verdict verdict = read_request_head(data, size, &head);
    if (verdict == WHOLE)
        found[0] = head.size, found[1] = head.length, found[2] = (uint64_t)head.is_head;
    return (int)verdict;
}

API int relay_read_answer_head(const uint8_t *data, size_t size, uint64_t *found)
{
    struct answer_head head;
    enum verdict verdict = read_answer_head(data, size, &head);
    if (verdict == WHOLE)
        found[0] = head.size, found[1] = (uint64_t)head.status, found[2] = (uint64_t)head.length;
    return (int)verdict;
}

API int64_t relay_chunked_size(const uint8_t *data, size_t size, size_t step)
{
    struct chunks chunks;
    int is_over = 0;
    const char *why;
    chunks_begin(&chunks);
    for (size_t at = 0; at < size; at += step) {
        int64_t taken = chunks_take(&chunks, data + at, size - at < step ? size - at : step, &is_over, &why);
        if (taken < 0)
            return -2;
        if (is_over)
            return (int64_t)at + taken;
    }
    return -1;
}

API uint32_t relay_crc32(const uint8_t *data, size_t size)
{
    return crc32_of(0, data, size);
}

API void relay_blake2b(const uint8_t *data, size_t size, size_t step, uint8_t *digest)
{
    struct blake2b hash;
    blake2b_begin(&hash);
    for (size_t at = 0; at < size; at += step)
        blake2b_take(&hash, data + at, size - at < step ? size - at : step);
    blake2b_end(&hash, digest);
}
