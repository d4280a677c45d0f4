/* See tree.h. */
#define _GNU_SOURCE
#include "tree.h"

#include "base.h"
#include "text.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

enum {
	HELD_MOST = 1024,
	SHARED_MOST = 256,
	STEPS_MOST = 256, /* meetings of one commit */
	LOOKS_EACH_MS = 2, /* whether all live */
	ANSWERS_WITHIN_MS = 25000,
	ANSWER_MOST = 512,
};

struct held {
	uint64_t device, inode;
	int number;
	bool is_connection;
};

struct member {
	pid_t process, tracker;
	_Atomic uint32_t step;
	_Atomic uint32_t votes[2]; /* of this meeting, and of the one before or after it: nobody is further */
	char reason[256];
	int held_count;
	struct held held[HELD_MOST];
	int shared_count;
	uint64_t shared[SHARED_MOST];
};

struct tree {
	_Atomic uint32_t changes; /* woken when somebody has come */
	_Atomic uint32_t given_up; /* the commit in which somebody did not wait any longer */
	struct member members[];
};

static struct tree *tree;
static int size = 1, own;
static int to_member[TRACKERS_MOST], from_member[TRACKERS_MOST], handles[TRACKERS_MOST];
static uint32_t commits, step;

bool is_leader(void)
{
	return own == 0;
}

/* In the new process: its lines come from the leader, and its answers go there. Our standard output stays open as another descriptor: who
 * reads it knows by its end that all have ended. */
static bool become_member(int number, int in, int out)
{
	own = number;
	for (int i = 1; i < number; i++) {
		close(to_member[i]);
		close(from_member[i]);
	}
	return dup(1) >= 0 && dup2(in, 0) == 0 && dup2(out, 1) == 1 && !close(in) && !close(out);
}

static bool begin_member(int number)
{
	int lines[2], answers[2];
	pid_t made;

	if (pipe(lines) || pipe(answers))
		return false;
	made = fork();
	if (made < 0)
		return false;
	if (!made) {
		close(lines[1]);
		close(answers[0]);
		return become_member(number, lines[0], answers[1]);
	}
	tree->members[number].tracker = made;
	close(lines[0]);
	close(answers[1]);
	to_member[number] = lines[1];
	from_member[number] = answers[0];
	return true;
}

bool begin_tree(int count, char **pids)
{
	if (count > TRACKERS_MOST)
		return false;
	size = count;
	process.pid = atoi(pids[0]);
	if (count == 1)
		return true;
	tree = mmap(NULL, sizeof *tree + (size_t)count * sizeof *tree->members, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tree == MAP_FAILED)
		return false;
	tree->members[0].tracker = getpid();
	for (int i = 0; i < count; i++) {
		tree->members[i].process = atoi(pids[i]);
		handles[i] = -1;
	}
	for (int i = 1; i < count && is_leader(); i++)
		if (!begin_member(i))
			return false;
	process.pid = tree->members[own].process;
	return true;
}

void pass_on(const char *line)
{
	for (int i = 1; is_leader() && i < size; i++) {
		if (strchr(line, ' '))
			dprintf(to_member[i], "%s.%d\n", line, i);
		else
			dprintf(to_member[i], "%s\n", line);
	}
}

static void hear_answer(int number, char *to)
{
	struct pollfd asked = { .fd = from_member[number], .events = POLLIN };
	size_t length = 0;

	while (length < ANSWER_MOST - 1) {
		if (poll(&asked, 1, ANSWERS_WITHIN_MS) <= 0 || read(asked.fd, to + length, 1) != 1)
			exit(1);
		if (to[length] == '\n')
			break;
		length++;
	}
	to[length] = 0;
}

static bool is_good(const char *said)
{
	return !strncmp(said, "tracked", 7) || !strncmp(said, "ok", 2) || !strncmp(said, "done", 4) || !strncmp(said, "dropped", 7);
}

void answer(const char *form, ...)
{
	char said[ANSWER_MOST], other[ANSWER_MOST];
	va_list words;

	va_start(words, form);
	vsnprintf(said, sizeof said, form, words);
	va_end(words);
	for (int i = 1; is_leader() && i < size; i++) {
		hear_answer(i, other);
		if (is_good(said) ? !is_good(other) : !strstr(said, DISTRUSTED) && strstr(other, DISTRUSTED))
			strcpy(said, other);
	}
	puts(said);
	fflush(stdout);
}

void begin_meetings(void)
{
	commits++;
	step = commits * STEPS_MOST;
}

static void wake_all(void)
{
	atomic_fetch_add(&tree->changes, 1);
	syscall(SYS_futex, &tree->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool is_alive(int number)
{
	struct pollfd asked = { .events = POLLIN };

	if (handles[number] < 0)
		handles[number] = (int)syscall(SYS_pidfd_open, tree->members[number].tracker, 0);
	asked.fd = handles[number];
	return asked.fd >= 0 && poll(&asked, 1, 0) == 0;
}

static bool are_all_alive(void)
{
	for (int i = 0; i < size; i++)
		if (i != own && !is_alive(i))
			return false;
	return is_leader() || getppid() == tree->members[0].tracker;
}

static bool have_all_come(void)
{
	for (int i = 0; i < size; i++)
		if ((int32_t)(atomic_load(&tree->members[i].step) - step) < 0)
			return false;
	return true;
}

/* Nobody waits for anybody any more in this commit. */
static enum vote give_up(const char *reason)
{
	atomic_store(&tree->given_up, commits);
	wake_all();
	refuse("%s", reason);
	return REFUSED;
}

static enum vote count_votes(enum vote mine)
{
	uint32_t counts = mine;

	for (int i = 0; i < size; i++) {
		const uint32_t vote = atomic_load(&tree->members[i].votes[step & 1]);

		if (vote == REFUSED && mine != REFUSED && counts != REFUSED)
			refuse("%s", tree->members[i].reason);
		counts = vote > counts ? vote : counts;
	}
	return (enum vote)counts;
}

enum vote meet(enum vote mine, int within)
{
	const struct timespec awhile = { 0, LOOKS_EACH_MS * 1000000 };
	struct member *me;

	if (size == 1)
		return mine;
	if (atomic_load(&tree->given_up) == commits)
		return mine == REFUSED ? mine : give_up("another tracker has given up");
	me = &tree->members[own];
	step++;
	memcpy(me->reason, refusal, sizeof me->reason);
	atomic_store(&me->votes[step & 1], mine);
	atomic_store(&me->step, step);
	wake_all();
	for (int waited = 0;;) {
		const uint32_t seen = atomic_load(&tree->changes);

		if (have_all_come())
			return count_votes(mine);
		if (atomic_load(&tree->given_up) == commits)
			return give_up("another tracker has given up");
		if (!syscall(SYS_futex, &tree->changes, FUTEX_WAIT, seen, &awhile, NULL, 0) || errno != ETIMEDOUT)
			continue;
		waited += LOOKS_EACH_MS;
		if (!are_all_alive())
			return give_up("a tracker has died");
		if (waited > within)
			return give_up("a tracker does not come");
	}
}

void forget_held(void)
{
	if (tree)
		tree->members[own].held_count = 0;
}

bool note_held(int number, uint64_t device, uint64_t inode, int same, bool is_connection)
{
	struct member *me = tree ? &tree->members[own] : NULL;

	if (!me || same >= 0)
		return true;
	if (me->held_count == HELD_MOST)
		return refuse("it has too many descriptors");
	me->held[me->held_count++] = (struct held){ device, inode, number, is_connection };
	return true;
}

void forget_shared(void)
{
	if (tree)
		tree->members[own].shared_count = 0;
}

bool note_shared(uint64_t inode)
{
	struct member *me = tree ? &tree->members[own] : NULL;

	if (me && me->shared_count == SHARED_MOST)
		return refuse("it shares memory in too many pieces");
	if (me)
		me->shared[me->shared_count++] = inode;
	return true;
}

bool is_first_with(uint64_t inode)
{
	for (int i = 0; i < own; i++)
		for (int k = 0; k < tree->members[i].shared_count; k++)
			if (tree->members[i].shared[k] == inode)
				return false;
	return true;
}

/* The first of another process that is the same file, and for what is no connection the same open file; NULL: there is none. */
static const struct held *kin_in(const struct member *other, const struct held *mine)
{
	for (int i = 0; i < other->held_count; i++) {
		const struct held *one = &other->held[i];

		if (one->device == mine->device && one->inode == mine->inode &&
		    (mine->is_connection || !syscall(SYS_kcmp, process.pid, other->process, 0 /* KCMP_FILE */, mine->number, one->number)))
			return one;
	}
	return NULL;
}

bool say_kin(void)
{
	const struct member *me = tree ? &tree->members[own] : NULL;

	for (int i = 0; me && i < me->held_count; i++) {
		const struct held *mine = &me->held[i], *kin = NULL;
		/* Those before us say of what they share with us what we say of them. */
		const int until = mine->is_connection ? size : own;

		for (int k = 0; k < until && !kin; k++) {
			if (k == own)
				continue;
			kin = kin_in(&tree->members[k], mine);
			if (kin && mine->is_connection)
				return refuse("descriptor %d is a connection that two of its processes share", mine->number);
			if (kin)
				say("kin %d is %d of %d\n", mine->number, kin->number, (int)tree->members[k].process);
		}
	}
	return is_cut_off ? refuse("what /proc says of it is longer than what is read, or cannot be read") : true;
}
