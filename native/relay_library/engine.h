/* The parts of the relay: what all share, the threads that carry, and one connection. `relay_library.c` says what it is for. */
#ifndef RELAY_ENGINE_H
#define RELAY_ENGINE_H

#include "bytes.h"
#include "checksum.h"
#include "heads.h"
#include "journal.h"
#include "pairs.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/socket.h>

#define READ_BYTES (256 * 1024)
#define BACKLOG_MOST (256 * 1024) /* more than this waiting to be sent one way, and no more is read for it */
#define HEAD_MOST (64 * 1024) /* longer heads are for Python to judge */
#define FLIGHTS_MOST 256 /* requests of one connection without an answer; then it is not read */
#define ADDRESS_BYTES 64
#define LOGS_MOST 16

/* A request without its whole answer. Times in ns on the gate's clock, which stands still while the gate is closed. */
struct flight {
    uint64_t number, announced, total, started, touched;
    int32_t is_head, is_sent, status, is_reported;
};

enum { CLIENT, SERVICE };

/* A connection that Python goes on with; read by `relive.proxies.relay`, which mirrors it. */
struct handed {
    int32_t fd[2]; /* the service's is -1: there is none yet */
    int32_t is_silent; /* it has said nothing for so long that the service may have to speak first */
    int32_t is_uploading;
    uint64_t connection, requests, answered, sent;
    uint64_t upload_number, upload_left, upload_total;
    uint64_t flights;
    struct flight *flight;
    uint8_t *from[2], *to[2]; /* by side: read and not passed on; passed on and not sent */
    uint64_t from_bytes[2], to_bytes[2];
    char address[ADDRESS_BYTES];
};

enum post_kind {
    POST_HANDED = 16, /* `handed` */
    POST_SPEAKS_HTTP,
    POST_SERVICE_SEEN,
    POST_ANSWERED, /* a 5xx: number, value (its status), seconds, wall_ns, seq */
    POST_BROKEN, /* number, value (1: reset), extra (answers before it), seconds, wall_ns */
    POST_UNANSWERED, /* number, seconds */
    POST_PAIR_ENDED, /* number */
}; /* and JOURNAL_*: extra */

struct post {
    int32_t kind, value;
    uint64_t number, extra, wall_ns, seq;
    double seconds;
    struct handed *handed;
};

struct log_file {
    char *path;
    size_t size;
    int fd; /* -1: not there yet */
};

/* The sizes of the log files at one moment; -1: there is no such file. */
struct log_note {
    uint64_t wall_ns;
    int64_t sizes[LOGS_MOST];
};

#define NOTES_MOST 4096

struct report {
    uint64_t connection, local_port, request, sent; /* request 0: none */
};

struct counts {
    uint64_t connections, in_flight, answered, errors, broken;
};

struct relay {
    struct journal journal;
    struct sockaddr_storage upstream, source;
    socklen_t upstream_size, source_size; /* source_size 0: any */
    uint64_t body_limit;
    struct log_file logs[LOGS_MOST]; /* used with the journal's lock */
    size_t log_count, fields_room;
    struct log_note *notes; /* a ring of NOTES_MOST, the latest at note_count - 1; NULL: nothing is noted, it is looked at once */
    uint64_t note_count;
    int64_t sizes[LOGS_MOST]; /* with `has_sizes`: what the logs have now, which is later than all that is recorded until that is 0 again */
    int has_sizes;
    atomic_int speaks_http, service_seen, service_speaks_first;
    atomic_uint_fast64_t closed_before_ns; /* how long the gate was closed in all */
    atomic_uint_fast64_t closed_at_ns; /* 0: it is open */
    atomic_uint_fast64_t connections, in_flight, answered, errors, broken;
    pthread_mutex_t posts_lock;
    struct post *posts;
    size_t posts_begin, posts_size, posts_room;
    int posts_fd; /* eventfd: something was posted */
    struct worker *workers;
    int worker_count;
    struct carrier carriers[CARRIERS_MOST];
    int carrier_count, carrier_next;
};

struct connection;

struct worker {
    struct relay *relay;
    pthread_t thread;
    pthread_mutex_t lock; /* held while events are acted on; everything of its connections is under it */
    pthread_mutex_t turn; /* held while `lock` is waited for, so that a busy worker does not take it again and again */
    int epoll, wake;
    int listeners[4], listener_count, is_accepting;
    uint64_t accept_again_ns; /* not 0: accepting pauses, this process is short of descriptors */
    int is_frozen, has_thawed, is_over;
    uint64_t timed; /* connections that a timer watches */
    struct connection *first, *dead;
    uint8_t *read;
    uint8_t *fields;
};

enum doom { LIVES, ENDS, ENDS_BY_RESET };
enum answer_state { ANSWER_HEAD, ANSWER_LENGTH, ANSWER_CHUNKS, ANSWER_UNTIL_CLOSE, ANSWER_UNFRAMED };

struct connection {
    struct worker *worker;
    struct connection *next, *previous;
    int fd[2];
    uint32_t mask[2]; /* what epoll was asked for; 0: nothing, and it does not know the descriptor */
    struct connection *end[2]; /* &end[side] is what epoll says: it leads here, and to the side */
    uint64_t number, requests, answered, sent, local_port;
    int is_split; /* `local_port` is not said of the next request: a commit has half of its head, which cannot be gone on with there */
    char address[ADDRESS_BYTES];
    struct bytes held[2]; /* of a head that is not whole */
    struct bytes out[2];
    /* The way to the service */
    int is_spoken, is_odd; /* odd: what is held is for Python, once no flight is left */
    int is_uploading;
    uint64_t upload_number, upload_left, upload_total;
    struct flight *flights;
    size_t flight_begin, flight_count, flight_room;
    /* The way back */
    enum answer_state answer;
    uint64_t answer_left, answer_total, answer_kept;
    int is_hashed, is_passed_over; /* is_passed_over: bytes of it were not taken, and nothing behind them is kept */
    struct blake2b hash;
    struct chunks chunks;
    /* Its end. `service_deaf`: it takes no more, but what it said before may still be there to read. */
    enum doom doom;
    int client_eof, service_eof, service_deaf, service_lost, client_shut, service_shut;
    int is_ending, client_reset, is_dead, is_timed, is_end_recorded;
    uint64_t deadline_ns;
};

/* connection.c. All with the worker's lock, and without the journal's. */
void connection_accepted(struct worker *worker, int fd, const struct sockaddr_storage *peer);
void connection_event(struct connection *connection, int side, uint32_t events);
void connection_settle(struct connection *connection); /* act on what has changed for it from outside: gate, time */
void connection_hand_over(struct connection *connection, const uint8_t *from_service, size_t size, int is_silent);
void connection_finish(struct connection *connection); /* as its `doom` has it */
void connection_free(struct connection *connection);
int connection_waits_on_service(struct connection *connection);

/* flights.c; index 0: that whose answer comes next */
struct flight *connection_flight(struct connection *connection, size_t index);

/* worker.c */
int worker_begin(struct worker *worker);
void worker_wake(struct worker *worker);
void worker_lock(struct worker *worker);

/* relay_library.c */
void relay_post(struct relay *relay, const struct post *post);
uint64_t relay_gate_clock(struct relay *relay);

#endif
