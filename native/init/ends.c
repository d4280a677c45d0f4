/* See ends.h.
 *
 * A call that waits for its answer cannot be dumped, nor can a process that has begun to exit. So the call is answered with -ERESTARTNOINTR,
 * which the kernel turns into the same call again once the thread has handled its signals (signal(7), "interruption of system calls"), and
 * SIGSTOP was sent to that very thread before. It is pending, so it is handled before anything else runs in the thread.
 */
#define _GNU_SOURCE
#include "ends.h"
#include "asked.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	HELD_MOST = 32,
	WAKE_EVERY_MS = 100,
	ERESTARTNOINTR_ = 513,	/* of the kernel's own include/linux/errno.h */
	NOBODY = -1,
};

struct held {
	pid_t process;		/* 0: this place is free */
	int handle;		/* a pidfd */
	bool goes_on;
	int64_t until_ms;
};

static struct held held[HELD_MOST];
static pthread_mutex_t guard;	/* of all of this; the thread that answers takes it too */
static int line = NOBODY, listening = NOBODY, bell = NOBODY; /* bell: an eventfd, somebody is held */
static pid_t main_process;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool read_about(pid_t process, const char *name, char *text, size_t size)
{
	char path[64];
	ssize_t length;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	return length > 0;
}

static pid_t number_after(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	return found ? (pid_t)strtol(found + strlen(name), NULL, 10) : 0;
}

/* How long a process has lived; 0 when it is gone. */
static int64_t lived_ms(pid_t process)
{
	char stat[1024], *tail;
	unsigned long long started;

	tail = read_about(process, "stat", stat, sizeof stat) ? strrchr(stat, ')') : NULL;
	if (!tail || sscanf(tail + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &started) != 1)
		return 0;
	return now_ms() - (int64_t)(started * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK));
}

/* Of the first process, of process 1, or of the only child of the first one: that is a script then, and the service its child. */
static bool has_workers(pid_t parent)
{
	char status[4096], children[64], name[32], *end;

	if (parent == main_process || parent == 1)
		return true;
	if (!read_about(parent, "status", status, sizeof status) || number_after(status, "\nPPid:") != main_process)
		return false;
	snprintf(name, sizeof name, "task/%d/children", (int)main_process);
	if (!read_about(main_process, name, children, sizeof children) || strtol(children, &end, 10) != parent)
		return false;
	return end[strspn(end, " ")] == 0;
}

/* The process whose thread this is, if its end can be the service's failure; else 0. */
static pid_t whose_end_matters(pid_t thread)
{
	char status[4096];
	pid_t process, parent;

	if (!read_about(thread, "status", status, sizeof status))
		return 0;
	process = number_after(status, "\nTgid:");
	parent = number_after(status, "\nPPid:");
	if (process <= 0 || process == main_process)
		return process;
	return has_workers(parent) && lived_ms(process) >= LIVED_MS ? process : 0;
}

static void forget(struct held *one)
{
	close(one->handle);
	one->process = 0;
}

static struct held *find(pid_t process)
{
	for (int i = 0; i < HELD_MOST; i++)
		if (held[i].process == process)
			return &held[i];
	return NULL;
}

static void wake(struct held *one)
{
	one->goes_on = true;
	syscall(SYS_pidfd_send_signal, one->handle, SIGCONT, NULL, 0);
}

/* With the guard held: returns whether the call has been answered. */
static bool hold(const struct seccomp_notif *notification, pid_t process)
{
	struct seccomp_notif_resp again = { .id = notification->id, .error = -ERESTARTNOINTR_ };
	struct held *known = find(process), *one = find(0);
	char text[64];
	int length;

	if (known) {
		forget(known); /* this is the call that it makes again; or another thread's, which ends it too */
		return false;
	}
	if (line == NOBODY || !one)
		return false;
	*one = (struct held){ process, (int)syscall(SYS_pidfd_open, process, 0), false, now_ms() + HOLD_MOST_MS };
	if (one->handle < 0) {
		one->process = 0;
		return false;
	}
	if (syscall(SYS_tgkill, process, (pid_t)notification->pid, SIGSTOP) < 0) {
		forget(one);
		return false;
	}
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &again) < 0) {
		wake(one); /* it was killed meanwhile */
		eventfd_write(bell, 1);
		return false;
	}
	length = snprintf(text, sizeof text, "%d %d", (int)process, (int)(notification->data.args[0] & 0xff));
	if (send(line, text, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		wake(one);
	eventfd_write(bell, 1);
	return true;
}

void answer_end(const struct seccomp_notif *notification)
{
	pid_t process = whose_end_matters((pid_t)notification->pid);
	bool is_answered = false;

	if (process > 0) {
		pthread_mutex_lock(&guard);
		is_answered = hold(notification, process);
		pthread_mutex_unlock(&guard);
	}
	if (!is_answered)
		answer(notification->id);
}

/* With the guard held. A debugger or CRIU stops again whom it found stopped, so who goes on is woken until it has gone. */
static bool tend(void)
{
	bool is_any = false;

	for (int i = 0; i < HELD_MOST; i++) {
		struct pollfd end = { held[i].handle, POLLIN, 0 };

		if (held[i].process == 0)
			continue;
		if (poll(&end, 1, 0) > 0) {
			forget(&held[i]);
			continue;
		}
		is_any = true;
		if (held[i].goes_on || line == NOBODY || now_ms() > held[i].until_ms)
			wake(&held[i]);
	}
	return is_any;
}

/* With the guard held. */
static void hear(void)
{
	char text[32];
	ssize_t length = recv(line, text, sizeof text - 1, MSG_DONTWAIT);
	struct held *one;

	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (length <= 0) {
		close(line);
		line = NOBODY;
		return;
	}
	text[length] = 0;
	one = atoi(text) > 0 ? find(atoi(text)) : NULL;
	if (one)
		wake(one);
}

static void *look_after(void *unused)
{
	bool is_any = false;

	(void)unused;
	for (;;) {
		struct pollfd lines[] = { { listening, POLLIN, 0 }, { line, POLLIN, 0 }, { bell, POLLIN, 0 } };
		int came = poll(lines, 3, is_any ? WAKE_EVERY_MS : -1);
		uint64_t rung;

		if (came > 0 && lines[2].revents && read(bell, &rung, sizeof rung) < 0)
			continue;

		pthread_mutex_lock(&guard);
		if (came > 0 && lines[1].revents)
			hear();
		if (came > 0 && lines[0].revents) {
			int other = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

			if (line == NOBODY)
				line = other;
			else if (other >= 0)
				close(other);
		}
		is_any = tend();
		pthread_mutex_unlock(&guard);
	}
	return NULL;
}

int listen_for_ends(int directory, pid_t first)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_mutexattr_t inherits;
	pthread_t thread;

	main_process = first;
	/* Who holds it runs at the priority of the thread that answers. */
	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&guard, &inherits);
	bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bell < 0 || listening < 0)
		return errno;
	/* The directory's own path may be too long for an address, and is not seen from here. */
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/ends", directory);
	unlinkat(directory, "ends", 0);
	if (bind(listening, (struct sockaddr *)&address, sizeof address) < 0 || listen(listening, 1) < 0)
		return errno;
	return pthread_create(&thread, NULL, look_after, NULL);
}
