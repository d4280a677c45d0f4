/* See beside.h. */
#define _GNU_SOURCE
#include "beside.h"

#include "../micro/base.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { SOON_NS = 300000 };

static sem_t begun, ended;
static bool (*_Atomic work_begun)(void); /* NULL: somebody has taken it */
static bool is_well;
static char reason[sizeof refusal];

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* It comes soon, and to be woken takes long. */
static void await(sem_t *event)
{
	const int64_t until = now_ns() + SOON_NS;

	while (sem_trywait(event)) {
		if (now_ns() > until) {
			while (sem_wait(event) && errno == EINTR)
				;
			return;
		}
		sched_yield(); /* a thread that is to stop may wait for this processor */
	}
}

static void *work_beside(void *nothing)
{
	for (;;) {
		bool (*work)(void);

		await(&begun);
		work = atomic_exchange(&work_begun, NULL);
		if (!work)
			continue;
		is_well = work();
		memcpy(reason, refusal, sizeof reason);
		sem_post(&ended);
	}
	return nothing;
}

bool start_beside(void)
{
	pthread_attr_t own;
	pthread_t thread;

	if (sem_init(&begun, 0, 0) || sem_init(&ended, 0, 0) || pthread_attr_init(&own) ||
	    pthread_attr_setdetachstate(&own, PTHREAD_CREATE_DETACHED) || pthread_create(&thread, &own, work_beside, NULL))
		return refuse("no thread can be made");
	return true;
}

void begin_beside(bool (*work)(void))
{
	atomic_store(&work_begun, work);
	sem_post(&begun);
}

bool end_beside(bool counts)
{
	char before[sizeof refusal];
	bool (*work)(void) = atomic_exchange(&work_begun, NULL);

	memcpy(before, refusal, sizeof before);
	if (work && !counts) {
		is_well = false;
	} else if (work) {
		is_well = work();
		memcpy(reason, refusal, sizeof reason);
	} else {
		await(&ended);
	}
	memcpy(refusal, counts && !is_well ? reason : before, sizeof refusal);
	return is_well;
}
