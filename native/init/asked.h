/* Calls of the service that wait for their answer. */
#pragma once
#include "paths.h"

#include <pthread.h>
#include <stdint.h>

/* A call. It goes on when nothing of it is pending any more. */
struct asked {
	uint64_t id;	/* of the notification */
	int pending;	/* paths that are not settled, and one while its own thread looks for them */
};

/* Around all of this, the set of paths and the jobs. Who holds it runs at the priority of the thread that serves. */
extern pthread_mutex_t lock;

/* The descriptor by which calls are received and answered. */
extern int listener;

void prepare_asking(int listener);

/* Let a call go on. */
void answer(uint64_t id);

/* With the lock held: one path of the call is settled; the last one answers and frees it. */
void settled(struct asked *asked);

/* With the lock held: the call goes on only when the base of a path, which is being kept, is there. */
void wait_for(struct path *path, struct asked *asked);

/* With the lock held: it is; those that waited may go on. */
void release_waiting(struct path *path);
