/* Timers: what moves in them by itself, which is told apart from what is compared. */
#pragma once
#include <stdbool.h>

enum { POSIX_TIMERS_MOST = 16 };

/* What is said by the round trip where no interval timer (setitimer(2)) runs. */
#define NO_INTERVAL_TIMERS "?interval_timers 0 0 0 0 0 0 0 0 0 0 0 0\n"

/* The ids of those of timer_create(2); as of the last look. Of more than are asked about only the count is right. */
extern int posix_timers[POSIX_TIMERS_MOST], posix_timer_count;

void forget_posix_timers(void);

/* Says "timers ...", of which nothing moves, and notes their ids. */
void say_posix_timers(void);

/* Whether a signal waits that a timer may have sent: all are blocked in a round trip, so that of one which expires then waits. Those of setitimer(2)
 * are sent to the process, and are three; those of timer_create(2) may be any, of any thread. True, too, where it cannot be read. */
bool does_timer_signal_wait(void);

/* Says "=timerfd NUMBER TICKS FLAGS SECONDS NANOSECONDS SECONDS NANOSECONDS RESTS" of a descriptor of a timerfd, from its fdinfo: expiries that
 * were not read, flags of timerfd_settime(2), what is left, period; RESTS: it is known not to expire, where it has none of the first two.
 * Of `info` only what does not move remains, or "late" instead of it. */
void say_timer(int number, char *info);
