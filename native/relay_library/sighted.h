/* One connection as packets show it, which nothing of Relive carries; `relive.proxies.ingress._observed` is its specification.
 *
 * Its requests and answers are framed and recorded as those of a connection that the relay carries (requests.c, answers.c), and as
 * there, what is not understood with certainty is given to Python, before a head, with all that is known. Where an answer is under way
 * then, its rest is recorded here still, as Python gives it back (`sights_answer`). All calls want the journal's lock. */
#ifndef RELAY_SIGHTED_H
#define RELAY_SIGHTED_H

#include "connection.h"
#include "packets.h"
#include "streams.h"

#define AHEAD_MOST (16 * 1024 * 1024) /* bytes that may wait for those before them, of one direction */

enum verdict_of_segment {
    TAKEN,
    LOST, /* packets before it are missing: no more can be said of this connection */
    HANDED, /* the connection is Python's from here on, in the middle of this segment */
    FOREIGN, /* the segment is Python's, as all of its connection */
    STOOD, /* the same, of a connection that stood before: it is what the client says to all that the service has said */
};

/* What goes by as bytes: `relive.proxies.ingress._plain` is its specification. */
struct speech {
    uint64_t bytes[2]; /* of either side */
    uint64_t in_a_row; /* of `latest`, since the other has said something */
    int is_on, latest;
};

struct sighted {
    struct connection carried; /* as if it was: `number` is 0 as long as nothing is recorded of it */
    struct sighted *in_bucket, *previous, *next;
    struct ends ends;
    struct stream side[2];
    uint32_t first; /* sequence number of the client's first byte that is known */
    uint32_t following; /* with has_following: sequence number of the first byte that a commit has not */
    uint32_t told_until; /* with has_told, as long as nothing is known: sequence number behind what the service has said since the client */
    int has_told, tells_http, has_missed; /* has_missed: what a client said before it was known */
    int is_limited, has_following;
    int is_foreign, is_over, began_in_middle, first_answer_is_open, heard_service, service_eof;
    int is_handed, is_lost; /* in the middle of a segment: what comes of it is not acted on here */
    uint64_t odd_ns; /* when the client's bytes were seen for which it was handed over; 0: it was for others */
    struct speech speech; /* of a connection that carries no HTTP */
    struct pieces beyond;
    struct pieces rest[2]; /* with is_handed: bytes that have their turn, and were not acted on */
};

void sighted_begin(struct sighted *one, struct worker *worker, const struct ends *ends);
void sighted_free(struct sighted *one);
enum verdict_of_segment sighted_observe(struct sighted *one, const struct segment *segment);
/* That SYN of the client is of another connection of the same ends, which follows this one. */
int sighted_began_with(const struct sighted *one, const struct segment *syn);
int sighted_is_busy(const struct sighted *one);
/* Nothing came of it, as far as is known here: not one byte of the client. */
int sighted_is_silent(const struct sighted *one);
/* Packets are missing: what was under way is lost. */
void sighted_lose(struct sighted *one);
/* A commit is being placed: what it does not have of the client waits until `sighted_release`. */
void sighted_limit(struct sighted *one, const uint32_t *following);
enum verdict_of_segment sighted_release(struct sighted *one);
/* It has bytes of the service, none of which has that sequence number or a later one. */
int sighted_is_written(const struct sighted *one, const struct segment *segment, uint32_t following);

#endif
