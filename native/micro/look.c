/* See look.h. The lines are read by `relive.checkpoint.micro_record`. */
#define _GNU_SOURCE
#include "look.h"

#include "audit.h"
#include "base.h"
#include "descriptors.h"
#include "mappings.h"
#include "memory_state.h"
#include "shared.h"
#include "text.h"
#include "timers.h"
#include "unchanged.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define HASH_OF_NOTHING 14695981039346656037ULL

struct text afterwards;

static bool is_all_said(void)
{
	return is_cut_off ? refuse("what /proc says of it is longer than what is read, or cannot be read") : true;
}

bool find_threads(void)
{
	struct dirent *entry;
	DIR *all = list_again("task");

	thread_count = 0;
	if (!all)
		return refuse("the process is gone");
	while ((entry = readdir(all))) {
		if (entry->d_name[0] == '.')
			continue;
		if (thread_count == THREADS_MOST)
			return refuse("it has more than %d threads", THREADS_MOST);
		threads[thread_count].tid = atoi(entry->d_name);
		threads[thread_count].seized = threads[thread_count].held = false;
		threads[thread_count].owed = 0;
		thread_count++;
	}
	return thread_count > 0 && threads[0].tid == process.pid ? true : refuse("its first thread has ended");
}

static bool is_any_pending; /* signal, in the look under way */

/* Signals that are pending for a thread, or for all of them. */
static void say_pending(const struct thread *t, const char *line, size_t size)
{
	const char *value = strchr(line, '\t');

	if (value && !value[1 + strspn(value + 1, "0")])
		return;
	is_any_pending = true;
	say_number("=pending ", (unsigned long)t->tid);
	append(" ", 1);
	append(line, size);
	append("\n", 1);
}

static void say_status(struct thread *t)
{
	static const char *const wanted[] = { "Name",	"Umask",  "Uid",    "Gid",    "Groups",	    "NSpid",	"SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff",	    "CapBnd",	"CapAmb",  "NoNewPrivs",
					      "Seccomp", "Seccomp_filters", "THP_enabled", "VmLck" };
	static size_t sizes[sizeof wanted / sizeof *wanted]; /* strlen() of each for each line takes as long as all else here */
	static char read_now[8192];
	struct sched_param priority = { 0 };
	void *list = NULL;
	size_t length = 0;

	if (slurp_again(of_process("task/%d/status", (int)t->tid), read_now, sizeof read_now) < 0)
		return;
	for (size_t i = 0; !sizes[sizeof wanted / sizeof *wanted - 1] && i < sizeof wanted / sizeof *wanted; i++)
		sizes[i] = strlen(wanted[i]);
	for (char *line = read_now; *line;) {
		char *end = strchr(line, '\n'), *colon = strchr(line, ':');

		if (!end || !colon)
			break;
		*end = 0;
		for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
			if (sizes[i] == (size_t)(colon - line) && !memcmp(line, wanted[i], sizes[i])) {
				say_number("thread ", (unsigned long)t->tid);
				append(" ", 1);
				append(line, (size_t)(end - line));
				append("\n", 1);
			}
		if (!strncmp(line, "SigPnd:", 7) || !strncmp(line, "ShdPnd:", 7))
			say_pending(t, line, (size_t)(end - line));
		if (!strncmp(line, "NSpid:", 6)) {
			char *last = strrchr(line, '\t');

			t->inside = last ? atoi(last + 1) : t->tid;
		} else if (!strncmp(line, "SigCgt:", 7)) {
			caught |= strtoull(line + 7, NULL, 16);
		}
		line = end + 1;
	}
	sched_getparam(t->tid, &priority);
	syscall(SYS_get_robust_list, t->tid, &list, &length);
	say("thread %d policy %d priority %d nice %d robust %p %zu\n", (int)t->tid, sched_getscheduler(t->tid),
	    priority.sched_priority, getpriority(PRIO_PROCESS, (id_t)t->tid), list, length);
	say_file("children", of_process("task/%d/children", (int)t->tid));
}

static void say_stat(void)
{
	static const int wanted[] = { 4, 5, 6, 7, 22, 26, 27, 28, 38, 45, 46, 47, 48, 49, 50, 51 };
	static char read_now[4096];
	char *at;
	size_t next = 0;

	if (slurp_again(of_process("stat"), read_now, sizeof read_now) < 0 || !(at = strrchr(read_now, ')')))
		return;
	append("stat", 4);
	for (int number = 2; at && next < sizeof wanted / sizeof *wanted; number++) {
		if (number == wanted[next]) {
			append(" ", 1);
			append(at, strcspn(at, " \n"));
			next++;
		}
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
	}
	append("\n", 1);
}

void rehearse(void)
{
	text.size = 0;
	say_stat();
	for (int i = 0; i < thread_count; i++)
		say_status(&threads[i]);
	say_link("exe", of_process("exe"));
	rehearse_descriptors();
	rehearse_mappings();
}

static void say_process(void)
{
	const size_t from = text.size;

	caught = 0;
	say_stat();
	for (int i = 0; i < thread_count; i++)
		say_status(&threads[i]);
	say_link("exe", of_process("exe"));
	say_link("cwd", of_process("cwd"));
	say_link("root", of_process("root"));
	say_posix_timers();
	note_told(OF_PROCESS, from);
}

bool look(void)
{
	text.size = 0;
	is_cut_off = false;
	is_any_pending = false;
	forget_posix_timers(); /* of a process that has any all is asked */
	if (!say_known_process())
		say_process();
	if (!say_descriptors() || !see_mappings() || !see_shared())
		return false;
	say_mappings();
	return is_all_said();
}

static uint64_t hashed(uint64_t hash, const char *from, const char *end)
{
	for (; from < end; from++) /* FNV-1a */
		hash = (hash ^ (unsigned char)*from) * 1099511628211ULL;
	return hash;
}

/* The lines that are compared word for word; what an epoll instance watches is not, nor what begins with "=". */
static uint64_t lines_hashed(void)
{
	const char *at = text.at, *const end = text.at + text.size;
	uint64_t hash = HASH_OF_NOTHING;

	while (at < end) {
		const char *next = memchr(at, '\n', (size_t)(end - at));

		next = next ? next : end;
		if (*at != '=' && !memmem(at, (size_t)(next - at), "tfd:", 4))
			hash = hashed(hash, at, next);
		at = next + 1;
	}
	return hash;
}

static uint64_t base_hash;

/* Connections are not compared word for word, but one that is unlike all of the base's, or ends, leads to a full commit
 * (`relive.checkpoint.micro_connections`). If it is closed with its answer, it is gone a moment later. */
enum { KINDS_MOST = 64 };
static uint64_t kinds[KINDS_MOST];
static int kind_count; /* KINDS_MOST: none is looked for any more */

/* The next line of a connection that the text has: what two that are alike have in common. Moves on behind it. */
static bool next_kind(const char **at, uint64_t *kind)
{
	const char *const end = text.at + text.size;

	while (*at < end) {
		const char *line = *at, *next = memchr(line, '\n', (size_t)(end - line)), *words, *flags;

		next = next ? next : end;
		*at = next + 1;
		if (next - line < 12 || memcmp(line, "=connection ", 12))
			continue;
		words = memmem(line, (size_t)(next - line), " state=", 7); /* and all behind it */
		flags = memmem(line, (size_t)(next - line), " flags=", 7);
		if (!words || !flags)
			continue;
		*kind = strtoull(flags + 7, NULL, 8) & ~(uint64_t)(O_NONBLOCK | O_CLOEXEC);
		*kind = hashed(HASH_OF_NOTHING ^ *kind, words, next);
		return true;
	}
	return false;
}

static bool is_known_kind(uint64_t kind)
{
	for (int i = 0; i < kind_count; i++)
		if (kinds[i] == kind)
			return true;
	return kind_count == KINDS_MOST;
}

static bool are_kinds_known(void)
{
	const char *at = text.at;
	uint64_t kind;

	while (next_kind(&at, &kind))
		if (!is_known_kind(kind))
			return false;
	return true;
}

void keep_kinds(void)
{
	const char *at = text.at;
	uint64_t kind;

	while (next_kind(&at, &kind))
		if (!is_known_kind(kind))
			kinds[kind_count++] = kind;
}

void keep_as_base(void)
{
	base_hash = lines_hashed();
	kind_count = 0;
	keep_kinds();
}

bool is_as_base(void)
{
	return !is_any_pending && (is_all_known() || (lines_hashed() == base_hash && are_kinds_known()));
}

static void ask_advice(void)
{
	static char smaps[32 << 20];
	size_t first = 0;

	if (slurp(of_process("smaps"), smaps, sizeof smaps) < 0)
		smaps[0] = 0;
	for (char *line = smaps, *end; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		if (*line >= 'A' && *line <= 'Z') { /* else it is the first line of a mapping, which begins with its address */
			if (!strncmp(line, "VmFlags:", 8))
				say("=flags %zx %s\n", first, line + 9);
		} else {
			first = strtoull(line, NULL, 16);
		}
	}
}

/* What is set for each mapping. The kernel counts all pages of all mappings for that, which takes longer than all else that is asked; so where
 * nothing can have changed since it was asked it is told again. */
static void say_advice(void)
{
	static struct memory_state asked; /* nothing changed while it was asked */
	static char *known, *room;
	static size_t size;
	const struct memory_state then = memory_state_read(), before = memory_state_now();
	const bool is_known = are_mappings_alike(then, asked);
	size_t from;

	if (is_known && !is_memory_audit(ADVICE)) {
		append(known, size);
		return;
	}
	asked = (struct memory_state){ 0 };
	say("=asked advice\n");
	from = text.size;
	ask_advice();
	if (is_known && !is_cut_off && (size != text.size - from || memcmp(known, text.at + from, size)) &&
	    are_mappings_alike(then, memory_state_now()))
		suspect_memory("advice for its mappings");
	size = text.size - from;
	room = size ? realloc(known, size) : NULL;
	if (!room)
		return;
	known = memcpy(room, text.at + from, size);
	if (!is_cut_off && are_mappings_alike(before, memory_state_now()))
		asked = before;
}

bool look_afterwards(void)
{
	static const char *const files[] = { "auxv",	   "limits",	   "personality", "oom_score_adj", "loginuid", "cgroup",
					     "uid_map",	   "timens_offsets" };
	static const char *const spaces[] = { "mnt", "pid", "net", "ipc", "uts", "user", "cgroup", "time" };
	const struct text said = text;
	bool well;

	text = afterwards;
	text.size = 0;
	is_cut_off = false;
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		say_file(files[i], of_process("%s", files[i]));
	for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
		say_link(spaces[i], of_process("ns/%s", spaces[i]));
	say_advice();
	if (is_memory_believed())
		say("=believed memory\n");
	afterwards = text;
	text = said;
	well = is_all_said() && are_names_same();
	return is_memory_well() && well; /* what was found of the kernel is said first */
}
