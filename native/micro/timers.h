/* Timers: what moves in them by itself, which is told apart from what is compared. */
#pragma once

/* Says "=timerfd NUMBER TICKS FLAGS SECONDS NANOSECONDS SECONDS NANOSECONDS RESTS" of a descriptor of a timerfd, from its fdinfo: expiries that
 * were not read, flags of timerfd_settime(2), what is left, period; RESTS: it is known not to expire, where it has none of the first two.
 * Of `info` only what does not move remains, or "late" instead of it. */
void say_timer(int number, char *info);
