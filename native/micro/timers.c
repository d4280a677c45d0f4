/* See timers.h.
 *
 * A timerfd that has expired and was read, or was stopped, has neither time left nor expiries to be read. Nor has one whose moment is over while
 * the kernel has not come to it: its interrupt may be late by milliseconds in a virtual machine. Then it is still in the kernel's queue, or being
 * taken from it; its fdinfo does not tell (fs/timerfd.c), and whoever restores it stopped has lost an expiry. */
#define _GNU_SOURCE
#include "timers.h"

#include "base.h"
#include "kernel_memory.h"
#include "plan.h"
#include "text.h"
#include "unchanged.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum rest { RESTS, IS_LATE, UNKNOWN };

struct setting {
	unsigned long long ticks, left[2], period[2];
	unsigned flags;
};

static const char moving[] = "ticks: ";

static bool parse(const char *info, struct setting *found)
{
	const char *at = strstr(info, moving);

	return at && sscanf(at, "ticks: %llu settime flags: %o it_value: (%llu, %llu) it_interval: (%llu, %llu)", &found->ticks, &found->flags,
			    &found->left[0], &found->left[1], &found->period[0], &found->period[1]) == 6;
}

static bool has_left(const struct setting *s)
{
	return s->left[0] || s->left[1];
}

static bool is_over(const struct setting *s)
{
	return !s->ticks && !has_left(s);
}

static bool fetch_number(uint64_t address, uint32_t size, uint64_t *number)
{
	const unsigned char *found = fetch(address, size);

	*number = 0;
	if (found)
		memcpy(number, found, size);
	return found;
}

/* Of one that is over; all threads are stopped, so nobody sets it. */
static enum rest rest_of(int number)
{
	uint64_t timer, queue, is_queued, running;

	if (!are_facts_read() || (uint32_t)number >= plan->most || !has_member(TIMER_QUEUED) || !has_member(TIMER_QUEUE) || !has_member(QUEUE_RUNNING) ||
	    !fetch_number(file_read(number) + offset_of(FILE_PRIVATE), 8, &timer) ||
	    !fetch_number(timer + offset_of(TIMER_QUEUED), 1, &is_queued) || !fetch_number(timer + offset_of(TIMER_QUEUE), 8, &queue) ||
	    !fetch_number(queue + offset_of(QUEUE_RUNNING), 8, &running))
		return UNKNOWN;
	return is_queued || running == timer + offset_of(TIMER_ITSELF) ? IS_LATE : RESTS;
}

static void look_again(int number, char *info, struct setting *found)
{
	static char again[1024];

	if (slurp_again(of_process("fdinfo/%d", number), again, sizeof again) > 0 && parse(again, found))
		strcpy(info, again);
}

void say_timer(int number, char *info)
{
	struct setting now;
	enum rest rest = UNKNOWN;

	if (!parse(info, &now))
		return; /* all of it is compared */
	if (is_over(&now))
		rest = rest_of(number);
	/* It may have expired before that was seen, or between what is left and the expiries, of which the kernel tells one after the other. */
	if (is_over(&now) || (now.ticks && has_left(&now)))
		look_again(number, info, &now);
	say("=timerfd %d %llu %u %llu %llu %llu %llu %d\n", number, now.ticks, now.flags, now.left[0], now.left[1], now.period[0], now.period[1],
	    rest == RESTS);
	strcpy(strstr(info, moving), is_over(&now) && rest == IS_LATE ? "late\n" : "");
}

int posix_timers[POSIX_TIMERS_MOST], posix_timer_count;

void forget_posix_timers(void)
{
	posix_timer_count = 0;
}

void say_posix_timers(void)
{
	const size_t from = text.size;

	forget_posix_timers();
	say_file("timers", of_process("timers"));
	append("", 1); /* its end, for strstr() */
	if (is_cut_off)
		return;
	for (const char *at = text.at + from; (at = strstr(at, "ID: ")); at += 4) {
		const bool is_first_word = at[-1] == ' ' || at[-1] == '|'; /* not that of "ClockID: " */

		if (is_first_word && posix_timer_count++ < POSIX_TIMERS_MOST)
			posix_timers[posix_timer_count - 1] = atoi(at + 4);
	}
	text.size--;
}

bool does_timer_signal_wait(void)
{
	static char status[8192];
	const unsigned long long alarms = 1ULL << (SIGALRM - 1) | 1ULL << (SIGVTALRM - 1) | 1ULL << (SIGPROF - 1);
	const int looked_at = posix_timer_count ? thread_count : 1;

	for (int i = 0; i < looked_at; i++) {
		unsigned long long own = 1, shared = 1;
		const bool is_read = slurp_again(of_process("task/%d/status", (int)threads[i].tid), status, sizeof status) > 0;
		const char *at = is_read ? strstr(status, "\nSigPnd:") : NULL;

		if (!at || sscanf(at, " SigPnd: %llx ShdPnd: %llx", &own, &shared) != 2)
			return true;
		if (posix_timer_count ? own | shared : shared & alarms)
			return true;
	}
	return false;
}
