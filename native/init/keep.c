/* See keep.h.
 *
 * A path is kept once an epoch: whoever is first marks it (`is_noted`, `is_busy`) under the lock, keeps it without the lock, and lets those
 * go that came meanwhile (`release_waiting`). What a file held is written before the record that names it, so a record with a base always
 * has one, whenever this process is killed. Directories that are moved take a walk through all below them, bounded by TREE_MOST: the mover
 * waits for it. */
#define _GNU_SOURCE
#include "keep.h"
#include "base.h"
#include "branches.h"
#include "journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	WORKERS = 2,
	TREE_MOST = 20000,	/* [entries] of a directory that is moved; of a larger one no base is kept */
};

static pthread_cond_t there_is_work = PTHREAD_COND_INITIALIZER;
static struct job *first_job, **last_job = &first_job;
static bool has_earlier;	/* commits of earlier lives exist */
static char **held;		/* directories that all commits hold whole */

static bool is_held(const char *path)
{
	for (char **top = held; top && *top; top++) {
		size_t length = strlen(*top);

		if (strncmp(path, *top, length) == 0 && (path[length] == '/' || !path[length]))
			return true;
	}
	return false;
}

bool is_needed(const struct path *path)
{
	bool is_covered = path->serial != 0; /* of no record yet: it was told of when this began */

	if (is_held(path->text))
		return false;
	return atomic_load(&control->keep) || (has_earlier && !is_covered);
}

bool is_any_needed(void)
{
	return atomic_load(&control->keep) || has_earlier;
}

static enum kind kind_of(const struct stat *facts)
{
	return S_ISREG(facts->st_mode) ? REGULAR : S_ISDIR(facts->st_mode) ? DIRECTORY : S_ISLNK(facts->st_mode) ? LINK : OTHER;
}

void keep(uint64_t serial, const char *path, int fd, const struct stat *facts, bool needs_base)
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
	if (kind == DIRECTORY)
		keep_attributes(serial, fd);
	if (kind == REGULAR && (reason = keep_base(serial, fd, facts)) != NULL) {
		record(serial, GONE, facts, path, reason);
		return;
	}
	record(serial, kind, facts, path, said);
}

bool hand_over(const struct job *wanted, struct place *place)
{
	struct job *job = malloc(sizeof *job);
	struct asked *asked = wanted->asked;
	struct path *path = wanted->path;

	if (!job)
		return false;
	*job = *wanted;
	job->fd = place->fd;
	job->facts = place->facts;
	job->brought = wanted->brought < 0 ? -1 : fcntl(wanted->brought, F_DUPFD_CLOEXEC, 3);
	place->fd = -1;
	path->is_busy = true;
	asked->pending++;
	atomic_fetch_add(&control->busy, 1);
	*last_job = job;
	last_job = &job->next;
	pthread_cond_signal(&there_is_work);
	return true;
}

/* A directory is about to be moved to a path: branches do not see what it brings along. */
static void hide_children(int directory, const char *path)
{
	int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *child;

	while (list && (child = readdir(list)) != NULL) {
		char whole[PATH_MAX];

		if (strcmp(child->d_name, ".") && strcmp(child->d_name, "..") &&
		    snprintf(whole, sizeof whole, "%s/%s", path, child->d_name) < (int)sizeof whole)
			tell_branches(whole, NULL);
	}
	if (list)
		closedir(list);
	else if (fd >= 0)
		close(fd);
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
			needs_base = is_needed(known);
			known->is_noted = known->is_busy = is_new = true;
			known->epoch = atomic_load(&control->reached);
			known->serial = serial = next_serial();
		}
		pthread_mutex_unlock(&lock);
		/* The mover waits for all of it, and so does another process that changes one of them just now. */
		if (is_new) {
			keep(serial, whole, at, &facts, needs_base);
			tell_branches(whole, &facts);
			pthread_mutex_lock(&lock);
			known->is_busy = false;
			release_waiting(known);
			pthread_mutex_unlock(&lock);
		}
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
		struct job *job;

		pthread_mutex_lock(&lock);
		while (!first_job)
			pthread_cond_wait(&there_is_work, &lock);
		job = first_job;
		first_job = job->next;
		if (!first_job)
			last_job = &first_job;
		pthread_mutex_unlock(&lock);

		if (job->is_first && job->fd < 0)
			record(job->path->serial, job->brings_directory ? MOVED : ABSENT, NULL, job->path->text, "");
		else if (job->is_first)
			keep(job->path->serial, job->path->text, job->fd, &job->facts, job->needs_base);
		if (job->takes_children) {
			int left = TREE_MOST;

			keep_tree(job->fd, job->path->text, &left);
		}
		/* What is told of below a path from here on is what was brought there. */
		if (!job->is_first || (job->fd >= 0 && job->brings_directory))
			record(next_serial(), job->brings_directory ? MOVED : job->fd >= 0 ? AGAIN : ABSENT, job->fd >= 0 ? &job->facts : NULL, job->path->text, "");
		tell_branches(job->path->text, job->fd >= 0 ? &job->facts : NULL);
		if (job->brought >= 0) {
			if (has_branches())
				hide_children(job->brought, job->path->text);
			close(job->brought);
		}
		if (job->fd >= 0)
			close(job->fd);

		pthread_mutex_lock(&lock);
		job->path->is_busy = false;
		release_waiting(job->path);
		settled(job->asked);
		atomic_fetch_sub(&control->busy, 1);
		pthread_mutex_unlock(&lock);
		free(job);
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

int start_keeping(int directory)
{
	pthread_t thread;
	size_t count;
	char **covered = texts_of(directory, "covered", &count);
	int failure = 0;

	has_earlier = covered != NULL;
	for (size_t i = 0; i < count; i++) {
		struct path *path = find_path(covered[i], true);

		if (path)
			path->serial = 1;
	}
	if (covered) {
		free(covered[0]);
		free(covered);
	}
	held = texts_of(directory, "held", &count);
	for (int i = 0; i < WORKERS && !failure; i++)
		failure = pthread_create(&thread, NULL, work, NULL);
	return failure;
}
