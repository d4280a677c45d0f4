/* See track.h.
 *
 * One thread receives (`serve`). It finds the path, looks it up, and answers at once where nothing has to be kept, which takes
 * some microseconds. It has real-time priority: until a call is received, a signal with a handler can make it fail with EINTR, which never
 * happens to such calls on a disk, so it is received as fast as can be. Copies are made by other threads (`work`); calls that touch a
 * path whose base is being kept wait with the one that came first.
 */
#define _GNU_SOURCE
#include "track.h"
#include "base.h"
#include "branches.h"
#include "calls.h"
#include "journal.h"
#include "paths.h"
#include "resolve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
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
	WORKERS = 2,
	STUCK_AFTER_MS = 1000,	/* a look-up that takes longer is broken off: the service must not stand still for us */
	SHORT_LIVED = 256,	/* names that came and went are forgotten in lots of so many */
	TREE_MOST = 20000,	/* [entries] of a directory that is moved; of a larger one no base is kept */
};

/* A call that waits for its answer. */
struct asked {
	uint64_t id;
	int pending;	/* paths that are not settled, and one while its own thread looks for them */
};

struct waiting {
	struct waiting *next;
	struct asked *asked;
};

/* A path to be settled by a worker. */
struct job {
	struct job *next;
	struct asked *asked;
	struct path *path;
	int fd;			/* O_PATH; -1: there is nothing */
	struct stat facts;
	bool needs_base, takes_children;
};

static struct tracked tracked;
static pthread_t server;
static pthread_mutex_t lock;	/* the set of paths, what waits, and jobs */
static pthread_cond_t there_is_work = PTHREAD_COND_INITIALIZER;
static struct job *first_job, **last_job = &first_job;
static bool has_earlier;	/* commits of earlier lives exist */
static char **held;		/* directories that all commits hold whole */
static _Atomic int64_t serving_since_ms;
static char *short_lived[SHORT_LIVED];
static int short_lived_count;

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void answer(uint64_t id)
{
	struct seccomp_notif_resp go_on = { .id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	/* ENOENT: it was interrupted before it was received, or the process was killed. */
	while (ioctl(tracked.listener, SECCOMP_IOCTL_NOTIF_SEND, &go_on) < 0 && errno == EINTR)
		;
}

/* With the lock held: one path of the call is settled. */
static void settled(struct asked *asked)
{
	if (--asked->pending > 0)
		return;
	answer(asked->id);
	free(asked);
}

/* With the lock held. */
static void wait_for(struct path *path, struct asked *asked)
{
	struct waiting *waiting = malloc(sizeof *waiting);

	if (!waiting)
		return; /* it goes on at once: what it changes may be in the base then, so the base is none */
	*waiting = (struct waiting){ path->waiting, asked };
	path->waiting = waiting;
	asked->pending++;
}

static bool is_held(const char *path)
{
	for (char **top = held; top && *top; top++) {
		size_t length = strlen(*top);

		if (strncmp(path, *top, length) == 0 && (path[length] == '/' || !path[length]))
			return true;
	}
	return false;
}

static bool is_needed(const struct path *path, bool is_covered)
{
	if (is_held(path->text))
		return false;
	return atomic_load(&control->keep) || (has_earlier && !is_covered);
}

static enum kind kind_of(const struct stat *facts)
{
	return S_ISREG(facts->st_mode) ? REGULAR : S_ISDIR(facts->st_mode) ? DIRECTORY : S_ISLNK(facts->st_mode) ? LINK : OTHER;
}

/* Keep what `fd` leads to, if it must be, and write the first record of a path. */
static void keep(uint64_t serial, const char *path, int fd, const struct stat *facts, bool needs_base)
{
	char said[PATH_MAX] = "";
	const char *reason;
	enum kind kind = NOTED;
	ssize_t length;

	if (needs_base)
		kind = kind_of(facts);
	if (kind == LINK) {
		length = readlinkat(fd, "", said, sizeof said - 1);
		said[length < 0 ? 0 : length] = 0;
	}
	if (kind == REGULAR && (reason = keep_base(serial, fd, facts)) != NULL) {
		record(serial, GONE, facts, path, reason);
		return;
	}
	record(serial, kind, facts, path, said);
}

/* With the lock held: give a path to a worker. False: no memory. */
static bool hand_over(struct asked *asked, struct path *path, struct place *place, bool needs_base, bool takes_children)
{
	struct job *job = malloc(sizeof *job);

	if (!job)
		return false;
	*job = (struct job){ NULL, asked, path, place->fd, place->facts, needs_base, takes_children };
	place->fd = -1;
	path->is_busy = true;
	asked->pending++;
	atomic_fetch_add(&control->busy, 1);
	*last_job = job;
	last_job = &job->next;
	pthread_cond_signal(&there_is_work);
	return true;
}

/* Remember a name that may have come and gone, so that names of temporary files do not fill the memory. */
static void note_short_lived(const struct path *path)
{
	if (short_lived_count == SHORT_LIVED) {
		for (int i = 0; i < SHORT_LIVED; i++) {
			struct path *found = find_path(short_lived[i], false);
			struct stat facts;

			if (found && !found->is_busy && found->was_absent && lstat(found->text, &facts) < 0 && errno == ENOENT)
				forget_path(found);
			free(short_lived[i]);
		}
		short_lived_count = 0;
	}
	if ((short_lived[short_lived_count] = strdup(path->text)) != NULL)
		short_lived_count++;
}

/* With the lock held: a path is about to change. */
static void touch(struct asked *asked, struct place *place, unsigned char effect, bool brings_directory)
{
	struct path *path = find_path(place->path, true);
	uint32_t epoch = atomic_load(&control->reached);
	bool is_there = place->fd >= 0, is_first, needs_base, takes_children;

	if (!path) {
		atomic_fetch_add(&control->lost, 1);
		return;
	}
	if (path->is_busy) {
		wait_for(path, asked);
		return;
	}
	is_first = !path->is_noted;
	needs_base = is_first && is_there && is_needed(path, path->serial != 0);
	takes_children = effect == MOVES_FROM && is_there && S_ISDIR(place->facts.st_mode) && (atomic_load(&control->keep) || has_earlier);
	if (is_first) {
		path->is_noted = true;
		path->was_absent = !is_there;
		path->serial = next_serial();
	}
	if (path->was_absent && (effect == REMOVES || effect == MOVES_FROM))
		note_short_lived(path);
	if (takes_children || (is_first && has_branches()) || (needs_base && S_ISREG(place->facts.st_mode))) {
		path->epoch = epoch;
		if (hand_over(asked, path, place, needs_base, takes_children))
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
		touch(asked, &parent, CHANGES, false);
	leave(&parent);
}

/* What one path of a call does. Returns whether it moves a directory away; `brings_directory`: whether one is moved here. */
static bool follow(const struct seccomp_notif *notification, const struct call *call, const struct operand *operand,
		   struct asked *asked, bool brings_directory)
{
	static struct place place; /* large; of the one thread that serves */
	unsigned flags = operand->effect == OPENS ? flags_of(notification, call) : 0;
	struct operand wanted = *operand;

	if (operand->effect == OPENS) {
		if (!(flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) || (flags & O_PATH) || (flags & O_TMPFILE) == O_TMPFILE)
			return false;
		if ((flags & O_NOFOLLOW) || (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
			wanted.follows = false;
	}
	if (!resolve(notification, &wanted, &place))
		return false;
	bool is_there = place.fd >= 0, matters = true;
	bool moves_directory = operand->effect == MOVES_FROM && is_there && S_ISDIR(place.facts.st_mode);

	if (operand->effect == OPENS && is_there)
		/* Directories, pipes, sockets and devices do not change when they are opened; nor does a file opened to read. */
		matters = S_ISREG(place.facts.st_mode) && (flags & (O_WRONLY | O_RDWR | O_TRUNC)) && !(flags & O_EXCL && flags & O_CREAT);
	else if (operand->effect == OPENS)
		matters = flags & O_CREAT;
	else if (operand->effect == CREATES)
		matters = !is_there; /* else the call fails */
	else if (operand->effect != MOVES_TO)
		matters = is_there;
	if (matters) {
		pthread_mutex_lock(&lock);
		if (!is_there || (operand->effect != OPENS && operand->effect != CHANGES))
			touch_parent(asked, place.path);
		touch(asked, &place, operand->effect, brings_directory);
		pthread_mutex_unlock(&lock);
	}
	leave(&place);
	return moves_directory;
}

static void serve_one(const struct seccomp_notif *notification)
{
	const struct call *call = call_of(&notification->data);
	struct asked *asked = call ? malloc(sizeof *asked) : NULL;
	bool moves_directory;

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
		moves_directory = follow(notification, call, &call->first, asked, false);
		if (call->second.dir != NO_OPERAND)
			follow(notification, call, &call->second, asked, moves_directory);
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
	struct pollfd listener = { tracked.listener, POLLIN, 0 };
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

		if (ioctl(tracked.listener, SECCOMP_IOCTL_NOTIF_RECV, &notification) < 0) {
			/* ENOENT: interrupted before it was received, or nobody is left who could ask. */
			if (errno == ENOENT && poll(&listener, 1, 0) > 0 && listener.revents & POLLHUP)
				return NULL;
			continue;
		}
		atomic_store(&serving_since_ms, now_ms());
		serve_one(&notification);
		atomic_store(&serving_since_ms, 0);
	}
}

/* Keep what lies below a directory that is about to be moved. */
static void keep_tree(int directory, const char *path, int *left)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *child;

	while (list && (child = readdir(list)) != NULL) {
		char whole[PATH_MAX];
		struct stat facts;
		struct path *known;
		bool needs_base = false, is_new = false;
		uint64_t serial = 0;
		int at;

		if (!strcmp(child->d_name, ".") || !strcmp(child->d_name, ".."))
			continue;
		if (snprintf(whole, sizeof whole, "%s/%s", path, child->d_name) >= (int)sizeof whole)
			continue;
		if ((*left)-- <= 0) {
			if (*left == -1)
				record(next_serial(), GONE, NULL, path, "the directory was moved, and holds too much to be copied");
			break;
		}
		at = openat(directory, child->d_name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		if (at < 0 || fstat(at, &facts) < 0) {
			if (at >= 0)
				close(at);
			continue;
		}
		pthread_mutex_lock(&lock);
		known = find_path(whole, true);
		if (known && !known->is_noted && !known->is_busy) {
			needs_base = is_needed(known, known->serial != 0);
			known->is_noted = is_new = true;
			known->epoch = atomic_load(&control->reached);
			known->serial = serial = next_serial();
		}
		pthread_mutex_unlock(&lock);
		/* The mover waits for all of it; another process that changes one of them just now changes what is being moved. */
		if (is_new)
			keep(serial, whole, at, &facts, needs_base);
		if (S_ISDIR(facts.st_mode))
			keep_tree(at, whole, left);
		close(at);
	}
	if (list)
		closedir(list);
	else if (fd >= 0)
		close(fd);
}

static void *work(void *unused)
{
	(void)unused;
	for (;;) {
		struct waiting *waiting;
		struct job *job;

		pthread_mutex_lock(&lock);
		while (!first_job)
			pthread_cond_wait(&there_is_work, &lock);
		job = first_job;
		first_job = job->next;
		if (!first_job)
			last_job = &first_job;
		pthread_mutex_unlock(&lock);

		if (job->fd < 0)
			record(job->path->serial, ABSENT, NULL, job->path->text, "");
		else
			keep(job->path->serial, job->path->text, job->fd, &job->facts, job->needs_base);
		if (job->takes_children) {
			int left = TREE_MOST;

			keep_tree(job->fd, job->path->text, &left);
		}
		tell_branches(job->path->text, job->fd >= 0 ? &job->facts : NULL);
		if (job->fd >= 0)
			close(job->fd);

		pthread_mutex_lock(&lock);
		job->path->is_busy = false;
		waiting = job->path->waiting;
		job->path->waiting = NULL;
		while (waiting) {
			struct waiting *next = waiting->next;

			settled(waiting->asked);
			free(waiting);
			waiting = next;
		}
		settled(job->asked);
		atomic_fetch_sub(&control->busy, 1);
		pthread_mutex_unlock(&lock);
		free(job);
	}
	return NULL;
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

/* A file of texts that are each ended by a zero byte; NULL where there is none. The last entry is NULL. */
static char **texts_of(int directory, const char *name, size_t *count)
{
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
	struct stat facts;
	char *data = NULL, **texts = NULL;
	size_t size = 0;

	*count = 0;
	if (fd < 0)
		return NULL;
	if (fstat(fd, &facts) == 0 && (data = malloc((size_t)facts.st_size + 1)) != NULL)
		while (size < (size_t)facts.st_size) {
			ssize_t length = read(fd, data + size, (size_t)facts.st_size - size);

			if (length <= 0)
				break;
			size += (size_t)length;
		}
	close(fd);
	for (size_t i = 0; data && i < size; i++)
		*count += !data[i];
	texts = calloc(*count + 1, sizeof *texts);
	for (size_t i = 0, at = 0; texts && i < *count; i++) {
		texts[i] = data + at;
		at += strlen(texts[i]) + 1;
	}
	return texts;
}

int start_tracking(const struct tracked *asked)
{
	pthread_mutexattr_t inherits;
	pthread_t thread;
	struct sigaction awakened = { .sa_handler = awake };
	size_t count;
	char **covered;
	int bases, failure;

	tracked = *asked;
	/* A worker with the lock runs on at the priority of the thread that serves, should that want it. */
	pthread_mutexattr_init(&inherits);
	pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lock, &inherits);
	mkdirat(tracked.directory, "base", 0700);
	bases = openat(tracked.directory, "base", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (bases < 0)
		return errno;
	failure = open_journal(tracked.directory);
	if (failure)
		return failure;
	prepare_bases(bases, tracked.limit);
	prepare_resolving(tracked.home);
	covered = texts_of(tracked.directory, "covered", &count);
	has_earlier = covered != NULL;
	for (size_t i = 0; i < count; i++) {
		struct path *path = find_path(covered[i], true);

		if (path)
			path->serial = 1; /* not noted, but known */
	}
	if (covered) {
		free(covered[0]);
		free(covered);
	}
	held = texts_of(tracked.directory, "held", &count);
	sigaction(SIGURG, &awakened, NULL);
	/* Answered as if the caller were woken on this processor; Linux 6.6. Without it all works, a little slower. */
	ioctl(tracked.listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
	failure = pthread_create(&server, NULL, serve, NULL);
	give_up(CAP_SYS_NICE);
	for (int i = 0; i < WORKERS && !failure; i++)
		failure = pthread_create(&thread, NULL, work, NULL);
	if (!failure)
		failure = pthread_create(&thread, NULL, watch, NULL);
	if (!failure)
		failure = listen_for_branches(tracked.directory);
	return failure;
}
