/* See track.h.
 *
 * One thread receives (`serve`). It finds the path, looks it up, and answers at once where nothing has to be kept, which takes
 * some microseconds. It has real-time priority: until a call is received, a signal with a handler can make it fail with EINTR, which never
 * happens to such calls on a disk, so it is received as fast as can be. Copies are made by other threads (keep.c); calls that
 * touch a path whose base is being kept wait with the one that came first.
 */
#define _GNU_SOURCE
#include "track.h"
#include "asked.h"
#include "base.h"
#include "branches.h"
#include "calls.h"
#include "ends.h"
#include "journal.h"
#include "keep.h"
#include "paths.h"
#include "resolve.h"
#include "rights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* headers before Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

enum {
	STUCK_AFTER_MS = 1000,	/* a look-up that takes longer is broken off: the service must not stand still for us */
	SHORT_LIVED = 256,	/* names that came and went are forgotten in lots of so many */
};

static pthread_t server;
static _Atomic int64_t serving_since_ms;
static char *short_lived[SHORT_LIVED];
static int short_lived_count;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Remember a name that may have come and gone, so that names of temporary files do not fill the memory. */
static void note_short_lived(struct path *path)
{
	if (path->is_listed)
		return; /* a journal of SQLite comes and goes with each transaction */
	if (short_lived_count == SHORT_LIVED) {
		for (int i = 0; i < SHORT_LIVED; i++) {
			struct path *found = find_path(short_lived[i], false);
			struct stat facts;

			if (found)
				found->is_listed = false;
			if (found && !found->is_busy && found->was_absent && lstat(found->text, &facts) < 0 && errno == ENOENT)
				forget_path(found);
			free(short_lived[i]);
		}
		short_lived_count = 0;
	}
	if ((short_lived[short_lived_count] = strdup(path->text)) != NULL) {
		short_lived_count++;
		path->is_listed = true;
	}
}

/* With the lock held: a path is about to change. */
static void touch(struct asked *asked, struct place *place, unsigned char effect, int brought)
{
	struct path *path = find_path(place->path, true);
	uint32_t epoch = atomic_load(&control->reached);
	bool is_there = place->fd >= 0, is_first, is_new, needs_base, takes_children, brings_directory = brought >= 0;

	if (!path) {
		atomic_fetch_add(&control->lost, 1);
		return;
	}
	if (path->is_busy) {
		wait_for(path, asked);
		if (brings_directory)
			record(next_serial(), MOVED, NULL, path->text, "");
		return;
	}
	is_first = !path->is_noted;
	needs_base = is_first && is_there && is_needed(path);
	/* Of a directory that is moved away, or out of the place of another, all that it holds loses its name. */
	takes_children = (effect == MOVES_FROM || effect == MOVES_TO) && is_there && S_ISDIR(place->facts.st_mode) &&
			 is_any_needed();
	if (is_first) {
		path->is_noted = true;
		path->was_absent = !is_there;
		path->serial = next_serial();
	}
	if (path->was_absent && (effect == REMOVES || effect == MOVES_FROM))
		note_short_lived(path);
	/* What a commit does not hold since it had come and gone may come again: branches shall not see it. */
	is_new = is_first || brings_directory || (!is_there && path->epoch != epoch);
	if (takes_children || (is_new && has_branches()) || (needs_base && S_ISREG(place->facts.st_mode))) {
		struct job job = { .asked = asked, .path = path, .is_first = is_first, .needs_base = needs_base,
				   .takes_children = takes_children, .brings_directory = brings_directory, .brought = brought };

		path->epoch = epoch;
		if (hand_over(&job, place))
			return;
		record(path->serial, is_there ? GONE : ABSENT, &place->facts, path->text, "no memory");
	} else if (is_first && is_there) {
		path->epoch = epoch;
		keep(path->serial, path->text, place->fd, &place->facts, needs_base);
	} else if (is_first || path->epoch != epoch || brings_directory) {
		path->epoch = epoch;
		record(is_first ? path->serial : next_serial(), is_there ? AGAIN : brings_directory ? MOVED : ABSENT,
		       is_there ? &place->facts : NULL, path->text, "");
	}
	if (is_there && brings_directory)
		record(next_serial(), MOVED, NULL, path->text, ""); /* also what takes the place of this one is moved */
}

/* With the lock held: the directory of a name that comes or goes changes, too (its times; a branch needs its mode and owner). */
static void touch_parent(struct asked *asked, const char *path)
{
	struct place parent = { .fd = -1, .parent = -1 };
	char *last;

	strcpy(parent.path, path);
	last = strrchr(parent.path, '/');
	if (!last)
		return;
	last[last == parent.path ? 1 : 0] = 0;
	struct path *known = find_path(parent.path, false);

	if (known && known->is_noted && known->epoch == atomic_load(&control->reached))
		return;
	parent.fd = open(parent.path, O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
	if (parent.fd >= 0 && fstat(parent.fd, &parent.facts) == 0)
		touch(asked, &parent, CHANGES, -1);
	leave(&parent);
}

/* Nothing would be copied that has not been before. */
static bool is_known(const char *text, unsigned char effect)
{
	struct path *path;
	bool is_noted;

	pthread_mutex_lock(&lock);
	path = find_path(text, false);
	is_noted = path && path->is_noted;
	pthread_mutex_unlock(&lock);
	return is_noted && effect != MOVES_FROM && effect != MOVES_TO;
}

/* What one path of a call does. Returns whether it moves a directory away; `brings_directory`: whether one is moved here. */
static void follow(const struct seccomp_notif *notification, const struct call *call, const struct operand *operand,
		   struct asked *asked, int brought)
{
	static struct place place; /* large; of the one thread that serves */
	unsigned flags = operand->effect == OPENS ? flags_of(notification, call) : 0;
	struct operand wanted = *operand;

	if (operand->effect == CHANGES && call->flags > 0 && notification->data.args[call->flags] & AT_SYMLINK_NOFOLLOW)
		wanted.follows = false;

	if (operand->effect == OPENS) {
		if (!(flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) || (flags & O_PATH) || (flags & O_TMPFILE) == O_TMPFILE)
			return;
		if ((flags & O_NOFOLLOW) || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
			wanted.follows = false;
	}
	if (!resolve(notification, &wanted, &place))
		return;
	bool is_there = place.fd >= 0, matters = true;

	if (operand->effect == OPENS && is_there)
		/* Directories, pipes, sockets and devices do not change when they are opened; nor does a file opened to read. */
		matters = S_ISREG(place.facts.st_mode) && (flags & (O_WRONLY | O_RDWR | O_TRUNC)) && !(flags & O_EXCL && flags & O_CREAT);
	else if (operand->effect == OPENS)
		matters = flags & O_CREAT;
	else if (operand->effect == CREATES)
		matters = !is_there; /* else the call fails */
	else if (operand->effect != MOVES_TO)
		matters = is_there;
	/* Of a name that was not there, too: a link swapped in meanwhile may have led to a directory that the caller must not see. */
	if (matters && !is_known(place.path, operand->effect))
		matters = may_change((int)notification->pid, place.path, is_there ? &place.facts : NULL,
				     !is_there || (operand->effect != OPENS && operand->effect != CHANGES));
	if (matters) {
		pthread_mutex_lock(&lock);
		if (!is_there || (operand->effect != OPENS && operand->effect != CHANGES))
			touch_parent(asked, place.path);
		touch(asked, &place, operand->effect, brought);
		pthread_mutex_unlock(&lock);
	}
	leave(&place);
}

/* The directory (O_PATH) that is about to be moved from there; -1: it is none. */
static int moved_directory(const struct seccomp_notif *notification, const struct operand *operand)
{
	static struct place place;
	int fd = -1;

	if (resolve(notification, operand, &place) && place.fd >= 0 && S_ISDIR(place.facts.st_mode))
		fd = place.fd, place.fd = -1;
	leave(&place);
	return fd;
}

static void follow_both(const struct seccomp_notif *notification, const struct call *call, struct asked *asked)
{
	bool moves = call->first.effect == MOVES_FROM;
	bool exchanges = moves && call->flags > 0 && notification->data.args[call->flags] & RENAME_EXCHANGE;
	struct operand second = call->second;
	int forth = moves ? moved_directory(notification, &call->first) : -1, back = -1;

	if (exchanges) {
		second.effect = MOVES_FROM;
		back = moved_directory(notification, &second);
	}
	follow(notification, call, &call->first, asked, back);
	follow(notification, call, &second, asked, forth);
	if (forth >= 0)
		close(forth);
	if (back >= 0)
		close(back);
}

static void serve_one(const struct seccomp_notif *notification)
{
	if (is_end(&notification->data)) {
		answer_end(notification);
		return;
	}
	const struct call *call = call_of(&notification->data);
	struct asked *asked = call ? malloc(sizeof *asked) : NULL;

	if (!asked) {
		answer(notification->id);
		return;
	}
	*asked = (struct asked){ notification->id, 1 };
	atomic_fetch_add(&control->served, 1);
	follow_epoch();
	if (call->first.effect == ENTERS) {
		roots_vary();
	} else {
		if (call->second.dir == NO_OPERAND)
			follow(notification, call, &call->first, asked, -1);
		else
			follow_both(notification, call, asked);
	}
	pthread_mutex_lock(&lock);
	settled(asked);
	pthread_mutex_unlock(&lock);
}

/* Give up a capability in this thread; it is the kernel's notion of credentials that counts, not the process's. */
static void give_up(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, sets) < 0)
		return;
	sets[CAP_TO_INDEX(capability)].effective &= ~CAP_TO_MASK(capability);
	sets[CAP_TO_INDEX(capability)].permitted &= ~CAP_TO_MASK(capability);
	syscall(SYS_capset, &header, sets);
}

static void awake(int number)
{
	(void)number; /* its coming breaks a look-up off */
}

static void *serve(void *unused)
{
	struct sched_param least = { .sched_priority = 1 };
	struct pollfd line = { listener, POLLIN, 0 };
	sigset_t only;

	(void)unused;
	/* Where this is refused, the chance of EINTR is greater: `relive doctor` says so. */
	sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &least);
	give_up(CAP_SYS_NICE);
	sigemptyset(&only);
	sigaddset(&only, SIGURG);
	pthread_sigmask(SIG_UNBLOCK, &only, NULL);
	for (;;) {
		struct seccomp_notif notification = { 0 };

		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notification) < 0) {
			/* ENOENT: interrupted before it was received, or nobody is left who could ask. */
			if (errno == ENOENT && poll(&line, 1, 0) > 0 && line.revents & POLLHUP)
				return NULL;
			continue;
		}
		atomic_store(&serving_since_ms, now_ms());
		serve_one(&notification);
		atomic_store(&serving_since_ms, 0);
	}
}

/* Learns of new mounts, and sees to it that no look-up keeps the service waiting, such as one in a file system that it serves itself. */
static void *watch(void *unused)
{
	struct pollfd mounts = { open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC), POLLPRI, 0 };

	(void)unused;
	for (;;) {
		int64_t since;

		if (poll(&mounts, 1, STUCK_AFTER_MS) > 0)
			learn_mounts();
		since = atomic_load(&serving_since_ms);
		if (since && now_ms() - since > STUCK_AFTER_MS) {
			atomic_fetch_add(&control->lost, 1);
			pthread_kill(server, SIGURG);
		}
	}
	return NULL;
}

int start_tracking(const struct tracked *asked)
{
	pthread_t thread;
	struct sigaction awakened = { .sa_handler = awake };
	int bases, failure;

	prepare_asking(asked->listener);
	mkdirat(asked->directory, "base", 0700);
	bases = openat(asked->directory, "base", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (bases < 0)
		return errno;
	failure = open_journal(asked->directory);
	if (failure)
		return failure;
	prepare_bases(bases, asked->limit);
	prepare_resolving(asked->home);
	failure = listen_for_ends(asked->directory, asked->main_process);
	if (failure)
		return failure;
	sigaction(SIGURG, &awakened, NULL);
	/* Answered as if the caller were woken on this processor; Linux 6.6. Without it all works, a little slower. */
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	/* The one thread that may raise its priority is made first, and waits until all is known that it decides by. */
	pthread_mutex_lock(&lock);
	failure = pthread_create(&server, NULL, serve, NULL);
	give_up(CAP_SYS_NICE);
	if (!failure)
		failure = start_keeping(asked->directory);
	pthread_mutex_unlock(&lock);
	if (!failure)
		failure = pthread_create(&thread, NULL, watch, NULL);
	if (!failure)
		failure = listen_for_branches(asked->directory);
	return failure;
}
