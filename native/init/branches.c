/* See branches.h. */
#define _GNU_SOURCE
#include "branches.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* Two descriptors for each point, and the kernel hands over 253 with one message (SCM_MAX_FD). */
enum { BRANCHES_MOST = 128, POINTS_MOST = 126, MESSAGE_MOST = 65536 };

struct branch {
	int line, count;
	char *points[POINTS_MOST];
	int roots[POINTS_MOST], uppers[POINTS_MOST];
	int *between[POINTS_MOST]; /* ends with -1 */
};

static struct branch *branches[BRANCHES_MOST];
/* One at a time also tells: of two files that are copied up into one directory at once, overlayfs may leave it with a time of now. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int count;
static int listening;

bool has_branches(void)
{
	return atomic_load(&count) > 0;
}

/* Below a directory of a branch, whose processes may be hostile: no link, no way out. */
static int open_below(int directory, const char *path, int flags)
{
	struct open_how how = { .flags = (unsigned long long)flags | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS };

	return (int)syscall(SYS_openat2, directory, *path ? path : ".", &how, sizeof how);
}

/* Setting a file's time to what it is has overlayfs copy it up, with all that it holds. */
static void copy_up(int directory, const char *name)
{
	struct stat facts;
	struct timespec times[2] = { { 0, 0 }, { 0, UTIME_OMIT } };

	if (fstatat(directory, name, &facts, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	times[0] = facts.st_atim;
	utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
}

/* A layer between the upper one and the host's files has the name: what it says hides the host's anyway. */
static bool is_decided(const int *between, const char *below)
{
	for (int i = 0; between[i] >= 0; i++) {
		int found = open_below(between[i], below, O_PATH);

		if (found < 0 && errno == ENOENT)
			continue;
		if (found >= 0)
			close(found);
		return true;
	}
	return false;
}

/* An overlay was asked for the name, found nothing, and has not forgotten it; asking does not make it remember (Linux 5.12). */
static bool is_remembered(int directory, const char *name)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_BENEATH | RESOLVE_CACHED };
	int found = (int)syscall(SYS_openat2, directory, name, &how, sizeof how);

	if (found >= 0)
		close(found);
	return found < 0 && errno == ENOENT;
}

/* Have there be nothing in a branch, by a whiteout in its upper layer. The directory keeps its times: its branch has not changed it.
 *
 * Of a name that it remembers to be missing, an overlay takes for granted that its upper layer has nothing there; with a whiteout made
 * behind its back, each attempt to create that name fails with ESTALE (ovl_create_upper of the kernel) for as long as it remembers. So
 * the name is never looked up here, and where the branch has done so, a directory comes and goes in its place: the overlay forgets a
 * name that it removes (ovl_remove_upper). Who watches the directory within the branch sees that, so it is done only where it must. */
static void make_whiteout(int directory, int upper, const char *name)
{
	struct stat facts;

	if (fstatat(upper, ".", &facts, 0) < 0)
		return;
	if (is_remembered(directory, name) && mkdirat(directory, name, 0) == 0)
		unlinkat(directory, name, AT_REMOVEDIR);
	mknodat(upper, name, S_IFCHR, 0); /* not over what the branch has made itself */
	utimensat(upper, ".", (struct timespec[]){ facts.st_atim, facts.st_mtim }, 0);
}

static void tell(const struct branch *branch, const char *path, const struct stat *facts)
{
	char parent[PATH_MAX];
	const char *name, *below = NULL;
	size_t longest = 0;
	int at = -1, directory;

	for (int i = 0; i < branch->count; i++) {
		size_t length = strlen(branch->points[i]);

		if (length == 1)
			length = 0; /* "/" */
		if (strncmp(path, branch->points[i], length) == 0 && path[length] == '/' && (at < 0 || length > longest))
			at = i, longest = length, below = path + length + 1;
	}
	if (at < 0 || !*below || strlen(below) >= sizeof parent)
		return;
	strcpy(parent, below);
	name = strrchr(parent, '/') ? strrchr(below, '/') + 1 : below;
	parent[name - below > 0 ? name - below - 1 : 0] = 0;
	directory = open_below(branch->roots[at], parent, O_PATH | O_DIRECTORY);
	if (directory < 0)
		return; /* the branch has no such directory, so it does not see the path */
	if (facts) {
		copy_up(directory, name);
	} else {
		int upper;

		/* There is nothing, and there shall be nothing: a whiteout in the upper layer, whose directory has to be there first. */
		if (!is_decided(branch->between[at], below)) {
			copy_up(directory, ".");
			upper = open_below(branch->uppers[at], parent, O_PATH | O_DIRECTORY);
			if (upper >= 0) {
				make_whiteout(directory, upper, name);
				close(upper);
			}
		}
	}
	close(directory);
}

void tell_branches(const char *path, const struct stat *facts)
{
	if (!has_branches())
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BRANCHES_MOST; i++)
		if (branches[i])
			tell(branches[i], path, facts);
	pthread_mutex_unlock(&lock);
}

static void drop(struct branch *branch)
{
	for (int i = 0; i < branch->count; i++) {
		free(branch->points[i]);
		if (branch->roots[i] >= 0)
			close(branch->roots[i]);
		if (branch->uppers[i] >= 0)
			close(branch->uppers[i]);
		for (int j = 0; branch->between[i] && branch->between[i][j] >= 0; j++)
			close(branch->between[i][j]);
		free(branch->between[i]);
	}
	if (branch->line >= 0)
		close(branch->line);
	free(branch);
}

/* The layers that lie between an upper one and the host's files: links beside it lead to them, of which each starts where it lies.
 * NULL: not all of them can be opened. A branch that some are missing of would hide what they hold. */
static int *open_between(int upper)
{
	int *between = NULL;

	for (int i = 0;; i++) {
		int *more = realloc(between, (size_t)(i + 1) * sizeof *between);
		char link[32];

		if (!more)
			break;
		between = more;
		snprintf(link, sizeof link, "../between/%d", i);
		between[i] = openat(upper, link, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (between[i] >= 0)
			continue;
		if (errno == ENOENT)
			return between;
		while (i-- > 0)
			close(between[i]);
		break;
	}
	free(between);
	return NULL;
}

/* Take over what a new branch says. NULL: it is none. */
static struct branch *take(int line)
{
	static char text[MESSAGE_MOST];
	char rights[CMSG_SPACE(2 * POINTS_MOST * sizeof(int))];
	struct iovec part = { text, sizeof text - 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights };
	ssize_t length = recvmsg(line, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *given = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;
	struct branch *branch = calloc(1, sizeof *branch);
	int came = given ? (int)((given->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0, fds[2 * POINTS_MOST];
	char *at = text + 1;
	bool is_whole = true;

	if (given)
		memcpy(fds, CMSG_DATA(given), (size_t)came * sizeof(int));
	if (!branch || length < 1 || message.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || came != 2 * text[0] || text[0] > POINTS_MOST) {
		for (int i = 0; i < came; i++)
			close(fds[i]);
		free(branch);
		return NULL;
	}
	text[length] = 0;
	branch->line = line;
	branch->count = text[0];
	for (int i = 0; i < branch->count; i++) {
		branch->points[i] = strdup(at);
		branch->roots[i] = fds[2 * i];
		branch->uppers[i] = fds[2 * i + 1];
		branch->between[i] = open_between(branch->uppers[i]);
		is_whole = is_whole && branch->points[i] && branch->between[i];
		if (at < text + length)
			at += strlen(at) + 1;
	}
	if (!is_whole) {
		branch->line = -1; /* the caller closes it */
		drop(branch);
		return NULL;
	}
	return branch;
}

static void admit(void)
{
	int line = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
	struct branch *branch = line < 0 ? NULL : take(line);
	bool is_in = false;

	if (line < 0)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < BRANCHES_MOST && branch && !is_in; i++)
		if (!branches[i]) {
			branches[i] = branch;
			atomic_fetch_add(&count, 1);
			is_in = true;
		}
	pthread_mutex_unlock(&lock);
	if (!is_in) {
		if (branch)
			drop(branch);
		else
			close(line);
		return;
	}
	/* From here on every first change is told; what changed before stands in the journal. */
	if (send(line, "k", 1, MSG_NOSIGNAL) < 0)
		return; /* it is gone, and is dropped below */
}

static void *listen_on(void *unused)
{
	(void)unused;
	for (;;) {
		struct pollfd lines[BRANCHES_MOST + 1];
		int which[BRANCHES_MOST + 1], used = 1;

		lines[0] = (struct pollfd){ listening, POLLIN, 0 };
		for (int i = 0; i < BRANCHES_MOST; i++)
			if (branches[i]) {
				which[used] = i;
				lines[used++] = (struct pollfd){ branches[i]->line, POLLIN, 0 };
			}
		if (poll(lines, (nfds_t)used, -1) < 0)
			continue;
		for (int i = 1; i < used; i++)
			if (lines[i].revents) { /* it says nothing more, so it has hung up */
				pthread_mutex_lock(&lock);
				drop(branches[which[i]]);
				branches[which[i]] = NULL;
				atomic_fetch_sub(&count, 1);
				pthread_mutex_unlock(&lock);
			}
		if (lines[0].revents)
			admit();
	}
	return NULL;
}

int listen_for_branches(int directory)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;

	listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (listening < 0)
		return errno;
	/* The directory's own path may be too long for an address, and is not seen from here. */
	snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/branches", directory);
	unlinkat(directory, "branches", 0);
	if (bind(listening, (struct sockaddr *)&address, sizeof address) < 0 || listen(listening, BRANCHES_MOST) < 0)
		return errno;
	return pthread_create(&thread, NULL, listen_on, NULL);
}
