/* What all parts of relive-micro know of the one process that it follows, and of the commit that is under way. */
#pragma once
#include "../tracker/frame.h"
#include "../tracker/process.h"

enum {
	THREADS_MOST = 256,
	MAPPINGS_MOST = 65536,
	GIVE_UP_MS = 2000, /* a thread has to be given a processor before it can stop */
};

struct mapping {
	uint64_t start, end;
	bool is_file, is_code, is_special; /* shared, or the kernel's own */
};

struct thread {
	pid_t tid, inside;
	bool seized;
	bool held; /* it stands still, and it was heard how it stopped */
	int owed; /* a signal that somebody else has sent it and that we were told of; it gets it when it is let go */
	struct context context;
	uint64_t cushion, trip; /* addresses of two frames: the first sleeps for a while, and goes on to the second, where its round trip begins */
	uint64_t results; /* address of what the calls of its round trip answer */
	struct unused unused; /* where its frames lie */
	bool is_aside; /* that is its alternate stack, which gets back what was there */
};

extern struct process process;
extern struct thread threads[THREADS_MOST]; /* the first is the process's first */
extern int thread_count;
extern uint64_t caught; /* signals that it catches, a bit for each from 1 on; as of the last look */

/* Why the commit under way is refused, for each thread of this program; the last reason counts. Returns false. */
__attribute__((format(printf, 1, 2))) bool refuse(const char *form, ...);
extern _Thread_local char refusal[256];

/* With these words it begins where the kernel was found to mislead, and ends where that was about its counters of memory. They are known to
 * `relive.checkpoint.micro_tracker`. */
#define DISTRUSTED "the kernel's objects do not tell what they are taken to tell"
#define UNCOUNTED "changed, and that was not counted"
