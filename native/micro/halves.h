/* A look at all memory by two threads, since the processor on which the service ran has nothing else to do while it stands still: one takes
 * parts of it from the front, and a helper from the back. The helper is ready when it begins, or is not waited for: who has nothing left to
 * take looks at what is not done yet. There is a helper only where we have a real-time priority: without one it gets no processor in time, or is in the way of a
 * thread that is to stop. */
#pragma once
#include "regions.h"

/* Says what is to be looked at, where pages are known to be in it, and what is asked of each. */
void plan_halves(const struct run_list *there, uint64_t start, uint64_t end, struct scan_arg asked);

/* The helper is to be ready in some 30 us, for two milliseconds at most; only once the pause has begun, as it takes a processor. */
void ready_halves(void);

/* It may begin, where somebody is to `finish_halves`; what it finds comes with the next `finish_halves`. */
void begin_halves(void);

/* All regions that were found, by address. False: it has to be looked otherwise, as there is no helper. */
bool finish_halves(struct run_list *list);

/* What was found is not what there is any more. */
void forget_halves(void);
