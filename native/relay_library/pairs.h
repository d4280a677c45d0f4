/* Two sockets between which bytes are carried, and recorded if that is wanted: see pairs.c. */
#ifndef RELAY_PAIRS_H
#define RELAY_PAIRS_H

#include "journal.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { UP, DOWN }; /* from the service, which is at fd[UP]; to it, from fd[DOWN] */
#define CARRIERS_MOST 4

struct pair;

struct carrier {
    struct journal *journal;
    void (*tell)(void *who, uint64_t number); /* a pair has ended, and its descriptors are closed */
    void *who;
    pthread_t thread;
    pthread_mutex_t lock; /* held while events are acted on; everything of its pairs is under it */
    pthread_mutex_t turn; /* see worker.c */
    int epoll, wake, is_frozen, has_thawed, is_over;
    struct pair *first, *dead;
    uint8_t *read, *fields;
};

struct pair_order {
    uint64_t number;
    int32_t fd[2];
    uint64_t said[2]; /* bytes recorded so far */
    uint64_t told_in; /* segment in which the dialogue was opened last; 0: in none */
    const uint8_t *fields; /* of the event dialogue-opened: a packed map of at most FIELDS_OPENED pairs */
    uint64_t fields_size;
};
#define FIELDS_OPENED 13 /* two more are a fixmap still */

int carrier_begin(struct carrier *carrier);
int carrier_add(struct carrier *carrier, const struct pair_order *order); /* the descriptors are the pair's if it returns 0 */
void carrier_freeze(struct carrier *carrier); /* when it returns nothing goes to the service any more */
void carrier_thaw(struct carrier *carrier);
size_t carrier_talking(struct carrier *carrier); /* pairs whose service has not ended its direction */
int carrier_copies(struct carrier *carrier, uint64_t number, int fd[2]); /* other descriptors of a pair's sockets; -1: there is none */
void carrier_end(struct carrier *carrier);

/* Bytes read from a connected socket, and bytes written to it, each counted from somewhere: only differences mean anything. */
int socket_places(int fd, uint64_t places[2]);

#endif
