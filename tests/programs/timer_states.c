/* Timers, one for each state that one can be in. Told "set" on standard input it sets all anew, "one more" has it make a timer; "tell" has it say
 * how each stands: name, whether there is an expiry to be read, hours left and of the period, begun ones counted.
 *
 * Argument: "descriptors" (timerfd), "alarms" (setitimer), "timers" (timer_create). With "goes on" it waits for one timerfd again and again, with
 * "alarm goes on" for SIGALRM, with "alarm again" for one that its handler sets anew. With a second argument it is told by SIGHUP and SIGTERM to
 * set and to tell. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { HOUR = 3600, NOW = -1 };

struct state {
	const char *name;
	clockid_t clock;
	int flags;
	long left_h, period_h; /* NOW: a microsecond */
	bool is_read;	       /* when it has expired */
};

static const struct state descriptors[] = {
	{ "once", CLOCK_MONOTONIC, 0, 5, 0, false },
	{ "periodic", CLOCK_MONOTONIC, 0, 5, 9, false },
	{ "at a moment", CLOCK_MONOTONIC, TFD_TIMER_ABSTIME, 5, 0, false },
	{ "at a moment of the wall clock", CLOCK_REALTIME, TFD_TIMER_ABSTIME, 5, 9, false },
	{ "and when the clock changes", CLOCK_REALTIME, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, 5, 0, false },
	{ "wall clock", CLOCK_REALTIME, 0, 5, 0, false },
	{ "expired", CLOCK_MONOTONIC, 0, NOW, 0, false },
	{ "expired and read", CLOCK_MONOTONIC, 0, NOW, 0, true },
	{ "expired with a period", CLOCK_MONOTONIC, 0, NOW, 7, false },
	{ "expired with a period and read", CLOCK_MONOTONIC, 0, NOW, 7, true },
	{ "expired at a moment", CLOCK_MONOTONIC, TFD_TIMER_ABSTIME, NOW, 0, false },
	{ "stopped", CLOCK_MONOTONIC, 0, 0, 0, false },
	{ "stopped with a period", CLOCK_MONOTONIC, 0, 0, 7, false },
};
enum { DESCRIPTORS = sizeof descriptors / sizeof *descriptors };

static int fds[DESCRIPTORS];

static long hours(struct timespec t)
{
	return (t.tv_sec + HOUR - 1 + (t.tv_nsec > 0)) / HOUR;
}

static struct timespec in_hours(long hours)
{
	return hours == NOW ? (struct timespec){ 0, 1000 } : (struct timespec){ hours * HOUR, 0 };
}

static struct itimerspec setting_of(const struct state *s)
{
	struct itimerspec found = { in_hours(s->period_h), in_hours(s->left_h) };
	struct timespec now;

	clock_gettime(s->clock, &now);
	if (s->flags)
		found.it_value.tv_sec += now.tv_sec;
	return found;
}

static void begin_descriptors(void)
{
	const struct itimerspec other = { { HOUR, 0 }, { 20 * HOUR, 0 } };

	for (int i = 0; i < DESCRIPTORS; i++) {
		fds[i] = timerfd_create(descriptors[i].clock, TFD_NONBLOCK);
		if (fds[i] < 0 || timerfd_settime(fds[i], 0, &other, NULL))
			exit(1);
	}
}

static void set_descriptors(void)
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		const struct itimerspec setting = setting_of(&descriptors[i]);
		uint64_t ticks;

		if (timerfd_settime(fds[i], descriptors[i].flags, &setting, NULL))
			exit(1);
		if (descriptors[i].left_h == NOW)
			poll(&(struct pollfd){ fds[i], POLLIN, 0 }, 1, -1);
		if (descriptors[i].is_read && read(fds[i], &ticks, sizeof ticks) != sizeof ticks)
			exit(1);
	}
}

static void tell(const char *name, bool has_expired, struct itimerspec now)
{
	printf("%s: %d %ld %ld|", name, has_expired, hours(now.it_value), hours(now.it_interval));
}

static void tell_descriptors(void)
{
	for (int i = 0; i < DESCRIPTORS; i++) {
		struct pollfd one = { fds[i], POLLIN, 0 };
		struct itimerspec now;

		if (poll(&one, 1, 0) < 0 || timerfd_gettime(fds[i], &now))
			exit(1);
		tell(descriptors[i].name, one.revents & POLLIN, now);
	}
}

static const char *const alarm_names[] = { "real", "virtual", "of the processor" };

/* Half an hour less, since the kernel counts the processor's time by ticks. */
static void set_alarms(bool anew)
{
	for (int which = 0; which < 3; which++) {
		const struct itimerval setting = { { anew && which != ITIMER_VIRTUAL ? 7 * HOUR : 0, 0 }, { (anew ? 5 + which : 20) * HOUR - HOUR / 2, 0 } };

		if (setitimer(which, &setting, NULL))
			exit(1);
	}
}

static void tell_alarms(void)
{
	for (int which = 0; which < 3; which++) {
		struct itimerval now;

		getitimer(which, &now);
		tell(alarm_names[which], false,
		     (struct itimerspec){ { now.it_interval.tv_sec, now.it_interval.tv_usec * 1000 },
					  { now.it_value.tv_sec, now.it_value.tv_usec * 1000 } });
	}
}

static const struct state timers[] = {
	{ "once", CLOCK_MONOTONIC, 0, 5, 0, false },
	{ "periodic", CLOCK_MONOTONIC, 0, 5, 9, false },
	{ "at a moment", CLOCK_REALTIME, TIMER_ABSTIME, 5, 9, false },
	{ "of the processor", CLOCK_PROCESS_CPUTIME_ID, 0, 5, 0, false },
	{ "stopped", CLOCK_MONOTONIC, 0, 0, 0, false },
	{ "expired", CLOCK_MONOTONIC, 0, NOW, 0, true },
	{ "expired with a period", CLOCK_MONOTONIC, 0, NOW, 7, true },
};
enum { TIMERS = sizeof timers / sizeof *timers };

static timer_t ids[TIMERS];
static volatile sig_atomic_t expired;

static void note(int signal)
{
	(void)signal;
	expired++;
}

static void begin_timers(void)
{
	const struct itimerspec other = { { HOUR, 0 }, { 20 * HOUR, 0 } };

	signal(SIGUSR1, note);
	for (int i = 0; i < TIMERS; i++) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = i };

		if (timer_create(timers[i].clock, &event, &ids[i]) || timer_settime(ids[i], 0, &other, NULL))
			exit(1);
	}
}

static void set_timers(void)
{
	for (int i = 0; i < TIMERS; i++) {
		const struct itimerspec setting = setting_of(&timers[i]);

		expired = 0;
		if (timer_settime(ids[i], timers[i].flags, &setting, NULL))
			exit(1);
		while (timers[i].is_read && !expired)
			;
	}
}

static void tell_timers(void)
{
	for (int i = 0; i < TIMERS; i++) {
		struct itimerspec now;

		if (timer_gettime(ids[i], &now))
			exit(1);
		tell(timers[i].name, false, now);
	}
}

static void set_again(int number)
{
	const struct itimerval soon = { { 0, 0 }, { 0, 3000 } };

	(void)number;
	if (setitimer(ITIMER_REAL, &soon, NULL))
		_exit(1);
}

/* So that no page of the stack comes to be by a commit's own frames, which lie lower when a handler runs: who compares would miss it. */
static void use_stack(void)
{
	volatile char room[64 << 10];

	for (size_t i = 0; i < sizeof room; i += 512)
		room[i] = 1;
}

/* With `again` each alarm is one without a period. */
static int go_on_by_alarms(bool again)
{
	const struct itimerval often = { { 0, again ? 0 : 5000 }, { 0, 5000 } };

	use_stack();
	signal(SIGALRM, again ? set_again : note);
	puts("ready");
	fflush(stdout);
	if (setitimer(ITIMER_REAL, &often, NULL))
		return 1;
	while (pause())
		;
	return 1;
}

static int go_on(void)
{
	const struct itimerspec often = { { 0, 300000 }, { 0, 300000 } };
	const int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t ticks;

	if (fd < 0 || timerfd_settime(fd, 0, &often, NULL))
		return 1;
	puts("ready");
	fflush(stdout);
	while (read(fd, &ticks, sizeof ticks) == sizeof ticks)
		;
	return 1;
}

enum { SET, TELL, ONE_MORE, WORDS };
static const char *const words[] = { "set\n", "tell\n", "one more\n" };

/* What is to be done next: by a word on standard input or, with `by_signals`, SIGHUP and SIGTERM. */
static int hear(bool by_signals)
{
	char word[64];
	ssize_t size;
	sigset_t told;
	int which;

	if (by_signals) {
		sigemptyset(&told);
		sigaddset(&told, SIGHUP);
		sigaddset(&told, SIGTERM);
		return sigwait(&told, &which) ? WORDS : which == SIGHUP ? SET : TELL;
	}
	/* Not by stdio, which would take what stands behind it. */
	size = read(0, word, sizeof word - 1);
	if (size <= 0)
		exit(0);
	word[size] = 0;
	for (which = 0; which < WORDS && strcmp(word, words[which]);)
		which++;
	return which;
}

int main(int argc, char **argv)
{
	const char *const kind = argc > 1 ? argv[1] : "";
	const bool are_descriptors = !strcmp(kind, "descriptors"), are_alarms = !strcmp(kind, "alarms"), by_signals = argc > 2;
	sigset_t told;

	if (!strcmp(kind, "goes on"))
		return go_on();
	if (!strcmp(kind, "alarm goes on"))
		return go_on_by_alarms(false);
	if (!strcmp(kind, "alarm again"))
		return go_on_by_alarms(true);
	sigemptyset(&told);
	sigaddset(&told, SIGHUP);
	sigaddset(&told, SIGTERM);
	if (by_signals)
		sigprocmask(SIG_BLOCK, &told, NULL);
	if (are_descriptors)
		begin_descriptors();
	else if (are_alarms)
		set_alarms(false);
	else
		begin_timers();
	for (puts("ready");; puts("")) {
		fflush(stdout);
		switch (hear(by_signals)) {
		case SET:
			are_descriptors ? set_descriptors() : are_alarms ? set_alarms(true) : set_timers();
			break;
		case TELL:
			are_descriptors ? tell_descriptors() : are_alarms ? tell_alarms() : tell_timers();
			break;
		case ONE_MORE:
			timer_create(CLOCK_MONOTONIC, NULL, &ids[0]);
			break;
		}
	}
}
