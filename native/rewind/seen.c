/* See seen.h. */
#define _GNU_SOURCE
#include "seen.h"

#include "../micro/base.h"
#include "../micro/connections.h"
#include "../micro/round_trip.h"
#include "../micro/text.h"
#include "../micro/timers.h"
#include "../micro/unchanged.h"
#include "../tracker/userfault.h"

#include <inttypes.h>
#include <linux/kcmp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
	POSITIONS_MOST = 4096,
	LABEL = 24, /* [bytes] of a line, which say what it is of */
	AROUND = 30,
};

/* Of the reference: the lines that are compared, of them those of `say_limits` and those that are in none of the kernel's objects; mappings; what the
 * round trip told. */
static char *kept_lines, *kept_limits, *kept_beside, *kept_maps, *kept_hidden;
static int kept_tids[THREADS_MOST], kept_tid_count;
static int kept_numbers[POSITIONS_MOST], kept_number_count;
static struct position kept_positions[POSITIONS_MOST], moved[POSITIONS_MOST];
static int position_count, moved_count;
int extra_descriptors[EXTRA_MOST], extra_descriptor_count;
bool others_are_reset;
static bool has_carried, had_carried; /* a connection; at the last look, at the reference */

static bool is_among(const int *all, int count, int wanted)
{
	for (int i = 0; i < count; i++)
		if (all[i] == wanted)
			return true;
	return false;
}

bool is_extra_thread(int tid)
{
	return !is_among(kept_tids, kept_tid_count, tid);
}

static bool is_extra_descriptor(int number)
{
	return is_among(extra_descriptors, extra_descriptor_count, number);
}

/* -- reading the lines --------------------------------------------------------------------------------------------- */

/* The number in a line of a descriptor, or -1; a descriptor's first line is "fd N mode ..." or "=connection N ...". */
static int descriptor_in(const char *line, bool *is_first)
{
	const bool is_connection = !strncmp(line, "=connection ", 12);
	const char *at = is_connection || !strncmp(line, "=position ", 10) || !strncmp(line, "=timerfd ", 9) || !strncmp(line, "fd ", 3) ?
				 strchr(line, ' ') :
				 NULL;
	char *end;
	long found;

	if (!at)
		return -1;
	found = strtol(at, &end, 10);
	*is_first = is_connection || (line[0] == 'f' && !strncmp(end, " mode ", 6));
	return (int)found;
}

static const char *line_behind(const char *line)
{
	const char *end = strchr(line, '\n');

	return end ? end + 1 : line + strlen(line);
}

static bool end_text(void)
{
	append("", 1); /* so that it can be searched as a string */
	text.size--;
	return is_cut_off ? refuse("what is seen of it is too long") : true;
}

static void say_stream(int number, int fd)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof info;
	int in = 0, out = 0;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size))
		return;
	ioctl(fd, SIOCINQ, &in);
	ioctl(fd, SIOCOUTQ, &out);
	say("stream %d state %d in %d out %d\n", number, info.tcpi_state, in, out);
	say("carried %d %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n", number, (uint64_t)info.tcpi_bytes_received,
	    (uint64_t)info.tcpi_bytes_acked, (uint64_t)info.tcpi_bytes_sent, info.tcpi_notsent_bytes);
	has_carried |= in || out || info.tcpi_bytes_received || info.tcpi_bytes_acked || info.tcpi_bytes_sent;
}

static bool say_streams(void)
{
	has_carried = false;
	for (int i = 0; i < kept_number_count; i++) {
		const int fd = (int)syscall(SYS_pidfd_getfd, process.handle, kept_numbers[i], 0);

		if (fd >= 0) {
			say_stream(kept_numbers[i], fd);
			close(fd);
		}
	}
	return !is_cut_off;
}

/* Who has the same parent: in a branch also a child's child whose parent has ended. */
static void say_siblings(void)
{
	static int parent; /* process 1 of the branch, which outlives it */
	char path[64];

	if (!parent)
		parent = (int)status_number(process.pid, "PPid", 0);
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
	say_file("siblings", path);
}

/* Whether a thread has the descriptors and the directories of all others (unshare(2)). */
static bool shares(const struct thread *t, int kind)
{
	return !syscall(SYS_kcmp, process.pid, t->tid, kind, 0, 0);
}

/* As the kernel's object of a thread has it; sched_getaffinity(2) leaves out processors that are off just now. */
static void say_processors(const struct thread *t)
{
	static const char label[] = "\nCpus_allowed:";
	static char read_now[8192];
	const char *at = slurp_again(of_process("task/%d/status", (int)t->tid), read_now, sizeof read_now) > 0 ? strstr(read_now, label) : NULL;

	at = at ? at + sizeof label - 1 : "";
	append(at, strcspn(at, "\n"));
}

/* What `look` leaves to be seen after a pause, as far as it can change and is told quickly: of what the kernel's objects tell that counts as
 * of the process (kernel_objects.c). */
static void say_limits(void)
{
	static const char *const files_of_process[] = { "limits", "personality", "oom_score_adj", "coredump_filter" };

	for (size_t i = 0; i < sizeof files_of_process / sizeof *files_of_process; i++)
		say_file(files_of_process[i], of_process("%s", files_of_process[i]));
	for (int i = 0; i < thread_count; i++) {
		char path[64];

		snprintf(path, sizeof path, "/proc/%d/timerslack_ns", (int)threads[i].tid);
		if (!is_extra_thread(threads[i].tid))
			say_file("timerslack_ns", path);
		say("thread %d shares %d %d allowed ", (int)threads[i].tid, shares(&threads[i], KCMP_FILES), shares(&threads[i], KCMP_FS));
		say_processors(&threads[i]);
		say("\n");
	}
}

/* And what they do not tell. */
static bool say_beside(void)
{
	say_siblings();
	for (int i = 0; i < thread_count; i++)
		say("thread %d io %ld\n", (int)threads[i].tid, syscall(SYS_ioprio_get, 1 /* of a thread */, threads[i].tid));
	return end_text();
}

/* -- the reference ------------------------------------------------------------------------------------------------- */

/* The lines that are compared, one behind the other; without those of what is extra, or is not asked for. What an epoll instance watches is left out where
 * there are extra descriptors: it may watch these, and is compared when they are gone. */
static char *compared_lines(void)
{
	char *found = malloc(text.size + 1), *to = found;
	const char *const end = text.at + text.size;
	int epoll = -1;

	for (const char *line = text.at, *next; found && line < end; line = next) {
		bool is_first = false;
		const int number = descriptor_in(line, &is_first);

		next = line_behind(line);
		if (is_first && memmem(line, (size_t)(next - line), "anon_inode:[eventpoll]", 22))
			epoll = number;
		if (others_are_reset && !strncmp(line, "carried ", 8))
			continue;
		if (!strncmp(line, "=map ", 5) || !strncmp(line, "=asked ", 7) || !strncmp(line, "=position ", 10) || !strncmp(line, "=ghost ", 7) ||
		    *line == '?' || !strncmp(line, "children \n", 10))
			continue;
		if (number >= 0 && (is_extra_descriptor(number) || (number == epoll && !is_first && extra_descriptor_count)))
			continue;
		if (!strncmp(line, "thread ", 7) && is_extra_thread(atoi(line + 7)))
			continue;
		memcpy(to, line, (size_t)(next - line));
		to += next - line;
	}
	if (found)
		*to = 0;
	return found;
}

const char *seen_mappings(void)
{
	const char *found = strstr(text.at, "\n=map ");

	return found ? found + 1 : text.at + text.size;
}

const char *kept_mappings(void)
{
	return kept_maps;
}

static bool keep_numbers(void)
{
	for (const char *line = text.at; *line; line = line_behind(line)) {
		bool is_first = false;
		const int number = descriptor_in(line, &is_first);

		if (is_first && kept_number_count < POSITIONS_MOST)
			kept_numbers[kept_number_count++] = number;
		if (!strncmp(line, "=position ", 10) && position_count < POSITIONS_MOST) {
			struct position *to = &kept_positions[position_count++];

			sscanf(line + 10, "%d %lld", &to->number, &to->at);
		}
	}
	return kept_number_count < POSITIONS_MOST ? true : refuse("it has too many descriptors");
}

bool keep_seen(void)
{
	size_t from;

	if (!end_text())
		return false;
	kept_maps = strdup(seen_mappings());
	for (int i = 0; i < thread_count; i++)
		kept_tids[kept_tid_count++] = threads[i].tid;
	if (!kept_maps || !keep_numbers())
		return refuse("what is seen of it cannot be kept");
	from = text.size;
	say_limits();
	if (!end_text() || !(kept_limits = strdup(text.at + from)))
		return refuse("what is seen of it cannot be kept");
	from = text.size;
	if (!say_beside() || !(kept_beside = strdup(text.at + from)) || !say_streams() || !end_text())
		return refuse("what is seen of it cannot be kept");
	had_carried = has_carried;
	kept_lines = compared_lines();
	return kept_lines != NULL;
}

/* -- comparing ----------------------------------------------------------------------------------------------------- */

static bool find_extra(void)
{
	extra_descriptor_count = 0;
	for (const char *line = text.at; *line; line = line_behind(line)) {
		bool is_first = false;
		const int number = descriptor_in(line, &is_first);

		if (!is_first || is_among(kept_numbers, kept_number_count, number))
			continue;
		if (extra_descriptor_count == EXTRA_MOST)
			return refuse("it has opened too many descriptors");
		extra_descriptors[extra_descriptor_count++] = number;
	}
	for (int i = 0; i < kept_tid_count; i++) {
		bool is_there = false;

		for (int k = 0; k < thread_count; k++)
			is_there |= threads[k].tid == kept_tids[i];
		if (!is_there)
			return refuse("a thread has ended");
	}
	return true;
}

static bool find_moved(void)
{
	int known = 0;

	moved_count = 0;
	for (const char *line = text.at; *line; line = line_behind(line)) {
		struct position now;
		char *end;

		/* Not by sscanf(3), which first looks for the end of all the text. */
		if (strncmp(line, "=position ", 10))
			continue;
		now.number = (int)strtol(line + 10, &end, 10);
		now.at = strtoll(end, NULL, 10);
		if (is_extra_descriptor(now.number))
			continue;
		if (known == position_count || kept_positions[known].number != now.number)
			return refuse("descriptor %d is another file", now.number);
		if (kept_positions[known].at != now.at)
			moved[moved_count++] = kept_positions[known];
		known++;
	}
	return known == position_count ? true : refuse("a file was closed");
}

static bool refuse_difference(const char *before, const char *now)
{
	const char *from = now, *near;
	int left;

	while (*before && *before == *now) {
		if (*now == '\n')
			from = now + 1;
		before++, now++;
	}
	near = now - from > AROUND + LABEL ? now - AROUND : from + strnlen(from, LABEL);
	left = (int)strcspn(near, "\n");
	return refuse("something has changed: %.*s%.*s", (int)strcspn(from, "\n") < LABEL ? (int)strcspn(from, "\n") : LABEL, from,
		      left < 3 * AROUND ? left : 3 * AROUND, near);
}

/* All that was said is known: it is what was compared when it came to be known. There is no connection: of these something is asked always. */
static bool compare_known(void)
{
	const size_t from = text.size;

	extra_descriptor_count = 0;
	return find_moved() && say_beside() &&
	       (!strcmp(kept_beside, text.at + from) || refuse_difference(kept_beside, text.at + from));
}

bool compare_seen(void)
{
	char *before = NULL, *now = NULL;
	size_t from;
	bool well;

	if (others_are_reset && had_carried)
		return refuse("something was under way on a connection");
	if (!end_text())
		return false;
	if (is_all_known())
		return compare_known();
	if (!find_extra() || !find_moved())
		return false;
	from = text.size;
	say_limits();
	note_asked_beside(kept_limits, from);
	if (!say_beside() || !say_streams() || !end_text())
		return false;
	now = compared_lines();
	if (extra_descriptor_count || others_are_reset) {
		/* The reference as `compared_lines` leaves out of it now: its epoll instances, what connections carried. */
		const struct text said = text;

		text.at = kept_lines;
		text.size = strlen(kept_lines);
		before = compared_lines();
		text = said;
	}
	well = now && (before || !(extra_descriptor_count || others_are_reset)) && !strcmp(before ? before : kept_lines, now);
	if (!well)
		refuse_difference(before ? before : kept_lines, now ? now : "");
	free(before);
	free(now);
	return well;
}

/* -- what only the process can tell ---------------------------------------------------------------------------------- */

static const char *hidden_lines(void)
{
	const char *found = strstr(text.at, "\n?");

	return found ? found + 1 : "";
}

static bool ask(void)
{
	forget_connections(); /* where they stand is not asked: they have carried nothing */
	return make_round_trips() && end_text();
}

bool keep_hidden(void)
{
	if (!ask())
		return false;
	if (posix_timer_count || !strstr(hidden_lines(), NO_INTERVAL_TIMERS))
		return refuse("it has a timer (setitimer, timer_create)");
	kept_hidden = strdup(hidden_lines());
	return kept_hidden != NULL;
}

bool compare_hidden(void)
{
	return ask() && (!strcmp(kept_hidden, hidden_lines()) || refuse_difference(kept_hidden, hidden_lines()));
}

unsigned long long kept_break(void)
{
	const char *found = strstr(kept_hidden, "?brk ");

	return found ? strtoull(found + 5, NULL, 16) : 0;
}

bool put_positions_back(void)
{
	for (int i = 0; i < moved_count; i++) {
		const int fd = (int)syscall(SYS_pidfd_getfd, process.handle, moved[i].number, 0);
		const bool well = fd >= 0 && lseek(fd, moved[i].at, SEEK_SET) == moved[i].at;

		if (fd >= 0)
			close(fd);
		if (!well)
			return refuse("the position of descriptor %d cannot be put back", moved[i].number);
	}
	return true;
}
