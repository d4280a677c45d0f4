/* See undo.h. */
#define _GNU_SOURCE
#include "undo.h"

#include "held.h"
#include "seen.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { STEPS_MOST = 4096, RIGHTS = 4 };

struct line {
	unsigned long long start, end, offset;
	char rights[RIGHTS + 1];
	const char *rest; /* device, inode and name */
	int rest_size;
};

static struct step {
	enum { GIVE_BACK, SET_RIGHTS, SET_BREAK } kind;
	unsigned long long start, end;
	int rights;
} steps[STEPS_MOST];
static int step_count;

static bool add(const struct step step)
{
	if (step_count == STEPS_MOST)
		return refuse("its mappings have changed too much");
	steps[step_count++] = step;
	return true;
}

/* The mapping in the line at *at, which moves on; one behind all others at the end. */
static struct line take_line(const char **at)
{
	struct line found = { ~0ULL, ~0ULL, 0, "", "", 0 };
	const char *end = strchr(*at, '\n');
	int rest = 0;

	if (!end || strncmp(*at, "=map ", 5) ||
	    sscanf(*at, "=map %llx-%llx %4s %llx %n", &found.start, &found.end, found.rights, &found.offset, &rest) < 4)
		return found;
	found.rest = *at + rest;
	found.rest_size = (int)(end - found.rest);
	*at = end + 1;
	return found;
}

static bool is_in_no_file(const struct line *m)
{
	return !strncmp(m->rest, "00:00 0", 7) && m->rights[3] == 'p';
}

static bool is_same_object(const struct line *a, const struct line *b)
{
	return a->rest_size == b->rest_size && !memcmp(a->rest, b->rest, (size_t)a->rest_size) &&
	       (is_in_no_file(a) || a->offset - a->start == b->offset - b->start);
}

static int rights_of(const struct line *m)
{
	return (m->rights[0] == 'r' ? PROT_READ : 0) | (m->rights[1] == 'w' ? PROT_WRITE : 0) | (m->rights[2] == 'x' ? PROT_EXEC : 0);
}

/* Of addresses that both have. */
static bool plan_both(const struct line *was, const struct line *is, unsigned long long start, unsigned long long end)
{
	if (!is_same_object(was, is) || was->rights[3] != is->rights[3])
		return refuse("a mapping is another one: %.*s", is->rest_size, is->rest);
	if (!strcmp(was->rights, is->rights))
		return true;
	if (!is_in_no_file(was))
		return refuse("a mapping has other rights: %.*s", is->rest_size, is->rest);
	return add((struct step){ SET_RIGHTS, start, end, rights_of(was) });
}

static bool plan_extra(const struct line *is, unsigned long long start, unsigned long long end)
{
	if (is->rest_size >= 6 && !strncmp(is->rest + is->rest_size - 6, "[heap]", 6))
		return add((struct step){ SET_BREAK, 0, 0, 0 });
	return add((struct step){ GIVE_BACK, start, end, 0 });
}

static bool plan_mappings(void)
{
	const char *before = kept_mappings(), *now = seen_mappings();
	struct line was = take_line(&before), is = take_line(&now);
	unsigned long long at = 0;

	while (was.start != ~0ULL || is.start != ~0ULL) {
		const unsigned long long from_was = was.start > at ? was.start : at, from_is = is.start > at ? is.start : at;
		unsigned long long end;

		if (from_was < from_is)
			return refuse("a mapping is gone: %.*s", was.rest_size, was.rest);
		end = from_is < from_was && from_was < is.end ? from_was : is.end;
		if (from_is < from_was) {
			if (!plan_extra(&is, from_is, end))
				return false;
		} else {
			end = was.end < is.end ? was.end : is.end;
			if (!plan_both(&was, &is, from_is, end))
				return false;
		}
		at = end;
		if (was.end <= at)
			was = take_line(&before);
		if (is.end <= at)
			is = take_line(&now);
	}
	return true;
}

bool plan_undo(void)
{
	const char *before = kept_mappings(), *now = seen_mappings();
	const size_t size = strlen(before);

	step_count = 0;
	/* The lines of mappings are followed by others. */
	if (!strncmp(before, now, size) && strncmp(now + size, "=map ", 5))
		return true;
	return plan_mappings();
}

bool is_to_undo(void)
{
	bool extra = extra_descriptor_count || step_count;

	for (int i = 0; i < thread_count; i++)
		extra |= is_extra_thread(threads[i].tid);
	return extra;
}

static bool end_extra_threads(void)
{
	int left = 0;

	for (int i = 0; i < thread_count; i++)
		if (!is_extra_thread(threads[i].tid))
			threads[left++] = threads[i];
		else if (!end_thread(&threads[i]))
			return false;
	thread_count = left;
	return true;
}

static bool take_step(const struct step *s)
{
	long answer;

	if (s->kind == SET_BREAK)
		answer = call(SYS_brk, (long)kept_break(), 0, 0) == (long)kept_break() ? 0 : -1;
	else if (s->kind == GIVE_BACK)
		answer = call(SYS_munmap, (long)s->start, (long)(s->end - s->start), 0);
	else /* what it holds is of no use, and may be much */
		answer = call(SYS_madvise, (long)s->start, (long)(s->end - s->start), MADV_DONTNEED)
				 ?: call(SYS_mprotect, (long)s->start, (long)(s->end - s->start), s->rights);
	return answer ? refuse("its mapping at %llx cannot be put back", s->start) : true;
}

bool undo(void)
{
	if (!end_extra_threads())
		return false;
	for (int i = 0; i < extra_descriptor_count; i++)
		if (call(SYS_close, extra_descriptors[i], 0, 0))
			return refuse("descriptor %d cannot be closed", extra_descriptors[i]);
	for (int i = 0; i < step_count; i++)
		if (!take_step(&steps[i]))
			return false;
	return true;
}
