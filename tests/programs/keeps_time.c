/* Timers in the states that are hard to bring back: expired with a period and not read (a timerfd), or blocked (SIGALRM); and set to
 * a moment that is over. Told by SIGUSR1, it writes whether the first two go on, and whether the third expires once more. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { PERIOD_US = 5000, LIMIT_S = 20, AGAIN_MS = 20 };

static int made(int flags, struct itimerspec setting)
{
	const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);

	if (fd < 0 || timerfd_settime(fd, flags, &setting, NULL))
		exit(1);
	return fd;
}

static int expires(int fd, int within_ms)
{
	struct pollfd one = {fd, POLLIN, 0};
	uint64_t ticks;

	return poll(&one, 1, within_ms) == 1 && read(fd, &ticks, sizeof ticks) == sizeof ticks;
}

int main(void)
{
	const struct itimerval alarms = {{0, PERIOD_US}, {0, PERIOD_US}};
	const struct timespec limit = {LIMIT_S, 0};
	sigset_t blocked, alarm, told;
	struct timespec now;
	int periodic, over, goes_on = 1, word;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	blocked = alarm;
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	clock_gettime(CLOCK_MONOTONIC, &now);
	over = made(TFD_TIMER_ABSTIME, (struct itimerspec){{0, 0}, now});
	if (!expires(over, -1))
		return 1;
	periodic = made(0, (struct itimerspec){{0, PERIOD_US * 1000}, {0, PERIOD_US * 1000}});
	setitimer(ITIMER_REAL, &alarms, NULL);
	poll(&(struct pollfd){periodic, POLLIN, 0}, 1, -1);
	do
		sigpending(&blocked);
	while (!sigismember(&blocked, SIGALRM));
	puts("ready");
	fflush(stdout);
	sigwait(&told, &word);
	for (int i = 0; i < 2; i++)
		goes_on = goes_on && expires(periodic, LIMIT_S * 1000);
	printf("timerfd %s\n", goes_on ? "goes on" : "has stopped");
	goes_on = 1;
	for (int i = 0; i < 2; i++)
		goes_on = goes_on && sigtimedwait(&alarm, NULL, &limit) == SIGALRM;
	printf("alarm %s\n", goes_on ? "goes on" : "has stopped");
	printf("moment %s\n", expires(over, AGAIN_MS) ? "comes again" : "is over");
	fflush(stdout);
	for (;;)
		pause();
}
